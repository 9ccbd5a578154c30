"""A Map: which tests run a line of sifmod, and which open a template, by a run of every test in a traced copy.

Kept as one JSON line for each test file, under a key of that file and the whole package, so that only what has changed
is traced again. Limits: a process that is killed leaves no trace, which a test of being killed loses; a template counts
as run by all tests that render it; tests that fail as an ordinary user, are skipped there, or take longer than LONGEST
are not used.
"""

import ast
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from coverage import CoverageData
from coverage.exceptions import CoverageException
from fault_copy import ROOT, Copy

Record = dict[str, Any]  # as it is in the file
LONGEST = 60.0  # seconds that a test may take to be of use
FILE_LIMIT = 600.0  # seconds for all tests of a file


@dataclass(frozen=True)
class Test:
    """A test that passes where nothing is wrong, its time in seconds, and what it runs: lines and templates."""

    __test__ = False  # not one of pytest's

    name: str
    seconds: float
    lines: Mapping[str, frozenset[int]]
    opened: frozenset[str]

    @property
    def file(self) -> str:
        """Its file."""
        return self.name.partition("::")[0]


@dataclass(frozen=True)
class Traced:
    """The tests of one file, and the lines that run while it is imported."""

    file: str
    tests: tuple[Test, ...]
    imported: Mapping[str, frozenset[int]]


@dataclass(frozen=True)
class Map:
    """What all tests run."""

    traced: tuple[Traced, ...]
    _words: dict[str, frozenset[str]] = field(default_factory=dict)

    @cached_property
    def tests(self) -> tuple[Test, ...]:
        """All tests."""
        return tuple(test for each in self.traced for test in each.tests)

    @cached_property
    def by_line(self) -> Mapping[tuple[str, int], tuple[Test, ...]]:
        """The tests of each line; the lines of a template are all line 0."""
        found: dict[tuple[str, int], list[Test]] = defaultdict(list)
        for test in self.tests:
            for path, numbers in test.lines.items():
                for number in numbers:
                    found[path, number].append(test)
            for path in test.opened:
                found[path, 0].append(test)
        return {place: tuple(tests) for place, tests in found.items()}

    def at(self, path: str, lines: Iterable[int]) -> tuple[Test, ...]:
        """The tests that run any of these lines."""
        found = {test.name: test for line in lines for test in self.by_line.get((path, line), ())}
        return tuple(found.values())

    def words(self, file: str) -> frozenset[str]:
        """The words of a test file."""
        if file not in self._words:
            self._words[file] = frozenset(re.findall(r"\w{3,}", (ROOT / file).read_text() + file))
        return self._words[file]


def key(file: str) -> str:
    """What decides what a test file runs: itself and the package."""
    whole = hashlib.sha256((ROOT / file).read_bytes())
    for path in sorted((ROOT / "sifmod").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            whole.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return whole.hexdigest()


def trace(copy: Copy, file: str, left_out: str) -> Record:
    """Run the tests of a file, but for those whose names `left_out` matches; the record of it."""
    copy.trace(True)
    options = ("-p", "fault_trace", *(f"--deselect={name}" for name in _matching(file, left_out)))
    ran = copy.run((file,), FILE_LIMIT, *options)
    if ran.code not in (0, 1):  # a thread that the tracing has broken is waited for in vain: once more
        copy.trace(True)
        ran = copy.run((file,), FILE_LIMIT, *options)
    lines, opened, ended = _lines(copy), _opened(copy), _ended(copy)
    for line in (copy.traces / "fixtures").read_text().splitlines():
        name, fixtures = json.loads(line)
        for shared in (f"fixture {fixture}" for fixture in fixtures):
            opened[name] |= opened.get(shared, set())
            for path, numbers in lines.get(shared, {}).items():
                lines[name][path] |= numbers
    copy.trace(False)
    if failed := [name for name, (outcome, _) in ended.items() if outcome == "failed"]:
        again = copy.run(failed, FILE_LIMIT)  # it may have been the tracing
        ended |= {
            name: ("passed", ended[name][1]) for name in failed if again.code is not None and name not in again.failed
        }
    return {
        "file": file,
        "key": key(file),
        "code": ran.code,
        "imported": _text(lines[""]),
        "tests": [
            {
                "test": name,
                "outcome": outcome,
                "seconds": round(seconds, 3),
                "lines": _text(lines[name]),
                "opened": sorted(opened[name]),
            }
            for name, (outcome, seconds) in ended.items()
        ],
    }


def read_records(path: Path) -> dict[str, Record]:
    """The records of a map's file that hold for the code as it is, by the test's file."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(ValueError):  # an interrupted run has written half of a line
            record = json.loads(line)
            if (ROOT / record["file"]).exists() and record["key"] == key(record["file"]):
                found[record["file"]] = record
    return found


def read_map(records: Iterable[Record]) -> Map:
    """The map of these records."""
    return Map(
        tuple(
            Traced(
                record["file"],
                tuple(
                    Test(each["test"], each["seconds"], _numbers(each["lines"]), frozenset(each["opened"]))
                    for each in record["tests"]
                    if each["outcome"] == "passed" and each["seconds"] <= LONGEST
                ),
                _numbers(record["imported"]),
            )
            for record in records
        )
    )


def _matching(file: str, left_out: str) -> Iterator[str]:
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.FunctionDef) and re.search(left_out, f"{file}::{node.name}"):
            yield f"{file}::{node.name}"


def _lines(copy: Copy) -> dict[str, dict[str, set[int]]]:
    """test, or fixture that several tests share → file → lines."""
    found: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for path in sorted((copy.traces / "data").iterdir()):
        data = CoverageData(str(path))
        with suppress(CoverageException):  # of a process that was killed while it wrote
            data.read()
            for file in data.measured_files():
                for number, contexts in data.contexts_by_lineno(file).items():
                    for context in contexts:
                        found[context][str(Path(file).relative_to(copy.root))].add(number)
        data.close()
    return found


def _opened(copy: Copy) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for path in (copy.traces / "opened").iterdir():
        with suppress(ValueError):
            for test, file in json.loads(path.read_text()):
                found[test].add(str(Path(file).relative_to(copy.root)))
    return found


def _ended(copy: Copy) -> dict[str, tuple[str, float]]:
    """test → how it ended, and the seconds of its set-up, call and end."""
    found: dict[str, tuple[str, float]] = {}
    for line in (copy.traces / "ended").read_text().splitlines():
        name, outcome, seconds = json.loads(line)
        before, spent = found.get(name, ("passed", 0.0))
        found[name] = (outcome if before == "passed" else before, spent + seconds)
    return found


def _text(files: Mapping[str, Iterable[int]]) -> dict[str, str]:
    return {file: _runs(numbers) for file, numbers in files.items()}


def _runs(numbers: Iterable[int]) -> str:
    """1-4,7-7 for 1, 2, 3, 4 and 7."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}-{last}" for first, last in runs)


def _numbers(files: Mapping[str, str]) -> dict[str, frozenset[int]]:
    return {
        file: frozenset(
            number
            for run in text.split(",")
            for first, last in (run.split("-"),)
            for number in range(int(first), int(last) + 1)
        )
        for file, text in files.items()
    }
