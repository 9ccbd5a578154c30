"""site: detect this machine's site, show its settings, and draft a file for a new site."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from sifmod.actions.author.new_file import quoted, write_text
from sifmod.config.bind import bind_items, ends, lint_binds
from sifmod.config.detect import BaseSite, detected_site, site_directories
from sifmod.config.limits import matches
from sifmod.config.load_site import LoadedSite, load_site
from sifmod.config.option_layers import refuse_unknown
from sifmod.config.origin import Origin
from sifmod.config.prefix import settings_directories
from sifmod.config.site import SiteFile
from sifmod.config.yaml.node import Mark, tree
from sifmod.config.yaml.validate import check_layer
from sifmod.errors import OptionError, Problem
from sifmod.result import Described

SLURM = ("/var/spool/slurmd", "/var/spool/slurm", "/run/munge")
FABRIC = ("/opt/cray", "/opt/amazon/efa")  # InfiniBand needs nothing from the host: the image has its own rdma-core
HOST_LIBRARIES = ("/usr/lib64/libcxi.so*", "/usr/lib/*-linux-gnu/libcxi.so*")
_NETWORKS = ("/sys/class/net/hsn*", "/sys/class/net/ib*")
_PARALLEL = ("lustre", "gpfs", "beegfs", "wekafs", "ceph", "nfs", "nfs4", "fhgfs", "panfs", "afs")
_MOUNTS = "/proc/self/mounts"
_HEAD = """\
# The site {name}, written by `sifmod site new`. Correct it, `sifmod check` it, then choose it: --site {name}, or
# SIFMOD_SITE={name}, or `site: {name}` in ~/.config/sifmod/config.yaml or in /etc/sifmod.d. docs/site.md has every key.
name: {quoted}
description: {quoted}

# {accelerator_from}: auto looks on each machine; a site with login nodes without GPUs says rocm or cuda.
accelerator: {accelerator}
# How an easyconfig's accelerator is provided: rocm is rocm (the host's ROCm too), devices or none; cuda is nv, nvccli
# or none.
# accelerators: {{rocm: devices, cuda: nv}}

# Directories for modules and images, and for images given by name.
# prefix: /appl/sifmod
# image_dirs: [/appl/images]
# The group that a new prefix is given to, whose members may change what is in it, and the umask of all that is made
# there; without one all is as open as the prefix itself.
# group: software
# umask: '0002'
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


@dataclass(frozen=True)
class Survey:
    """Paths found on this machine, and the settings derived from them."""

    slurm: tuple[str, ...]
    fabric: tuple[str, ...]
    host_libraries: tuple[str, ...]  # patterns
    filesystems: tuple[str, ...]  # where machine-wide file systems are mounted, except home directories
    networks: tuple[str, ...]  # interfaces of fast networks


def survey(mounts: str = _MOUNTS) -> Survey:
    """Inspect this machine."""
    return Survey(
        slurm=tuple(path for path in SLURM if Path(path).exists()),
        fabric=tuple(path for path in FABRIC if Path(path).exists()),
        host_libraries=tuple(pattern for pattern in HOST_LIBRARIES if matches(pattern)),
        filesystems=_filesystems(mounts),
        networks=tuple(Path(path).name for pattern in _NETWORKS for path in matches(pattern)),
    )


def _filesystems(mounts: str) -> tuple[str, ...]:
    try:
        lines = [line.split() for line in Path(mounts).read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError):
        return ()
    shared = {fields[1] for fields in lines if len(fields) > 2 and fields[2] in _PARALLEL and "\\" not in fields[1]}
    return tuple(sorted(place for place in shared if place != "/" and not place.startswith(("/home", "/root"))))


def draft_site(name: str, accelerator: tuple[str, str], found: Survey) -> str:
    """The YAML text; `accelerator` is the detected one, and how it was detected."""
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
    head = _HEAD.format(name=name, quoted=quoted(name), accelerator=accelerator[0], accelerator_from=accelerator[1])
    return head + _BINDS + "\n".join(lines) + "\n" + _TAIL.format(runscript_env=_runscript_env(found.networks))


def _runscript_env(networks: tuple[str, ...]) -> str:
    if not networks:
        return "# runscript_env: {NCCL_SOCKET_IFNAME: hsn0, NCCL_NET: AWS Libfabric}\n"
    plugin = "IB" if all(name.startswith("ib") for name in networks) else "AWS Libfabric"
    return f"runscript_env:\n  NCCL_SOCKET_IFNAME: {','.join(networks)}\n  # NCCL_NET: {plugin}\n"


@dataclass(frozen=True)
class DetectedSite:
    """Which site this machine is."""

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

    path: Annotated[Path | None, Described("null with -o -")]
    site: str
    text: str
    hides: Annotated[Path | None, Described("the file of the same site that it stands in front of")]


def detect(environ: Mapping[str, str]) -> BaseSite:
    """The site detected from this machine's paths, whatever the settings name; runs no program.

    Unreadable site files are skipped. Raises OptionError for an unknown SIFMOD_* variable.
    """
    refuse_unknown(environ)
    return detected_site(site_directories(environ), environ)


def show(loaded: LoadedSite) -> ShownSite:
    """Every key with its origin, and the bind paths with patterns and links resolved on this machine."""
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

    Raises OptionError if that exists.
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
    """The text of a new file for the site `name`."""
    if problems := check_layer(SiteFile, tree({"name": name}, Mark("the name", 0, 0))):
        raise OptionError(problems[0].message)
    here = {origin.key: origin for origin in load_site({"site": "generic", "accelerator": "auto"}, environ).origins}
    found = here["accelerator"]
    return draft_site(name, (str(found.value), found.origin), survey())
