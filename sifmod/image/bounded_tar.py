"""Read tar archives of other users with tarfile: long extended headers and sparse files are refused."""

import tarfile
from pathlib import Path
from typing import IO, cast

from sifmod.config.limits import bound, limits

_TEXTS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


class RefusedMemberError(tarfile.TarError):
    """An archive has a member that is refused; the text is the reason."""


def open_tar(path: Path) -> tarfile.TarFile:
    """The uncompressed archive at `path`. Raises OSError and tarfile.TarError, also while its members are read."""
    return tarfile.open(path, "r:", tarinfo=_Member)


class _Member(tarfile.TarInfo):
    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        """Raise RefusedMemberError: a sparse file, a negative size, a long extended header, which is not read then."""
        if self.size < 0:
            raise RefusedMemberError("it has a member of negative size")
        if self.type in _TEXTS:
            if self.size > limits().header_size:
                raise RefusedMemberError(f"the header of {self.name!r} has more bytes than {bound('header_size')}")
            file = cast("IO[bytes]", archive.fileobj)
            start = file.tell()
            if self.type != tarfile.XGLTYPE and b"GNU.sparse" in file.read(self.size):
                raise RefusedMemberError(f"{self.name!r} is a sparse file: pack it again without --sparse")
            file.seek(start)
        elif self.type == tarfile.GNUTYPE_SPARSE:
            raise RefusedMemberError(f"{self.name!r} is a sparse file: pack it again without --sparse")
        try:
            member = cast("tarfile.TarInfo", super()._proc_member(archive))  # type: ignore[misc]
        except RecursionError as error:
            raise RefusedMemberError("its headers are nested too deeply") from error
        if member.size < 0:  # by an extended header
            raise RefusedMemberError("it has a member of negative size")
        return member
