"""Child processes that are ended when sifmod ends, for any reason."""

import fcntl
import json
import mmap
import os
import re
import resource
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

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
# exit code. Commands share the child's output. The numbers in front of a command are the most memory of its own process
# and the largest file that it writes, in bytes; an empty program name stands for the Python that runs this.
SERVER = """
import json, os, resource, subprocess, sys
for line in sys.stdin.buffer:
    most, size, *words = json.loads(line)
    program, *words = (word.encode("latin-1") for word in words)
    child = subprocess.Popen([program or os.fsencode(sys.executable), *words], stdin=subprocess.DEVNULL)
    if size:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (size if hard < 0 else min(size, hard), hard))
    code = None
    while code is None:
        try:
            code = child.wait(0.2 if most else None)
        except subprocess.TimeoutExpired:
            try:
                with open("/proc/%d/statm" % child.pid) as file:
                    used = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            except OSError:
                used = 0
            if used > most:
                child.kill()
                child.wait()
                code = 256
    os.write(0, b"%d\\n" % code)
"""
LATE = 124  # the exit code of a child that exceeded its time limit, like timeout(1)
HEAVY = 256  # the exit code, in no other use, of a child that took too much memory
LARGE = -signal.SIGXFSZ  # the exit code of a child that wrote too large a file
_KEPT = 1 << 16  # bytes of output
_MOST = 1 << 25  # bytes of output in memory, about; more than any caller keeps
_OFTEN = 0.1  # seconds between two looks at it
_PATIENCE = 10.0  # seconds between SIGTERM and SIGKILL


class Most(NamedTuple):
    """Limits of a child in bytes, 0 for none: beyond one it is ended, with its exit code."""

    memory: int = 0  # resident, of the child alone: HEAVY
    file_size: int = 0  # of each file that it or a process that it starts writes; only its own end is LARGE


NO_LIMIT = Most()


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
    most: Most = NO_LIMIT,
    too_much: Callable[[], object] = bool,
) -> Ended:
    """Run `args` to the end, with empty input; after `limit` seconds it is ended, with exit code LATE.

    `whole`: also end other processes in its group afterwards. Once `too_much`, which is called often, returns
    something true, the group is ended, with exit code HEAVY.

    The result has the last `kept` bytes of the output, at most 32 MiB. The output is in memory, so that a full disk
    cannot lose it. On any exception here (^C, a handler of SIGTERM that raises) the whole process group is ended before
    the exception propagates. Raises FileNotFoundError if this user cannot execute the path `args[0]`.
    """
    with _group(args, cwd, env, most=most, too_much=too_much) as (process, log, heavy):
        late = False
        try:
            code = process.wait(limit)
            code = HEAVY if heavy.is_set() else code
        except subprocess.TimeoutExpired:
            _end(process)
            code, late = LATE, True
        if whole:
            _kill(process)
        return Ended(code, _output(log, 0, kept), late)


@contextmanager
def serving(
    args: Sequence[str], *, cwd: Path, env: Mapping[str, str], first: bytes = b""
) -> Iterator[Callable[..., Ended]]:
    """A function that runs a command in `args`, a child that is started once, because its start is expensive.

    `most` and `limit` of the function are those of `run_child`; after a late command it runs no other. The child must
    read `first` and run SERVER with Python. On exit the whole process group is ended, as in `run_child`. If the child
    ends early, the function returns the child's exit code (1 for 0) and output. Raises FileNotFoundError as `run_child`
    does.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs, _group(args, cwd, env, theirs.fileno()) as (process, log, _), ours.makefile("rb") as answers:
        theirs.close()
        with suppress(BrokenPipeError, ConnectionResetError):
            ours.sendall(first)
        begin = 0  # where the output of the next command starts, in that of the child

        def run(*words: str, most: Most = NO_LIMIT, limit: float | None = None) -> Ended:
            nonlocal begin
            answer = b""
            with suppress(BrokenPipeError, ConnectionResetError):
                ours.settimeout(limit)
                command = [*most, *(os.fsencode(word).decode("latin-1") for word in words)]
                ours.sendall(json.dumps(command).encode() + b"\n")
                try:
                    answer = answers.readline()
                except TimeoutError:
                    return Ended(LATE, _output(log, begin, _KEPT), late=True)
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
    args: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    stdin: int = subprocess.DEVNULL,
    most: Most = NO_LIMIT,
    too_much: Callable[[], object] = bool,
) -> Iterator[tuple["subprocess.Popen[bytes]", int, threading.Event]]:
    """A child in its own process group, with a watchdog, the descriptor of its output, and whether it took too much.

    Raises as `run_child`.
    """
    if not os.access(args[0], os.X_OK):
        raise FileNotFoundError(args[0])
    theirs, ours = os.pipe()
    try:
        with (
            os.fdopen(os.memfd_create("output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b") as file,
            ExitStack() as end,
        ):
            # a memfd has no lock for its position, unlike an opened file: two concurrent writers lose lines
            fcntl.fcntl(log := file.fileno(), fcntl.F_SETFL, os.O_APPEND)
            # what a process that is left behind writes would take memory that nobody bounds any more
            end.callback(fcntl.fcntl, log, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
            command = ("/bin/sh", "-c", _WATCHED, "sh", *args)
            process = subprocess.Popen(
                command, cwd=cwd, env=env, stdin=stdin, stdout=theirs, stderr=log, process_group=0
            )
            try:
                if most.file_size:
                    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
                    size = most.file_size if hard < 0 else min(most.file_size, hard)
                    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, hard))
                with _bounded(log, process.pid, most.memory, too_much) as heavy:
                    yield process, log, heavy
            except BaseException:
                _end(process)
                raise
            os.write(ours, b"\n")
    finally:
        os.close(theirs)
        os.close(ours)


@contextmanager
def _bounded(log: int, child: int, memory: int, too_much: Callable[[], object]) -> Iterator[threading.Event]:
    """Keep about the last _MOST bytes of the output `log` in memory: a child may write gigabytes.

    Also end the group of a child that takes over `memory` (if not 0), or once it is `too_much`; set the event then.
    """
    over, heavy = threading.Event(), threading.Event()
    own = os.dup(log)  # a signal may end the wait for the thread, and then `log` is closed before the thread ends

    def watch() -> None:
        begin = 0
        while not over.wait(_OFTEN):
            if (memory and _resident(child) > memory) or too_much():
                heavy.set()
                with suppress(ProcessLookupError):
                    os.killpg(child, signal.SIGKILL)
            end = (os.fstat(own).st_size - _MOST) // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
            if end - begin >= _MOST:
                with suppress(OSError), mmap.mmap(own, end - begin, offset=begin) as old:
                    old.madvise(mmap.MADV_REMOVE)
                begin = end
        os.close(own)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield heavy
    finally:
        over.set()
        thread.join()


def _resident(process: int) -> int:
    """The resident bytes of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


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
