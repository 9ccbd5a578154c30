"""sifmod's command lines, run in children of a warm interpreter and disturbed at a chosen step.

A step is a moment just before the command changes the disk: Python's own audit events tell of every open for writing,
rename, link, symlink, mkdir, rmdir, unlink, chmod and truncate, and `os.fsync` is wrapped. At step N the child kills or
stops itself, or the call fails as on a full disk. Nothing in sifmod knows of it. Run as a program it serves requests,
one line of JSON each, so that a command takes milliseconds instead of starting an interpreter.
"""

import errno
import gc
import importlib
import io
import json
import mmap
import os
import pkgutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CHANGES = {"os.rename", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.remove", "os.chmod", "os.truncate"}
LATE = (
    "jinja2",
    "pydantic",
    "yaml",
    "requests",
    "subprocess",
    "fnmatch",
    "filelock",
    "cyclonedx.output.json",
    "multiprocessing.popen_fork",
    "encodings.cp437",
    "encodings.idna",
)
HANGS = 120  # seconds: a command that takes so long is killed
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Outcome:
    """How far a command got. `code` is its exit code, negative for a signal; None while it is stopped."""

    pid: int
    code: int | None
    steps: int  # how many it had reached
    stderr: str
    stdout: str = ""


class Victim:
    """The server, seen from the test; a context manager. `command` in front of it: unshare."""

    def __init__(self, env: Mapping[str, str], *command: str) -> None:
        self.env = env
        path = os.pathsep.join(str(Path(__file__).resolve().parents[n]) for n in (1, 2))
        self._process = subprocess.Popen(
            (*command, sys.executable, __file__),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**env, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            text=True,
        )

    def __enter__(self) -> "Victim":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(
        self,
        arguments: Sequence[str | Path],
        how: str = "whole",
        step: int = 0,
        delay: float = 0,
        who: tuple[int, ...] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Run one command line; `how`: whole; killed, terminated, stopped, failing at `step`; shot after `delay` s.

        `who`: as the user of this uid and gid, under this umask, and in these further groups. `env`: more variables;
        the command starts in its HOME.
        """
        words = [str(argument) for argument in arguments]
        return self._ask({"run": words, "how": how, "step": step, "delay": delay, "who": who, "env": env or {}})

    def warm(self, arguments: Sequence[str | Path]) -> Outcome:
        """Run a command line that changes nothing in the server itself, so that its children find everything loaded."""
        return self._ask({"warm": [str(argument) for argument in arguments]})

    def resume(self, stopped: Outcome) -> Outcome:
        """Let a stopped command go on to its end."""
        return self._ask({"resume": stopped.pid})

    def _ask(self, request: Mapping[str, object]) -> Outcome:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._process.stdout.readline()))


@cache
def import_all() -> None:
    """All that a command may import, so that a copy of this process finds it loaded."""
    for module in pkgutil.walk_packages(importlib.import_module("sifmod").__path__, "sifmod."):
        if module.name != "sifmod.__main__":
            importlib.import_module(module.name)
    for late in LATE:  # another user may not be able to read what Python has
        importlib.import_module(late)


def _serve() -> None:
    import_all()
    count = mmap.mmap(-1, 8)
    running: dict[int, tuple[mmap.mmap, int, int]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "warm" in request:
            with redirect_stdout(io.StringIO()):
                code = importlib.import_module("sifmod.cli.main").run(request["warm"])
            gc.collect()
            gc.freeze()  # else a collection in a child copies every page of what is loaded
            print(json.dumps({"pid": os.getpid(), "code": code, "steps": 0, "stderr": ""}), flush=True)
            continue
        if "run" in request:
            count = mmap.mmap(-1, 8)
            out, errors = os.memfd_create("stdout"), os.memfd_create("stderr")
            pid = os.fork()
            if pid == 0:
                os.setpgid(0, 0)  # of which the workers of a stack are too
                if request["who"]:
                    _become(*request["who"])
                if request["env"]:
                    os.environ.update(request["env"])
                    os.chdir(os.environ["HOME"])
                _disturb(request["how"], request["step"], count)
                _command(request["run"], out, errors)
            running[pid] = (count, out, errors)
            if request["how"] == "shot":
                time.sleep(request["delay"])
                os.kill(pid, signal.SIGKILL)
        else:
            pid = request["resume"]
            os.killpg(pid, signal.SIGCONT)
        _, status = os.waitpid(pid, os.WUNTRACED)
        count, *streams = running[pid]
        code = None if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
        said, told = (os.pread(stream, 1 << 20, 0).decode() for stream in streams)
        if code is not None:
            for stream in streams:
                os.close(stream)
        steps = int.from_bytes(count[:8])
        print(json.dumps({"pid": pid, "code": code, "steps": steps, "stdout": said, "stderr": told}), flush=True)


def _become(uid: int, gid: int, umask: int, *groups: int) -> None:
    os.umask(umask)
    os.setgroups(groups)
    os.setgid(gid)
    os.setuid(uid)


def _command(arguments: list[str], out: int, errors: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for number, target in ((0, nothing), (1, out), (2, errors)):
        os.dup2(target, number)
    code = 70
    signal.alarm(HANGS)
    try:
        from sifmod.cli.main import run

        code = run(arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 70
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _disturb(how: str, step: int, count: mmap.mmap) -> None:
    """Count the steps of this process from now on, and act at the one that was asked for."""
    main = threading.get_ident()

    def reached(*path: object) -> None:
        if threading.get_ident() != main:  # the heartbeat comes when it comes
            return
        now = int.from_bytes(count[:8]) + 1
        count[:8] = now.to_bytes(8)
        if now != step:
            return
        if how == "killed":
            os.killpg(0, signal.SIGKILL)
        elif how == "terminated":
            os.kill(os.getpid(), signal.SIGTERM)
        elif how == "stopped":
            os.killpg(0, signal.SIGSTOP)
        elif how == "failing":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *map(str, path))

    def hear(event: str, arguments: tuple[object, ...]) -> None:
        if event in CHANGES:
            reached(arguments[0])
        elif event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & WRITING and str(path) not in (os.devnull, "/dev/tty"):
                reached(path)

    sync = os.fsync

    def fsync(descriptor: int) -> None:
        reached()
        sync(descriptor)

    os.fsync = fsync  # type: ignore[assignment]
    sys.addaudithook(hear)


if __name__ == "__main__":
    _serve()
