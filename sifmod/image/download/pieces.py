"""The pieces of a file that is being downloaded: which bytes have arrived, and which must be requested."""

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum
from itertools import pairwise
from pathlib import Path

import requests

from sifmod.errors import FetchError
from sifmod.image.artifact import Remote
from sifmod.image.download import journal
from sifmod.image.download.journal import Record, Span

_FIRST = 8 << 20  # bytes of the first request if the size is unknown
_SHORTEST, _LONGEST = 8 << 20, 64 << 20  # bytes of a piece


@dataclass
class Piece:
    """A range that one thread requests: from `start`, which advances, to before `end` (None: the end of the file)."""

    start: int
    end: int | None
    epoch: int


class Coverage:
    """Disjoint spans of bytes in ascending order. Not thread-safe."""

    def __init__(self, spans: tuple[Span, ...] = ()) -> None:
        self.spans: tuple[Span, ...] = ()
        self._take(spans)

    def add(self, start: int, end: int) -> None:
        self._take(((start, end),))

    def _take(self, spans: tuple[Span, ...]) -> None:
        found: list[Span] = []
        for start, end in sorted((*self.spans, *spans)):
            if found and start <= found[-1][1]:
                found[-1] = (found[-1][0], max(end, found[-1][1]))
            elif start < end:
                found.append((start, end))
        self.spans = tuple(found)

    @property
    def front(self) -> int:
        """The number of bytes from the beginning without a gap."""
        return self.spans[0][1] if self.spans and self.spans[0][0] == 0 else 0

    @property
    def total(self) -> int:
        return sum(end - start for start, end in self.spans)

    def missing(self, size: int) -> tuple[Span, ...]:
        """The gaps between the spans in the first `size` bytes."""
        starts = (0, *(end for _, end in self.spans))
        ends = (*(start for start, _ in self.spans), size)
        return tuple((start, min(end, size)) for start, end in zip(starts, ends, strict=True) if start < min(end, size))


class Ranges(Enum):
    """Whether the server of a transfer gives its file in ranges."""

    UNKNOWN = "it has not answered yet"
    GOOD = "it does"
    NONE = "it does not"


class Pieces:
    """The bytes of `remote` in the file `path`, and those still `todo`. Not thread-safe.

    `size` in bytes (None until known) and `validator` ("" until known) describe the content, `ranges` the server.
    `resumed`: the journal of an earlier run was used.
    """

    def __init__(self, remote: Remote, path: Path, connections: int) -> None:
        self.remote = remote
        self._path = path
        self._connections = connections
        self._written: Record | None = None
        self.size = remote.size
        self.validator = ""
        self.ranges = Ranges.UNKNOWN
        self.resumed = False
        self.coverage = Coverage()
        self.todo: deque[Span] = deque()

    def load(self) -> bool:
        """Use the journal beside the file; False if there is none, or if the content may have changed since."""
        record = journal.load(self._path)
        if record is None or self.size not in (None, record.size):
            return False
        same = record.digest != "" and record.digest == self.remote.digest
        if not same and (not if_range(record.validator) or self.remote.by_digest):
            return False
        self.size, self.validator = record.size, record.validator
        self.coverage = Coverage(record.spans)
        self.resumed, self._written = True, record
        return True

    def unsaved(self) -> Record | None:
        """The journal to write, which then counts as written; None if it is up to date, or nothing could be resumed."""
        if self.size is None or not (self.remote.digest or if_range(self.validator)) or not self.coverage.total:
            return None
        record = Record(self.size, self.remote.digest, self.validator, self.coverage.spans)
        if record == self._written:
            return None
        self._written = record
        return record

    def plan(self, *taken: Span, whole: bool = False) -> None:
        """Set `todo` to the missing ranges, without the `taken` ones; `whole`: all of the file in one request.

        If the size is unknown, `todo` is only the first 8 MiB.
        """
        if self.size is None:
            self.todo = deque([(0, _FIRST)])
        elif whole:
            self.todo = deque([(0, self.size)] if self.size else [])
        else:
            length = min(max(self.size // (8 * self._connections), _SHORTEST), _LONGEST) >> 20 << 20
            self.todo = deque(cut(Coverage((*self.coverage.spans, *taken)).missing(self.size), length))

    def empty(self) -> None:
        """Forget the journal and all arrived bytes; of the content only the promised size and digest stay known."""
        journal.forget(self._path)
        self.coverage = Coverage()
        self.size, self.validator = self.remote.size, ""
        self.resumed, self._written = False, None


def cut(spans: tuple[Span, ...], length: int) -> tuple[Span, ...]:
    """`spans` split at multiples of `length`, so that a resumed file is split as before."""
    pieces: list[Span] = []
    for start, end in spans:
        edges = (start, *range((start // length + 1) * length, end, length), end)
        pieces += pairwise(edges)
    return tuple(pieces)


_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_ETAG = re.compile(r'(W/)?"[\x21\x23-\x7e]*"')
_WEAK = "W/"
_YOUNG = 60  # seconds; a file that changed so shortly before may change again and keep its date: RFC 9110, 8.8.2.2


@dataclass(frozen=True)
class Head:
    """The head of one response: it sends the bytes from `start` to before `end`, of `total`; None if unknown.

    `encoded`: the body is compressed in transit, and its lengths mean nothing.
    """

    status: int  # 200, 206, 416
    start: int | None
    end: int | None
    total: int | None
    validator: str  # the content's ETag, also a weak one, and its date, each on a line; `W/` before a weak date; or ""
    encoded: bool

    def differs(self, validator: str) -> bool:
        """Whether the response may have other content than `validator` identifies; False if `validator` is empty.

        One without a validator may: after If-Range, RFC 9110 (15.3.7) wants the ETag in it, and a server that ignores
        If-Range sends neither.
        """
        if not validator or not self.validator:
            return bool(validator)
        (own, date), (etag, before) = (text.partition("\n")[::2] for text in (self.validator, validator))
        return own != etag or bool(date and before and date != before)


@dataclass(frozen=True)
class Restart:
    """The transfer must restart, for the reason `why`; `whole`: ranges do not work."""

    why: str
    whole: bool = False


_CHANGED = Restart("the content changed")
_UNNAMED = Restart("the response does not identify its content", whole=True)
_OTHER_RANGE = Restart("the response has another range than the requested one", whole=True)


def read_head(response: requests.Response) -> Head:
    headers = response.headers
    encoded = headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity")
    start = end = total = None
    if response.status_code == 200:
        length = headers.get("Content-Length", "").strip()
        start = 0
        end = total = int(length) if _NUMBER.fullmatch(length) and not encoded else None
    elif response.status_code == 206 and (found := _RANGE.fullmatch(headers.get("Content-Range", "").strip())):
        start, end = int(found[1]), int(found[2]) + 1
        total = None if found[3] == "*" else int(found[3])
    return Head(response.status_code, start, end, total, _validator(headers), encoded)


def _validator(headers: Mapping[str, str]) -> str:
    etag, date = (headers.get(name, "").strip() for name in ("ETag", "Last-Modified"))
    date = date if date.isascii() and date.isprintable() and len(date) < 64 else ""
    if not _ETAG.fullmatch(etag):
        etag = _WEAK if date and _seconds_between(date, headers.get("Date", "").strip()) < _YOUNG else ""
    return f"{etag}\n{date}".rstrip("\n")


def _seconds_between(before: str, after: str) -> float:
    """The seconds from one HTTP date to another; 0 if one of the texts is no date."""
    try:
        return (parsedate_to_datetime(after) - parsedate_to_datetime(before)).total_seconds()
    except (ValueError, TypeError, OverflowError):  # TypeError: only one of them has a time zone
        return 0


def if_range(validator: str) -> str:
    """The part of a validator that If-Range accepts, and that identifies the content: a strong ETag or date, or ""."""
    etag, _, date = validator.partition("\n")
    return "" if etag.startswith(_WEAK) else etag or date


def why_restart(head: Head, asked: Piece, known: Pieces) -> Restart | None:
    """Why the transfer must restart after this response to the request for `asked`; None if its bytes are usable.

    Changes nothing. Raises FetchError if a restart would not help.
    """
    restart, remote = None, known.remote
    if head.status == 206 and known.ranges is not Ranges.NONE:
        restart = _judge_range(head, asked, known)
    elif head.status == 200:
        if known.coverage.total or asked.start:
            restart = Restart("the server does not support ranges", whole=True)
    elif known.ranges is Ranges.NONE:
        raise FetchError(f"the server answers a request for all of {remote.name} with {head.status}")
    else:
        restart = Restart("the server has no such range", whole=not asked.start)
    if head.differs(known.validator) and not remote.by_digest and (restart or head.status == 206):
        return _CHANGED
    if restart or head.total is None or known.size in (None, head.total):
        return restart
    if remote.size is None and head.validator != known.validator:
        return _CHANGED
    raise FetchError(
        f"the server announces {head.total} bytes of {remote.name}, expected {known.size}",
        "the file was replaced at its source, or a proxy interferes",
    )


def _judge_range(head: Head, asked: Piece, known: Pieces) -> Restart | None:
    named = known.remote.digest or if_range(head.validator) or if_range(known.validator)
    if not named and (asked.start or head.total != head.end):
        return _UNNAMED
    if asked.end is None or head.encoded or head.start != asked.start or head.end is None:
        return _OTHER_RANGE
    if not asked.start < head.end <= min(asked.end, head.total or asked.end):
        return _OTHER_RANGE
    if head.total is None and known.size is None:
        return Restart("the response does not give the total size", whole=True)
    return None
