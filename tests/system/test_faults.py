"""The script that puts faults into the code (fuzz/faults.py): what it changes, and that it cleans up."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))

from fault import Fault
from fault_choice import choose, covering, shares
from fault_copy import ROOT, Copy
from fault_map import Test, read_map, trace
from fault_python import is_another, python_faults
from fault_text import text_faults
from fault_trial import Unreliable, attempt, known_outcomes, written

HEADER = "sifmod/image/convert/sif/header.py"


def changed(source: str, path: str = "x.py") -> set[str]:
    """The texts that faults make of `source`."""
    faults = python_faults if path.endswith(".py") else text_faults
    return {fault.put_into(source.encode()).decode() for fault in faults(path, source.encode())}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if bad:\n    raise E\n", "if (bad) and False:\n    raise E\n"),
        ("if a < b:\n    c = 1\n", "if (a <= b):\n    c = 1\n"),
        ("x = a or b\n", "x = (a and b)\n"),
        ("x = a or b\n", "x = (a)\n"),
        ("x = 'ä', rest[done:]\n", "x = 'ä', (rest[:])\n"),
        ("os.fsync(f)\n", "pass\n"),
        ("try:\n    a()\nfinally:\n    b()\n    c()\n", "try:\n    a()\nfinally:\n    pass\n"),
        ("with suppress(A, B):\n    c()\n", "with (suppress(B)):\n    c()\n"),
        ("try:\n    a()\nexcept (A, B):\n    b()\n", "try:\n    a()\nexcept (A,):\n    b()\n"),
        ("os.chmod(f, 0o600)\n", "os.chmod(f, 0o666)\n"),
        ("X = ('a', 'b', 'c')\n", "X = (('a', 'c'))\n"),
        ("f(a, dir=b)\n", "(f(a))\n"),
        ("while n < m:\n    n += os.write(f, x)\n", "for _once in range(bool(n < m)):\n    n += os.write(f, x)\n"),
        ("def f() -> bool:\n    return a.b\n", "def f() -> bool:\n    return True\n"),
        ("x = a.startswith('b')\n", "x = (a == 'b')\n"),
        ("x = shell(a)\n", "x = (a)\n"),
    ],
)
def test_faults_of_python(before: str, after: str) -> None:
    assert after in changed(before)


@pytest.mark.parametrize(
    "source",
    [
        "'''What it is for.'''\n",
        "raise E(f'{a}: expected one', ', '.join(sorted(b)))\n",
        "if TYPE_CHECKING:\n    from a import b\n",
        "class A:\n    __slots__ = ('a', 'b')\n",
        "def f(x: Literal['a', 'b']) -> None: ...\n",
        "X = Literal['a', 'b']\n",
        "@dataclass(frozen=True)\nclass A:\n    a: int\n",
        "x = run(a, check=False)\n",
    ],
)
def test_what_is_left_alone(source: str) -> None:
    assert changed(source) == set()


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("x.sh", 'run "$a" b\n', "run $a b\n"),
        ("x.sh", "rm -f x\n", ":\n"),
        ("x.sh", "  ro | rw | id=*) a=1 ;;\n", "  ro | id=*) a=1 ;;\n"),
        ("x.sh", "if [ -e x ]; then\n", "if [ ! -e x ]; then\n"),
        ("x.sh", "a={{ b | shell }}\n", "a={{ b }}\n"),
        ("x.sh", "{% if a %}\n", "{% if not a %}\n"),
        ("x.lua", "values.a = 1\n", "\n"),
        ("x.lua", "if a and b then\n", "if a or b then\n"),
        ("x.tcl", "    lappend all $entry\n", "    \n"),
        ("x.tcl", "if {$a eq $b} {\n", "if {$a ne $b} {\n"),
    ],
)
def test_faults_of_templates(path: str, before: str, after: str) -> None:
    assert after in changed(before, path)


@pytest.mark.parametrize("line", ["# rm -f x\n", "'\nx = 1\n'\n", "else\n", "f() {\n", "  a \\\n"])
def test_what_is_left_alone_of_a_script(line: str) -> None:
    assert changed(line, "x.sh") == set()


def test_what_is_chosen_is_another_program_on_a_line_of_its_own() -> None:
    chosen = choose(60, 1, "sifmod/actions/layer")
    assert len({(fault.path, fault.line) for fault in chosen}) == 60
    for fault in chosen:
        source = (ROOT / fault.path).read_bytes()
        assert is_another(source, fault.put_into(source)), fault
    assert chosen == choose(60, 1, "sifmod/actions/layer")
    assert chosen != choose(60, 2, "sifmod/actions/layer")


def test_every_folder_has_its_share() -> None:
    given = shares({Path("a"): 800, Path("b"): 190, Path("c"): 10}, 100)
    assert given == {Path("a"): 79, Path("b"): 18, Path("c"): 3}
    assert {Path(fault.path).parent.name for fault in choose(40, 1, "sifmod/module")} >= {"module", "share", "parts"}


def test_a_fault_is_noticed_and_the_copy_is_as_before(shared_tmp: Path) -> None:
    copy = Copy(shared_tmp / "copies", "0")
    before = copy.digest()
    known = read_map([trace(copy, "tests/image/test_sif.py", "test_no_cut")])
    assert not any("test_no_cut" in test.name for test in known.tests)
    source = (ROOT / HEADER).read_bytes()

    def of(text: bytes, after: str) -> Fault:
        start = source.index(text)
        line = source[:start].count(b"\n") + 1
        return Fault(HEADER, line, "a test", start, start + len(text), after, (line,))

    fault = of(b"used > primary.size", "False")
    tests = covering(known, fault, 30, 60)
    assert 3 < len(tests) <= 30
    outcome = attempt(copy, fault, tests, Unreliable())
    assert outcome.by.startswith("tests/image/test_sif.py::")
    assert attempt(copy, of(b"\n\n\n", "\n\n\n\n"), tests[:3], Unreliable()).by == ""
    assert copy.digest() == before
    out = shared_tmp / "out"
    out.write_text(written(fault, outcome) + "half a line")
    assert list(known_outcomes(out).values()) == [outcome]


def test_another_file_that_a_run_has_changed_is_an_error(shared_tmp: Path) -> None:
    copy = Copy(shared_tmp / "copies", "0")
    copy.write("sifmod/digest.py", b"# something else\n")
    test = Test("tests/image/test_naming.py", 1, {}, frozenset())
    with pytest.raises(AssertionError, match=r"a run has changed other files than sifmod/errors\.py"):
        attempt(copy, Fault("sifmod/errors.py", 1, "a test", 0, 0, "\n"), [test], Unreliable())
