"""What each test runs: a pytest plugin, and what every Python process of a traced copy starts with (fault_copy.py).

The directory of the copy that holds this file is HOME. `current` in it names the test that runs; processes that a test
starts read it when they begin. Lines are traced by coverage, one context a test, into `data/`; the templates that a
process opens are written to `opened/`, how each test ended to `ended`, and its fixtures to `fixtures`. A process that
is killed leaves nothing.
"""

import atexit
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).parent
PACKAGE = HOME.parent / "sifmod"
TEMPLATES = f"{PACKAGE}/module/templates/"


class Trace:
    """The tracing of this process."""

    def __init__(self) -> None:
        import coverage

        self.test = (HOME / "current").read_text()  # "" in the process that runs the tests
        self.opened: set[tuple[str, str]] = set()
        self.coverage = coverage.Coverage(
            data_file=str(HOME / "data" / "lines"),
            data_suffix=True,
            config_file=False,
            source=[str(PACKAGE)],
            context=self.test,
            messages=False,
        )
        self.coverage.start()
        sys.addaudithook(self._audit)
        atexit.register(self._save)

    def switch(self, test: str) -> None:
        """From now on it is this test that runs here."""
        self.test = test
        (HOME / "current").write_text(test)
        self.coverage.switch_context(test)

    def _audit(self, event: str, given: tuple[object, ...]) -> None:
        if event == "open" and str(given[0]).startswith(TEMPLATES):
            self.opened.add((self.test, str(given[0])))

    def _save(self) -> None:
        self.coverage.stop()
        if self.opened:
            (HOME / "opened" / f"{os.getpid()}-{os.urandom(4).hex()}").write_text(json.dumps(sorted(self.opened)))
        self.coverage.save()


TRACE = Trace() if (HOME / "traced").exists() else None


def _forget() -> None:
    """What an earlier test has left in caches would not be run by this one."""
    for name, module in list(sys.modules.items()):
        if name == "sifmod" or name.startswith("sifmod."):
            for value in list(vars(module).values()):
                for owner in (value, getattr(value, "cache", None)):
                    if callable(clear := getattr(owner, "cache_clear", None)):
                        clear()
                if type(value).__name__ == "Environment" and type(value).__module__.startswith("jinja2"):
                    value.cache.clear()


try:
    import pytest
except ImportError:
    pass
else:

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
        """Say which test runs."""
        if TRACE is None:
            return (yield)
        with (HOME / "fixtures").open("a") as file:
            file.write(json.dumps([item.nodeid, getattr(item, "fixturenames", [])]) + "\n")
        _forget()
        TRACE.switch(item.nodeid)
        try:
            return (yield)
        finally:
            TRACE.switch("")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
        """What is set up for several tests is run by all of them."""
        if TRACE is None or fixturedef.scope == "function":
            return (yield)
        before = TRACE.test
        TRACE.switch(f"fixture {fixturedef.argname}")
        try:
            return (yield)
        finally:
            TRACE.switch(before)

    def pytest_runtest_logreport(report: pytest.TestReport) -> None:
        """Note how each part of a test ended."""
        with (HOME / "ended").open("a") as file:
            file.write(json.dumps([report.nodeid, report.outcome, round(report.duration, 3)]) + "\n")
