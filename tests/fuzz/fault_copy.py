"""A Copy of the repository, in which an ordinary user runs tests and into which faults are put.

All copies lie in one directory, which all users can reach, and share `build/`, where the tests keep the images that
they make. A copy's files belong to root where root runs this, so that no faulty program changes them. Its virtual
environment has the packages of the one that runs this, and sifmod from the copy.
"""

import hashlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
USER = "sifmod-faults"
NOT_COPIED = frozenset(
    (".git", ".venv", "build", "dist", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis")
) | {".faults"}
TRACER = Path(__file__).with_name("fault_trace.py")
# what the tests make of the network or with rights that an ordinary user may lack; taken from here where it is there
MADE = ("build/debian-base.tar", "build/pytorch-2.13.0-oci")
SEARCHED = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Ran:
    """How a run of tests went: pytest's exit code, None where the time limit ended it, and what it said."""

    code: int | None
    output: str

    @property
    def failed(self) -> tuple[str, ...]:
        """The tests that failed, in the order of their running."""
        lines = [line.partition(" - ")[0] for line in self.output.splitlines()]
        return tuple(line.split(" ", 1)[1] for line in lines if line.startswith(("FAILED ", "ERROR ")))


class Copy:
    """A copy in `directory`/`name`; it is made anew when it is there already."""

    def __init__(self, directory: Path, name: str) -> None:
        self.root = directory / name
        self._clock = 0
        self._user = _ordinary_user()
        self._home = self.root / ".faults"
        directory.mkdir(exist_ok=True)
        directory.chmod(0o755)
        self.remove()
        self._files = tuple(sorted(_files()))
        for path in self._files:
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, self.root / path)
        for place in (directory / "build", self._home):
            place.mkdir(exist_ok=True)
            self._own(place)
        for made in MADE:
            self._bring(directory / made, ROOT / made)
        (self.root / "build").symlink_to(directory / "build")
        self._make_environment()
        self._before = self.digest()

    def digest(self) -> str:
        """Of every file that was copied."""
        whole = hashlib.sha256()
        for path in self._files:
            whole.update(f"{path}\0".encode() + hashlib.sha256((self.root / path).read_bytes()).digest())
        return whole.hexdigest()

    def write(self, path: str, text: bytes) -> None:
        """Put other text into a file, at a time that it never had: compiled files are told apart by size and time."""
        self._clock += 2
        (self.root / path).write_bytes(text)
        time = (ROOT / path).stat().st_mtime - 100_000 - self._clock
        os.utime(self.root / path, (time, time))

    def restore(self, path: str) -> None:
        """Put the file's own text back. Raises AssertionError where something else has changed."""
        self.write(path, (ROOT / path).read_bytes())
        assert self.digest() == self._before, f"{self.root} is not as it was: a run has changed other files than {path}"

    def trace(self, on: bool) -> None:
        """Whether every Python process of this copy traces what it runs (see `traces`)."""
        for path in ("data", "opened"):
            shutil.rmtree(self._home / path, ignore_errors=True)
            (self._home / path).mkdir()
            self._own(self._home / path)
        for path in ("current", "ended", "fixtures"):
            (self._home / path).write_text("")
            self._own(self._home / path)
        start = self._packages() / "traced.pth"
        start.unlink(missing_ok=True)
        (self._home / "traced").unlink(missing_ok=True)
        if on:
            (self._home / "traced").touch()
            start.write_text(f"{self._home}\nimport fault_trace\n")

    @property
    def traces(self) -> Path:
        """Where a traced run leaves `data/`, `opened/` and `ended`."""
        return self._home

    def run(self, tests: Sequence[str], limit: float, *options: str) -> Ran:
        """Run tests as the user, for at most `limit` seconds; whatever they started is ended."""
        base = self._home / "tmp"
        asked = self._home / "tests"
        asked.write_text("\n".join(tests))
        command: tuple[str | Path, ...] = (
            self.root / ".venv/bin/python",
            "-m",
            "pytest",
            "-q",
            "-rfE",
            "--tb=line",
            "--no-header",
            *options,
        )
        command += ("-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={base}", f"@{asked}")
        log = self._home / "output"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env={"PATH": SEARCHED, "HOME": str(self._home), "LANG": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=self._user.pw_uid if self._user else None,
                group=self._user.pw_gid if self._user else None,
                extra_groups=[] if self._user else None,
            )
            try:
                code: int | None = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                self._end(process)
        subprocess.run(("chmod", "-R", "u+rwX", base), check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(base, ignore_errors=True)
        return Ran(code, log.read_text(errors="replace"))

    def remove(self) -> None:
        """Take it away."""
        if self.root.exists():
            subprocess.run(("chmod", "-R", "u+rwX", self.root), check=False)
            shutil.rmtree(self.root)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the group, and what left it: processes that name the copy on their command line or stand in it."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for number in _standing_in(self.root):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def _make_environment(self) -> None:
        venv = self.root / ".venv"
        subprocess.run((_python(self._user), "-m", "venv", "--without-pip", venv), check=True)
        ours = next(path for path in map(Path, sys.path) if path.name == "site-packages")
        (self._packages() / "faults.pth").write_text(f"{self.root}\n{ours}\n")
        for program in (ours.parents[2] / "bin").iterdir():
            if not (venv / "bin" / program.name).exists() and program.read_bytes()[:2] == b"#!":
                text = program.read_text().split("\n", 1)[1]
                (venv / "bin" / program.name).write_text(f"#!{venv}/bin/python\n{text}")
                (venv / "bin" / program.name).chmod(0o755)
        shutil.copy(TRACER, self._home)

    def _bring(self, to: Path, origin: Path) -> None:
        if origin.exists() and not os.path.lexists(to):
            if origin.is_file():  # of which a test's script makes a hard link, so that the user must own it
                shutil.copy(origin, to)
                self._own(to)
            else:
                to.symlink_to(origin)

    def _packages(self) -> Path:
        return next((self.root / ".venv" / "lib").glob("python3.*")) / "site-packages"

    def _own(self, path: Path) -> None:
        if self._user:
            os.chown(path, self._user.pw_uid, self._user.pw_gid)


def _files() -> Iterator[str]:
    """The repository's files as they are now, without what is made of them."""
    for directory, directories, names in os.walk(ROOT):
        directories[:] = [name for name in directories if name not in NOT_COPIED]
        for name in names:
            path = Path(directory, name)
            if path.is_file() and path.suffix != ".pyc":
                yield str(path.relative_to(ROOT))


def _ordinary_user() -> pwd.struct_passwd | None:
    """Who runs the tests: a user made once where root runs this, else the user who does."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        subprocess.run(("useradd", "--system", "--create-home", "--shell", "/bin/bash", USER), check=True)
    return pwd.getpwnam(USER)


def _python(user: pwd.struct_passwd | None) -> str:
    """An interpreter of this version that the user may run; root's own may be out of reach."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (os.path.realpath(sys.executable), f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        if user is None:
            return python
        with suppress(OSError):
            asked = subprocess.run(
                (python, "-c", "import ssl, venv"),
                check=False,
                cwd="/",
                user=user.pw_uid,
                group=user.pw_gid,
                extra_groups=[],
            )
            if asked.returncode == 0:
                return python
    raise SystemExit(f"no {version} that {USER} may run was found\n\nhint: install {version} below /usr/bin")


def _standing_in(root: Path) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace")
            if f"{root}/" in words or f"{root}/" in f"{(entry / 'cwd').readlink()}/":
                yield int(entry.name)
