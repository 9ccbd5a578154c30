"""The files in a tar archive, read in place; a compressed archive is unpacked first."""

import posixpath
import tarfile
from pathlib import Path

from sifmod.config.limits import bound, limits
from sifmod.errors import FetchError, ImageError
from sifmod.image.bounded_tar import RefusedMemberError, open_tar
from sifmod.image.convert.layers.decompress import HEAD, is_compressed, uncompressed
from sifmod.image.convert.layers.stream import Malformed
from sifmod.image.disk import reading, writing
from sifmod.image.oci.content import plain
from sifmod.image.oci.image import Files, Stored

_MOST_LINKS = 8  # to links


def open_archive(path: Path, workspace: Path | None) -> Files:
    """The archive at `path`.

    A compressed one (gzip, zstd, xz, bzip2) is unpacked to `workspace`/archive.tar, which must stay while its files are
    used. Raises FetchError if it is missing, ImageError if it is incomplete or not an archive, NoSpaceError.
    """
    path = path.absolute()
    if not path.is_file():
        raise FetchError(f"there is no archive {path}")
    with reading(path), path.open("rb") as file:
        if not is_compressed(file.read(HEAD)):
            return _files(path, path)
        if workspace is None:
            raise FetchError(f"{path} is compressed, and there is no directory to unpack it to", "unpack it first")
        file.seek(0)
        target = workspace / "archive.tar"
        try:
            with writing(target), target.open("wb") as tar:
                tar.writelines(uncompressed(file, lambda _size: None))
        except Malformed as error:
            raise ImageError(f"{path} is not a complete tar archive: it {error}") from error
    return _files(path, target)


def _files(path: Path, tar: Path) -> Files:
    """The files of the archive at `path`: the last one of each name, with links inside the archive followed."""
    found: dict[str, Stored | str] = {}  # of a link the name that it leads to
    try:
        with reading(path), open_tar(tar) as opened:
            size = tar.stat().st_size
            for count, member in enumerate(opened):
                opened.members = []  # type: ignore[attr-defined]  # it would keep them all
                if count > limits().archive_files:
                    raise ImageError(f"{path} has more files than {bound('archive_files')}")
                name = posixpath.normpath(member.name)
                found.pop(name, None)
                if member.issym():
                    found[name] = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname))
                elif member.islnk():
                    found[name] = posixpath.normpath(member.linkname)
                elif member.isreg() and member.offset_data + member.size > size:
                    raise tarfile.ReadError(f"it ends in the middle of {name}")
                elif member.isreg():
                    found[name] = Stored(tar, member.offset_data, member.size)
    except RefusedMemberError as error:
        raise ImageError(f"{path} was refused: {plain(str(error))}") from error
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise ImageError(f"{path} is not a complete tar archive: {plain(str(error))}") from error

    def find(name: str) -> Stored | None:
        at: Stored | str | None = name
        for _ in range(_MOST_LINKS):
            at = found.get(at) if isinstance(at, str) else at
        return None if isinstance(at, str) else at

    return Files(str(path), find)
