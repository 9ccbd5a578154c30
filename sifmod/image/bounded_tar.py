"""Read tar archives of other users with tarfile: headers are limited, and sparse files rejected."""

import tarfile
from pathlib import Path
from typing import IO, cast

from sifmod.config.limits import bound, limits

_TEXTS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


class RefusedMemberError(tarfile.TarError):
    """The reason why an archive is not read further."""


def open_tar(path: Path) -> tarfile.TarFile:
    """The uncompressed archive at `path`. Raises OSError, and tarfile.TarError here and at each member."""
    return tarfile.open(path, "r:", tarinfo=_Member)


class _Member(tarfile.TarInfo):
    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        """Check the member before tarfile reads its header, which may have any size, into memory."""
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
            return cast("tarfile.TarInfo", super()._proc_member(archive))  # type: ignore[misc]
        except RecursionError as error:
            raise RefusedMemberError("its headers are nested too deeply") from error
