"""Startable: whether the site's runtime starts a SIF, by the compression of its squashfs; the only place that decides.

What is not known (another file system than squashfs, a runtime that does not say what it is) counts as startable, and
`auto` then makes what every runtime reads. The architecture is the SIF's header's affair: see sif/header.py.
"""

import shlex
import struct
from pathlib import Path

from sifmod.errors import UnstartableError
from sifmod.image.artifact import FetchRequest
from sifmod.image.convert.sif.header import SifInfo
from sifmod.image.convert.squashfs.compression import NUMBERS
from sifmod.image.convert.squashfs.superblock import MAGIC
from sifmod.image.disk import reading
from sifmod.image.program import Program, ask, limits
from sifmod.module.plan import Runtime

_HEAD = struct.Struct("<4s16xH")  # of a superblock: its magic and the compression's number


def reads(compression: str, program: Program | None) -> bool | None:
    """Whether `program` starts an image of this compression; None where that is not known."""
    if program is None or program.kind in ("unknown", "singularity-pro"):
        return None if compression != "gzip" else True
    if any(row.subject == compression == "zstd" for row in limits(program)):
        return False
    return program.kernel_zstd if compression == "zstd" and program.setuid else True


def why_not(compression: str, program: Program | None) -> str:
    """Why `program` does not start an image of this compression; "" where it does, and where that is not known."""
    if program is None or reads(compression, program) is not False:
        return ""
    refused = next((row.text for row in limits(program) if row.subject == compression), "")
    return (
        f"{program.name} {refused}" if refused else f"{program.name} mounts by the kernel, which has no {compression}"
    )


def slow(compression: str, program: Program | None) -> str:
    """What starting an image of this compression costs each time, where that is much; "" else."""
    if program is None:
        return ""
    return next((f"{program.name} {row.text}" for row in limits(program) if row.subject == compression == "lz4"), "")


def why_not_here(path: Path, info: SifInfo, runtime: Runtime) -> str:
    """Why `runtime` does not start the SIF at `path`; "" where it does, and where that is not known."""
    compression = compression_of(path, info)
    why = why_not(compression, ask(runtime.path))
    return f"its squashfs has {compression}, and {why}" if why else ""


def check_startable(path: Path, info: SifInfo, request: FetchRequest) -> tuple[str, ...]:
    """Hold a SIF against the runtime of `request`: notes about what starting it costs, or that it does not start.

    Raises UnstartableError where it does not and the settings ask for one that does; the hint has the commands that
    make one.
    """
    source, runtime = request.reference.shown, request.runtime
    if why := why_not_here(path, info, runtime):
        if request.settings.startable:
            raise UnstartableError(f"{source} cannot be started here: {why}", _again(source, info, runtime))
        return (f"{source} cannot be started here: {why}",)
    cost = slow(compression_of(path, info), ask(runtime.path))
    return (f"{source} is slow to start: {cost}",) if cost else ()


def compression_of(path: Path, info: SifInfo) -> str:
    """gzip, zstd, … or unknown, as the squashfs of the SIF says; "" where its file system is another one."""
    with reading(path), path.open("rb") as file:
        file.seek(info.primary.offset)
        start = file.read(_HEAD.size)
    if len(start) < _HEAD.size or start[:4] != MAGIC:
        return ""
    return NUMBERS.get(_HEAD.unpack(start)[1], "unknown")


def _again(source: str, info: SifInfo, runtime: Runtime) -> str:
    local = Path(source).is_file()
    file = shlex.quote(source) if local else "image.sif"
    first = "" if local else f"sifmod fetch -o image.sif {shlex.quote(source)} && "
    pack = f"unsquashfs -o {info.primary.offset} -d image.root {file} && {runtime.kind} build image-gzip.sif image.root"
    return (
        "if a registry has the image, give that as its source (docker://…): sifmod makes a SIF of it that starts here; "
        f"else pack it anew:\n  {first}{pack}\nand give image-gzip.sif as the source"
    )
