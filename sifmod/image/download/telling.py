"""A Telling: how far a download or a conversion is, told while bytes are still on their way and after that."""

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

from sifmod.image.artifact import Progress
from sifmod.image.download.board import Board
from sifmod.image.download.growing import Growing
from sifmod.image.download.transfer import Transfer

TELL_EVERY = 0.1  # seconds between two calls of a progress
_CONVERTING = "downloading and converting"


class Arrival(NamedTuple):
    """How much of some files is there."""

    done: int  # bytes
    total: int | None  # bytes; None where it is not known
    note: str  # what is waited for
    complete: bool

    def label(self, doing: str) -> str:
        """`doing`, with what is waited for."""
        return f"{doing} ({self.note})" if self.note else doing


def arrival(files: Sequence[Growing]) -> Arrival:
    """How much of `files` is there. Called with their board's lock."""
    done = sum(file.received for file in files)
    sizes = [file.size for file in files]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    note = next((file.note for file in files if isinstance(file, Transfer) and file.note), "")
    return Arrival(done, total, note, done == total)


class Telling:
    """Tells `progress` of the image `name`, whose bytes arrive in `files`; a context manager.

    While bytes arrive they are what is told, by a thread, as `doing`; when all have, what `converted` is given, which
    is not told before. The first call comes on entering. What `progress` raises in the thread ends the downloads.
    """

    def __init__(
        self, board: Board, files: Sequence[Growing], name: str, progress: Progress, doing: str = _CONVERTING
    ) -> None:
        self._board = board
        self._files = files
        self._name = name
        self._doing = doing
        self._progress = progress
        self._over = threading.Event()
        self._one = threading.Lock()  # who tells
        self._thread = threading.Thread(target=self._run, name="telling", daemon=True)

    def __enter__(self) -> "Telling":
        if self._tell_arrival():
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def converted(self, done: int, total: int) -> None:
        """So many bytes of the layers have been merged."""
        with self._one:
            if self._arrival().complete:
                self._over.set()
                self._progress(f"converting {self._name}", done, total)

    def _run(self) -> None:
        try:
            while not self._over.wait(TELL_EVERY) and self._tell_arrival():
                pass
        except BaseException as error:  # the thread that waits for the downloads raises it
            self._board.fail(error)

    def _tell_arrival(self) -> bool:
        """Say what has arrived; False where that is all, and nothing was said."""
        with self._one:
            now = self._arrival()
            if now.complete or self._over.is_set():
                return False
            self._progress(now.label(f"{self._doing} {self._name}"), now.done, now.total)
            return True

    def _arrival(self) -> Arrival:
        with self._board.changed:
            return arrival(self._files)
