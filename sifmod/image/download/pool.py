"""The pool of threads that fetch a few files at once and save their journals, the first needed first."""

import threading
from collections.abc import Sequence
from contextlib import suppress

from sifmod.image.disk import NoSpaceError
from sifmod.image.download.arriving_file import ArrivingFile, Shared
from sifmod.image.download.pieces import Piece
from sifmod.image.download.transfer import Transfer

_SAVE_EVERY = 1.0  # seconds between two journals; what is synced then need not be synced at the end
_LINGER = 1.0  # seconds for threads to end; one that waits for a silent server ends by itself later, and writes nothing


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
