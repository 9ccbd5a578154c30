"""Program: the installed runtime, probed once per process, and a table of the limitations of versions."""

import gzip
import os
import re
import stat
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from sifmod.image.child import Ended, run_child
from sifmod.system import scratch_directory

_OPTION = "CONFIG_SQUASHFS_ZSTD"
_VERSION = re.compile(r"(apptainer|singularity(?:-ce|-pro)?) version ([0-9]+)\.([0-9]+)")
Kind = Literal["apptainer", "singularity-ce", "singularity-pro", "singularity", "unknown"]
Subject = Literal["zstd", "lz4", "mount", "image bind", "nvccli", "variables"]
Version = tuple[int, int]


@dataclass(frozen=True)
class Program:
    """A runtime: its version by its own output, and how it mounts images."""

    kind: Kind
    version: Version
    said: str = ""  # its answer to `--version`
    setuid: bool = False  # its setuid starter is installed and allowed: images are mounted by the kernel
    kernel_zstd: bool | None = None  # whether the kernel reads squashfs with zstd; None: unknown
    forbids: tuple[str, ...] = ()  # settings of its configuration that make binds fail: `user bind control = no`
    configuration: str = ""  # the path of its configuration file, "" if its `buildcfg` names none

    @property
    def unbound(self) -> str:
        """The binds that the runtime's configuration prevents, in words; "" for none."""
        keys = " and ".join(f"`{key}`" for key in self.forbids)
        return f"its configuration has {keys}: {_UNBOUND}" if keys else ""

    @property
    def name(self) -> str:
        """The runtime's name for messages, e.g. `SingularityCE 4.3 without setuid`."""
        return f"{_NAMES[self.kind]} {'.'.join(map(str, self.version))} {self.installed}"

    @property
    def installed(self) -> str:
        return "with setuid" if self.setuid else "without setuid"


@dataclass(frozen=True)
class Limit:
    """A limitation of some versions of a runtime, and its remedy."""

    subject: Subject
    kind: Kind
    text: str
    hint: str
    before: Version | None = None  # the first version that can; None: there is none yet
    setuid: bool | None = None  # True, False: only in an installation with setuid, or without; None: in both


_NAMES: dict[Kind, str] = {
    "apptainer": "Apptainer",
    "singularity-ce": "SingularityCE",
    "singularity-pro": "SingularityPRO",
    "singularity": "Singularity",
    "unknown": "a runtime",
}
_UNBOUND = "paths that do not exist in the image, such as the physical path of a linked home, are not bound"
_NO_ZSTD = "refuses an image whose squashfs is compressed with zstd"
_GZIP = "sifmod converts images with gzip here; SIFs made elsewhere must have gzip too"
_DIRECTORY = "keep the directory user-software, which `make-squashfs` does not change"
_EXTRACTS = "extracts the whole image before each command"
LIMITS = (
    Limit("zstd", "apptainer", _NO_ZSTD, _GZIP, before=(1, 4)),
    Limit("zstd", "singularity-ce", _NO_ZSTD, _GZIP),
    Limit("zstd", "singularity", _NO_ZSTD, _GZIP),
    Limit(
        "lz4",
        "singularity-ce",
        f"{_EXTRACTS} if the image has lz4 and the runtime's squashfuse does not support it",
        _GZIP,
        setuid=False,
    ),
    Limit("mount", "singularity-ce", _EXTRACTS, "install version 4.1 or later, or its setuid form", (4, 1), False),
    Limit("mount", "singularity", _EXTRACTS, "install SingularityCE 4.1 or later, or Apptainer", setuid=False),
    Limit("image bind", "singularity-ce", "cannot bind a squashfs file", _DIRECTORY, setuid=False),
    Limit("image bind", "singularity", "cannot bind a squashfs file", _DIRECTORY, setuid=False),
    Limit(
        "nvccli",
        "singularity-ce",
        "ends every command while SINGULARITY_NVCCLI is set",
        "use --nv: `accelerators: {cuda: nv}` in the site",
        setuid=False,
    ),
    Limit(
        "variables",
        "singularity-ce",
        "ignores variables that start with APPTAINER",
        "use SINGULARITY_… and SINGULARITYENV_…",
    ),
)
"""All limitations of versions (docs/runtimes.md says where each was observed)."""


def limits(program: Program) -> tuple[Limit, ...]:
    return tuple(
        limit
        for limit in LIMITS
        if limit.kind == program.kind
        and (limit.before is None or program.version < limit.before)
        and limit.setuid in (None, program.setuid)
    )


def probe_runtime(path: str, system: Path = Path("/")) -> Program | None:
    """Probe the program at `path`; None if this user cannot execute it. `system`: root of the kernel's configuration.

    The program is run, since `singularity` may be a link to apptainer. An unexpected answer gives an unknown runtime.
    """
    if not path or not os.access(path, os.X_OK):
        return None
    status = Path(path).stat()
    return _probe(path, (status.st_dev, status.st_ino, status.st_mtime_ns), system)


@cache
def _probe(path: str, _: tuple[int, int, int], system: Path) -> Program:
    lines = _answer(path, "--version").lines  # perhaps with a warning in front, such as the linker's of LD_PRELOAD
    found = next(filter(None, map(_VERSION.match, lines)), None)
    if not found:
        return Program("unknown", (0, 0), next(iter(lines), "it says nothing"))
    kind: Kind = found[1]  # type: ignore[assignment]  # the pattern has the kinds
    build = dict(line.split("=", 1) for line in _answer(path, "buildcfg").lines if "=" in line)
    file = build.get(f"{_package(build).upper()}_CONF_FILE", "")
    configuration = _configuration(file)
    setuid = _has_setuid(build, configuration)
    version, forbids = (int(found[2]), int(found[3])), _forbids(configuration, setuid=setuid)
    return Program(kind, version, found.string, setuid, mounts_zstd(system), forbids, file)


def _answer(path: str, word: str) -> Ended:
    """What the program prints for the argument `word`; nothing is written in the home directory."""
    with scratch_directory() as scratch:
        others = {
            name: value for name, value in os.environ.items() if not name.startswith(("SINGULARITY", "APPTAINER"))
        }
        own = {f"{prefix}_CONFIGDIR": str(scratch) for prefix in ("SINGULARITY", "APPTAINER")}
        environment = {**others, "HOME": str(scratch), **own}
        return run_child((path, word), cwd=scratch, env=environment)


def _package(build: Mapping[str, str]) -> str:
    return build.get("PACKAGE_NAME", "").partition("-")[0]


def _configuration(file: str) -> dict[str, str]:
    """The runtime's configuration in `file`, by key; empty if it cannot be read."""
    try:
        text = Path(file).read_text(errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r"(?m)^[ \t]*([a-z][a-z ]*?)[ \t]*=[ \t]*(\w+)", text))


def _forbids(configuration: Mapping[str, str], *, setuid: bool) -> tuple[str, ...]:
    layers = ("enable overlay", "enable underlay")  # either one makes mount points that an image lacks
    keys = list(layers) if all(configuration.get(key) == "no" for key in layers) else []
    if setuid and configuration.get("user bind control") == "no":
        keys.append("user bind control")
    return tuple(f"{key} = no" for key in keys)


def _has_setuid(build: Mapping[str, str], configuration: Mapping[str, str]) -> bool:
    """Whether the starter in the directory that `build` names is setuid root, and `configuration` allows that."""
    try:
        starter = Path(build.get("LIBEXECDIR", ""), _package(build), "bin", "starter-suid").stat()
    except OSError:
        return False
    if not starter.st_mode & stat.S_ISUID or starter.st_uid != 0:
        return False
    return configuration.get("allow setuid") != "no"


def mounts_zstd(system: Path = Path("/")) -> bool | None:
    """Whether the running kernel reads zstd in a squashfs; None if its configuration cannot be read.

    It searches the paths that distributions use. `system` is the root of `proc`, `boot` and `lib`.
    """
    release = os.uname().release
    for path in ("proc/config.gz", f"boot/config-{release}", f"lib/modules/{release}/config"):
        if text := _read(system / path):
            return f"{_OPTION}=y" in text.splitlines()
    return None


def _read(path: Path) -> str:
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("ascii", "replace")
    except (OSError, EOFError, zlib.error):
        return ""
