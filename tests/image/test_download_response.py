"""What a server says of the bytes that it is going to send, and what such an answer is good for."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import requests

from sifmod.errors import FetchError
from sifmod.image.artifact import Remote
from sifmod.image.download.pieces import Head, Piece, Pieces, Ranges, Restart, if_range, read_head, why_restart

DATE = "Tue, 15 Nov 1994 12:45:26 GMT"
LATER = "Tue, 15 Nov 1994 12:46:26 GMT"


def said(status: int, headers: dict[str, str]) -> Head:
    response = requests.Response()
    response.status_code = status
    response.headers.update(headers)
    return read_head(response)


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (200, {"Content-Length": "12"}, (0, 12, 12)),
        (200, {"Content-Length": " 12 "}, (0, 12, 12)),
        (200, {"Content-Length": "9" * 18}, (0, int("9" * 18), int("9" * 18))),
        (200, {"Content-Length": "9" * 19}, (0, None, None)),
        (200, {"Content-Length": "12, 12"}, (0, None, None)),
        (200, {"Content-Length": "-1"}, (0, None, None)),
        (200, {}, (0, None, None)),
        (200, {"Content-Length": "12", "Content-Range": "bytes 5-9/20"}, (0, 12, 12)),
        (206, {"Content-Range": "bytes 5-9/20", "Content-Length": "3"}, (5, 10, 20)),
        (206, {"Content-Range": " bytes 5-9/* "}, (5, 10, None)),
        (206, {"Content-Range": "bytes 5-9/20, 12-13/20"}, (None, None, None)),
        (206, {"Content-Range": "bytes */20"}, (None, None, None)),
        (206, {"Content-Length": "12"}, (None, None, None)),
        (416, {"Content-Range": "bytes 5-9/20", "Content-Length": "12"}, (None, None, None)),
    ],
)
def test_which_bytes_come(status: int, headers: dict[str, str], expected: tuple[int | None, ...]) -> None:
    head = said(status, headers)
    assert (head.status, head.start, head.end, head.total) == (status, *expected)
    assert not head.encoded


@pytest.mark.parametrize(
    ("encoding", "encoded"),
    [("gzip", True), ("identity, gzip", True), ("", False), ("identity", False), (" Identity ", False)],
)
def test_a_length_of_what_is_compressed_on_its_way_says_nothing(encoding: str, encoded: bool) -> None:
    head = said(200, {"Content-Length": "12", "Content-Encoding": encoding})
    assert (head.encoded, head.total, head.end) == (encoded, *[None if encoded else 12] * 2)


@pytest.mark.parametrize(
    ("headers", "validator"),
    [
        ({}, ""),
        ({"ETag": ' "a" '}, '"a"'),
        ({"ETag": '""'}, '""'),
        ({"ETag": '"a"', "Last-Modified": DATE}, f'"a"\n{DATE}'),
        ({"ETag": 'W/"a"', "Last-Modified": DATE}, f'W/"a"\n{DATE}'),
        ({"ETag": 'W/"a"'}, 'W/"a"'),
        ({"ETag": '"a" x'}, ""),
        ({"ETag": '"a b"'}, ""),
        ({"ETag": "", "Last-Modified": f" {DATE} ", "Date": f" {LATER} "}, f"\n{DATE}"),
        ({"Last-Modified": DATE, "Date": LATER.replace("46:26", "46:25")}, f"W/\n{DATE}"),
        ({"Last-Modified": LATER, "Date": DATE}, f"W/\n{LATER}"),
        ({"Last-Modified": DATE}, f"W/\n{DATE}"),
        ({"Last-Modified": DATE, "Date": "Tue, 15 Nov 999999 12:46:26 GMT"}, f"W/\n{DATE}"),
        ({"Last-Modified": DATE, "Date": LATER.replace("GMT", "-0000")}, f"W/\n{DATE}"),
        ({"Last-Modified": "x" * 63, "Date": LATER}, "W/\n" + "x" * 63),
        ({"Last-Modified": "x" * 64}, ""),
        ({"Last-Modified": "\u00fc"}, ""),
        ({"Last-Modified": "a\x01b"}, ""),
    ],
)
def test_what_the_content_is_known_by(headers: dict[str, str], validator: str) -> None:
    assert said(206, headers).validator == validator


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        ('"a"', '"b"', True),
        ('"a"', '"a"', False),
        ('"a"', "", False),
        ("", '"a"', True),  # a server that ignores If-Range: old and new parts were joined
        ("", "\nSunday", True),
        ("", "", False),
        ('W/"a"', 'W/"b"', True),
        ('W/"a"', '"a"', True),
        ("", 'W/"a"', True),  # If-Range takes no weak one
        ("", 'W/"a"\nMonday', True),
        ('"a"\nMonday', '"a"\nSunday', True),
        ('"a"', '"a"\nSunday', False),
        ("\nMonday", "\nSunday", True),
        ("\nSunday", "\nSunday", False),
        ("\nSunday", '"a"\nSunday', True),
    ],
)
def test_what_differs(one: str, other: str, differs: bool) -> None:
    assert Head(200, 0, None, None, one, False).differs(other) is differs


@pytest.mark.parametrize(
    ("validator", "asked"),
    [
        ("", ""),
        ('"a"\nMonday', '"a"'),
        ('"a"', '"a"'),
        ('W/"a"\nMonday', ""),
        ("W/\nMonday", ""),
        ('W/"a"', ""),
        ("\nMonday", "Monday"),
    ],
)
def test_what_is_asked_with(validator: str, asked: str) -> None:
    assert if_range(validator) == asked


def remote(size: int | None = None, *, by_digest: bool = False) -> Remote:
    return Remote("x.sif", lambda _: nullcontext(requests.Response()), size, by_digest=by_digest)


def ranged(
    start: int | None = 8, end: int | None = 16, total: int | None = 100, validator: str = '"a"', encoded: bool = False
) -> Head:
    return Head(206, start, end, total, validator, encoded)


def whole(total: int | None = 100, validator: str = '"a"') -> Head:
    return Head(200, 0, total, total, validator, False)


def known(size: int | None, validator: str, begun: bool, ranges: Ranges, promised: Remote | None = None) -> Pieces:
    pieces = Pieces(promised or remote(), Path("x.sif"), 4)
    pieces.size, pieces.validator, pieces.ranges = size, validator, ranges
    pieces.coverage.add(0, 8 if begun else 0)
    return pieces


GONE = Head(416, None, None, None, '"a"', False)
ASKED = Piece(8, 16, 0)
FIRST = Piece(0, 16, 0)
KNOWN = known(100, '"a"', True, Ranges.GOOD)
NOTHING = known(None, "", False, Ranges.UNKNOWN)
TAKE = None
CHANGED = Restart("the content changed")
OTHER = Restart("the response has another range than the requested one", True)
UNNAMED = Restart("the response does not identify its content", True)
PROMISED = Remote("x.sif", lambda _: nullcontext(requests.Response()), 100, "sha256:x")
NO_RANGES = Restart("the server does not support ranges", True)
NO_LENGTH = Restart("the response does not give the total size", True)


@pytest.mark.parametrize(
    ("head", "asked", "there", "expected"),
    [
        (ranged(), ASKED, KNOWN, TAKE),
        (ranged(), ASKED, NOTHING, TAKE),
        (ranged(validator=""), FIRST, NOTHING, UNNAMED),
        (ranged(validator=""), ASKED, NOTHING, UNNAMED),
        (ranged(validator='W/"a"'), FIRST, NOTHING, UNNAMED),
        (ranged(8, 16, 16, validator=""), ASKED, NOTHING, UNNAMED),
        (ranged(0, 16, 16, validator=""), FIRST, NOTHING, TAKE),
        (ranged(0, 16, validator=""), FIRST, known(None, "", False, Ranges.UNKNOWN, PROMISED), TAKE),
        (ranged(end=12), ASKED, KNOWN, TAKE),  # less than was asked for
        (ranged(total=16), ASKED, NOTHING, TAKE),
        (ranged(total=None), ASKED, KNOWN, TAKE),
        (ranged(total=None), ASKED, NOTHING, NO_LENGTH),
        (ranged(encoded=True), ASKED, KNOWN, OTHER),
        (ranged(), Piece(8, None, 0), KNOWN, OTHER),
        (ranged(start=9), ASKED, KNOWN, OTHER),
        (ranged(start=8, end=None), ASKED, KNOWN, OTHER),
        (ranged(end=8), ASKED, KNOWN, OTHER),
        (ranged(end=17), ASKED, KNOWN, OTHER),
        (ranged(end=17, total=None), ASKED, KNOWN, OTHER),
        (ranged(total=15), ASKED, NOTHING, OTHER),
        (ranged(validator='"b"'), ASKED, KNOWN, CHANGED),
        (ranged(validator='"b"', start=9), ASKED, KNOWN, CHANGED),
        (ranged(validator=""), ASKED, KNOWN, CHANGED),
        (ranged(validator='"b"', total=120), ASKED, KNOWN, CHANGED),
        (ranged(validator="", total=120), ASKED, KNOWN, CHANGED),
        (whole(), FIRST, NOTHING, TAKE),
        (whole(None), FIRST, known(100, '"a"', False, Ranges.NONE), TAKE),
        (whole(), FIRST, KNOWN, NO_RANGES),
        (whole(120), FIRST, KNOWN, NO_RANGES),
        (whole(), ASKED, NOTHING, NO_RANGES),
        (whole(validator='"b"'), FIRST, KNOWN, CHANGED),
        (whole(validator='"b"'), FIRST, known(100, '"a"', False, Ranges.GOOD), TAKE),
        (whole(120, '"b"'), FIRST, known(100, '"a"', False, Ranges.GOOD), CHANGED),
        (GONE, ASKED, KNOWN, Restart("the server has no such range")),
        (GONE, FIRST, NOTHING, Restart("the server has no such range", True)),
        (Head(416, None, None, None, '"b"', False), ASKED, KNOWN, CHANGED),
    ],
)
def test_what_an_answer_is_good_for(head: Head, asked: Piece, there: Pieces, expected: Restart | None) -> None:
    assert why_restart(head, asked, there) == expected


@pytest.mark.parametrize(("head", "asked"), [(ranged(validator='"b"'), ASKED), (whole(100, '"b"'), FIRST)])
def test_what_is_asked_for_by_its_digest_does_not_change(head: Head, asked: Piece) -> None:
    there = known(100, '"a"', asked is ASKED, Ranges.GOOD, remote(100, by_digest=True))
    assert why_restart(head, asked, there) is TAKE


@pytest.mark.parametrize(
    ("head", "asked", "there", "size"),
    [
        (ranged(total=120), ASKED, KNOWN, None),
        (whole(120), FIRST, known(100, '"a"', False, Ranges.GOOD), None),
        (whole(120, '"b"'), FIRST, known(100, '"a"', False, Ranges.GOOD), 100),
    ],
)
def test_another_length_of_the_same_content_is_refused(
    head: Head, asked: Piece, there: Pieces, size: int | None
) -> None:
    with pytest.raises(FetchError) as caught:
        why_restart(head, asked, known(100, '"a"', there.coverage.total > 0, Ranges.GOOD, remote(size)))
    assert caught.value.message == "the server announces 120 bytes of x.sif, expected 100"


@pytest.mark.parametrize("head", [GONE, ranged(0, 16)])
def test_who_was_asked_for_all_gives_all(head: Head) -> None:
    with pytest.raises(FetchError) as caught:
        why_restart(head, FIRST, known(100, '"a"', False, Ranges.NONE))
    assert caught.value.message == f"the server answers a request for all of x.sif with {head.status}"
