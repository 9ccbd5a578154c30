"""Files: blobs that lie on this machine already, by the name that a layout or an archive gives them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sifmod.errors import ImageError
from sifmod.image.disk import reading
from sifmod.image.oci.content import LARGEST, plain


@dataclass(frozen=True)
class Stored:
    """Where the content of a file lies: `size` bytes of `path`, from `offset` on."""

    path: Path
    offset: int
    size: int

    def read(self, limit: int) -> bytes:
        """Its first bytes, at most `limit`."""
        with reading(self.path), self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(min(limit, self.size))


class Files(Protocol):
    """A directory or an archive, called `name` in messages."""

    @property
    def name(self) -> str: ...

    def find(self, name: str) -> Stored | None:
        """The regular file of this relative name, or None."""


class Directory:
    """The files below a directory. Symbolic links are followed: the directory is the user's own."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path.absolute()

    def find(self, name: str) -> Stored | None:
        """The regular file of this relative name, or None."""
        path = self._path / name
        with reading(path):
            return Stored(path, 0, path.stat().st_size) if path.is_file() else None


def read_json(files: Files, name: str) -> bytes:
    """A manifest, an index or a config among `files`. Raises ImageError where it is missing or longer than 4 MiB."""
    stored = files.find(name)
    if stored is None:
        raise ImageError(f"{files.name} is not complete: it has no {plain(name)}")
    if stored.size > LARGEST:
        raise ImageError(f"{files.name}: {plain(name)} has {stored.size} bytes, and no manifest or config is so long")
    return stored.read(LARGEST)
