"""A SIF from a server: into the partial directory, and from there, whole and verified, to its place."""

import os
import stat
from pathlib import Path

from sifmod.errors import FetchError, ImageError
from sifmod.image.convert.sif.header import what_it_is
from sifmod.image.disk import writing
from sifmod.image.download import journal
from sifmod.image.download.arriving_file import Shared
from sifmod.image.download.pool import Pool
from sifmod.image.download.progress_thread import ProgressThread
from sifmod.image.download.remote import Remote
from sifmod.image.download.transfer import Transfer
from sifmod.image.fetched import Fetched, Request
from sifmod.image.registry.retry import PATIENCE, Patience
from sifmod.image.sink import Sink
from sifmod.module.origin import NO_ORIGIN, ImageOrigin

_NAME = "image.sif"
_DOING = "downloading"


def download_sif(
    request: Request, remote: Remote, origin: ImageOrigin = NO_ORIGIN, patience: Patience = PATIENCE
) -> Fetched:
    """The SIF `remote` at `incoming`, hashed, and of the digest and size that `remote` promises.

    What an interrupted run left in `partial` is resumed. Raises FetchError, after which what has arrived is kept;
    ImageError where it is wrong, and NoSpaceError, after which it is not.
    """
    path, name, progress = request.partial / _NAME, request.image.filename, request.progress
    shared = Shared()
    transfer = Transfer(shared, remote, path, request.settings, patience)
    with Pool(shared, (transfer,), request.settings.connections):
        with ProgressThread(shared, (transfer,), name, progress, _DOING):
            transfer.verify()
        progress(f"{_DOING} {name}", transfer.size or 0, transfer.size)
    with writing(request.incoming):
        _publish(path, request.incoming, transfer.sha256)
    journal.forget(path)
    return Fetched(request.incoming, transfer.sha256, transfer.size or 0, (), origin)


def _publish(partial: Path, incoming: Path, sha256: str) -> None:
    """Move `partial` to `incoming`, with the mode that a new file gets there (umask, default ACL).

    What another user of the group began is copied, for its owner could change it: FetchError where that happened.
    """
    if partial.stat().st_uid != os.geteuid():
        with partial.open("rb") as old, Sink(incoming) as copy:
            while chunk := old.read(1 << 20):
                copy.write(chunk)
        partial.unlink()
        if copy.sha256 != sha256:
            raise FetchError(f"{partial} was changed while it was copied", "try again")
        return
    with incoming.open("xb") as new:
        mode = stat.S_IMODE(os.fstat(new.fileno()).st_mode)
    partial.chmod(mode)
    partial.replace(incoming)


def refuse_other_files(start: bytes) -> None:
    """Raise ImageError where a file that begins with `start` is no SIF: before gigabytes of it have come."""
    if wrong := what_it_is(start):
        raise ImageError(
            f"the server sent {wrong if start else 'an empty file'} instead of a SIF",
            "open the URL in a browser: a login or a download page is often in the way",
        )
