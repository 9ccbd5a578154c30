"""A trial start: whether a runtime starts a container here, with an image of one program that ends at once."""

import os
import struct
from pathlib import Path
from typing import NamedTuple

from sifmod.image.child import LATE, run_child
from sifmod.image.convert.packed import pack
from sifmod.image.convert.sif.write import partition_offset, write_header
from sifmod.system import scratch_directory

NOT_RUN = "modules can be installed here, but not run: ask the administrator, with the line above"
_LIMIT = 60.0  # seconds
# Go's name of an architecture → number of it in ELF, flags, and machine code that calls exit(0)
_PROGRAMS = {
    "amd64": (62, 0, "b83c000000 31ff 0f05"),
    "arm64": (183, 0, "000080d2 a80b80d2 010000d4"),
}
_BASE = 0x400000  # address of the program in memory


class NoStart(NamedTuple):
    """Why no container starts, in the runtime's words, and what helps, or whom to ask."""

    text: str
    hint: str


def cannot_start(runtime: str, arch: str) -> NoStart | None:
    """Why `runtime` starts no container in this environment; None if it does, or without a trial program for `arch`."""
    if arch not in _PROGRAMS:
        return None
    with scratch_directory() as scratch:
        image = scratch / "trial.sif"
        _write(image, scratch / "root", arch)
        why = _start(runtime, image, scratch, {})
        if why is None:
            return None
        for name in ("APPTAINER_USERNS", "SINGULARITY_USERNS"):
            if name not in os.environ and _start(runtime, image, scratch, {name: "1"}) is None:
                return NoStart(why, f"it starts in a user namespace: export {name}=1")
    return NoStart(why, NOT_RUN)


def _start(runtime: str, image: Path, scratch: Path, more: dict[str, str]) -> str | None:
    own = {
        f"{prefix}_{name}": str(scratch)
        for prefix in ("APPTAINER", "SINGULARITY")
        for name in ("CONFIGDIR", "CACHEDIR", "TMPDIR")
    }
    environment = {**os.environ, **own, **more}
    ended = run_child((runtime, "exec", str(image), "/end"), cwd=Path("/"), env=environment, limit=_LIMIT)
    if ended.code == 0:
        return None
    late = f"it had not started after {_LIMIT:.0f} s" if ended.code == LATE else f"exit code {ended.code}"
    fatal = [line for line in ended.lines if "FATAL" in line or "ERROR" in line] or [*ended.lines]
    return fatal[-1].strip() if fatal else late


def _write(image: Path, root: Path, arch: str) -> None:
    for name in ("proc", "dev", "sys", "tmp", "etc", "root", "home", "var/tmp"):
        (root / name).mkdir(parents=True)
    program = root / "end"
    program.write_bytes(_program(arch))
    program.chmod(0o755)
    squashfs = image.with_suffix(".squashfs")
    _, size = pack(root, squashfs, "gzip", 1)
    with image.open("xb") as file:
        write_header(file, (), size, arch, 0)
        file.seek(partition_offset(()))
        file.write(squashfs.read_bytes())


def _program(arch: str) -> bytes:
    """A static ELF program of one segment, which exits with 0."""
    machine, flags, code = _PROGRAMS[arch]
    text = bytes.fromhex(code)
    start = 64 + 56
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, machine, 1, _BASE + start, 64, 0, flags, 64, 56, 1, 0, 0, 0
    )
    size = start + len(text)
    return header + struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x10000) + text
