"""SHA-256 of bytes and files, as lower-case hexadecimal."""

import errno
import os
import stat
from pathlib import Path

# hashlib loads OpenSSL, a tenth of the time of `sifmod list`: import it on first use


def sha256_bytes(data: bytes) -> str:
    """SHA-256 of `data`."""
    import hashlib

    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content. Raises OSError like `open`, and if it is not a regular file."""
    import hashlib

    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 (a descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return hashlib.file_digest(file, "sha256").hexdigest()
