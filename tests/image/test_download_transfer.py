"""One file from a server that does what it should, and from one that misbehaves in every way we know."""

import gzip
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from email.utils import formatdate
from itertools import repeat
from pathlib import Path

import pytest

from sifmod.errors import FetchError, ImageError
from sifmod.image.artifact import Remote
from sifmod.image.registry.network import RetryPolicy
from support.downloading import IMPATIENT, LENGTH, Place, content, getter, serving, sha256
from support.ranged import (
    Asked,
    Fault,
    Ranged,
    Span,
    hangs,
    ignores_ranges,
    once,
    other_headers,
    resets_at,
    says,
)
from support.web import Handler, raw

CONTENT = content()
DIGEST = sha256(CONTENT)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "partial")


def together(spans: list[Span | None]) -> list[Span]:
    """The spans, those that touch each other as one."""
    joined: list[Span] = []
    for span in spans:
        assert span is not None
        if joined and joined[-1][1] == span[0]:
            span = (joined.pop()[0], span[1])
        joined.append(span)
    return joined


def fetched(place: Place, file: Ranged, **promised: object) -> None:
    """The right content arrives, whatever the server does."""
    with serving(file) as server:
        outcome = place.fetch(Remote("x.sif", getter(server), **promised))  # type: ignore[arg-type]
    assert outcome.content == CONTENT
    assert outcome.sha256 == DIGEST


def refused(place: Place, file: Ranged, **promised: object) -> FetchError:
    """The error."""
    with serving(file) as server, pytest.raises(FetchError) as caught:
        place.fetch(Remote("x.sif", getter(server), **promised))  # type: ignore[arg-type]
    return caught.value


BLOB = {"size": LENGTH, "digest": DIGEST, "by_digest": True}


@pytest.mark.parametrize("promised", [{}, {"digest": DIGEST}, BLOB], ids=["nothing", "digest", "blob"])
@pytest.mark.parametrize("connections", [1, 4, 9])
def test_every_byte_is_asked_for_once(tmp_path: Path, connections: int, promised: dict[str, object]) -> None:
    file = Ranged(CONTENT)
    fetched(Place(tmp_path, connections), file, **promised)
    assert file.sent == LENGTH
    assert file.log[0].span == (0, 8 << 20)
    assert together(file.spans) == [(0, LENGTH)]
    assert len(file.spans) == 5


def test_several_connections_at_once(place: Place) -> None:
    counts = [0, 0]

    def slowly(file: Ranged, handler: Handler, asked: Asked) -> bool:
        with file.lock:
            counts[0] += 1
            counts[1] = max(counts)
        time.sleep(0.2)
        file.answer(handler, asked)
        with file.lock:
            counts[0] -= 1
        return True

    fetched(place, Ranged(CONTENT, faults=[slowly]))
    assert counts[1] == 4


def test_ranges_belong_to_the_content_that_was_seen_first(place: Place) -> None:
    file = Ranged(CONTENT)
    fetched(place, file)
    assert [asked.if_range for asked in file.log] == ["", *['"one"'] * 4]


@pytest.mark.parametrize("tenth", range(10))
def test_a_reset_at_a_tenth(place: Place, tenth: int) -> None:
    """What came before it is not asked for again, but for the chunk that the reset took away."""
    file = Ranged(CONTENT, faults=[resets_at(LENGTH * tenth // 10)])
    fetched(place, file, **BLOB)
    assert len(file.log) == 6
    assert file.sent <= LENGTH + (1 << 18) + (4 << 20)  # what the kernel held when the reset came is lost as well


def test_resets_at_every_tenth(place: Place) -> None:
    file = Ranged(CONTENT, faults=[resets_at(LENGTH * tenth // 10 + 7) for tenth in range(10)])
    fetched(place, file)
    assert len(file.log) == 15


def test_a_server_that_never_sends_more_than_a_little(place: Place) -> None:
    """Progress is progress: no number of such answers is too many."""

    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
        file.answer(handler, asked, 1_000_000)
        return True

    file = Ranged(CONTENT, faults=[fault])
    fetched(place, file)
    assert file.sent == LENGTH


def test_a_server_that_sends_a_byte_for_each_request_is_given_up(place: Place) -> None:
    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
        file.answer(handler, asked, 1)
        return True

    file = Ranged(CONTENT, faults=[fault])
    error = refused(place, file, **BLOB)
    assert "the connection ended at byte" in error.message
    assert file.sent < 100  # it went on, for years


def test_a_stall_is_given_up_and_the_rest_asked_for(place: Place) -> None:
    file = Ranged(CONTENT, faults=[once(hangs(3_000_000))])
    fetched(place, file)
    assert file.sent < LENGTH + (1 << 18) + 1


def test_a_server_that_stops_answering(place: Place) -> None:
    error = refused(place, Ranged(CONTENT, faults=[hangs(0)]))
    assert "stopped responding (3 attempts)" in error.message
    assert place.left() == []


@pytest.mark.parametrize("sent", [0, 700])
def test_a_server_that_stalls_with_each_answer_is_given_up_after_three(tmp_path: Path, sent: int) -> None:
    """Whatever it has sent before, and however often it may break: three minutes, with the usual limit of silence."""
    place = Place(tmp_path / "here", 1, replace(IMPATIENT, attempts=8, first_attempts=3))

    def stalls(file: Ranged, handler: Handler, asked: Asked) -> bool:
        return len(file.log) > 1 and hangs(sent)(file, handler, asked)

    file = Ranged(CONTENT, faults=[stalls])
    error = refused(place, file, **BLOB)
    assert "stopped responding (3 attempts)" in error.message
    assert [one.sent for one in file.log][1:] == [sent] * 3


def test_a_server_that_sends_a_byte_of_each_range_is_given_up(tmp_path: Path) -> None:
    """Each answer is complete, so that none counted as an attempt: an image would have taken months."""
    place = Place(tmp_path / "here", 1, IMPATIENT)

    def trickles(file: Ranged, handler: Handler, asked: Asked) -> bool:
        time.sleep(0.02 if len(file.log) < 60 else 0)  # then it sends all, so that this ends without the limit, too
        start, end = file.span(asked)
        end = start + 1 if len(file.log) < 60 else end
        file.head(handler, 206, end - start, {"Content-Range": f"bytes {start}-{end - 1}/{LENGTH}"})
        file.send(handler, asked, file.content[start:end])
        return True

    file = Ranged(CONTENT, faults=[trickles])
    error = refused(place, file, **BLOB)
    assert "requested bytes (4 attempts)" in error.message
    assert len(file.log) == 4


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429, 408])
def test_trouble_that_passes(place: Place, status: int) -> None:
    fetched(place, Ranged(CONTENT, faults=[once(says(status), 1), once(says(status, at=LENGTH // 2), 3)]))


@pytest.mark.parametrize("status", [500, 503, 429])
def test_trouble_that_stays(place: Place, status: int) -> None:
    file = Ranged(CONTENT, faults=[says(status)])
    error = refused(place, file)
    assert f"answered {status} " in error.message
    assert "(2 attempts)" in error.message
    assert len(file.log) == 2
    assert place.left() == []


def test_trouble_in_the_middle_that_stays_keeps_what_came(place: Place) -> None:
    file = Ranged(CONTENT, faults=[says(503, at=LENGTH // 2)])
    error = refused(place, file)
    assert "(4 attempts)" in error.message
    assert place.left() == ["file", "file.journal"]
    missing = place.missing()
    assert sum(end - start for start, end in missing) < LENGTH
    file.faults.clear()
    file.log.clear()
    fetched(place, file)
    assert together(file.spans) == missing


@pytest.mark.parametrize("status", [503, 429])
def test_the_server_says_when_to_come_back(place: Place, status: int) -> None:
    file = Ranged(CONTENT, faults=[once(says(status, {"Retry-After": "1"}))])
    began = time.monotonic()
    with serving(file) as server:
        outcome = place.fetch(Remote("x.sif", getter(server)))
    assert outcome.content == CONTENT
    assert time.monotonic() - began >= 1
    (note,) = outcome.notes
    assert f"answered {status} " in note
    assert note.endswith("; retrying in 1 s")


def test_a_server_that_wants_us_tomorrow(place: Place) -> None:
    file = Ranged(CONTENT, faults=[says(429, {"Retry-After": "86400"})])
    error = refused(place, file)
    assert "retry in 86400 seconds" in error.hint
    assert len(file.log) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 410, 418])
def test_what_no_other_try_helps(place: Place, status: int) -> None:
    file = Ranged(CONTENT, faults=[says(status)])
    assert f"answered {status} " in refused(place, file).message
    assert len(file.log) == 1
    assert place.left() == []


def test_ranges_that_are_ignored(place: Place) -> None:
    file = Ranged(CONTENT, faults=[ignores_ranges])
    fetched(place, file)
    assert len(file.log) == 1


def test_ranges_that_are_ignored_from_the_second_on(place: Place) -> None:
    """A pool of servers of which some know ranges: then one connection for all of it."""
    file = Ranged(CONTENT)

    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
        return asked is not file.log[0] and ignores_ranges(file, handler, asked)

    file.faults.append(fault)
    fetched(place, file, **BLOB)
    assert file.log[-1].span is None


def test_a_break_without_ranges_starts_over(place: Place) -> None:
    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
        file.head(handler, 200, LENGTH, {})
        file.send(handler, asked, file.content[:5_000_000])
        return True

    file = Ranged(CONTENT, faults=[once(fault, 2), ignores_ranges])
    fetched(place, file)
    assert len(file.log) == 3


def test_always_a_break_without_ranges(place: Place) -> None:
    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
        file.head(handler, 200, LENGTH, {})
        file.send(handler, asked, file.content[:5_000_000])
        return True

    error = refused(place, Ranged(CONTENT, faults=[fault]))
    assert error.message == f"the connection ended at byte 5000000 of {LENGTH} bytes (4 attempts)"
    assert place.left() == []


WRONG_RANGES = {
    "begins elsewhere": other_headers(Content_Range=f"bytes 1-8388608/{LENGTH}"),
    "says more than asked": other_headers(Content_Range=f"bytes 0-39999999/{LENGTH}"),
    "says nothing": other_headers(Content_Range=""),
    "is no range": other_headers(Content_Range="bytes */40000000"),
    "total is smaller": other_headers(Content_Range="bytes 0-8388607/5"),
    "total is unknown": other_headers(Content_Range="bytes 0-8388607/*"),
    "other unit": other_headers(Content_Range=f"pages 0-8388607/{LENGTH}"),
    "compressed": other_headers(Content_Encoding="gzip"),
    "multipart": other_headers(Content_Range="", Content_Type="multipart/byteranges; boundary=x"),
}


def in_ranges(fault: Fault) -> Fault:
    """Only in answers to requests with a range."""
    return lambda file, handler, asked: asked.span is not None and fault(file, handler, asked)


@pytest.mark.parametrize("how", WRONG_RANGES)
def test_a_server_that_lies_about_ranges_is_asked_without(place: Place, how: str) -> None:
    file = Ranged(CONTENT, faults=[in_ranges(WRONG_RANGES[how])])
    fetched(place, file)
    assert [asked.span is None for asked in file.log] == [False, True]


def test_wrong_bytes_in_a_range_are_caught(place: Place) -> None:
    """A range that says what was asked for, and holds other bytes."""

    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
        start, end = file.span(asked)
        file.head(handler, 206, end - start, {"Content-Range": f"bytes {start}-{end - 1}/{LENGTH}"})
        file.send(handler, asked, file.content[:1] + file.content[: end - start - 1])
        return True

    error = refused(place, Ranged(CONTENT, faults=[fault]), **BLOB)
    assert isinstance(error, ImageError)
    assert f"expected {DIGEST.removeprefix('sha256:')}\n    got      " in error.message
    assert place.left() == []


@pytest.mark.parametrize("more", [b"", b"x"])
def test_what_is_compressed_on_its_way_ends_where_it_was_promised(place: Place, more: bytes) -> None:
    """By a server in front of a registry: the blob has the promised size only when it is unpacked again."""
    sent = gzip.compress(CONTENT + more, 0)

    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
        file.head(handler, 200, len(sent), {"Content-Encoding": "gzip"})
        file.send(handler, asked, sent)
        return True

    file = Ranged(CONTENT, faults=[fault])
    if not more:
        fetched(place, file, **BLOB)
        return
    assert refused(place, file, **BLOB).message == f"the server sent more than the {LENGTH} bytes that it announced"
    assert place.left() == []


def test_wrong_bytes_of_the_right_length_are_caught(place: Place) -> None:
    error = refused(place, Ranged(content(2)), **BLOB)
    assert f"got      {sha256(content(2)).removeprefix('sha256:')}" in error.message
    assert place.left() == []


@pytest.mark.parametrize("length", [LENGTH - 1, LENGTH + 1, 0])
def test_another_length_than_promised_is_told_at_once(place: Place, length: int) -> None:
    file = Ranged(content(1, length))
    error = refused(place, file, **BLOB)
    assert f"announces {length} bytes of x.sif, expected {LENGTH}" in error.message
    assert file.sent <= 8 << 20
    assert place.left() == []


def test_a_range_that_is_shorter_than_it_says(place: Place) -> None:
    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
        file.answer(handler, asked, 99_999)
        return True

    file = Ranged(CONTENT, faults=[once(fault, 3)])
    fetched(place, file)
    assert file.sent == LENGTH


def test_a_range_that_is_longer_than_it_says(place: Place) -> None:
    """Nothing beyond what was asked for is taken."""

    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
        start, end = file.span(asked)
        file.head(handler, 206, None, {"Content-Range": f"bytes {start}-{end - 1}/{LENGTH}"})
        file.send(handler, asked, file.content[start:end] + b"more" * 1000)
        return True

    fetched(place, Ranged(CONTENT, faults=[fault]), **BLOB)


@pytest.mark.parametrize("faults", [[], [ignores_ranges]], ids=["ranges", "none"])
def test_nothing_larger_than_announced_is_written(place: Place, faults: list[Fault]) -> None:
    """A manifest that promises less than there is."""
    error = refused(place, Ranged(CONTENT, faults=faults), size=1000, digest=DIGEST, by_digest=True)
    assert f"announces {LENGTH} bytes of x.sif, expected 1000" in error.message
    assert place.left() == []


def test_an_endless_body_ends_where_it_was_promised(place: Place) -> None:
    def endless(file: Ranged, handler: Handler, asked: Asked) -> bool:  # noqa: ARG001
        file.head(handler, 200, None, {})
        while True:
            handler.wfile.write(bytes(1 << 20))

    largest = []
    with serving(Ranged(CONTENT, faults=[endless])) as server, pytest.raises(FetchError, match="more than the 5000000"):
        place.fetch(Remote("x.sif", getter(server), 5_000_000), lambda done: largest.append(done))
    assert max(largest, default=0) <= 5_000_000
    assert place.left() == []


@pytest.mark.parametrize("etags", [('"old"', '"new"'), ('W/"old"', 'W/"new"'), ('W/"old"', '"new"'), ("", "")])
def test_content_that_changes_between_two_ranges(place: Place, etags: tuple[str, str]) -> None:
    """From zero, with the new content: never a mixture, and of what has no name one request for everything."""
    old = Ranged(content(2), etags[0])

    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
        if len(file.log) == 1:
            old.answer(handler, asked)
        return len(file.log) == 1

    fetched(place, Ranged(CONTENT, etags[1], faults=[fault]))


def test_content_that_changes_between_two_runs(place: Place) -> None:
    refused(place, Ranged(content(2), '"old"', faults=[says(503, at=LENGTH // 2)]))
    assert place.left()
    fetched(place, Ranged(CONTENT))


@pytest.mark.parametrize("digest", ["", DIGEST], ids=["nothing", "digest"])
def test_a_later_run_continues_under_a_weak_etag_only_what_a_digest_checks(tmp_path: Path, digest: str) -> None:
    place = Place(tmp_path / "partial", connections=1)

    def late(file: Ranged, handler: Handler, asked: Asked) -> bool:
        return len(file.log) > 1 and says(404)(file, handler, asked)

    file = Ranged(CONTENT, 'W/"one"', faults=[late])
    refused(place, file, digest=digest)
    assert place.left() == (["file", "file.journal"] if digest else [])
    file.faults.clear()
    fetched(place, file, digest=digest)


LONG_AGO = "Tue, 15 Nov 1994 12:45:26 GMT"


WEAK = {
    "a weak ETag": {"ETag": 'W/"x"', "Last-Modified": LONG_AGO},
    "a date of now": {"Last-Modified": LONG_AGO, "Date": LONG_AGO},
    "a date without the time of the answer": {"Last-Modified": LONG_AGO, "Date": "soon"},
    "nothing": {},
}


def under(headers: dict[str, str], contents: Iterator[bytes], limit: int | None = None) -> Fault:
    """Another content with each answer, under the same headers; a body in a range ends after `limit` bytes."""

    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
        with file.lock:
            body = next(contents)
        start, end = (asked.span[0], min(asked.span[1], len(body))) if asked.span else (0, len(body))
        handler.send_response_only(206 if asked.span else 200)
        ranged = {"Content-Range": f"bytes {start}-{end - 1}/{len(body)}"} if asked.span else {}
        said = {"Date": formatdate(usegmt=True), "Content-Length": str(end - start), **ranged, **headers}
        for name, value in said.items():
            handler.send_header(name, value)
        handler.end_headers()
        file.send(handler, asked, body[start:end][: limit if asked.span else None])
        handler.close_connection = True
        return True

    return fault


@pytest.mark.parametrize("weak", WEAK.values(), ids=WEAK)
@pytest.mark.parametrize(("length", "limit"), [(LENGTH, None), (5_000_000, 2_000_000)], ids=["ranges", "a break"])
def test_a_weak_validator_joins_no_answers(place: Place, weak: dict[str, str], length: int, limit: int | None) -> None:
    """RFC 9110, 13.1.5: other content may have the same one, so all of the file is of one answer."""
    contents = [content(seed, length) for seed in range(3 if limit else 2)]
    file = Ranged(b"", faults=[under(weak, iter(contents), limit)])
    with serving(file) as server:
        assert place.fetch(Remote("x.sif", getter(server))).content == contents[-1]
    assert [asked.span is None for asked in file.log] == [False] * (len(contents) - 1) + [True]
    assert {asked.if_range for asked in file.log} == {""}


@pytest.mark.parametrize("weak", WEAK.values(), ids=WEAK)
def test_a_digest_checks_the_ranges_of_a_weak_validator(place: Place, weak: dict[str, str]) -> None:
    file = Ranged(b"", faults=[under(weak, repeat(CONTENT))])
    fetched(place, file, digest=DIGEST)
    assert len(file.spans) == 5


def test_a_date_of_long_ago_is_strong(place: Place) -> None:
    file = Ranged(b"", faults=[under({"Last-Modified": LONG_AGO}, repeat(CONTENT))])
    fetched(place, file)
    assert [asked.if_range for asked in file.log] == ["", *[LONG_AGO] * 4]


def test_content_that_changes_its_length(place: Place) -> None:
    old = Ranged(content(2, LENGTH + 5_000_000), '"old"')

    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
        if len(file.log) < 3:
            old.answer(handler, asked)
            return True
        return False

    fetched(place, Ranged(CONTENT, '"new"', faults=[fault]))


def test_content_that_seems_to_change_with_each_answer(place: Place) -> None:
    """As of servers that stand for one and disagree: then one answer has all of it."""

    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:  # noqa: ARG001
        file.etag = f'"{len(file.log)}"'
        return False

    fetched(place, Ranged(CONTENT, faults=[fault]))


def test_a_server_without_validators_gives_no_second_chance_to_mixtures(place: Place) -> None:
    """Neither ETag nor date: what came before a break cannot be gone on with in another run."""

    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
        file.answer(handler, asked, LENGTH // 2)
        return True

    refused(place, Ranged(CONTENT, "", faults=[fault]))
    assert place.left() == []


def test_an_answer_that_is_no_http(place: Place) -> None:
    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:  # noqa: ARG001
        raw(b"\0\1 hello\r\n\r\n")(handler)
        return True

    assert "cannot be reached or closed the connection" in refused(place, Ranged(CONTENT, faults=[fault])).message


@pytest.mark.parametrize("length", [0, 1, 8 << 20, (8 << 20) + 1])
def test_short_files(place: Place, length: int) -> None:
    data = content(3, length)
    for number, promised in enumerate(({}, {"size": length, "digest": sha256(data), "by_digest": True})):
        with serving(Ranged(data)) as server:
            there = Place(place.directory / str(number))
            there.directory.mkdir(parents=True)
            assert there.fetch(Remote("x.sif", getter(server), **promised)).content == data  # type: ignore[arg-type]


def moody(chance: random.Random) -> Fault:
    """Half of the answers are right, some are cut, some are wrong in a way of their own."""
    wrong = [*WRONG_RANGES.values(), ignores_ranges, says(503), says(416), says(404), says(204)]

    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
        with file.lock:
            number, cut, other = chance.random(), chance.randrange(1, len(file.content)), chance.choice(wrong)
        if number < 0.4:
            file.answer(handler, asked, cut)
        elif number < 0.5:
            return other(file, handler, asked)
        return number < 0.4

    return fault


def test_random_misbehaviour_never_gives_wrong_content(tmp_path: Path) -> None:
    """Many servers that misbehave at random, now and then: the right content or an error, and never anything else."""
    ends = {"right": 0, "refused": 0}
    data = content(4, 12_000_000)
    for seed in range(16):
        chance = random.Random(seed)
        patience = RetryPolicy(20, 20, 0.001, 0.002)
        there = Place(tmp_path / str(seed), chance.choice((1, 4)), patience)
        with serving(Ranged(data, faults=[moody(chance)])) as server:
            try:
                outcome = there.fetch(Remote("x", getter(server), len(data), sha256(data), by_digest=True))
                ends["right"] += outcome.content == data
            except FetchError:
                ends["refused"] += 1
    assert ends["right"] + ends["refused"] == 16
    assert min(ends.values()) > 0, ends


def test_a_server_that_always_sends_and_never_enough_is_given_up(place: Place) -> None:
    """Each attempt brings some bytes; it is no progress."""

    def drips(file: Ranged, handler: Handler, asked: Asked) -> bool:
        start, end = file.span(asked)
        extra = {"Content-Range": f"bytes {start}-{end - 1}/{len(file.content)}"}
        file.head(handler, 206, end - start, extra)
        for at in range(start, end, 20):
            file.send(handler, asked, file.content[at : at + 20])
            handler.wfile.flush()
            if handler.server.ended.wait(0.1):
                break
        return True

    with (
        serving(Ranged(CONTENT, faults=[drips])) as server,
        pytest.raises(FetchError, match=r"bytes arrived in") as caught,
    ):
        place.fetch(Remote("x.sif", getter(server)))
    assert "3 attempts" in caught.value.message
