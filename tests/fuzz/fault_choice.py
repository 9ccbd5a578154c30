"""Which faults are tried: at random by a seed, over all folders of sifmod; and which tests try each."""

import random
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from fault import Fault, code_lines
from fault_copy import ROOT
from fault_map import Map, Test
from fault_python import is_another, python_faults
from fault_text import text_faults

AT_LEAST = 3  # of each folder
AROUND = 4  # lines of a template, before and after


def choose(count: int, seed: int, only: str) -> list[Fault]:
    """`count` faults in files below `only`, by code lines of each folder but a few of each; no line has two."""
    chance = random.Random(seed)
    files = [path for path in sorted((ROOT / "sifmod").rglob("*")) if _may_have_faults(path, only)]
    folders: dict[Path, list[Path]] = defaultdict(list)
    for path in files:
        folders[path.parent].append(path)
    weights = {folder: sum(code_lines(path.read_text()) for path in paths) for folder, paths in folders.items()}
    chosen = [
        fault for folder, share in shares(weights, count).items() for fault in _of_files(folders[folder], share, chance)
    ]
    chance.shuffle(chosen)
    return chosen


def shares(weights: Mapping[Path, int], count: int) -> dict[Path, int]:
    """How many of `count` each gets: a few, and the rest by weight."""
    few = min(AT_LEAST, count // len(weights))
    given = dict.fromkeys(weights, few)
    total = sum(weights.values())
    for _ in range(count - few * len(weights)):
        wanting = max(weights, key=lambda each: weights[each] * count / total - given[each])
        given[wanting] += 1
    return given


def covering(known: Map, fault: Fault, most: int, seconds: float) -> tuple[Test, ...]:
    """At most `most` tests that run the line, of `seconds` in all: those that seem nearest, fastest first."""
    tests = _running(known, fault)
    words = _words(fault)
    files: dict[str, list[Test]] = defaultdict(list)
    for test in tests:
        files[test.file].append(test)
    nearest = sorted(files, key=lambda file: -_nearness(known, file, fault, words))
    order = [
        ((i + 1) ** 2 * (j + 1), test)
        for i, file in enumerate(nearest)
        for j, test in enumerate(_in_order(files[file], words))
    ]
    taken: list[Test] = []
    left = seconds
    for _, test in sorted(order, key=lambda each: each[0]):
        if len(taken) < most and test.seconds <= left:
            taken.append(test)
            left -= test.seconds
    return tuple(sorted(taken, key=lambda test: test.seconds))


def _may_have_faults(path: Path, only: str) -> bool:
    inside = path.is_file() and "__pycache__" not in path.parts and path.suffix not in {".pyc", ".typed"}
    return inside and f"{path.relative_to(ROOT)}/".startswith(f"{only.rstrip('/')}")


def _of_files(paths: Sequence[Path], count: int, chance: random.Random) -> Iterator[Fault]:
    """By lines, so that a line with many possible faults is no likelier than one with a single one."""
    lines: dict[tuple[str, int], list[Fault]] = defaultdict(list)
    for path in paths:
        name, source = str(path.relative_to(ROOT)), path.read_bytes()
        for fault in python_faults(name, source) if path.suffix == ".py" else text_faults(name, source):
            lines[name, fault.line].append(fault)
    for name, number in chance.sample(sorted(lines), len(lines)):
        if count and (found := _of_line(lines[name, number], (ROOT / name).read_bytes(), chance)):
            count -= 1
            yield found


def _of_line(faults: Sequence[Fault], source: bytes, chance: random.Random) -> Fault | None:
    """One of them, every operator as likely as the others."""
    operators = sorted({fault.operator for fault in faults})
    for operator in chance.sample(operators, len(operators)):
        same = [each for each in faults if each.operator == operator]
        for fault in chance.sample(same, len(same)):
            if not fault.path.endswith(".py") or is_another(source, fault.put_into(source)):
                return fault
    return None


def _running(known: Map, fault: Fault) -> Collection[Test]:
    """The tests that run the line; for what stands outside functions those that run a line which names it.

    To those come all tests of a file that imports the module: of a type they run no line, and still hold it.
    """
    if not fault.path.endswith(".py"):
        return known.at(fault.path, (0,))
    if not fault.names:
        return known.at(fault.path, fault.lines)
    found = {
        test.name: test
        for name in fault.names
        for path, lines in _naming(name, fault.path)
        for test in known.at(path, lines)
    }
    found |= {test.name: test for each in known.traced if _imports(each.file, fault.path) for test in each.tests}
    if not found:
        found = {test.name: test for test in known.tests if fault.path in test.lines}
    if not found:
        found = {test.name: test for each in known.traced if fault.path in each.imported for test in each.tests}
    return tuple(found.values())


def _naming(name: str, path: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The lines of the package that have this word, of its own file where it is private."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    places = (path,) if name.startswith("_") else _python_files()
    for each in places:
        lines = (ROOT / each).read_text().splitlines()
        if numbers := tuple(number for number, line in enumerate(lines, 1) if word.search(line)):
            yield each, numbers


@cache
def _python_files() -> tuple[str, ...]:
    return tuple(str(path.relative_to(ROOT)) for path in sorted((ROOT / "sifmod").rglob("*.py")))


def _words(fault: Fault) -> frozenset[str]:
    """The words of the statement, of the file's place, and in a template of the lines around it."""
    lines = (ROOT / fault.path).read_text().splitlines()
    around = fault.lines or range(max(1, fault.line - AROUND), min(len(lines), fault.line + AROUND) + 1)
    text = " ".join(lines[number - 1] for number in around)
    return frozenset(re.findall(r"\w{3,}", f"{text} {' '.join(fault.names)} {fault.path.removeprefix('sifmod/')}"))


def _nearness(known: Map, file: str, fault: Fault, words: Collection[str]) -> float:
    """How much a test file has to do with a line: rare words that both have, and the name."""
    shared = known.words(file) & set(words)
    all_files = [each.file for each in known.traced]
    near = sum(1 / sum(word in known.words(each) for each in all_files) for word in shared)
    place = Path(fault.path)
    stem = Path(file).stem.removeprefix("test_")
    parts = set(re.split("[_-]", place.stem)) & set(stem.split("_"))
    named = stem in {place.stem, f"{place.parent.name}_{place.stem}"}
    return near + 2 * named + len(parts) + 3 * _imports(file, fault.path)


@cache
def _imports(file: str, path: str) -> bool:
    """Whether a test file imports this very module, of whose values it can tell more than who runs it by the way."""
    package, _, stem = path.removesuffix(".py").replace("/", ".").rpartition(".")
    ways = (f"from {package}.{stem} import ", f"from {package} import {stem}\n")
    return any(way in (ROOT / file).read_text() for way in ways)


def _in_order(tests: Sequence[Test], words: Collection[str]) -> list[Test]:
    """Of one file: those whose names share words first, one of each function before a second, fast ones first."""
    parts = {part.removesuffix("s") for word in words for part in re.split("_+", word.lower()) if len(part) > 2}
    seen: dict[str, int] = defaultdict(int)
    ranked = []
    for test in sorted(tests, key=lambda each: each.seconds):
        function = test.name.partition("[")[0]
        shared = len(parts & {part.removesuffix("s") for part in re.split(r"[_:]+", function)})
        ranked.append((seen[function] // (1 + 2 * shared), -shared, test.seconds, test))
        seen[function] += 1
    return [each[-1] for each in sorted(ranked, key=lambda each: each[:3])]
