"""A file system that fails: every call of every verb in turn, with each error that such a call may give.

    python -m tests.fuzz.file_system [--stride 1] [--distinct] [--only VERB ...] [--errors EIO ...] [--lasting]

After each failure the verb has succeeded or ended in a documented exit code, with a message that says what went wrong;
what a user sees of the module is the old or the new; and when the fault is gone the same command succeeds and leaves no
litter. Prints how the verbs ended and a line for each finding, and ends with 1 where there is one. Of the calls that do
not write `--stride N` takes every Nth, and `--distinct` the first and the last of a kind on a path. `--lasting`: from
that call on all of them fail.

Needs /dev/fuse, and half a second for each call.
"""

import argparse
import errno
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support import outlook
from support.fault_fs import WRITING, FaultFs, Rules
from support.images import Images
from support.trial import VERBS, Case, Place, Planned, Trial, make_trial
from support.victim import Outcome

DOCUMENTED = (0, 1, 10, 18, 24, 25)
FULL = ("ENOSPC", "EDQUOT")
ERRORS = (*FULL, "EIO", "ESTALE")
READERS = ("verify", "list", "show")


@dataclass(frozen=True)
class Bench:
    """The verbs on a file system that fails as asked, and what came of it."""

    trial: Trial
    file_system: FaultFs
    ends: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def calls(self, verb: str) -> list[str]:
        """What the verb calls when nothing fails."""
        case = self.trial.cases[verb]
        self.trial.reset(case)
        with self.file_system.under(Rules()) as calls:
            outcome = self.trial.victim.run(case.arguments)
        assert outcome.code == 0, outcome.stderr
        return calls

    def attempt(self, verb: str, rules: Rules) -> Outcome:
        """Run the verb with the rules, judge how it ended, and let it have its way: how it ended."""
        case = self.trial.cases[verb]
        self.trial.reset(case)
        with self.file_system.under(rules) as calls:
            outcome = self.trial.victim.run(case.arguments)
        failed = calls[rules.at - 1] if 0 < rules.at <= len(calls) else ""
        self.ends[f"{verb}: {outcome.code}"] += 1
        if outcome.code == 0 and " /tree/.staging" in failed:  # what it could not remove goes with the next change
            self.trial.victim.run(("gc", "--yes", "--prefix", self.trial.prefix))
        for wrong in (*judged(verb, rules, outcome), *self._finished(verb, case, outcome)):
            name = errno.errorcode.get(rules.error, "")
            self.findings.append(f"{verb}, call {rules.at}, {failed}, {name}: {wrong}\n{outcome.stderr.strip()}")
        return outcome

    def _finished(self, verb: str, case: Case, outcome: Outcome) -> Iterator[str]:
        """What is wrong afterwards, and after the same command without a fault."""
        try:
            seen = outlook.seen(self.trial.prefix, self.trial.known)
            if outcome.code == 0 and seen != case.may_be_seen[-1]:
                yield f"it has succeeded, and {seen} is seen"
            if verb in VERBS:
                self.trial.check_and_finish(case)
            else:
                self._finish(case)
        except AssertionError as error:
            yield str(error)

    def _finish(self, case: Case) -> None:
        """As Trial.check_and_finish, for verbs that make something new each time."""
        again = self.trial.victim.run(case.arguments)
        assert again.code in (0, 24), again.stderr  # 24: what was to be purged is gone
        assert outlook.seen(self.trial.prefix, self.trial.known) == case.may_be_seen[-1]
        assert not list(self.trial.prefix.glob(".staging/*"))


def judged(verb: str, rules: Rules, outcome: Outcome) -> Iterator[str]:
    """What is wrong with how a verb ended."""
    if outcome.code not in DOCUMENTED or "Traceback" in outcome.stderr:
        yield f"exit code {outcome.code}"
    elif outcome.code != 0 and verb not in READERS:
        why = os.strerror(rules.error)
        # a receipt that cannot be read counts as a damaged one, whatever the reason; what the kernel repeats after an
        # ESTALE may have been done
        words = (why, "can be read", *(("File exists",) if rules.error == errno.ESTALE else ()))
        if "\nerror: " not in f"\n{outcome.stderr}" or (rules.error and not any(w in outcome.stderr for w in words)):
            yield f"no word of {why!r}"


@contextmanager
def made_bench(directory: Path) -> Iterator[Bench]:
    """A bench in a new directory."""
    place = Place(directory)
    plain = ("--prefix", place.prefix)
    image = Images().tiny("crash-b")
    more: dict[str, Planned] = {
        "rebuild": ("a", (*place.install("a"), "--rebuild"), ("a",)),
        "module-only": ("a", (*place.install("a"), "--module-only"), ("a",)),
        "fetch": ("a", ("fetch", image, *plain), ("a",)),
        "purge": ("ab", ("uninstall", "--purge", "Tiny/1.0", *plain), ("b", "none")),
        **{verb: ("ab", (verb, *(("Tiny/1.0",) if verb == "show" else ()), *plain), ("b",)) for verb in READERS},
    }
    with FaultFs(directory) as file_system:
        for trial in make_trial(Images(), directory, more, file_system.command):
            yield Bench(trial, file_system)


def chosen(calls: Sequence[str], name: str, stride: int, first: int = 0) -> list[int]:
    """The numbers of the calls that are to fail, from 1; of those that do not write every `stride`th."""
    kinds = [call.partition(" ")[0] for call in calls]
    if name in FULL:
        return [number for number, _ in enumerate((kind for kind in kinds if kind in WRITING), 1)]
    return [n for n, kind in enumerate(kinds, 1) if kind in WRITING or n % stride == first % stride]


def distinct(calls: Sequence[str]) -> set[int]:
    """The numbers of those that write, and of the first and the last of each other kind on each path."""
    numbered = [*enumerate(calls, 1)]
    ends = {call: number for number, call in numbered}, {call: number for number, call in reversed(numbered)}
    writing = {number for number, call in numbered if call.partition(" ")[0] in WRITING}
    return writing.union(*(each.values() for each in ends))


def main(arguments: Sequence[str]) -> int:
    """Run; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stride", type=int, default=1, metavar="N", help="of calls that do not write (1)")
    parser.add_argument("--distinct", action="store_true", help="the first and the last of a kind on a path")
    parser.add_argument("--only", nargs="*", metavar="VERB", help="these verbs (all)")
    parser.add_argument("--errors", nargs="*", default=ERRORS, metavar="E", help=f"({' '.join(ERRORS)})")
    parser.add_argument("--lasting", action="store_true", help="from that call on all of them fail")
    given = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm", prefix="sifmod-fault-") as directory,
        made_bench(Path(directory)) as bench,
    ):
        for verb in given.only or bench.trial.cases:
            calls = bench.calls(verb)
            for name in given.errors:
                begin = time.monotonic()
                told = len(bench.findings)
                numbers = chosen(calls, name, given.stride)
                if given.distinct and name not in FULL:
                    numbers = sorted({*numbers} & distinct(calls))
                kinds = WRITING if name in FULL else ()
                for number in numbers:
                    bench.attempt(verb, Rules(number, getattr(errno, name), kinds, given.lasting))
                took = time.monotonic() - begin
                print(f"{verb}, {name}: {len(numbers)} of {len(calls)} calls, {took:.0f} s", flush=True)
                for finding in bench.findings[told:]:
                    print(f"finding: {finding}", flush=True)
    for end, count in sorted(bench.ends.items()):
        print(f"{count:6} {end}")
    print(f"{len(bench.findings)} findings")
    return 1 if bench.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
