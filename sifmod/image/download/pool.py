"""A Pool: the threads that fetch and save a few files at once, the first needed first."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from sifmod.image.disk import NoSpaceError
from sifmod.image.download.board import Board
from sifmod.image.download.growing import Growing
from sifmod.image.download.remote import Piece
from sifmod.image.download.transfer import Transfer

_SAVE_EVERY = 1.0  # seconds between two journals; what is synced then need not be synced at the end
_LINGER = 1.0  # seconds for threads to end; one that waits for a silent server ends by itself, and writes nothing


class Pool:
    """The threads for `files`, in the order in which they are needed; a context manager.

    Whatever fails first ends everything, and is raised to all who wait. What has arrived is kept for another run when
    the block is left by an exception, and removed where it is wrong.
    """

    def __init__(self, board: Board, files: Sequence[Growing], connections: int) -> None:
        self._board = board
        self._transfers = tuple(file for file in files if isinstance(file, Transfer))
        workers = max(1, connections) if self._transfers else 0
        jobs = (*(self._work for _ in range(workers)), *((self._save,) if workers else ()))
        self._threads = tuple(threading.Thread(target=self._guarded, args=(job,), daemon=True) for job in jobs)

    def __enter__(self) -> "Pool":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._board.stop()
        for thread in self._threads:
            thread.join(_LINGER / len(self._threads))
        for transfer in self._transfers:
            with suppress(NoSpaceError):
                if kind is not None:
                    transfer.save()
            transfer.close(self._board.failure)

    def _guarded(self, job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # the thread that waits raises it
            self._board.fail(error)

    def _work(self) -> None:
        while (found := self._next()) is not None:
            transfer, piece = found
            transfer.run(piece)

    def _next(self) -> tuple[Transfer, Piece] | None:
        with self._board.changed:
            while not self._board.stopping.is_set():
                for transfer in self._transfers:
                    if (piece := transfer.take()) is not None:
                        return transfer, piece
                self._board.changed.wait()
        return None

    def _save(self) -> None:
        while not self._board.stopping.wait(_SAVE_EVERY):
            for transfer in self._transfers:
                with suppress(NoSpaceError):  # it costs a resumption, not the download
                    transfer.save()
