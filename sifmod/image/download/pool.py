"""The pool of threads that fetch a few files at once, the first needed first; and one that tells how far they are."""

import threading
from collections.abc import Sequence
from contextlib import suppress

from sifmod.image.artifact import Progress
from sifmod.image.disk import NoSpaceError
from sifmod.image.download.arriving_file import ArrivingFile, Shared
from sifmod.image.download.pieces import Piece
from sifmod.image.download.transfer import Transfer

_TELL_EVERY = 0.1  # seconds between two calls of a progress
_CONVERTING = "downloading and converting"
_SAVE_EVERY = 1.0  # seconds between two journals; what is synced then need not be synced at the end
_LINGER = 1.0  # seconds for threads to end; one that waits for a silent server ends by itself later, and writes nothing


class ProgressThread:
    """Tells `progress` of the image `name`, whose bytes arrive in `files`; a context manager.

    While bytes arrive they are what is told, by a thread, as `doing`; when all have, what `converted` is given, which
    is not told before. The first call comes on entering. What `progress` raises in the thread ends the downloads.
    """

    def __init__(
        self, shared: Shared, files: Sequence[ArrivingFile], name: str, progress: Progress, doing: str = _CONVERTING
    ) -> None:
        self._shared = shared
        self._files = files
        self._name = name
        self._doing = doing
        self._progress = progress
        self._over = threading.Event()
        self._telling = threading.Lock()
        self._thread = threading.Thread(target=shared.run, args=(self._run,), name="progress", daemon=True)

    def __enter__(self) -> "ProgressThread":
        if self._tell_arrival():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def converted(self, done: int, total: int) -> None:
        """So many bytes of the layers have been merged."""
        with self._telling:
            arrived, size, _ = self._arrival()
            if arrived == size:
                self._over.set()
                self._progress(f"converting {self._name}", done, total)

    def _run(self) -> None:
        while not self._over.wait(_TELL_EVERY) and self._tell_arrival():
            pass

    def _tell_arrival(self) -> bool:
        """Tell what has arrived; False where that is all, and nothing is told."""
        with self._telling:
            arrived, size, note = self._arrival()
            if arrived == size or self._over.is_set():
                return False
            waiting = f" ({note})" if note else ""
            self._progress(f"{self._doing} {self._name}{waiting}", arrived, size)
            return True

    def _arrival(self) -> tuple[int, int | None, str]:
        """Bytes that are there, bytes in all or None, and what is waited for."""
        with self._shared.changed:
            sizes = [file.size for file in self._files]
            size = None if None in sizes else sum(size or 0 for size in sizes)
            note = next((file.note for file in self._files if file.note), "")
            return sum(file.received for file in self._files), size, note


class Pool:
    """The threads for `files`, in the order in which they are needed; a context manager.

    The first failure ends everything, and is raised in every thread that waits. What has arrived is kept for another
    run when the block is left by an exception, and removed where it is wrong.
    """

    def __init__(self, shared: Shared, files: Sequence[ArrivingFile], connections: int) -> None:
        self._shared = shared
        self._transfers = tuple(file for file in files if isinstance(file, Transfer))
        workers = max(1, connections) if self._transfers else 0
        jobs = (*(self._work for _ in range(workers)), *((self._save,) if workers else ()))
        self._threads = tuple(threading.Thread(target=shared.run, args=(job,), daemon=True) for job in jobs)

    def __enter__(self) -> "Pool":
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
                with suppress(NoSpaceError):  # it costs a resumption, not the download
                    transfer.save()
