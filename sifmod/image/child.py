"""Child processes that never outlive sifmod."""

import fcntl
import json
import mmap
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sifmod.config.redact import without_logins, without_values

# The child gets its own process group with a watchdog that reads a pipe from us: when we exit for any reason, the pipe
# closes and the watchdog ends the group, including grandchildren. (PR_SET_PDEATHSIG would reach only the direct child.)
# A line through the pipe stops the watchdog. The pipe arrives as standard output.
_WATCHED = """
exec 3<&1 >&2
( trap '' TERM INT HUP; read -r _ <&3 || { kill -TERM 0; sleep 3; kill -KILL 0; } ) 3<&3 </dev/null >/dev/null 2>&1 &
exec "$@" 3<&-
"""
# The child's side of `serving`: each line of its input is a command in JSON; the answer, by the same socket, is the
# exit code. Commands share the child's output. An empty program name stands for the Python that runs this.
SERVER = """
import json, os, subprocess, sys
for line in sys.stdin.buffer:
    program, *words = (word.encode("latin-1") for word in json.loads(line))
    code = subprocess.call([program or os.fsencode(sys.executable), *words], stdin=subprocess.DEVNULL)
    os.write(0, b"%d\\n" % code)
"""
LATE = 124  # the exit code of a child that exceeded its time limit, like timeout(1)
_KEPT = 1 << 16  # bytes of output
_MOST = 1 << 25  # bytes of output in memory, about; more than any caller keeps
_OFTEN = 0.1  # seconds between two looks at it
_PATIENCE = 10.0  # seconds between SIGTERM and SIGKILL


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code (negative: the signal), and the end of its output."""

    code: int
    said: bytes
    late: bool = False  # it was ended after the time limit

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of the child's output, without colours, control characters, logins, secrets and empty lines."""
        text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", self.said.decode("utf-8", "replace")).replace("\r", "\n")
        text = without_logins(without_values(text, os.environ))
        lines = (
            "".join(letter if letter.isprintable() else " " for letter in line).rstrip() for line in text.split("\n")
        )
        return tuple(line for line in lines if line)


def run_child(
    args: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    limit: float | None = None,
    kept: int = _KEPT,
    whole: bool = False,
) -> Ended:
    """Run `args` to the end, with empty input; after `limit` seconds it is ended, with exit code LATE.

    `whole`: also end other processes in its group afterwards.

    The result has the last `kept` bytes of the output, at most 32 MiB. The output is in memory, so that a full disk
    cannot lose it. On any exception here (^C, a handler of SIGTERM that raises) the whole process group is ended before
    the exception propagates. Raises FileNotFoundError if this user cannot execute
    the path `args[0]`.
    """
    with _group(args, cwd, env) as (process, log):
        late = False
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            _end(process)
            code, late = LATE, True
        if whole:
            _kill(process)
        return Ended(code, _output(log, 0, kept), late)


@contextmanager
def serving(args: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> Iterator[Callable[..., Ended]]:
    """A function that runs a command in `args`, a child that is started once, because its start is expensive.

    The child must run SERVER with Python. On exit the whole process group is ended, as in `run_child`. If the child
    ends early, the function returns the child's exit code (1 for 0) and output. Raises FileNotFoundError as `run_child`
    does.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs, _group(args, cwd, env, theirs.fileno()) as (process, log), ours.makefile("rb") as answers:
        theirs.close()
        begin = 0  # where the output of the next command starts, in that of the child

        def run(*words: str) -> Ended:
            nonlocal begin
            answer = b""
            with suppress(BrokenPipeError, ConnectionResetError):
                ours.sendall(json.dumps([os.fsencode(word).decode("latin-1") for word in words]).encode() + b"\n")
                answer = answers.readline()
            code = int(answer) if answer else process.wait() or 1
            ended = Ended(code, _output(log, begin, _KEPT))
            begin = os.fstat(log).st_size
            return ended

        yield run
        ours.shutdown(socket.SHUT_WR)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)
        _kill(process)


@contextmanager
def _group(
    args: Sequence[str], cwd: Path, env: Mapping[str, str], stdin: int = subprocess.DEVNULL
) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """A child in its own process group, with a watchdog, and the descriptor of its output. Raises as `run_child`."""
    if not os.access(args[0], os.X_OK):
        raise FileNotFoundError(args[0])
    theirs, ours = os.pipe()
    try:
        with os.fdopen(os.memfd_create("output"), "w+b") as file:
            # a memfd has no lock for its position, unlike an opened file: two concurrent writers lose lines
            fcntl.fcntl(log := file.fileno(), fcntl.F_SETFL, os.O_APPEND)
            command = ("/bin/sh", "-c", _WATCHED, "sh", *args)
            process = subprocess.Popen(
                command, cwd=cwd, env=env, stdin=stdin, stdout=theirs, stderr=log, process_group=0
            )
            try:
                with _bounded(log):
                    yield process, log
            except BaseException:
                _end(process)
                raise
            os.write(ours, b"\n")
    finally:
        os.close(theirs)
        os.close(ours)


@contextmanager
def _bounded(log: int) -> Iterator[None]:
    """Keep about the last _MOST bytes of the output `log` in memory: a child may write gigabytes."""
    over = threading.Event()

    def forget() -> None:
        begin = 0
        while not over.wait(_OFTEN):
            end = (os.fstat(log).st_size - _MOST) // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
            if end - begin >= _MOST:
                with suppress(OSError), mmap.mmap(log, end - begin, offset=begin) as old:
                    old.madvise(mmap.MADV_REMOVE)
                begin = end

    thread = threading.Thread(target=forget, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _output(log: int, begin: int, kept: int) -> bytes:
    """The last `kept` bytes of the output `log` from byte `begin` on."""
    end = os.fstat(log).st_size
    return os.pread(log, min(kept, end - begin), max(begin, end - kept))


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(_PATIENCE)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass
    finally:
        _kill(process)
        process.wait()
