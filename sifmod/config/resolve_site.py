"""Resolve settings that are open (`auto`, no prefix) from the facts of this machine."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from sifmod.config.bind import expand
from sifmod.config.easyconfig import Accelerator, Arch
from sifmod.config.input import DEVICES, Input
from sifmod.config.kinds import RUNTIMES, SYNTAXES, RuntimeKind, Syntax, kind_of
from sifmod.config.prefix import default_prefix, other_places
from sifmod.config.site import Site, SiteFile, SiteKeys
from sifmod.errors import OptionError

_MACHINES: dict[str, Arch] = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True)
class Resolved:
    """A site, and how each value without a setting was determined."""

    site: Site
    how: dict[str, str]
    inputs: tuple[Input, ...]

    def found(self, key: str) -> str:
        """The value found for a key of `how`, as text."""
        if key == "runtime":
            return self.site.runtime_path or "(none)"
        value = getattr(self.site, key)
        return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def resolve(
    file: SiteFile,
    robot_paths: tuple[Path, ...],
    environ: Mapping[str, str],
    facts: Mapping[str, str],
    hidden: Mapping[str, str] = MappingProxyType({}),
) -> Resolved:
    """Resolve everything that is still open.

    `hidden`: prefixes that the site's prefix replaces, each with the place that names it. Raises OptionError for an
    unknown machine, a runtime that is not a program, and contradictory keys, PatternError for a bind path.
    """
    how: dict[str, str] = {}
    kind, program = _runtime(file.runtime, facts, how)
    prefix = Path(file.prefix) if file.prefix else None
    if prefix is None:
        prefix, how["prefix"] = default_prefix(environ)
    if file.trees is None and hidden:
        how["trees"] = f"the prefix of {', '.join(hidden.values())}"
    if file.stores is None and (hidden or file.trees):
        how["stores"] = how.get("trees", "the `trees`")
    trees = other_places(hidden if file.trees is None else file.trees, prefix)
    stores = (*hidden, *map(str, trees)) if file.stores is None else file.stores
    binds, inputs = expand(tuple(bind for _, group in file.binds for bind in group), environ)
    said: dict[str, Any] = {field.name: getattr(file, field.name) for field in fields(SiteKeys)}
    site = Site(
        **said,
        accelerator=_accelerator(file.accelerator, facts, how),
        runtime_kind=kind,
        runtime_path=program,
        prefix=prefix,
        prefix_is_default=file.prefix is None,
        robot_paths=robot_paths,
        binds=binds,
        mpi_profile=file.mpi_profile or "",
        module_syntax=_syntax(file.module_syntax, facts, how),
        umask=_umask(file),
        trees=trees,
        stores=other_places(stores, prefix),
        arch=_arch(file.arch, facts, how),
    )
    return Resolved(site, how, inputs)


def _umask(file: SiteFile) -> int | None:
    """The umask from `sharing`, else `umask`; None without both. Raises OptionError for contradictory keys."""
    if file.sharing is None:
        return int(file.umask, 8) if file.umask is not None else None
    if file.umask is not None:
        raise OptionError(
            f"sharing: {file.sharing} decides the modes, but umask: {file.umask} is given too", "remove one of them"
        )
    if file.sharing == "group":
        if file.group is None:
            raise OptionError("sharing: group needs the group's name", "add `group: NAME`")
        return 0o007
    return 0o022 if file.group is None else 0o002


def _accelerator(
    wanted: Literal["auto", "rocm", "cuda", "none"], facts: Mapping[str, str], how: dict[str, str]
) -> Accelerator:
    if wanted != "auto":
        return wanted
    accelerators: dict[str, Accelerator] = {"cuda": "cuda", "rocm": "rocm"}
    for name, device in DEVICES:
        if facts[f"device {name}"]:
            how["accelerator"] = f"{device} exists"
            return accelerators[name]
    how["accelerator"] = f"neither {' nor '.join(device for _, device in DEVICES)} exists"
    return "none"


def _arch(wanted: Literal["auto", "amd64", "arm64"], facts: Mapping[str, str], how: dict[str, str]) -> Arch:
    if wanted != "auto":
        return wanted
    machine = facts["machine"]
    if machine not in _MACHINES:
        raise OptionError(
            f"there are no images for a {machine} machine", "set SIFMOD_ARCH to the architecture to install for"
        )
    how["arch"] = f"this is a {machine} machine"
    return _MACHINES[machine]


def _syntax(
    wanted: Literal["auto", "lua", "tcl", "both"], facts: Mapping[str, str], how: dict[str, str]
) -> tuple[Syntax, ...]:
    if wanted == "auto":
        how["module_syntax"] = "the module tool in use"
    name = facts["module syntax"] if wanted == "auto" else wanted
    return tuple(syntax for syntax in SYNTAXES if name in (syntax, "both"))


def _runtime(wanted: str, facts: Mapping[str, str], how: dict[str, str]) -> tuple[RuntimeKind, str]:
    """The runtime's kind, by the target of links, and its path or "". Raises OptionError if a path is not a program."""
    if wanted.startswith("/"):
        if not (os.access(wanted, os.X_OK) and Path(wanted).is_file()):
            raise OptionError(f"runtime: {wanted} is not a program", "give the path of an apptainer or singularity")
        return kind_of(os.path.realpath(wanted)), wanted
    for name in RUNTIMES if wanted == "auto" else (wanted,):
        if fact := facts[f"program {name}"]:
            found, _, real = fact.partition("\t")
            how["runtime"] = f"{found} is on PATH"
            return kind_of(real), found
    how["runtime"] = f"no {' or '.join(RUNTIMES if wanted == 'auto' else (wanted,))} on PATH"
    return kind_of("apptainer" if wanted == "auto" else wanted), ""
