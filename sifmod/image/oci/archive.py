"""An Archive: the files in a tar archive, read in place; a compressed one is unpacked to a plain one first."""

import posixpath
import tarfile
from pathlib import Path

from sifmod.errors import FetchError, ImageError
from sifmod.image.convert.layers.decompress import HEAD, is_compressed, uncompressed
from sifmod.image.convert.layers.stream import Malformed
from sifmod.image.disk import reading, writing
from sifmod.image.oci.content import plain
from sifmod.image.oci.image import Stored

_MOST_MEMBERS = 1_000_000
_MOST_LINKS = 8  # to links


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
        if not is_compressed(file.read(HEAD)):
            return Archive(path, path)
        if workspace is None:
            raise FetchError(f"{path} is compressed, and there is no place to unpack it to", "unpack it first")
        file.seek(0)
        target = workspace / "archive.tar"
        try:
            with writing(target), target.open("wb") as tar:
                tar.writelines(uncompressed(file, lambda _size: None))
        except Malformed as error:
            raise ImageError(f"{path} is not a complete tar archive: it {error}") from error
    return Archive(path, target)
