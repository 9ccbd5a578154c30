"""docs/reliability.md: each test that it names is there."""

import re
from pathlib import Path

import pytest

from support.command import ROOT

PAGE = (ROOT / "docs" / "reliability.md").read_text("utf-8")
FAULTS = PAGE.partition("\n## Past faults")[2].splitlines()
ROWS = [line for line in FAULTS if line.startswith("| ") and not line.startswith(("| row |", "| what no"))]


def named(row: str) -> list[tuple[Path, str]]:
    """The files of a row, each with a test in it; `::name` is one of the file before."""
    found, file = list[tuple[Path, str]](), ""
    for place in re.findall(r"`((?:tests/[\w/]+\.py)?(?:::\w+)?)`", row):
        path, _, name = place.partition("::")
        file = path or file
        found.append((ROOT / file, name))
    return found


def test_there_are_many() -> None:
    assert len(ROWS) > 140


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:50])
def test_a_row_names_its_test(row: str) -> None:
    places = named(row)
    assert places or "](" in row, "no test, and no page"
    for path, name in places:
        assert re.search(rf"(?m)^def {name}\b" if name else "def test_", path.read_text("utf-8")), (path, name)
