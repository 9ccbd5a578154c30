"""Put faults into sifmod, one at a time, and see whether a test notices.

    python tests/fuzz/faults.py                                    ten faults, anywhere in sifmod/
    python tests/fuzz/faults.py sifmod/tree --faults 30 --seed 7   thirty others below a folder
    python tests/fuzz/faults.py sifmod/tree/log.py:40              all that fit a line; --list only prints them
    python tests/fuzz/faults.py FILE --replace 'min(' 'max('       a fault of your own

Each fault goes into a fresh copy of the checkout, where the tests of the nearest files run: those that import the
module, have its name or share its rare words. A test that fails with the fault, twice, counts if it passes without.
As root they run as an ordinary user, so that a fault cannot harm the machine; tests that need root are skipped.
Ends with 1 if a fault was not noticed. Read such a fault: it can be one that changes nothing.
"""

import argparse
import ctypes
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

from fault_kinds import Fault, faults_of

from support.command import BUILD, ROOT
from support.user import ordinary_user

AROUND = 4  # lines before and after a fault, whose words say what it is about
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Ran:
    """How a run of tests went: pytest's exit code, None where the time was over, and what it said."""

    code: int | None
    output: str

    @property
    def failed(self) -> list[str]:
        return re.findall(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", self.output, re.M)

    def count(self, outcome: str) -> int:
        """The tests that `passed` or were `skipped`."""
        return sum(map(int, re.findall(rf"\b(\d+) {outcome}\b", self.output[-200:])))


def _unfinished(directory: str, names: Sequence[str]) -> Sequence[str]:
    """What `made` of support/images.py is building, which is renamed or goes at any moment."""
    return [each for each in names if Path(directory) == BUILD and each.startswith(("unfinished-", "tmp"))]


class Scratch:
    """A directory with a sound copy of the checkout and a faulty one, and what is known of the tests."""

    def __init__(self, directory: Path, seconds: float) -> None:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans of the tests become children of this process
        self.directory, self.seconds = directory, seconds
        self.unreliable: set[str] = set()  # tests that fail without a fault too, or by chance
        self.slow: set[str] = set()  # files that take longer than `seconds` without a fault too
        directory.chmod(0o755)
        for name in ("home", "build"):
            (directory / name).mkdir()
        for made in (ROOT / "build").glob("*"):  # images that are built; other tests may be building more
            if made.name == "pytorch-2.13.0-oci":  # large, and only read
                (directory / "build" / made.name).symlink_to(made)
            elif made.is_file():
                shutil.copy2(made, directory / "build")
            elif made == BUILD:
                shutil.copytree(made, directory / "build" / made.name, symlinks=True, ignore=_unfinished)
        self.user = ordinary_user(directory / "home")
        self.user.own(directory / "build")
        self.copy("sound")

    def copy(self, name: str) -> Path:
        """A fresh copy with a virtual environment in which sifmod is that of the copy."""
        to = self.directory / name
        shutil.rmtree(to, ignore_errors=True)
        command = ("git", "ls-files", "-coz", "--exclude-standard")
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
        compiled = (path for top in ("sifmod", "tests") for path in (ROOT / top).rglob("__pycache__/*.pyc"))
        for path in (*map(Path, listed), *(path.relative_to(ROOT) for path in compiled)):
            if (ROOT / path).is_file():
                (to / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / path, to / path)  # with its time, without which what is compiled is not used
        (to / "build").symlink_to(self.directory / "build")
        packages, venv = Path(sysconfig.get_path("purelib")), to / ".venv"
        subprocess.run((os.path.realpath(sys.executable), "-m", "venv", "--without-pip", venv), check=True)
        next(venv.glob("lib/*/site-packages")).joinpath("copy.pth").write_text(f"{to}\n{packages}\n")
        programs = Path(sysconfig.get_path("scripts"))
        ours = venv / "bin" / "sifmod"
        for name in (
            {each.name for each in programs.iterdir()} - {each.name for each in ours.parent.iterdir()} - {"sifmod"}
        ):
            (venv / "bin" / name).symlink_to(programs / name)
        ours.write_text((programs / "sifmod").read_text().replace(str(programs), str(venv / "bin")))
        ours.chmod(0o755)
        return to

    def run(self, copy: Path, tests: Sequence[str]) -> Ran:
        """Run tests as the user, and end whatever they started."""
        command = [str(copy / ".venv/bin/python"), "-m", "pytest", "-q", "-rfE", "--tb=no", "--maxfail=10", *tests]
        command += ["-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={self.user.home}/tmp"]
        command += [f"--deselect={name}" for name in sorted(self.unreliable)]
        if os.geteuid() == 0:
            who = self.user.user
            command = ["setpriv", f"--reuid={who.uid}", f"--regid={who.gid}", "--clear-groups", *command]
        with (self.directory / "output").open("w+b") as output:
            process = subprocess.Popen(
                command,
                cwd=copy,
                env=self.user.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                code: int | None = process.wait(self.seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end_children()
            output.seek(0)
            return Ran(code, output.read().decode(errors="replace"))

    def attempt(self, fault: Fault, files: Sequence[str]) -> tuple[bool, str]:
        """Whether a fault was noticed, and by which test, or by which tests it was not."""
        faulty = self.copy("faulty")
        (faulty / fault.path).write_text(fault.put_into((ROOT / fault.path).read_text()))
        passed = skipped = 0
        for file in files:
            while file not in self.slow:
                ran = self.run(faulty, [file])
                if ran.code in (0, 5):  # 5: no test was selected
                    passed, skipped = passed + ran.count("passed"), skipped + ran.count("skipped")
                    break
                sound = self.run(self.directory / "sound", ran.failed or [file])
                failed = [name for name in ran.failed if name not in sound.failed]
                if failed and self.run(faulty, failed).failed:  # again: not by chance
                    return True, failed[0]
                if not ran.failed and sound.code == 0:
                    return True, f"{file}, with exit code {ran.code}" if ran.code else f"{file}, without an end"
                self.unreliable |= set(ran.failed)
                self.slow |= set() if ran.failed else {file}
        return False, f"{passed} tests ({skipped} more were skipped) of {', '.join(files)}"


def _end_children() -> None:
    """Kill the children of this process until none is left."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while numbers := children.read_text().split():
        for number in map(int, numbers):
            os.kill(number, signal.SIGKILL)
            os.waitpid(number, 0)


def nearest(fault: Fault) -> list[str]:
    """All files of tests, those first that have most to do with a fault."""
    lines = (ROOT / fault.path).read_text().splitlines()[max(0, fault.line - AROUND - 1) : fault.line + AROUND]
    words = set(re.findall(r"\w{4,}", " ".join(lines)))
    package, _, module = fault.path.removesuffix(".py").replace("/", ".").rpartition(".")
    imported = re.compile(rf"^from {package}(\.{module} import | import .*\b{module}\b)", re.M)
    place = set(re.split(r"\W|_", fault.path)) - {"sifmod", "templates"}
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in sorted(ROOT.glob("tests/*/test_*.py"))}
    shared = {file: words & set(re.findall(r"\w{4,}", text)) for file, text in texts.items()}
    common = Counter(word for each in shared.values() for word in each)

    called = Counter(part for file in texts for part in Path(file).stem.split("_"))

    def score(file: str) -> float:
        stem = Path(file).stem
        near = sum(1 / common[word] for word in shared[file])
        near += sum((part in place) + 2 / called[part] for part in (place | words) & set(stem.split("_")))
        return near + 3 * bool(imported.search(texts[file])) + 2 * (stem == f"test_{module}")

    return sorted(texts, key=score, reverse=True)


def chosen(given: argparse.Namespace) -> list[Fault]:
    """The faults to try: your own, those of a line, or some at random of different lines."""
    path, _, line = given.where.partition(":")
    if given.replace:
        before, after = given.replace
        text = (ROOT / path).read_text()
        if text.count(before) != 1:
            raise SystemExit(f"{path} has {text.count(before)} times {before!r}, not once")
        start = text.index(before)
        return [Fault(path, text.count("\n", 0, start) + 1, "replaced", start, start + len(before), after)]
    found: dict[tuple[str, int], list[Fault]] = defaultdict(list)
    for file in sorted((ROOT / path, *(ROOT / path).rglob("*"))):
        if file.is_file() and file.suffix not in (".pyc", ".typed"):
            for fault in faults_of(str(file.relative_to(ROOT)), file.read_text()):
                if line in ("", str(fault.line)) and re.search(given.kind, fault.kind):
                    found[fault.path, fault.line].append(fault)
    chance = random.Random(given.seed)
    of_lines = [[chance.choice(found[place])] for place in chance.sample(sorted(found), len(found))]
    candidates = (fault for faults in (found.values() if line else of_lines) for fault in faults)
    faults = (fault for fault in candidates if fault.is_fault((ROOT / fault.path).read_text()))
    return list(faults if line else islice(faults, given.faults))


def main() -> int:
    """Run; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("where", nargs="?", default="sifmod", help="a folder, a file, or FILE:LINE (sifmod)")
    parser.add_argument("--faults", type=int, default=10, metavar="N", help="how many (10)")
    parser.add_argument("--seed", type=int, default=1, help="which (1)")
    parser.add_argument("--kind", default="", metavar="REGEX", help="of the kinds that match, as --list names them")
    parser.add_argument("--replace", nargs=2, metavar=("BEFORE", "AFTER"), help="this text of the file by that one")
    parser.add_argument("--list", action="store_true", help="print the faults and the nearest files of tests only")
    parser.add_argument("--tests", nargs="+", metavar="FILE", help="run these files instead of the nearest")
    parser.add_argument("--files", type=int, default=6, metavar="N", help="how many of the nearest files (6)")
    parser.add_argument(
        "--seconds", type=float, default=120, help="most time for a file; slower ones are left out (120)"
    )
    given = parser.parse_args()
    faults, noticed = chosen(given), 0
    with tempfile.TemporaryDirectory(prefix="sifmod-faults-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        scratch = None if given.list else Scratch(Path(directory), given.seconds)
        for number, fault in enumerate(faults, 1):
            text = (ROOT / fault.path).read_text()
            before, after = (" ".join(each.split()) for each in (text[fault.start : fault.end], fault.after))
            print(f"{number}/{len(faults)} {fault.path}:{fault.line}: {fault.kind}: {before} → {after or 'nothing'}")
            begin, files = time.monotonic(), given.tests or nearest(fault)[: given.files]
            if scratch is None:
                print(f"    {', '.join(files)}")
            else:
                was_noticed, by = scratch.attempt(fault, files)
                noticed += was_noticed
                how = "noticed" if was_noticed else "NOT NOTICED"
                print(f"    {how} by {by} ({time.monotonic() - begin:.0f} s)", flush=True)
    if not given.list:
        print(f"{noticed} of {len(faults)} faults were noticed")
    return 0 if given.list or noticed == len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
