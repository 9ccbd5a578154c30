"""The journal beside a partial file: read back as it was written, and believed only where it can be."""

import json
import os
import sys
from pathlib import Path

import pytest

from sifmod.image.download import journal
from sifmod.image.download.journal import Record
from support.command import run

RECORD = Record(1000, "sha256:" + "0" * 64, '"etag"', ((0, 100), (200, 300)))


@pytest.fixture
def partial(tmp_path: Path) -> Path:
    path = tmp_path / "partial" / "file"
    path.parent.mkdir()
    path.write_bytes(bytes(300))
    return path


def test_it_is_read_back_as_it_was_written(partial: Path) -> None:
    assert journal.load(partial) is None
    for record in (RECORD, Record(300, "", "", ()), Record(300, "", "x", ((0, 300),))):
        journal.save(partial, record)
        assert journal.load(partial) == record
    assert sorted(path.name for path in partial.parent.iterdir()) == ["file", "file.journal"]
    journal.forget(partial)
    journal.forget(partial)
    assert journal.load(partial) is None
    assert list(partial.parent.iterdir()) == [partial]


def test_a_file_that_is_shorter_than_its_journal_says(partial: Path) -> None:
    journal.save(partial, RECORD)
    partial.write_bytes(bytes(299))
    assert journal.load(partial) is None
    partial.unlink()
    assert journal.load(partial) is None


@pytest.mark.parametrize(
    "change",
    [
        {"format": 1},
        {"size": "1000"},
        {"size": 250},
        {"digest": None},
        {"validator": 1},
        {"spans": 7},
        {"spans": [[0]]},
        {"spans": [[100, 0]]},
        {"spans": [[-1, 5]]},
        {"spans": [["a", "b"]]},
        {"spans": None},
    ],
)
def test_a_journal_that_makes_no_sense_is_not_believed(partial: Path, change: dict[str, object]) -> None:
    journal.save(partial, RECORD)
    path = journal.journal_path(partial)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert journal.load(partial) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 2}', "\0", "[" * 100_000])
def test_a_journal_that_is_none_is_not_believed(partial: Path, text: str) -> None:
    journal.journal_path(partial).write_text(text)
    assert journal.load(partial) is None


def test_a_link_that_another_user_put_in_the_way_is_not_written_through(partial: Path, tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    profile.write_text("export PATH")
    for name in ("file.journal.new", "file.journal"):
        partial.with_name(name).symlink_to(profile)
    journal.save(partial, RECORD)
    assert profile.read_text() == "export PATH"
    assert journal.load(partial) == RECORD
    assert not partial.with_name("file.journal").is_symlink()


def test_a_link_that_comes_back_at_once_is_not_written_through_either(partial: Path, tmp_path: Path) -> None:
    """Between its removal and the new file: here the removal does nothing."""
    profile = tmp_path / "profile"
    profile.write_text("export PATH")
    partial.with_name("file.journal.new").symlink_to(profile)
    code = "from pathlib import Path; from sifmod.image.download import journal; r = journal.Record(1, '', '', ());"
    strace = ("strace", "-f", "-qqq", "-o", "/dev/null", "-e", "inject=?unlink,unlinkat:retval=0")
    done = run((*strace, sys.executable, "-c", f"{code} journal.save(Path({str(partial)!r}), r)"), env=os.environ)
    assert "File exists" in done.stderr
    assert profile.read_text() == "export PATH"
    assert not partial.with_name("file.journal").exists()


def test_a_pipe_or_a_link_instead_of_the_journal_is_not_waited_for_or_followed(partial: Path, tmp_path: Path) -> None:
    os.mkfifo(journal.journal_path(partial))
    assert journal.load(partial) is None
    journal.save(partial, RECORD)
    elsewhere = journal.journal_path(partial).rename(tmp_path / "elsewhere")
    journal.journal_path(partial).symlink_to(elsewhere)
    assert journal.load(partial) is None
