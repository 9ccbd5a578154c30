"""A Trial: a fault is put into a copy, the tests that run its line are run, and the copy is put right."""

import hashlib
import json
import re
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fault import Fault
from fault_copy import ROOT, Copy, Ran
from fault_map import Test

SLACK = 30.0  # seconds that a run of tests may take beyond twice what they took when they were traced


@dataclass(frozen=True)
class Outcome:
    """Who noticed a fault: the test, or how else; "" for nobody. `tried` is the number of tests that were to run."""

    by: str
    tried: int


class Unreliable:
    """Tests that have failed without a fault in this run; they count for nothing. Shared by threads."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._lock = threading.Lock()

    def add(self, names: Sequence[str]) -> None:
        """These too."""
        with self._lock:
            self._names |= set(names)

    def without(self, tests: Sequence[Test]) -> list[Test]:
        """The others."""
        with self._lock:
            return [test for test in tests if test.name not in self._names]


def attempt(copy: Copy, fault: Fault, tests: Sequence[Test], unreliable: Unreliable) -> Outcome:
    """Try one fault; the copy is as before when this returns."""
    source = (ROOT / fault.path).read_bytes()
    while left := unreliable.without(tests):
        limit = SLACK + 2 * sum(test.seconds for test in left)
        copy.write(fault.path, fault.put_into(source))
        try:
            ran = copy.run([test.name for test in left], limit, "-x")
        finally:
            copy.restore(fault.path)
        if gone := _gone(ran, left):  # their names come from a table that has lost an item
            tests = [test for test in left if test.name not in gone]
            continue
        if ran.code == 0:
            return Outcome("", len(left))
        blamed = ran.failed or tuple(test.name for test in left)
        sound = copy.run([name for name in blamed if "::" in name] or [left[0].name], limit)
        if sound.code == 0:
            return Outcome(_said(ran), len(left))
        unreliable.add(sound.failed or blamed)
    return Outcome("", 0)


def identity(fault: Fault) -> str:
    """What tells a fault of this source from all others."""
    source = hashlib.sha256((ROOT / fault.path).read_bytes()).hexdigest()
    return hashlib.sha256(json.dumps([asdict(fault), source]).encode()).hexdigest()


def known_outcomes(path: Path) -> dict[str, Outcome]:
    """What an earlier run has written, by the fault's identity."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # half a line of an interrupted run
        found[record["identity"]] = Outcome(record["by"], record["tried"])
    return found


def written(fault: Fault, outcome: Outcome) -> str:
    """A line for `known_outcomes`, and for whoever reads it."""
    shown = fault.shown((ROOT / fault.path).read_bytes())
    place = {"path": fault.path, "line": fault.line, "operator": fault.operator, "change": shown}
    return json.dumps({"identity": identity(fault), **place, **asdict(outcome)}) + "\n"


def _gone(ran: Ran, tests: Sequence[Test]) -> set[str]:
    """Tests that pytest does not find with the fault."""
    names = re.findall(r"^ERROR: not found: \S*?(tests/.*)$", ran.output, re.M) if ran.code == 4 else []
    return {test.name for test in tests if test.name in names}


def _said(ran: Ran) -> str:
    if ran.code is None:
        return "the time limit"
    return ran.failed[0] if ran.failed else f"pytest, which ends with {ran.code}"
