"""Put realistic faults into sifmod, one at a time, and see whether a test notices.

    python tests/fuzz/faults.py [--faults 150] [--seed 1] [--only sifmod/image/sif] [--at-least 85]

Faults are dropped checks, calls, items, arguments and `finally`; swapped conditions, comparisons, modes and quotes;
bounds off by one. They are chosen at random over all folders of sifmod, templates included, and put into a copy of the
repository as it is now, where an ordinary user runs the tests that run the line. Which tests these are is found out
once by running all tests in the copy (an hour of processor time), and kept in --map, by test file: of an unchanged
package only changed test files are traced again. Each fault is then printed with the test that noticed it, or NOT
NOTICED; a line that no test runs is not noticed either. Outcomes are kept in --out, so that the same command goes on
where it was interrupted.

Needs root, or what the tests need as an ordinary user, and `coverage` (scripts/venv test). The exit code is 0 where at
least --at-least percent were noticed. To be read with each number: a fault can be one that changes nothing.
"""

import argparse
import json
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parent.parent))

from fault import Fault
from fault_choice import choose, covering
from fault_copy import ROOT, Copy
from fault_map import Map, read_map, read_records, trace
from fault_trial import Outcome, Unreliable, attempt, identity, known_outcomes, written

KEPT = ROOT / "build" / "faults"
# the whole PyTorch image, converted and compared
LEFT_OUT = r"test_the_pytorch_image|test_pytorch_from_its_layout"


def main(arguments: Sequence[str]) -> int:
    """Run; return the exit status."""
    given = parsed(arguments)
    given.map.parent.mkdir(parents=True, exist_ok=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    copies = [Copy(given.directory, str(number)) for number in range(given.jobs)]
    try:
        known = made_map(given, copies)
        faults = choose(given.faults, given.seed, given.only)
        noticed = tried(given, copies, known, faults)
    finally:
        for copy in copies:
            copy.remove()
    percent = 100 * noticed / len(faults)
    print(f"{noticed} of {len(faults)} faults were noticed ({percent:.0f} %)")
    return 0 if percent >= given.at_least else 1


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=150, metavar="N", help="how many (150)")
    parser.add_argument("--seed", type=int, default=1, help="which (1)")
    parser.add_argument("--only", default="sifmod", metavar="PATH", help="in files whose path begins so (sifmod)")
    parser.add_argument("--at-least", type=float, default=85, metavar="PERCENT", help="what is asked for (85)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="copies that work side by side (2)")
    parser.add_argument("--tests", type=int, default=80, metavar="N", help="most tests for a fault (80)")
    parser.add_argument(
        "--seconds", type=float, default=120, help="most time of the tests for a fault, as traced (120)"
    )
    parser.add_argument("--files", nargs="*", metavar="FILE", help="use the tests of these files only (all)")
    parser.add_argument("--leave-out", default=LEFT_OUT, metavar="REGEX", help=f"tests that are not used ({LEFT_OUT})")
    parser.add_argument(
        "--map", type=Path, default=KEPT / "map.jsonl", help="what each test runs (build/faults/map.jsonl)"
    )
    parser.add_argument(
        "--out", type=Path, default=KEPT / "outcomes.jsonl", help="outcomes (build/faults/outcomes.jsonl)"
    )
    parser.add_argument("--again", action="store_true", help="try again what was not noticed")
    parser.add_argument(
        "--directory", type=Path, default=Path("/tmp/sifmod-faults"), help="of the copies (/tmp/sifmod-faults)"
    )
    return parser.parse_args(arguments)


def made_map(given: argparse.Namespace, copies: Sequence[Copy]) -> Map:
    """What the tests run, of what is known already and of what is traced now."""
    files = given.files or sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob("*/test_*.py"))
    records = read_records(given.map)

    def of_file(copy: Copy, file: str) -> str:
        begin = time.monotonic()
        record = trace(copy, file, given.leave_out)
        records[file] = record
        write_line(given.map, json.dumps(record) + "\n")
        outcomes = [each["outcome"] for each in record["tests"]]
        return (
            f"{file}: {outcomes.count('passed')} of {len(outcomes)} tests are used ({time.monotonic() - begin:.0f} s)"
        )

    side_by_side(copies, of_file, [file for file in files if file not in records])
    return read_map(records[file] for file in files)


def tried(given: argparse.Namespace, copies: Sequence[Copy], known: Map, faults: Sequence[Fault]) -> int:
    """How many of the faults were noticed."""
    outcomes = known_outcomes(given.out)
    unreliable = Unreliable()

    def of_fault(copy: Copy, fault: Fault) -> str:
        tests = covering(known, fault, given.tests, given.seconds)
        before = outcomes.get(identity(fault))
        begin = time.monotonic()
        if before is None or (given.again and not before.by):
            outcomes[identity(fault)] = outcome = attempt(copy, fault, tests, unreliable)
            write_line(given.out, written(fault, outcome))
        return told(fault, outcomes[identity(fault)], time.monotonic() - begin)

    side_by_side(copies, of_fault, faults)
    return sum(bool(outcomes[identity(fault)].by) for fault in faults)


def told(fault: Fault, outcome: Outcome, seconds: float) -> str:
    """Two lines for a person."""
    shown = fault.shown((ROOT / fault.path).read_bytes())
    result = f"noticed by {outcome.by}" if outcome.by else f"NOT NOTICED by {outcome.tried} tests"
    return f"{fault.path}:{fault.line}: {fault.operator}: {shown}\n    {result} ({seconds:.0f} s)"


T = TypeVar("T")
_WRITING = threading.Lock()


def write_line(path: Path, line: str) -> None:
    """At the end of a file, whole."""
    with _WRITING, path.open("a") as file:
        file.write(line)


def side_by_side(copies: Sequence[Copy], do: Callable[[Copy, T], str], tasks: Sequence[T]) -> None:
    """Do every task with one of the copies, and print what it says. Raises what a task raised, when all have ended."""
    todo: queue.SimpleQueue[tuple[int, T]] = queue.SimpleQueue()
    for each in enumerate(tasks, 1):
        todo.put(each)
    broken: list[BaseException] = []

    def work(copy: Copy) -> None:
        while not broken:
            try:
                number, task = todo.get_nowait()
            except queue.Empty:
                return
            try:
                said = do(copy, task)
            except BaseException as error:
                broken.append(error)
                return
            with _WRITING:
                print(f"{number}/{len(tasks)} {said}", flush=True)

    threads = [threading.Thread(target=work, args=(copy,)) for copy in copies]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt as error:  # what is under way is ended in order
        broken.append(error)
        for thread in threads:
            thread.join()
    if broken:
        raise broken[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
