"""A Transfer: one resource on its way into its partial file, piece by piece, whatever the server does."""

from pathlib import Path

import requests
import urllib3

from sifmod.errors import FetchError, ImageError
from sifmod.image.convert.layers.blob import Replaced
from sifmod.image.disk import NoSpaceError
from sifmod.image.download import journal
from sifmod.image.download.answer import Answer, read_answer
from sifmod.image.download.board import Board
from sifmod.image.download.growing import STEP, Growing
from sifmod.image.download.ledger import Ledger
from sifmod.image.download.partial import PartialFile
from sifmod.image.download.remote import Piece, Remote, SupersededError
from sifmod.image.download.retry import PATIENCE, Attempts, Patience
from sifmod.image.download.verdict import Known, Ranges, judge
from sifmod.image.registry.network import SlowError, TransientError
from sifmod.image.settings import Settings

_CHUNK = 1 << 18  # bytes at a time; what a reset takes away with it is less
_SMALL_CHUNK = 1 << 14  # after an attempt that gave nothing
_MOST_RESTARTS = 3


class Transfer(Growing):
    """`remote` on its way into the file `path`, with what its journal says is there already."""

    def __init__(
        self, board: Board, remote: Remote, path: Path, settings: Settings, patience: Patience = PATIENCE
    ) -> None:
        super().__init__(board, remote.name, path, remote.size, remote.digest)
        self.note = ""  # what it waits for
        self._remote = remote
        self._patience = patience
        self._part = PartialFile(path, settings.striping)
        self._ledger = Ledger(remote, path, settings.connections)
        self._ranges = Ranges.UNKNOWN
        self._answered = False
        self._wrong_content = False
        self._busy = 0
        self._restarts = 0

    @property
    def received(self) -> int:
        """How many bytes are there."""
        return self._ledger.coverage.total

    def prepare(self) -> None:
        """Take what the journal says is there, and the disk for all of it. Raises NoSpaceError."""
        with self.board.changed:
            if self._ledger.load():
                self._adopt_size()
                self.front = self._ledger.coverage.front
                self._ledger.plan()
            else:
                self._empty()

    def take(self) -> Piece | None:
        """The next piece to ask for, None where there is none now. Called with the lock; `run` has to follow."""
        if not self._ledger.todo or (self._busy and self._ranges is not Ranges.GOOD):
            return None
        self._busy += 1
        start, end = self._ledger.todo.popleft()
        unbounded = self._ranges is Ranges.NONE and self.size is None
        return Piece(start, None if unbounded else end, self.epoch)

    def run(self, piece: Piece) -> None:
        """Ask for `piece` until all of it is there. Raises FetchError where attempts give nothing, NoSpaceError."""
        attempts = Attempts(self._patience)
        try:
            while piece.end is None or piece.start < piece.end:
                before = piece.start
                try:
                    self._ask(piece, _SMALL_CHUNK if attempts.fruitless else _CHUNK)
                except TransientError as error:
                    enough = piece.start > before and not isinstance(error, SlowError)
                    progress = enough and self._ranges is Ranges.GOOD
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
            record = self._ledger.unsaved() if self._ranges is not Ranges.NONE else None
            epoch = self.epoch
        if record is None:
            return
        self._part.sync()
        journal.save(self.path, record)
        with self.board.changed:
            if epoch != self.epoch:
                journal.forget(self.path)

    def close(self, failure: BaseException | None) -> None:
        """Write no more, and keep what another run can go on with; wrong content is removed, and an empty file."""
        with self.board.changed:
            kept = self.sha256 or (self.received and journal.journal_path(self.path).exists())
            wrong = self._wrong_content or (isinstance(failure, NoSpaceError) and not self.sha256)
        if wrong or not kept:
            self._part.remove()
            journal.forget(self.path)
        self._part.close()

    def _ask(self, piece: Piece, chunk: int) -> None:
        headers: dict[str, str] = {}
        if self._ranges is not Ranges.NONE and piece.end is not None:
            headers["Range"] = f"bytes={piece.start}-{piece.end - 1}"
            if self._ledger.validator and not self._remote.by_digest:
                headers["If-Range"] = self._ledger.validator
        with self._remote.get(headers) as response:
            answer = read_answer(response)
            with self.board.changed:
                self._check_current(piece)
                self._answered = True
                end = self._accept(answer, piece)
            self._receive(response, piece, end, chunk, decode=answer.encoded)

    def _accept(self, answer: Answer, piece: Piece) -> int | None:
        """Up to where this answer's bytes are wanted, None for all. Called with the lock."""
        ledger = self._ledger
        known = Known(ledger.size, ledger.validator, bool(self.received), self._ranges)
        verdict = judge(answer, piece, known, self._remote)
        if verdict.why:
            raise self._start_over(verdict.why, whole=verdict.without_ranges)
        if answer.total == 0 and self._remote.check is not None:
            self._remote.check(b"")
        if ledger.size is None and answer.total is not None:
            ledger.size = answer.total
            self._adopt_size()
        if answer.status == 200:
            ledger.validator = answer.validator
            self._ranges = Ranges.NONE
            ledger.todo.clear()
            piece.end = ledger.size
            return piece.end
        ledger.validator = ledger.validator or answer.validator
        piece.end = min(piece.end or 0, ledger.size or 0)
        if self._ranges is Ranges.UNKNOWN:
            self._ranges = Ranges.GOOD
            ledger.plan((piece.start, piece.end))
            self.board.changed.notify_all()
        return min(answer.end or 0, piece.end)

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
            if self._ranges is Ranges.NONE and piece.start + len(data) == end and raw.read(1):
                raise FetchError(f"the server sent more than the {end} bytes that it announced")
            self._write(piece, data)
        if end is None:
            self._end(piece)
        elif piece.start < end:
            raise TransientError(f"the connection ended after {piece.start} of {self.size} bytes", "try again")

    def _write(self, piece: Piece, data: bytes) -> None:
        if self.board.stopping.is_set() or not self._part.write(piece.epoch, piece.start, data):
            raise SupersededError
        with self.board.changed:
            self._check_current(piece)
            piece.start, start = piece.start + len(data), piece.start
            self._ledger.coverage.add(start, piece.start)
            before, self.front = self.front, self._ledger.coverage.front
            if before // STEP != self.front // STEP or self.front == self.size:
                self.board.changed.notify_all()

    def _end(self, piece: Piece) -> None:
        """All of a body has come whose length nobody had announced."""
        if not piece.start and self._remote.check is not None:
            self._remote.check(b"")
        with self.board.changed:
            self._check_current(piece)
            self.size = self._ledger.size = piece.end = piece.start
            self.board.changed.notify_all()

    def _pause(self, error: TransientError, seconds: float) -> None:
        self.note = f"{error.message}; again in {seconds:.0f} s" if seconds >= 1 else ""
        if self.board.stopping.wait(seconds):
            raise SupersededError
        self.note = ""

    def _rewind(self, piece: Piece) -> None:
        """Without ranges nothing that came is of use to the next attempt."""
        if self._ranges is Ranges.NONE:
            with self.board.changed:
                self._check_current(piece)
                self._empty()
                self._ledger.todo.clear()
                piece.start, piece.end, piece.epoch = 0, self.size, self.epoch

    def _start_over(self, why: str, *, whole: bool) -> SupersededError:
        """Forget what is there; `whole` says that ranges are of no use. Called with the lock."""
        self._ranges = Ranges.NONE if whole else Ranges.UNKNOWN
        self._empty()
        self._restarts += 1
        if self._restarts > _MOST_RESTARTS:
            raise FetchError(f"the server contradicts itself about {self.name}: {why}", "try again, or ask its owner")
        return SupersededError()

    def _empty(self) -> None:
        """Nothing is there, and all of it is to be asked for. Called with the lock."""
        self._part.start_over()
        self._ledger.empty()
        self._ledger.plan(whole=self._ranges is Ranges.NONE)
        self.front, self.epoch = 0, self._part.epoch
        self._adopt_size()
        self.board.changed.notify_all()  # a reader of what was there has to hear of it

    def _adopt_size(self) -> None:
        self.size = self._ledger.size
        if self.size is not None:
            self._part.reserve(self.size)

    def _check_current(self, piece: Piece) -> None:
        if piece.epoch != self.epoch or self.board.stopping.is_set():
            raise SupersededError

    def _reject(self, sha256: str) -> ImageError | Replaced:
        """What a journal brought may have been damaged on the disk: then once from zero."""
        if self._ledger.resumed:
            self._start_over("what had arrived was damaged", whole=False)
            return Replaced()
        self._wrong_content = True
        return super()._reject(sha256)
