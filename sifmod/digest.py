"""SHA-256 of bytes and files, as lower-case hexadecimal."""

import errno
import os
import stat
from pathlib import Path

# hashlib loads OpenSSL, a tenth of the time of `sifmod list`: import it on first use

_PART = 1 << 18  # bytes that are read at a time


def sha256_bytes(data: bytes) -> str:
    """SHA-256 of `data`."""
    import hashlib

    return hashlib.sha256(data).hexdigest()


def sha256_file(path: str | Path, most: int | None = None) -> str:
    """SHA-256 of a file. Raises OSError if it cannot be read, is not a regular file, or has over `most` bytes."""
    import hashlib

    with open(path, "rb", buffering=0, opener=_open_at_once) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if most is not None and status.st_size > most:
            raise OSError(errno.EFBIG, "larger than expected", str(path))
        digest = hashlib.sha256()
        while data := file.read(_PART):  # hashlib.file_digest clears a buffer of this size for each file
            digest.update(data)
    return digest.hexdigest()


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for the other end of a pipe; returns the descriptor."""
    return os.open(path, flags | os.O_NONBLOCK)
