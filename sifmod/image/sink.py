"""A Sink: a file that is hashed while it is written."""

import hashlib
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from sifmod.image.disk import writing


class Sink:
    """A new file at `path`; `size` and `sha256` are those of what was written so far.

    A write that fails raises as `writing` says. The caller removes what is left; the store syncs it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._hash = hashlib.sha256()
        with writing(path):
            self._file = path.open("xb")

    def __enter__(self) -> "Sink":
        return self

    def write(self, chunk: bytes) -> None:
        """Append `chunk`."""
        with writing(self.path):
            self._file.write(chunk)
        self._hash.update(chunk)
        self.size += len(chunk)

    @property
    def sha256(self) -> str:
        """The digest of what was written so far, as lower-case hexadecimal."""
        return self._hash.hexdigest()

    def fileno(self) -> int:
        """The file's descriptor."""
        return self._file.fileno()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the file; a write that the file system put off until now can still fail."""
        if kind is None:
            with writing(self.path):
                self._file.close()
        else:
            with suppress(OSError):
                self._file.close()
