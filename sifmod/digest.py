"""SHA-256 of bytes and files, as lower-case hexadecimal."""

from pathlib import Path

# hashlib loads OpenSSL, a tenth of the time of a `sifmod list`: not before something is hashed


def sha256_bytes(data: bytes) -> str:
    """SHA-256 of `data`."""
    import hashlib

    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content; raises OSError as `open` does."""
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
