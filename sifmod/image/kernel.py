"""The kernel's configuration: whether it mounts a squashfs that is compressed with zstd."""

import gzip
import os
import zlib
from pathlib import Path

_OPTION = "CONFIG_SQUASHFS_ZSTD"


def mounts_zstd(system: Path = Path("/")) -> bool | None:
    """Whether the running kernel reads zstd in a squashfs; None where its configuration cannot be read.

    It is looked for where distributions put it. `system` is where `proc`, `boot` and `lib` are.
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
