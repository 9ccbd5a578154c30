"""Startable: whether the site's runtime can start a SIF, by the compression of its squashfs; decided only here.

If it is unknown (a file system other than squashfs, an unknown runtime), the SIF counts as startable, and `auto`
chooses a compression that every runtime reads. sif/header.py checks the architecture.
"""

import shlex
from pathlib import Path

from sifmod.errors import UnstartableError
from sifmod.image.artifact import FetchRequest
from sifmod.image.convert.sif.header import SifInfo
from sifmod.image.program import Program, limits, probe_runtime
from sifmod.module.plan import Runtime


def can_start(compression: str, program: Program | None) -> bool | None:
    """Whether `program` starts an image with this compression; None if unknown."""
    if program is None or program.kind in ("unknown", "singularity-pro"):
        return None if compression != "gzip" else True
    if any(row.subject == compression == "zstd" for row in limits(program)):
        return False
    return program.kernel_zstd if compression == "zstd" and program.setuid else True


def refusal_reason(compression: str, program: Program | None) -> str:
    """The reason why `program` cannot start an image with this compression; "" if it can, or if unknown."""
    if program is None or can_start(compression, program) is not False:
        return ""
    refused = next((row.text for row in limits(program) if row.subject == compression), "")
    return (
        f"{program.name} {refused}"
        if refused
        else f"{program.name} mounts with the kernel, which does not support {compression}"
    )


def slow_start_cost(compression: str, program: Program | None) -> str:
    """The cost of each start of an image with this compression, if it is high; else ""."""
    if program is None:
        return ""
    return next((f"{program.name} {row.text}" for row in limits(program) if row.subject == compression == "lz4"), "")


def refusal_here(info: SifInfo, runtime: Runtime) -> str:
    """The reason why `runtime` cannot start this SIF; "" if it can, or if unknown."""
    why = refusal_reason(info.compression, probe_runtime(runtime.path))
    return f"its squashfs is compressed with {info.compression}; {why}" if why else ""


def check_startable(info: SifInfo, request: FetchRequest) -> tuple[str, ...]:
    """Check a SIF with the runtime of `request`; returns notes about a slow start, or that it cannot start.

    Raises UnstartableError if it cannot start and the settings require that it can; the hint has the commands that pack
    the image again for this runtime.
    """
    source, runtime = request.reference.shown, request.runtime
    if why := refusal_here(info, runtime):
        if request.settings.startable:
            raise UnstartableError(f"{source} cannot be started here: {why}", _again(source, info, runtime))
        return (f"{source} cannot be started here: {why}",)
    cost = slow_start_cost(info.compression, probe_runtime(runtime.path))
    return (f"{source} is slow to start: {cost}",) if cost else ()


def _again(source: str, info: SifInfo, runtime: Runtime) -> str:
    local = Path(source).is_file()
    file = shlex.quote(source) if local else "image.sif"
    first = "" if local else f"sifmod fetch -o image.sif {shlex.quote(source)} && "
    pack = f"unsquashfs -o {info.primary.offset} -d image.root {file} && {runtime.kind} build image-gzip.sif image.root"
    return (
        "if a registry has the image, use that as its source (docker://…): sifmod converts it to a SIF that starts "
        f"here; otherwise pack it again:\n  {first}{pack}\nand use image-gzip.sif as the source"
    )
