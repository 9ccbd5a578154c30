"""The script that puts faults into the code (fuzz/faults.py)."""

import sys

from support.command import ROOT, Result, run

FAULT = ("sifmod/config/expand.py", "--replace", 'text.startswith("~/")', "text")


def faults(*words: str) -> Result:
    return run((sys.executable, ROOT / "tests" / "fuzz" / "faults.py", *words))


def test_a_fault_is_noticed_by_the_tests_that_look() -> None:
    """And not by those before them, which pass."""
    done = faults(*FAULT, "--tests", "tests/config/test_prefix.py", "tests/config/test_expand.py")
    assert "\n    noticed by tests/config/test_expand.py::" in done.ok().stdout
    listed = faults("sifmod/config/expand.py", "--list", "--kind", "negated").ok().stdout
    assert ": a condition is negated: " in listed and "\n    tests/config/test_expand.py, " in listed
