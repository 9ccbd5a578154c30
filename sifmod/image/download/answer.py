"""An Answer: what a server says, in its headers, about the bytes that it is going to send (RFC 9110, section 14)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import requests

_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_STRONG = re.compile(r'"[\x21\x23-\x7e]*"')


@dataclass(frozen=True)
class Answer:
    """One answer. `start` and `end` are the bytes that it sends, of `total`; None where it does not say.

    `encoded` says that the body is compressed on its way, and then no length says anything.
    """

    status: int  # 200, 206, 416
    start: int | None
    end: int | None
    total: int | None
    validator: str  # of the content, for If-Range: a strong ETag, else a date; "" without any
    encoded: bool

    def differs(self, validator: str) -> bool:
        """Whether it speaks of other content than `validator`; False where one of them says nothing."""
        return bool(validator and self.validator and validator != self.validator)


def read_answer(response: requests.Response) -> Answer:
    """What the headers of `response` say."""
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
    return Answer(response.status_code, start, end, total, _validator(headers), encoded)


def _validator(headers: Mapping[str, str]) -> str:
    etag = headers.get("ETag", "").strip()
    if etag:
        return etag if _STRONG.fullmatch(etag) else ""
    date = headers.get("Last-Modified", "").strip()
    return date if date.isascii() and date.isprintable() and len(date) < 64 else ""
