"""Downloads: the blobs of an image, all at once, each readable while it comes; and a SIF, verified, to its place."""

import io
import os
import stat
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sifmod.errors import FetchError, ImageError
from sifmod.image.artifact import Fetched, Progress, Request
from sifmod.image.convert.sif.header import what_it_is
from sifmod.image.disk import Sink, reading, writing
from sifmod.image.download import journal
from sifmod.image.download.arriving_file import ArrivingFile, Shared
from sifmod.image.download.pool import Pool, ProgressThread
from sifmod.image.download.transfer import Transfer
from sifmod.image.oci.image import BlobSource
from sifmod.image.registry.network import PATIENCE, Patience
from sifmod.image.remote import Remote
from sifmod.image.settings import Settings
from sifmod.module.origin import NO_ORIGIN, ImageOrigin

_NAME = "image.sif"
_DOING = "downloading"
_BUFFER = 1 << 18  # bytes


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


@dataclass(frozen=True)
class ArrivingBlob:
    """A blob of a Downloads, a `Blob` of convert/layers. A read waits for its bytes, or raises what went wrong."""

    digest: str  # sha256:…, or ""
    diff_id: str  # sha256:… of the uncompressed bytes
    media_type: str
    size: int  # bytes
    file: ArrivingFile

    def open(self) -> BinaryIO:
        """The bytes from the start. May be called more than once."""
        return io.BufferedReader(self.file.open(), _BUFFER)

    def seekable(self) -> BinaryIO:
        """The bytes in any order."""
        return io.BufferedReader(self.file.seekable(), _BUFFER)


class Downloads:
    """The blobs of `sources`, whose files and journals lie in `directory`; a context manager.

    `sources` are listed as in a manifest, and fetched from the last one on, which a conversion reads first. Blobs on
    this machine are read where they are. Each reader hashes what it is given. A blob that an earlier run left in
    `directory` is completed, and verified like any other. Files stay at exit; wrong ones do not. Raises NoSpaceError
    where the disk or a quota has no room, before anything is asked for.
    """

    def __init__(
        self, sources: Sequence[BlobSource], directory: Path, connections: int, patience: Patience = PATIENCE
    ) -> None:
        self._shared = Shared()
        named: dict[str, ArrivingFile] = {}
        with ExitStack() as undone:
            for source in reversed(sources):
                if (name := file_name(source)) in named:
                    continue
                if source.get is None:
                    named[name] = _local(self._shared, source)
                    continue
                wanted, settings = source.descriptor, Settings(connections=connections)
                remote = Remote(_shown(source), source.get, wanted.size, wanted.digest, by_digest=True)
                named[name] = file = Transfer(self._shared, remote, directory / name, settings, patience)
                undone.callback(file.close, None)
            undone.pop_all()
        self._pool = Pool(self._shared, tuple(named.values()), connections)
        self.blobs = tuple(
            ArrivingBlob(wanted.digest, source.diff_id, wanted.media_type, wanted.size, named[file_name(source)])
            for source in sources
            for wanted in (source.descriptor,)
        )
        self._files = tuple(dict.fromkeys(blob.file for blob in self.blobs))

    def __enter__(self) -> "Downloads":
        self._pool.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.__exit__(kind)

    def complete(self) -> None:
        """Verify every blob that no reader has verified. Raises what went wrong first: FetchError, ImageError."""
        for file in self._files:
            file.verify()

    def telling(self, name: str, progress: Progress) -> ProgressThread:
        """Tells `progress` how far the image `name` is while its blobs arrive and are converted."""
        return ProgressThread(self._shared, self._files, name, progress)


def _local(shared: Shared, source: BlobSource) -> ArrivingFile:
    """A blob on this machine: all of it is there."""
    wanted, shown = source.descriptor, _shown(source)
    if source.path is None:
        raise FetchError(f"{shown} is missing")
    with reading(source.path):
        there = source.path.stat().st_size - source.offset
    if there < wanted.size:
        raise ImageError(f"{shown} is cut: {max(0, there)} of {wanted.size} bytes are in {source.path}")
    local = ArrivingFile(shared, shown, source.path, wanted.size, wanted.digest, source.offset)
    local.front = wanted.size
    return local


def _shown(source: BlobSource) -> str:
    return f"the layer {source.descriptor.digest}" if source.descriptor.digest else "a layer"


def missing(sources: Sequence[BlobSource], directory: Path) -> int:
    """How many bytes of disk a Downloads of `sources` will take in `directory` beyond those that it has already."""
    wanted = {file_name(source): source.descriptor.size for source in sources if source.get is not None}
    return sum(max(0, size - _taken(directory / name)) for name, size in wanted.items())


def _taken(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


def file_name(source: BlobSource) -> str:
    """What a blob's file is called; of one on this machine, what it is known by."""
    if source.get is None:
        return f"{source.path}@{source.offset}"
    return source.descriptor.digest.replace(":", "-")
