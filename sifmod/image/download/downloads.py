"""Download the blobs of an image concurrently, each readable while it arrives; and download and verify a SIF."""

import io
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Self

from sifmod.errors import FetchError, ImageError
from sifmod.image.artifact import Fetched, Fetching, Progress, Remote
from sifmod.image.convert.sif.header import file_kind
from sifmod.image.disk import NoSpaceError, Sink, reading, writing
from sifmod.image.download import journal
from sifmod.image.download.arriving_file import ArrivingFile, Shared
from sifmod.image.download.pieces import Piece
from sifmod.image.download.transfer import Transfer
from sifmod.image.oci.image import BlobSource, Stored
from sifmod.image.registry.network import RETRY_POLICY, RetryPolicy
from sifmod.image.settings import Settings, SharedBlobs
from sifmod.module.image_origin import NO_ORIGIN, ImageOrigin

_TELL_EVERY = 0.1  # seconds between two calls of a progress
_CONVERTING = "downloading and converting"
_SAVE_EVERY = 1.0  # seconds between two journals; data synced then need not be synced at the end
_LINGER = 1.0  # seconds for threads to end; a thread that waits for a silent server ends later, and writes nothing


class Pool:
    """The download threads for `files`, which are ordered by need; a context manager.

    The first failure ends all downloads, and is raised in every waiting thread. After an exception, data that the next
    run can resume is kept; wrong data is removed, and after NoSpaceError all data that is not verified.
    """

    def __init__(self, shared: Shared, files: Sequence[ArrivingFile], connections: int) -> None:
        self._shared = shared
        self._files = files
        self._transfers = tuple(file for file in files if isinstance(file, Transfer))
        workers = max(1, connections) if self._transfers else 0
        jobs = (*(self._work for _ in range(workers)), *((self._save,) if workers else ()))
        self._threads = tuple(threading.Thread(target=shared.run, args=(job,), daemon=True) for job in jobs)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._shared.stop()
        for thread in self._threads:
            thread.join(_LINGER / len(self._threads))
        for transfer in self._transfers:
            with suppress(NoSpaceError):
                if kind is not None:
                    transfer.save()
            transfer.close(self._shared.failure)

    def complete(self) -> None:
        """Verify every file that no reader has verified. Raises the first failure: FetchError, ImageError."""
        for file in self._files:
            file.verify()

    @contextmanager
    def telling(self, name: str, progress: Progress, doing: str = _CONVERTING) -> Iterator[Callable[[int, int], None]]:
        """Report the progress of the image `name` to `progress`.

        During the download a thread reports the received bytes as `doing`; after it, the yielded function reports how
        many bytes of the layers have been merged. The first call is made on entry, unless all bytes are there. An
        exception of `progress` in the thread ends the downloads.
        """
        over, held = threading.Event(), threading.Lock()

        def tell_arrival() -> bool:
            """Report the received bytes; False, without a report, if the download or the block is over."""
            with held:
                arrived, size, note = self._arrival()
                if arrived == size or over.is_set():
                    return False
                waiting = f" ({note})" if note else ""
                progress(f"{doing} {name}{waiting}", arrived, size)
                return True

        def run() -> None:
            while not over.wait(_TELL_EVERY) and tell_arrival():
                pass

        def converted(done: int, total: int) -> None:
            with held:
                arrived, size, _ = self._arrival()
                if arrived == size:
                    over.set()
                    progress(f"converting {name}", done, total)

        thread = threading.Thread(target=self._shared.run, args=(run,), name="progress", daemon=True)
        if tell_arrival():
            thread.start()
        try:
            yield converted
        finally:
            over.set()
            if thread.is_alive():
                thread.join()

    def _arrival(self) -> tuple[int, int | None, str]:
        """Received bytes, total bytes or None, and what the download waits for."""
        with self._shared.changed:
            sizes = [file.size for file in self._files]
            size = None if None in sizes else sum(size or 0 for size in sizes)
            note = next((file.note for file in self._files if file.note), "")
            return sum(file.received for file in self._files), size, note

    def _work(self) -> None:
        while (found := self._next()) is not None:
            transfer, piece = found
            transfer.run(piece)

    def _next(self) -> tuple[Transfer, Piece] | None:
        with self._shared.changed:
            while not self._shared.stopping.is_set():
                for transfer in self._transfers:
                    if (piece := transfer.take()) is not None:
                        return transfer, piece
                self._shared.changed.wait()
        return None

    def _save(self) -> None:
        while not self._shared.stopping.wait(_SAVE_EVERY):
            for transfer in self._transfers:
                with suppress(NoSpaceError):  # only resuming is lost, not the download
                    transfer.save()


_NAME = "image.sif"
_DOING = "downloading"
_BUFFER = 1 << 18  # bytes


def download_sif(
    request: Fetching, remote: Remote, origin: ImageOrigin = NO_ORIGIN, patience: RetryPolicy = RETRY_POLICY
) -> Fetched:
    """Download the SIF `remote` to `request.incoming`; its digest and size are those that `remote` promises, if any.

    An interrupted download in `request.partial` is resumed. After ImageError (wrong content) and NoSpaceError the
    downloaded data is removed; after any other FetchError it is kept if it can be resumed.
    """
    path, name, progress = request.partial / _NAME, request.image.filename, request.progress
    shared = Shared()
    transfer = Transfer(shared, remote, path, request.settings, patience)
    with Pool(shared, (transfer,), request.settings.connections) as pool:
        with pool.telling(name, progress, _DOING):
            pool.complete()
        progress(f"{_DOING} {name}", transfer.size or 0, transfer.size)
    with writing(request.incoming):
        _publish(path, request.incoming, transfer.sha256)
    journal.forget(path)
    return Fetched(request.incoming, transfer.sha256, transfer.size or 0, (), origin)


def _publish(partial: Path, incoming: Path, sha256: str) -> None:
    """Move `partial` to `incoming`, with the mode that a new file gets there (umask, default ACL).

    A file begun by another user is copied, since its owner could change it; raises FetchError if that happened.
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
    """Raise ImageError if a file that begins with `start` is not a SIF, before gigabytes are downloaded."""
    if wrong := file_kind(start):
        raise ImageError(
            f"the server sent {wrong if start else 'an empty file'} instead of a SIF",
            "open the URL in a browser: a login or a download page is often in the way",
        )


@dataclass(frozen=True)
class ArrivingBlob:
    """One blob of `Downloads`, as a `Blob` of convert/layers/stream.py.

    A read waits for its bytes, or raises the download's error.
    """

    digest: str  # sha256:…, or ""
    diff_id: str  # sha256:… of the uncompressed bytes
    size: int  # bytes
    file: ArrivingFile

    def open(self) -> BinaryIO:
        """The bytes from the start. May be called more than once."""
        return io.BufferedReader(self.file.open(), _BUFFER)

    def seekable(self) -> BinaryIO:
        """The bytes in any order, not verified."""
        return io.BufferedReader(self.file.seekable(), _BUFFER)


class Downloads(Pool):
    """Download the blobs of `sources` into `directory`, each with its journal.

    `sources` are in the manifest's order, and fetched from the last, which a conversion reads first. Local blobs are
    read in place. Sequential readers hash their data. A blob that an earlier run left in `directory` is completed and
    verified. At exit the files stay that `Pool` keeps for the next run. Before any request, raises NoSpaceError if the
    disk or a quota is too small, and ImageError for a truncated local blob.
    """

    def __init__(
        self, sources: Sequence[BlobSource], directory: Path, connections: int, patience: RetryPolicy = RETRY_POLICY
    ) -> None:
        shared = Shared()
        named: dict[str, ArrivingFile] = {}
        with ExitStack() as undone:
            for source in reversed(sources):
                if (name := file_name(source)) in named:
                    continue
                if isinstance(source.where, Stored):
                    named[name] = _local(shared, source, source.where)
                    continue
                wanted, settings = source.descriptor, Settings(connections=connections)
                remote = Remote(_shown(source), source.where, wanted.size, wanted.digest, by_digest=True)
                named[name] = file = Transfer(shared, remote, directory / name, settings, patience)
                undone.callback(file.close, None)
            undone.pop_all()
        super().__init__(shared, tuple(named.values()), connections)
        self.blobs = tuple(
            ArrivingBlob(wanted.digest, source.diff_id, wanted.size, named[file_name(source)])
            for source in sources
            for wanted in (source.descriptor,)
        )


def _local(shared: Shared, source: BlobSource, stored: Stored) -> ArrivingFile:
    """The file of a local blob, which is complete. Raises ImageError if it is shorter than its descriptor says."""
    wanted, shown = source.descriptor, _shown(source)
    with reading(stored.path):
        there = stored.path.stat().st_size - stored.offset
    if there < wanted.size:
        raise ImageError(f"{shown} is truncated: {max(0, there)} of {wanted.size} bytes are in {stored.path}")
    local = ArrivingFile(shared, shown, stored.path, wanted.size, wanted.digest, stored.offset)
    local.front = wanted.size
    return local


def _shown(source: BlobSource) -> str:
    return f"the layer {source.descriptor.digest}" if source.descriptor.digest else "a layer"


def missing(sources: Sequence[BlobSource], directory: Path) -> int:
    """The bytes that a download of `sources` to `directory` needs on disk, beyond those that its files there take."""
    wanted = {file_name(source): source.descriptor.size for source in sources if not isinstance(source.where, Stored)}
    return sum(max(0, size - _taken(directory / name)) for name, size in wanted.items())


def _taken(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


def file_name(source: BlobSource) -> str:
    """The name of the file to download a blob to; for a local blob, which is read in place, its path and offset."""
    if isinstance(source.where, Stored):
        return f"{source.where.path}@{source.where.offset}"
    return source.descriptor.digest.replace(":", "-")


def with_shared(sources: Sequence[BlobSource], shared: SharedBlobs | None) -> tuple[BlobSource, ...]:
    """`sources`, but blobs that are kept in `shared` are read from there; each is verified like any other blob."""
    return tuple(replace(one, where=kept) if (kept := _kept(one, shared)) else one for one in sources)


def _kept(source: BlobSource, shared: SharedBlobs | None) -> Stored | None:
    if shared is None or isinstance(source.where, Stored) or source.descriptor.digest not in shared.digests:
        return None
    path, size = shared.directory / file_name(source), source.descriptor.size
    return Stored(path, 0, size) if path.is_file() and path.stat().st_size == size else None


def keep_shared(sources: Sequence[BlobSource], directory: Path, shared: SharedBlobs | None) -> None:
    """Link the verified blobs in `directory` that another image needs too into `shared`; a failed link is ignored."""
    for source in sources if shared else ():
        if shared and not isinstance(source.where, Stored) and source.descriptor.digest in shared.digests:
            with suppress(OSError):  # the blob is downloaded again then
                os.link(directory / file_name(source), shared.directory / file_name(source))


def forget_shared(sources: Sequence[BlobSource], shared: SharedBlobs | None) -> None:
    """Remove the blobs of `sources` from `shared`: their image could not be converted, so one may be damaged."""
    for source in sources:
        if shared and isinstance(source.where, Stored) and source.where.path.parent == shared.directory:
            source.where.path.unlink(missing_ok=True)
