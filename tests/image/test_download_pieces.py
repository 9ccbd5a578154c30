"""The pieces of one download: what is believed of an earlier run, what is still asked for, what is new to be saved."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import requests

from sifmod.image.artifact import Remote
from sifmod.image.download import journal
from sifmod.image.download.journal import Record
from sifmod.image.download.pieces import Pieces

ONE, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64
SPANS = ((0, 100), (200, 300))
MIB = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(bytes(300))
    return tmp_path / "file"


def pieces_of(
    path: Path, size: int | None = None, digest: str = "", *, by_digest: bool = False, connections: int = 4
) -> Pieces:
    remote = Remote("x", lambda _: nullcontext(requests.Response()), size, digest, by_digest)
    return Pieces(remote, path, connections)


@pytest.mark.parametrize(
    ("record", "size", "digest", "by_digest", "believed"),
    [
        (Record(300, ONE, "", SPANS), 300, ONE, True, True),
        (Record(300, ONE, "", SPANS), None, ONE, False, True),
        (Record(300, "", '"a"', SPANS), None, "", False, True),
        (Record(300, OTHER, '"a"', SPANS), 300, ONE, False, True),  # the server says whether it is the same
        (Record(300, OTHER, '"a"', SPANS), 300, ONE, True, False),
        (Record(300, OTHER, "", SPANS), 300, ONE, False, False),
        (Record(300, "", "", SPANS), 300, "", False, False),
        (Record(300, "", 'W/"a"', SPANS), 300, "", False, False),
        (Record(300, OTHER, 'W/"a"', SPANS), 300, ONE, False, False),
        (Record(300, ONE, 'W/"a"', SPANS), 300, ONE, False, True),
        (Record(300, ONE, "", SPANS), 400, ONE, True, False),
    ],
)
def test_what_an_earlier_run_left_is_believed_of_the_same_content(
    path: Path, record: Record, size: int | None, digest: str, by_digest: bool, believed: bool
) -> None:
    journal.save(path, record)
    pieces = pieces_of(path, size, digest, by_digest=by_digest)
    assert pieces.load() is believed
    assert pieces.resumed is believed
    found = (pieces.size, pieces.validator, pieces.coverage.spans)
    assert found == ((record.size, record.validator, SPANS) if believed else (size, "", ()))
    assert (pieces.unsaved() is None) is (record.digest == digest or not believed)  # the journal says so already


def test_without_a_journal_nothing_is_believed(path: Path) -> None:
    assert not pieces_of(path, 300, ONE).load()


def test_what_is_new_is_saved_once(path: Path) -> None:
    pieces = pieces_of(path, 300, ONE)
    assert pieces.unsaved() is None
    pieces.coverage.add(0, 100)
    assert pieces.unsaved() == Record(300, ONE, "", ((0, 100),))
    assert pieces.unsaved() is None
    pieces.coverage.add(200, 300)
    assert pieces.unsaved() == Record(300, ONE, "", SPANS)


@pytest.mark.parametrize(
    ("size", "digest", "validator", "saved"),
    [
        (300, "", '"a"', True),
        (300, ONE, "", True),
        (300, "", "", False),
        (300, "", "W/\nMonday", False),
        (None, ONE, '"a"', False),
    ],
)
def test_what_no_other_run_could_go_on_with_is_not_saved(
    path: Path, size: int | None, digest: str, validator: str, saved: bool
) -> None:
    pieces = pieces_of(path, size, digest)
    pieces.validator = validator
    pieces.coverage.add(0, 100)
    assert (pieces.unsaved() is not None) is saved


def test_what_is_emptied_is_as_at_the_beginning(path: Path) -> None:
    journal.save(path, Record(300, OTHER, '"a"', SPANS))
    pieces = pieces_of(path, None, ONE)
    assert pieces.load()
    pieces.empty()
    assert (pieces.size, pieces.validator, pieces.resumed, pieces.coverage.spans) == (None, "", False, ())
    assert not journal.journal_path(path).exists()
    pieces.size, pieces.validator = 300, '"a"'
    pieces.coverage.add(0, 100)
    pieces.coverage.add(200, 300)
    assert pieces.unsaved() == Record(300, ONE, '"a"', SPANS)


@pytest.mark.parametrize(
    ("size", "connections", "length"),
    [
        (40 * MIB, 4, 8 * MIB),
        (256 * MIB, 4, 8 * MIB),
        (1000 * MIB, 4, 31 * MIB),
        (1000 * MIB, 1, 64 * MIB),
        (4096 * MIB, 4, 64 * MIB),
    ],
)
def test_pieces_are_large_where_there_is_much(path: Path, size: int, connections: int, length: int) -> None:
    pieces = pieces_of(path, size, connections=connections)
    pieces.plan()
    assert pieces.todo[0] == (0, length)
    assert pieces.todo[1] == (length, 2 * length)
    assert pieces.todo[-1][1] == size


def test_only_what_is_missing_is_asked_for(path: Path) -> None:
    pieces = pieces_of(path, 20 * MIB)
    pieces.coverage.add(0, 3 * MIB)
    pieces.plan((9 * MIB, 10 * MIB))
    assert list(pieces.todo) == [
        (3 * MIB, 8 * MIB),
        (8 * MIB, 9 * MIB),
        (10 * MIB, 16 * MIB),
        (16 * MIB, 20 * MIB),
    ]


@pytest.mark.parametrize(
    ("size", "whole", "expected"),
    [(None, False, [(0, 8 * MIB)]), (None, True, [(0, 8 * MIB)]), (20 * MIB, True, [(0, 20 * MIB)]), (0, True, [])],
)
def test_all_of_it_in_one_request(path: Path, size: int | None, whole: bool, expected: list[tuple[int, int]]) -> None:
    pieces = pieces_of(path, size)
    pieces.plan(whole=whole)
    assert list(pieces.todo) == expected
