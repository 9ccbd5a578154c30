"""Lustre: a new file is spread over several targets before its first byte, for afterwards it is too late."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

from sifmod.image.settings import Striping

_LUSTRE = 0x0BD00BD0  # f_type of statfs(2)
_LONGEST = 30.0  # seconds for lfs


def stripe(path: Path, striping: Striping | None) -> None:
    """Make the new file `path` with `striping`, where its directory is on Lustre and `lfs` is there.

    A file that is there stays as it is. Best effort: without it the directory's own striping holds.
    """
    if striping is None or path.exists() or not is_lustre(path.parent) or (lfs := shutil.which("lfs")) is None:
        return
    try:
        subprocess.run(
            stripe_command(lfs, path, striping),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_LONGEST,
        )
    except (OSError, subprocess.TimeoutExpired):
        return


def stripe_command(lfs: str, path: Path, striping: Striping) -> tuple[str, ...]:
    """What makes an empty file of that layout."""
    return (lfs, "setstripe", "-c", str(striping.count), "-S", str(striping.size), str(path))


def is_lustre(directory: Path) -> bool:
    """Whether `directory` is on Lustre; Python's own statvfs does not tell."""
    found = ctypes.create_string_buffer(256)  # struct statfs, which begins with f_type
    library = ctypes.CDLL(None, use_errno=True)
    if library.statfs(ctypes.c_char_p(os.fsencode(directory)), found) != 0:
        return False
    return ctypes.c_long.from_buffer(found).value & 0xFFFFFFFF == _LUSTRE
