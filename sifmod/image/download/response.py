"""A response: which bytes its headers announce (RFC 9110, section 14), and whether the transfer can use them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import requests

from sifmod.errors import FetchError
from sifmod.image.download.pieces import Piece
from sifmod.image.remote import Remote

_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_STRONG = re.compile(r'"[\x21\x23-\x7e]*"')


class Ranges(Enum):
    """Whether a server gives a file in ranges: the state of its transfer."""

    UNKNOWN = "it has not answered yet"
    GOOD = "it does"
    NONE = "it does not"


@dataclass(frozen=True)
class Head:
    """The head of one response. `start` and `end` are the bytes that it sends, of `total`; None where it does not say.

    `encoded` says that the body is compressed on its way, and then no length says anything.
    """

    status: int  # 200, 206, 416
    start: int | None
    end: int | None
    total: int | None
    validator: str  # of the content, for If-Range: a strong ETag, else a date; "" without any
    encoded: bool

    def differs(self, validator: str) -> bool:
        """Whether it is of other content than `validator`; False where one of the two is empty."""
        return bool(validator and self.validator and validator != self.validator)


@dataclass(frozen=True)
class Known:
    """What is known of a file: its size in bytes or None, its validator or "", whether bytes of it are there."""

    size: int | None
    validator: str
    begun: bool
    ranges: Ranges


@dataclass(frozen=True)
class Restart:
    """The transfer has to start over, for the reason `why`; `whole` says that ranges are of no use."""

    why: str
    whole: bool = False


_CHANGED = Restart("the content changed")
_OTHER_RANGE = Restart("it sends another range than was asked for", whole=True)


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
    etag = headers.get("ETag", "").strip()
    if etag:
        return etag if _STRONG.fullmatch(etag) else ""
    date = headers.get("Last-Modified", "").strip()
    return date if date.isascii() and date.isprintable() and len(date) < 64 else ""


def why_restart(head: Head, asked: Piece, known: Known, remote: Remote) -> Restart | None:
    """Why the transfer has to start over after this response to the request for `asked`; None where its bytes are good.

    Pure. Raises FetchError where starting over would not help.
    """
    restart = None
    if head.status == 206 and known.ranges is not Ranges.NONE:
        restart = _judge_range(head, asked, known)
    elif head.status == 200:
        if known.begun or asked.start:
            restart = Restart("it gives no ranges", whole=True)
    elif known.ranges is Ranges.NONE:
        raise FetchError(f"the server answers {head.status} to a request for all of {remote.name}")
    else:
        restart = Restart("it has no such range", whole=not asked.start)
    if head.differs(known.validator) and not remote.by_digest and (restart or head.status == 206):
        return _CHANGED
    if restart or head.total is None or known.size in (None, head.total):
        return restart
    if remote.size is None and head.validator != known.validator:
        return _CHANGED
    raise FetchError(
        f"the server announces {head.total} bytes of {remote.name}, and {known.size} were promised",
        "the file was replaced at its source, or a proxy is in the way",
    )


def _judge_range(head: Head, asked: Piece, known: Known) -> Restart | None:
    if asked.end is None or head.encoded or head.start != asked.start or head.end is None:
        return _OTHER_RANGE
    if not asked.start < head.end <= min(asked.end, head.total or asked.end):
        return _OTHER_RANGE
    if head.total is None and known.size is None:
        return Restart("it does not say how long the whole is", whole=True)
    return None
