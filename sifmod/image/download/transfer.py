"""A Transfer: one resource on its way into its partial file, piece by piece, whatever the server does."""

from collections import deque
from enum import Enum
from pathlib import Path

import requests
import urllib3

from sifmod.errors import FetchError, ImageError
from sifmod.image.disk import NoSpaceError
from sifmod.image.download import journal
from sifmod.image.download.answer import Answer, read_answer
from sifmod.image.download.board import Board
from sifmod.image.download.coverage import Coverage, Span, pieces
from sifmod.image.download.growing import STEP, Growing
from sifmod.image.download.journal import Record
from sifmod.image.download.partial import PartialFile
from sifmod.image.download.remote import Piece, Remote, SupersededError
from sifmod.image.download.retry import PATIENCE, Attempts, Patience
from sifmod.image.oci.network import TransientError
from sifmod.image.settings import Striping

_CHUNK = 1 << 18  # bytes at a time; what a reset takes away with it is less
_SMALL_CHUNK = 1 << 14  # after an attempt that gave nothing
_FIRST = 8 << 20  # bytes of the first request where the size is not known
_SHORTEST, _LONGEST = 8 << 20, 64 << 20  # bytes of a piece
_MOST_RESTARTS = 3


class _Ranges(Enum):
    UNKNOWN = "the server has not answered yet"
    GOOD = "it gives ranges"
    NONE = "it does not"


class Transfer(Growing):
    """`remote` on its way into the file `path`, with what its journal says is there already."""

    def __init__(
        self, board: Board, remote: Remote, path: Path, connections: int, striping: Striping | None = None
    ) -> None:
        super().__init__(board, remote.name, path, remote.size, remote.digest)
        self.note = ""  # what it waits for
        self.patience: Patience = PATIENCE
        self._remote = remote
        self._connections = connections
        self._part = PartialFile(path, striping)
        self._coverage = Coverage()
        self._ranges = _Ranges.UNKNOWN
        self._validator = ""
        self._answered = False
        self._resumed = False
        self._wrong_content = False
        self._busy = 0
        self._restarts = 0
        self._saved: Record | None = None
        self._todo: deque[Span] = deque()

    @property
    def received(self) -> int:
        """How many bytes are there."""
        return self._coverage.total

    def prepare(self) -> None:
        """Take what the journal says is there, and the disk for all of it. Raises NoSpaceError."""
        record = journal.load(self.path)
        if record is not None and self._fits(record):
            self.size, self._validator = record.size, record.validator
            self._coverage = Coverage(record.spans)
            self._resumed, self._saved = True, record
        else:
            self._part.start_over()
            journal.forget(self.path)
        self._epoch = self._part.epoch
        self.front = self._coverage.front
        if self.size is not None:
            self._part.reserve(self.size)
        with self.board.changed:
            self._plan(())

    def take(self) -> Piece | None:
        """The next piece to ask for, None where there is none now. Called with the lock; `run` has to follow."""
        if not self._todo or (self._busy and self._ranges is not _Ranges.GOOD):
            return None
        self._busy += 1
        start, end = self._todo.popleft()
        unbounded = self._ranges is _Ranges.NONE and self.size is None
        return Piece(start, None if unbounded else end, self._epoch)

    def run(self, piece: Piece) -> None:
        """Ask for `piece` until all of it is there. Raises FetchError where attempts give nothing, NoSpaceError."""
        attempts = Attempts(self.patience)
        try:
            while piece.end is None or piece.start < piece.end:
                before = piece.start
                try:
                    self._ask(piece, _SMALL_CHUNK if attempts.fruitless else _CHUNK)
                except TransientError as error:
                    progress = piece.start > before and self._ranges is _Ranges.GOOD
                    self._pause(error, attempts.failed(error, progress=progress, answered=self._answered))
                    self._rewind(piece)
        except SupersededError:
            pass
        except ImageError:
            self._wrong_content = True
            raise
        finally:
            with self.board.changed:
                self._busy -= 1
                self.board.changed.notify_all()

    def save(self) -> None:
        """Bring what is there to the disk, and then say so in the journal."""
        with self.board.changed:
            sure = (self._remote.digest or self._validator) and self._ranges is not _Ranges.NONE
            if self.size is None or not sure or not self._coverage.total:
                return
            record = Record(self.size, self._remote.digest, self._validator, self._coverage.spans)
            if record == self._saved:
                return
            epoch, self._saved = self._epoch, record
        self._part.sync()
        journal.save(self.path, record)
        with self.board.changed:
            if epoch != self._epoch:
                journal.forget(self.path)

    def close(self, failure: BaseException | None) -> None:
        """Write no more, and keep what another run can go on with; wrong content is removed, and an empty file."""
        with self.board.changed:
            useless = not self._coverage.total or self._wrong_content or isinstance(failure, NoSpaceError)
        if useless and not self.finished:
            self.discard()
        self._part.close()

    def discard(self) -> None:
        """Remove the file and its journal."""
        self._part.remove()
        journal.forget(self.path)

    def _fits(self, record: Record) -> bool:
        if self.size not in (None, record.size):
            return False
        same = record.digest != "" and record.digest == self._remote.digest
        return same or (record.validator != "" and not self._remote.by_digest)

    def _plan(self, taken: tuple[Span, ...]) -> None:
        """List what has to be asked for, without what is `taken`."""
        if self.size is None:
            self._todo = deque([(0, _FIRST)])
        elif self._ranges is _Ranges.NONE:
            self._todo = deque([(0, self.size)] if self.size else [])
        else:
            length = min(max(self.size // (8 * self._connections), _SHORTEST), _LONGEST) >> 20 << 20
            missing = Coverage((*self._coverage.spans, *taken)).missing(self.size)
            self._todo = deque(pieces(missing, length))
        self.board.changed.notify_all()

    def _ask(self, piece: Piece, chunk: int) -> None:
        headers: dict[str, str] = {}
        if self._ranges is not _Ranges.NONE and piece.end is not None:
            headers["Range"] = f"bytes={piece.start}-{piece.end - 1}"
            if self._validator and not self._remote.by_digest:
                headers["If-Range"] = self._validator
        with self._remote.get(headers) as response:
            answer = read_answer(response)
            with self.board.changed:
                self._check_current(piece)
                self._answered = True
                end = self._accept(answer, piece)
            self._receive(response, piece, end, chunk, decode=answer.encoded)

    def _accept(self, answer: Answer, piece: Piece) -> int | None:
        """Up to where this answer's bytes are wanted, None for all. Called with the lock."""
        match answer.status:
            case 200:
                return self._accept_whole(answer, piece)
            case 206 if self._ranges is not _Ranges.NONE:
                return self._accept_range(answer, piece)
        if self._ranges is _Ranges.NONE:
            raise FetchError(f"the server answers {answer.status} to a request for all of {self.name}")
        raise self._start_over("it has no such range", whole=not piece.start)

    def _accept_range(self, answer: Answer, piece: Piece) -> int:
        if piece.end is None or answer.start != piece.start or answer.end is None or answer.encoded:
            raise self._start_over("it sends another range than was asked for", whole=True)
        if not piece.start < answer.end <= piece.end:
            raise self._start_over("it sends another range than was asked for", whole=True)
        if answer.differs(self._validator) and not self._remote.by_digest:
            raise self._start_over("the content changed", whole=False)
        if answer.total is None and self.size is None:
            raise self._start_over("it does not say how long the whole is", whole=True)
        self._check_size(answer)
        known = self.size is not None
        if answer.total is not None and not known:
            self.size = answer.total
            self._part.reserve(self.size)
        piece.end = min(piece.end, self.size or 0)
        self._validator = self._validator or answer.validator
        if self._ranges is _Ranges.UNKNOWN:
            self._ranges = _Ranges.GOOD
            self._plan(((piece.start, piece.end),))
        return min(answer.end, piece.end)

    def _accept_whole(self, answer: Answer, piece: Piece) -> int | None:
        changed = answer.differs(self._validator) and not self._remote.by_digest
        if self._coverage.total or piece.start:
            if changed:
                raise self._start_over("the content changed", whole=False)
            raise self._start_over("it gives no ranges", whole=True)
        self._check_size(answer)
        if self.size is None and answer.total is not None:
            self.size = answer.total
            self._part.reserve(self.size)
        self._validator = answer.validator
        self._ranges = _Ranges.NONE
        self._todo.clear()
        piece.end = self.size
        return self.size

    def _check_size(self, answer: Answer) -> None:
        if answer.total is None or self.size in (None, answer.total):
            return
        if self._remote.size is None and self._validator != answer.validator:
            raise self._start_over("the content changed", whole=False)
        raise FetchError(
            f"the server announces {answer.total} bytes of {self.name}, and {self.size} were promised",
            "the file was replaced at its source, or a proxy is in the way",
        )

    def _receive(self, response: requests.Response, piece: Piece, end: int | None, chunk: int, *, decode: bool) -> None:
        raw: urllib3.HTTPResponse = response.raw
        raw.enforce_content_length = False  # we count, and say how many bytes came
        while end is None or piece.start < end:
            wanted = chunk if end is None else min(chunk, end - piece.start)
            data = raw.read(wanted, decode_content=decode)
            if not data:
                break
            if not piece.start and self._remote.check is not None:
                self._remote.check(data)
            self._write(piece, data)
        if end is None:
            self._end(piece)
        elif piece.start < end:
            raise TransientError(f"the connection ended after {piece.start} of {self.size} bytes", "try again")
        elif self._ranges is _Ranges.NONE and raw.read(1):
            raise FetchError(f"the server sent more than the {self.size} bytes that it announced")

    def _write(self, piece: Piece, data: bytes) -> None:
        if self.board.stopping.is_set() or not self._part.write(piece.epoch, piece.start, data):
            raise SupersededError
        with self.board.changed:
            self._check_current(piece)
            piece.start, start = piece.start + len(data), piece.start
            self._coverage.add(start, piece.start)
            before, self.front = self.front, self._coverage.front
            if before // STEP != self.front // STEP or self.front == self.size:
                self.board.changed.notify_all()

    def _end(self, piece: Piece) -> None:
        """All of a body has come whose length nobody had announced."""
        if not piece.start and self._remote.check is not None:
            self._remote.check(b"")
        with self.board.changed:
            self._check_current(piece)
            self.size = piece.end = piece.start
            self.board.changed.notify_all()

    def _pause(self, error: TransientError, seconds: float) -> None:
        self.note = f"{error.message}; again in {seconds:.0f} s" if seconds >= 1 else ""
        if self.board.stopping.wait(seconds):
            raise SupersededError
        self.note = ""

    def _rewind(self, piece: Piece) -> None:
        """Without ranges nothing that came is of use to the next attempt."""
        if self._ranges is _Ranges.NONE:
            with self.board.changed:
                self._check_current(piece)
                self._empty()
                piece.start, piece.epoch = 0, self._epoch
                piece.end = self.size

    def _start_over(self, why: str, *, whole: bool) -> SupersededError:
        """Forget what is there; `whole` says that ranges are of no use. Called with the lock."""
        self._restarts += 1
        if self._restarts > _MOST_RESTARTS:
            raise FetchError(f"the server contradicts itself about {self.name}: {why}", "try again, or ask its owner")
        self._ranges = _Ranges.NONE if whole else _Ranges.UNKNOWN
        self._empty()
        self._plan(())
        return SupersededError()

    def _empty(self) -> None:
        self._part.start_over()
        journal.forget(self.path)
        self._epoch = self._part.epoch
        self._coverage = Coverage()
        self._validator, self.size = "", self._remote.size
        self._resumed, self._saved = False, None
        self.front = 0
        self._forget_hash()
        if self.size is not None:
            self._part.reserve(self.size)

    def _check_current(self, piece: Piece) -> None:
        if piece.epoch != self._epoch or self.board.stopping.is_set():
            raise SupersededError

    def _judge(self, sha256: str) -> None:
        """What a journal brought may have been damaged on the disk: then once from zero."""
        if self._resumed and self.digest not in ("", f"sha256:{sha256}"):
            self._start_over("what had arrived was damaged", whole=False)
            return
        try:
            super()._judge(sha256)
        except ImageError:
            self._wrong_content = True
            raise
