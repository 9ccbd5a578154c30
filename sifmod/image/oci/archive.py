"""An Archive: the files in a tar archive, read in place; a compressed one is unpacked to a plain one first."""

import bz2
import lzma
import posixpath
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol

import zstandard
from isal import igzip, isal_zlib

from sifmod.errors import FetchError, ImageError
from sifmod.image.disk import reading, writing
from sifmod.image.oci.content import plain
from sifmod.image.oci.image import Stored

_CHUNK = 1 << 20  # bytes
_MOST_MEMBERS = 1_000_000
_MOST_LINKS = 8  # to links


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _gzip(file: BinaryIO) -> _Readable:
    return igzip.IGzipFile(fileobj=file, mode="rb")  # type: ignore[no-untyped-call]


def _zstd(file: BinaryIO) -> _Readable:
    return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)


_COMPRESSED: tuple[tuple[bytes, Callable[[BinaryIO], _Readable]], ...] = (
    (b"\x1f\x8b", _gzip),
    (b"\x28\xb5\x2f\xfd", _zstd),
    (b"\xfd7zXZ", lzma.LZMAFile),
    (b"BZh", bz2.BZ2File),
)


class Archive:
    """The files in the tar archive at `path`; of two with one name the last, links within the archive followed."""

    def __init__(self, path: Path, tar: Path) -> None:
        self.name = str(path)
        self._tar = tar
        self._files: dict[str, Stored] = {}
        self._links: dict[str, str] = {}
        try:
            with reading(path), tarfile.open(tar, "r:") as opened:
                self._size = tar.stat().st_size
                for count, member in enumerate(opened):
                    self._add(member)
                    opened.members = []  # type: ignore[attr-defined]  # it would keep them all
                    if count > _MOST_MEMBERS:
                        raise ImageError(f"{path} has more than {_MOST_MEMBERS} files, which no image's archive has")
        except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
            raise ImageError(f"{path} is not a complete tar archive: {plain(str(error))}") from error

    def find(self, name: str) -> Stored | None:
        for _ in range(_MOST_LINKS):
            if name not in self._links:
                return self._files.get(name)
            name = self._links[name]
        return None

    def _add(self, member: tarfile.TarInfo) -> None:
        name = posixpath.normpath(member.name)
        self._files.pop(name, None)
        self._links.pop(name, None)
        if member.issym():
            self._links[name] = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname))
        elif member.islnk():
            self._links[name] = posixpath.normpath(member.linkname)
        elif member.isreg():
            if member.issparse():
                raise ImageError(f"{self.name} holds {plain(name)} as a sparse file", "pack it again without --sparse")
            if member.offset_data + member.size > self._size:
                raise tarfile.ReadError(f"it ends in the middle of {name}")
            self._files[name] = Stored(self._tar, member.offset_data, member.size)


def open_archive(path: Path, workspace: Path | None) -> Archive:
    """The archive at `path`.

    A compressed one (gzip, zstd, xz, bzip2) is unpacked to `workspace`/archive.tar, which must stay while its files
    are used. Raises FetchError where there is none, ImageError for what is no complete archive, NoSpaceError.
    """
    path = path.absolute()
    if not path.is_file():
        raise FetchError(f"there is no archive {path}")
    with reading(path), path.open("rb") as file:
        start = file.read(8)
        unpack = next((unpack for magic, unpack in _COMPRESSED if start.startswith(magic)), None)
        if unpack is None:
            return Archive(path, path)
        if workspace is None:
            raise FetchError(f"{path} is compressed, and there is no place to unpack it to", "unpack it first")
        file.seek(0)
        _unpack(path, unpack(file), workspace / "archive.tar")
    return Archive(path, workspace / "archive.tar")


def _unpack(path: Path, content: _Readable, target: Path) -> None:
    with writing(target), target.open("wb") as file:
        while True:
            try:
                chunk = content.read(_CHUNK)
            except (EOFError, OSError, lzma.LZMAError, zstandard.ZstdError, isal_zlib.error) as error:  # type: ignore[misc]  # its stub names an instance
                raise ImageError(f"{path} is not a complete tar archive: {plain(str(error))}") from error
            if not chunk:
                return
            file.write(chunk)
