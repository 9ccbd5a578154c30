"""What is on a disk, so that a test can say: as before."""

import glob
import hashlib
import os
import stat
from pathlib import Path

State = dict[str, tuple[object, ...]]


def disk_state(*roots: Path) -> State:
    """Every file below `roots` with all that belongs to it except its access time; of a directory only its mode."""
    return {str(path): _describe(path) for root in roots for path in (root, *sorted(root.rglob("*")))}


def file_state(path: Path) -> tuple[object, ...]:
    """One file's identity, mode, owner, times, number of names and content."""
    return _describe(path)


def is_there(top: Path, pattern: str) -> bool:
    """Whether a path below `top` matches, while another process adds and removes files: `Path.glob` would raise."""
    return bool(glob.glob(pattern, root_dir=top, recursive=True, include_hidden=True))


def _describe(path: Path) -> tuple[object, ...]:
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode):
        return (status.st_mode, status.st_uid)
    content = os.readlink(path) if path.is_symlink() else ""
    if stat.S_ISREG(status.st_mode):
        content = hashlib.sha256(path.read_bytes()).hexdigest() if os.access(path, os.R_OK) else "closed"
    owner = (status.st_uid, status.st_gid)
    return (status.st_mode, *owner, status.st_ino, status.st_nlink, status.st_size, status.st_mtime_ns, content)
