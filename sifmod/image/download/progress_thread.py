"""Progress: how much of a download has arrived, and then how much of it is converted, told while both run."""

import threading
from collections.abc import Sequence
from types import TracebackType

from sifmod.image.artifact import Progress
from sifmod.image.download.arriving_file import ArrivingFile, Shared

_TELL_EVERY = 0.1  # seconds between two calls of a progress
_CONVERTING = "downloading and converting"


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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
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
