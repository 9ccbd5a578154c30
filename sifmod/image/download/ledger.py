"""A Ledger: what is there of a partial file, what is still to be asked for, and the journal of it."""

from collections import deque
from pathlib import Path

from sifmod.image.download import journal
from sifmod.image.download.coverage import Coverage, Span, pieces
from sifmod.image.download.journal import Record
from sifmod.image.download.remote import Remote

_FIRST = 8 << 20  # bytes of the first request where the size is not known
_SHORTEST, _LONGEST = 8 << 20, 64 << 20  # bytes of a piece


class Ledger:
    """The books of `remote` in the file `path`. Not safe for threads.

    `size` in bytes and `validator` are what is known of the content, None and "" where nothing is. `resumed` says that
    another run's journal was believed.
    """

    def __init__(self, remote: Remote, path: Path, connections: int) -> None:
        self._remote = remote
        self._path = path
        self._connections = connections
        self._written: Record | None = None
        self.size = remote.size
        self.validator = ""
        self.resumed = False
        self.coverage = Coverage()
        self.todo: deque[Span] = deque()

    def load(self) -> bool:
        """Believe the journal beside the file where it speaks of the same content; False where there is none such."""
        record = journal.load(self._path)
        if record is None or self.size not in (None, record.size):
            return False
        same = record.digest != "" and record.digest == self._remote.digest
        if not same and (not record.validator or self._remote.by_digest):
            return False
        self.size, self.validator = record.size, record.validator
        self.coverage = Coverage(record.spans)
        self.resumed, self._written = True, record
        return True

    def unsaved(self) -> Record | None:
        """What the journal does not say yet; None where nothing is new, or nothing could be resumed."""
        if self.size is None or not (self._remote.digest or self.validator) or not self.coverage.total:
            return None
        record = Record(self.size, self._remote.digest, self.validator, self.coverage.spans)
        if record == self._written:
            return None
        self._written = record
        return record

    def plan(self, *taken: Span, whole: bool = False) -> None:
        """List what has to be asked for, without what is `taken`; `whole` in one request."""
        if self.size is None:
            self.todo = deque([(0, _FIRST)])
        elif whole:
            self.todo = deque([(0, self.size)] if self.size else [])
        else:
            length = min(max(self.size // (8 * self._connections), _SHORTEST), _LONGEST) >> 20 << 20
            self.todo = deque(pieces(Coverage((*self.coverage.spans, *taken)).missing(self.size), length))

    def empty(self) -> None:
        """Nothing is there, and nothing is known but what was promised."""
        journal.forget(self._path)
        self.coverage = Coverage()
        self.size, self.validator = self._remote.size, ""
        self.resumed, self._written = False, None
