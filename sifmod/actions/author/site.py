"""site: detect this machine's site, show its settings, and draft a file for a new site."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from sifmod.actions.author.new_file import quoted, write_text
from sifmod.actions.author.survey import Partition, Survey, survey
from sifmod.config.bind import bind_items, ends, lint_binds
from sifmod.config.detect import BaseSite, detected_site, site_directories
from sifmod.config.kinds import RUNTIMES
from sifmod.config.load_site import LoadedSite, load_site
from sifmod.config.option_layers import refuse_unknown
from sifmod.config.origin import Origin
from sifmod.config.prefix import settings_directories
from sifmod.config.site import SiteFile
from sifmod.config.yaml.node import Mark, tree
from sifmod.config.yaml.validate import check_layer
from sifmod.errors import OptionError, Problem
from sifmod.result import Described

_HEAD = """\
# The site {name}, written by `sifmod site new`. Correct it, `sifmod check` it, then choose it: --site {name}, or
# SIFMOD_SITE={name}, or `site: {name}` in ~/.config/sifmod/config.yaml or in /etc/sifmod.d. docs/site.md has every key.
# What could not be found out is a comment.
name: {quoted}
description: {quoted}

# {accelerator_from}: auto looks on each machine; a site with login nodes without GPUs says rocm or cuda.
{accelerator}
# How an easyconfig's accelerator is provided: rocm is rocm (the host's ROCm too), devices or none; cuda is nv, nvccli
# or none.
# accelerators: {{rocm: devices, cuda: nv}}

# The container runtime, and the module tools that modulefiles are for (lua: Lmod, tcl: Environment Modules, both).
{runtime}
{module_syntax}

# Directories for modules and images, and for images given by name.
# prefix: /appl/sifmod
# image_dirs: [/appl/images]
# Who may use the prefix: all users of the machine (site) or the members of `group`. Members publish; others install in
# user_prefix, and read the prefix.
# sharing: site
# group: software
# user_prefix: ~/.local/share/sifmod

# Places of each user, which are bound where they exist.
{scratch}

# For job scripts. `account` is usually each user's own, in ~/.config/sifmod/config.yaml: slurm: {{account: project_1}}
{slurm}
"""
_BINDS = """
# Directories in containers besides the user's home. `optional: true` skips one if it is missing, as on a
# login node; `links: true` binds the places that links in it lead to; `*` is a pattern.
binds:
"""
_TAIL = """
# Variables of the distributed runscripts, unless the user has set them. NCCL_NET makes a missing plugin an error.
{runscript_env}
# The site is recognised if all of these exist.
detect:
  paths: []
"""


_NO_SCRATCH = "# scratch: [/scratch/$USER]  # no directory of yours was found in the usual places"
_NO_PARTITIONS = "# slurm: {partition: small, partitions: {small: {gpus_per_node: 0}, gpu: {gpus_per_node: 4}}}"
_AMD = re.compile(r"(?i)(amd|instinct|mi[0-9])")
_NVIDIA = re.compile(r"(?i)(nvidia|tesla|quadro|geforce|rtx|gtx|titan|g[hb][0-9]|[abhlptv][0-9])")


def draft_site(name: str, accelerator: tuple[str, str], found: Survey, runtime: tuple[str, str] = ("", "")) -> str:
    """The YAML of a new site; `accelerator` and `runtime` are the detected ones, and how they were detected."""
    groups = (
        ("slurm", [f"{{source: {path}, optional: true}}" for path in found.slurm], "/var/spool/slurmd"),
        ("fabric", [f"{{source: {path}, optional: true}}" for path in found.fabric], "/opt/cray"),
        ("host-libs", [f"{{source: '{text}', optional: true}}" for text in found.host_libraries], "/usr/lib64/x.so*"),
        ("filesystems", [f"{{source: {path}, optional: true}}" for path in found.filesystems], "/scratch"),
    )
    lines: list[str] = []
    for group, items, example in groups:
        lines += [f"  {group}:", *(f"    - {item}" for item in items)]
        if not items:
            lines[-1] = f"  {group}: []  # e.g. [{{source: '{example}', optional: true}}]"
    head = _HEAD.format(
        name=name,
        quoted=quoted(name),
        **_accelerator(accelerator, found.partitions),
        runtime=_runtime(*runtime),
        module_syntax=_module_syntax(found.tools),
        scratch=f"scratch: [{', '.join(found.scratch)}]" if found.scratch else _NO_SCRATCH,
        slurm=_slurm(found),
    )
    return head + _BINDS + "\n".join(lines) + "\n" + _TAIL.format(runscript_env=_runscript_env(found.networks))


def _accelerator(here: tuple[str, str], partitions: Sequence[Partition]) -> dict[str, str]:
    """The line of the accelerator, and where it is from: this node, else what Slurm calls the GPUs of its nodes."""
    value, origin = here
    types = sorted({kind for partition in partitions for kind in partition.types})
    vendors = {"rocm" if _AMD.match(kind) else "cuda" if _NVIDIA.match(kind) else "" for kind in types}
    if value != "none" or not any(max(partition.gpus, default=0) for partition in partitions):
        return {"accelerator": f"accelerator: {value}", "accelerator_from": origin}
    if len(vendors) == 1 and "" not in vendors:
        text = f"{origin} here, and Slurm calls its GPUs {', '.join(types)}"
        return {"accelerator": f"accelerator: {vendors.pop()}", "accelerator_from": text}
    text = f"{origin} here, and Slurm's partitions have GPUs of an unknown kind"
    return {"accelerator": "# accelerator: cuda", "accelerator_from": text}


def _runtime(program: str, origin: str) -> str:
    if kind := next((kind for kind in RUNTIMES if Path(program).name == kind), ""):
        return f"runtime: {kind}  # {origin}"
    return f"# runtime: apptainer  # {origin or 'none was looked for'}"


def _module_syntax(tools: Sequence[str]) -> str:
    if not tools:
        return "# module_syntax: both  # no module tool was found here"
    return f"module_syntax: {tools[0] if len(tools) == 1 else 'both'}"


def _slurm(found: Survey) -> str:
    if not found.partitions:
        return f"# Partitions are unknown: {' '.join(found.no_partitions.split())}\n{_NO_PARTITIONS}"
    lines = ["slurm:"]
    lines += [f"  partition: {quoted(one.name)}" for one in found.partitions if one.default]
    lines += ["  partitions:", *map(_partition, found.partitions)]
    return "\n".join(lines)


def _partition(one: Partition) -> str:
    """A partition's line; where its nodes differ, with the fewest GPUs, so that a job fits every node with GPUs."""
    gpus = min(filter(None, one.gpus), default=0)
    notes = [f"nodes with {' and '.join(map(str, one.gpus))} GPUs"] if len(one.gpus) > 1 else []
    notes += [f"{' or '.join(map(str, one.cpus))} processors"] if one.cpus and gpus else []
    notes += [", ".join(one.types)] if one.types else []
    note = f"  # {'; '.join(notes)}" if notes else ""
    return f"    {quoted(one.name)}: {{gpus_per_node: {gpus}}}{note}"


def _runscript_env(networks: tuple[str, ...]) -> str:
    if not networks:
        return "# runscript_env: {NCCL_SOCKET_IFNAME: hsn0, NCCL_NET: AWS Libfabric}\n"
    plugin = "IB" if all(name.startswith("ib") for name in networks) else "AWS Libfabric"
    return f"runscript_env:\n  NCCL_SOCKET_IFNAME: {','.join(networks)}\n  # NCCL_NET: {plugin}\n"


@dataclass(frozen=True)
class DetectedSite:
    """Which site this machine is, how that was detected, and warnings about unreadable site files."""

    site: str
    how: str
    warnings: tuple[Problem, ...]


@dataclass(frozen=True)
class ShownSite:
    """The settings of a site, their origins, and warnings."""

    origins: tuple[Origin, ...]
    warnings: tuple[Problem, ...]


@dataclass(frozen=True)
class NewSite:
    """A first site file."""

    path: Annotated[Path | None, Described("the written file; null with -o -")]
    site: str
    text: str
    hides: Annotated[Path | None, Described("site file of the same name that the new one hides")]


def detect(environ: Mapping[str, str]) -> BaseSite:
    """The site detected from this machine's paths, whatever the settings name; runs no program.

    The result has the problems of unreadable site files. Raises OptionError for an unknown SIFMOD_* variable.
    """
    refuse_unknown(environ)
    return detected_site(site_directories(environ), environ)


def show(loaded: LoadedSite) -> ShownSite:
    """Every key with its origin, the bind paths that patterns and links give here, and warnings about binds."""
    written = Counter(ends(item) for _, item in bind_items(loaded.tree))
    made: list[str] = []
    for bind in loaded.site.binds:
        if written[bind.source, bind.target]:
            written[bind.source, bind.target] -= 1
        else:
            made.append(bind.source if bind.source == bind.target else f"{bind.source}:{bind.target}")
    resolved = (Origin("binds, resolved here", text, "a pattern or a link") for text in made)
    return ShownSite((*loaded.origins, *resolved), tuple(lint_binds(loaded.tree)))


def write_site(name: str, target: Path | None, environ: Mapping[str, str]) -> tuple[str, Path]:
    """Write a first file for the site `name`, by default where `--site NAME` finds it; returns its text and path.

    Raises OptionError if the file exists, its directory does not, or the name is invalid; PermissionsError, FetchError.
    """
    text = site_text(name, environ)
    path = settings_directories(environ)[1] / "sites" / f"{name}.yaml" if target is None else target
    if target is None:
        path.parent.mkdir(parents=True, exist_ok=True)
    write_text(text, path)
    return text, path


def shadowed_by(path: Path, environ: Mapping[str, str]) -> Path | None:
    """The site file of the same name that the one at `path` hides, or None."""
    directories = site_directories(environ)
    if path.parent not in directories:
        return None
    behind = (directory / path.name for directory in directories[directories.index(path.parent) + 1 :])
    return next((other for other in behind if other.exists()), None)


def site_text(name: str, environ: Mapping[str, str]) -> str:
    """The text of a new file for the site `name`. Raises OptionError for an invalid name."""
    if problems := check_layer(SiteFile, tree({"name": name}, Mark("the name", 0, 0))):
        raise OptionError(problems[0].message)
    here = {
        origin.key: origin
        for origin in load_site({"site": "generic", "accelerator": "auto", "runtime": "auto"}, environ).origins
    }
    accelerator, runtime = here["accelerator"], here["runtime"]
    found = survey(environ=environ)
    return draft_site(name, (str(accelerator.value), accelerator.origin), found, (str(runtime.value), runtime.origin))
