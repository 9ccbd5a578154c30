"""A transfer: the download of one file, piece by piece, from a server that may misbehave.

Its state records whether the server supports ranges. When bytes are discarded a new epoch begins, and readers of the
earlier one read again. The fourth `_start_over` fails; breaks without ranges are bounded by `RetryPolicy`. `Pool` calls
`take` and `run` in its threads, `save` once a second and `close` at the end; the lock is `shared.changed`.

    UNKNOWN        a range comes                    GOOD: several requests at once from now on   _accept
                   all comes, and none was there    NONE                                         _accept
    UNKNOWN, GOOD  the content changed              UNKNOWN, from zero; after a restart NONE     _start_over
                   no range comes, or another one   NONE, from zero                              _start_over
                   the connection breaks            the rest of the piece is requested again     run
    NONE           the connection breaks            NONE, from zero                              _rewind
    any            the digest of all is wrong       UNKNOWN, from zero, where a journal was      _reject
                                                    used, for the disk may be to blame
"""

from pathlib import Path

import requests
import urllib3

from sifmod.errors import FetchError, ImageError
from sifmod.image.artifact import Remote
from sifmod.image.convert.layers.stream import Replaced
from sifmod.image.disk import NoSpaceError
from sifmod.image.download import journal
from sifmod.image.download.arriving_file import STEP, ArrivingFile, Shared
from sifmod.image.download.journal import PartialFile
from sifmod.image.download.pieces import Head, Piece, Pieces, Ranges, if_range, read_head, why_restart
from sifmod.image.download.unannounced import Unannounced
from sifmod.image.registry.network import RETRY_POLICY, Attempts, RetryPolicy, SlowError, TransientError
from sifmod.image.settings import Settings

_CHUNK = 1 << 18  # bytes at a time; at most this much is lost when the connection breaks
_SMALL_CHUNK = 1 << 14  # bytes at a time after an attempt without data
_MOST_RESTARTS = 3


class SupersededError(Exception):
    """A thread's work is obsolete: the transfer restarts or stops. Raised in download threads only."""


class Transfer(ArrivingFile):
    """The transfer of `remote` into the file `path`, continued from its journal if one fits.

    Reserves disk space for the whole file as soon as its size is known; raises NoSpaceError.
    """

    def __init__(
        self, shared: Shared, remote: Remote, path: Path, settings: Settings, patience: RetryPolicy = RETRY_POLICY
    ) -> None:
        super().__init__(shared, remote.name, path, remote.size, remote.digest)
        self._remote = remote
        self._patience = patience
        self._part = PartialFile(path, settings.striping)
        self._pieces = Pieces(remote, path, settings.connections)
        self._answered = False
        self._wrong_content = False
        self._busy = 0
        self._restarts = 0
        try:
            with shared.changed:
                if self._pieces.load():
                    self._adopt_size()
                    self.front = self._pieces.coverage.front
                    self._pieces.plan()
                else:
                    self._empty()
        except BaseException:
            self.close(None)
            raise

    @property
    def received(self) -> int:
        return self._pieces.coverage.total

    def take(self) -> Piece | None:
        """The next piece to request; None if there is none now. Called with the lock held; `run` must follow."""
        if not self._pieces.todo or (self._busy and self._pieces.ranges is not Ranges.GOOD):
            return None
        self._busy += 1
        start, end = self._pieces.todo.popleft()
        unbounded = self._pieces.ranges is Ranges.NONE and self.size is None
        return Piece(start, None if unbounded else end, self.epoch)

    def run(self, piece: Piece) -> None:
        """Request `piece` until it is complete or obsolete.

        Raises FetchError if a retry cannot help or too many failed, ImageError from `remote.check`, and NoSpaceError.
        """
        attempts = Attempts(self._patience)
        try:
            while piece.end is None or piece.start < piece.end:
                before = piece.start
                try:
                    self._ask(piece, _SMALL_CHUNK if attempts.fruitless else _CHUNK)
                    left = (piece.end or 0) - piece.start
                    if left > 0 and not attempts.is_progress(came := piece.start - before):
                        raise TransientError(f"the server sent {came} of {came + left} requested bytes", "use a mirror")
                except TransientError as error:
                    kept = self._pieces.ranges is Ranges.GOOD and not isinstance(error, SlowError)
                    came = piece.start - before if kept else 0
                    self._pause(error, attempts.failed(error, came=came, answered=self._answered))
                    self._rewind(piece)
        except SupersededError:
            pass
        except ImageError:
            self._wrong_content = True
            raise
        finally:
            with self.shared.changed:
                self._busy -= 1
                self.shared.changed.notify_all()

    def save(self) -> None:
        """Sync the data and write the journal; does nothing if the journal is up to date or ranges do not work."""
        with self.shared.changed:
            record = self._pieces.unsaved() if self._pieces.ranges is not Ranges.NONE else None
            epoch = self.epoch
        if record is None:
            return
        self._part.sync()
        journal.save(self.path, record)
        with self.shared.changed:
            if epoch != self.epoch:
                journal.forget(self.path)

    def close(self, failure: BaseException | None) -> None:
        """Stop writing. Keep verified or resumable data; remove the rest, and after NoSpaceError what is unverified."""
        with self.shared.changed:
            kept = self.sha256 or (self.received and journal.journal_path(self.path).exists())
            wrong = self._wrong_content or (isinstance(failure, NoSpaceError) and not self.sha256)
        if wrong or not kept:
            self._part.remove()
            journal.forget(self.path)
        self._part.close()

    def _accept(self, head: Head, piece: Piece) -> int | None:
        """The end of the wanted bytes in this response (None: all); raises what `_start_over` returns.

        Called with the lock held.
        """
        pieces = self._pieces
        if restart := why_restart(head, piece, pieces):
            raise self._start_over(restart.why, whole=restart.whole or self._restarts > 0)
        if head.total == 0 and self._remote.check is not None:
            self._remote.check(b"")
        if pieces.size is None and head.total is not None:
            pieces.size = head.total
            self._adopt_size()
        if head.status == 200:
            pieces.validator = head.validator
            self._pieces.ranges = Ranges.NONE
            pieces.todo.clear()
            piece.end = pieces.size
            return piece.end
        piece.end = min(piece.end or 0, pieces.size or 0)
        if self._pieces.ranges is Ranges.UNKNOWN:
            self._pieces.ranges = Ranges.GOOD
            if not pieces.coverage.total:
                pieces.validator = head.validator
            pieces.plan((piece.start, piece.end))
            self.shared.changed.notify_all()
        return min(head.end or 0, piece.end)

    def _rewind(self, piece: Piece) -> None:
        """Without ranges, begin the next attempt at zero."""
        if self._pieces.ranges is Ranges.NONE:
            with self.shared.changed:
                self._check_current(piece)
                self._empty()
                self._pieces.todo.clear()
                piece.start, piece.end, piece.epoch = 0, self.size, self.epoch

    def _start_over(self, why: str, *, whole: bool) -> SupersededError:
        """Discard the data and return the exception for the thread.

        `whole`: ranges do not work. Called with the lock held.

        Raises FetchError on the fourth restart.
        """
        self._pieces.ranges = Ranges.NONE if whole else Ranges.UNKNOWN
        self._empty()
        self._restarts += 1
        if self._restarts > _MOST_RESTARTS:
            raise FetchError(
                f"the server gives inconsistent responses for {self.name}: {why}",
                "try again, or ask the owner of the server",
            )
        return SupersededError()

    def _reject(self, sha256: str) -> ImageError | Replaced:
        """The error for wrong content. Resumed data may be damaged on disk: then the download restarts once."""
        if self._pieces.resumed:
            self._start_over("the partial download was damaged", whole=False)
            return Replaced()
        self._wrong_content = True
        return super()._reject(sha256)

    def _empty(self) -> None:
        """Discard all data, and plan to request everything again. Called with the lock held."""
        self._part.start_over()
        self._pieces.empty()
        self._pieces.plan(whole=self._pieces.ranges is Ranges.NONE)
        self.front, self.epoch = 0, self._part.epoch
        self._adopt_size()
        self.shared.changed.notify_all()  # readers of the discarded data must be notified

    def _adopt_size(self) -> None:
        self.size = self._pieces.size
        if self.size is not None:
            self._part.reserve(self.size)

    def _ask(self, piece: Piece, chunk: int) -> None:
        headers: dict[str, str] = {}
        if self._pieces.ranges is not Ranges.NONE and piece.end is not None:
            headers["Range"] = f"bytes={piece.start}-{piece.end - 1}"
            if not self._remote.by_digest and (same := if_range(self._pieces.validator)):
                headers["If-Range"] = same
        with self._remote.get(headers) as response:
            head = read_head(response)
            with self.shared.changed:
                self._check_current(piece)
                self._answered = True
                end = self._accept(head, piece)
            self._receive(response, piece, end, chunk, decode=head.encoded)

    def _receive(self, response: requests.Response, piece: Piece, end: int | None, chunk: int, *, decode: bool) -> None:
        raw: urllib3.HTTPResponse = response.raw
        raw.enforce_content_length = False  # we count the received bytes ourselves
        unannounced = Unannounced(self._remote) if end is None else None
        while end is None or piece.start < end:
            wanted = chunk if end is None else min(chunk, end - piece.start)
            data = raw.read(wanted, decode_content=decode)
            if not data:
                break
            if not piece.start and self._remote.check is not None:
                self._remote.check(data)
            if (
                self._pieces.ranges is Ranges.NONE
                and piece.start + len(data) == end
                and raw.read(1, decode_content=decode)
            ):
                raise FetchError(f"the server sent more than the {end} bytes that it announced")
            if unannounced is not None:
                self._limit(unannounced, data)
            self._write(piece, data)
        if end is None:
            self._end(piece)
        elif piece.start < end:
            raise TransientError(f"the connection ended at byte {piece.start} of {self.size} bytes", "try again")

    def _limit(self, body: Unannounced, data: bytes) -> None:
        """Reserve disk space as soon as `body` says where it ends. Raises ImageError for bytes after it."""
        before = body.end
        body.add(data)
        if body.end is not None and before is None:
            self._part.reserve(body.end)

    def _write(self, piece: Piece, data: bytes) -> None:
        if self.shared.stopping.is_set() or not self._part.write(piece.epoch, piece.start, data):
            raise SupersededError
        with self.shared.changed:
            self._check_current(piece)
            piece.start, start = piece.start + len(data), piece.start
            self._pieces.coverage.add(start, piece.start)
            before, self.front = self.front, self._pieces.coverage.front
            if before // STEP != self.front // STEP or self.front == self.size:
                self.shared.changed.notify_all()

    def _end(self, piece: Piece) -> None:
        """Take what has arrived as the whole content, after the end of a body of unknown length."""
        if not piece.start and self._remote.check is not None:
            self._remote.check(b"")
        with self.shared.changed:
            self._check_current(piece)
            self.size = self._pieces.size = piece.end = piece.start
            self.shared.changed.notify_all()

    def _pause(self, error: TransientError, seconds: float) -> None:
        self.note = f"{error.message}; retrying in {seconds:.0f} s" if seconds >= 1 else ""
        if self.shared.stopping.wait(seconds):
            raise SupersededError
        self.note = ""

    def _check_current(self, piece: Piece) -> None:
        if piece.epoch != self.epoch or self.shared.stopping.is_set():
            raise SupersededError
