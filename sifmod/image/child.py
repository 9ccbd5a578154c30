"""Child processes that never outlive sifmod."""

import fcntl
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sifmod.config.redact import without_logins

# The child gets its own process group with a watchdog that reads a pipe from us: when we exit for any reason, the pipe
# closes and the watchdog ends the group, including grandchildren. (PR_SET_PDEATHSIG would reach only the direct child.)
# A line through the pipe stops the watchdog.
_WATCHED = """
exec 3<&0 </dev/null
( trap '' TERM INT HUP; read -r _ <&3 || { kill -TERM 0; sleep 3; kill -KILL 0; } ) 3<&3 &
exec "$@" 3<&-
"""
LATE = 124  # the exit code of a child that exceeded its time limit, like timeout(1)
_KEPT = 1 << 16  # bytes of output
_PATIENCE = 10.0  # seconds between SIGTERM and SIGKILL


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code (negative: the signal), and the end of its output."""

    code: int
    said: bytes

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of its output, without colours, control characters, logins and empty lines."""
        text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", self.said.decode("utf-8", "replace")).replace("\r", "\n")
        text = without_logins(text)
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

    The last `kept` bytes of its output are kept in memory, so that a full disk cannot lose error messages. On any
    exception here (^C, a handler of SIGTERM that raises) the whole process group is ended before the exception
    propagates. Raises FileNotFoundError if `args[0]` is not a program.
    """
    if not os.access(args[0], os.X_OK):
        raise FileNotFoundError(args[0])
    theirs, ours = os.pipe()
    try:
        with os.fdopen(os.memfd_create("output"), "w+b") as log:
            # a memfd has no lock for its position, unlike an opened file: two concurrent writers lose lines
            fcntl.fcntl(log, fcntl.F_SETFL, os.O_APPEND)
            command = ("/bin/sh", "-c", _WATCHED, "sh", *args)
            process = subprocess.Popen(command, cwd=cwd, env=env, stdin=theirs, stdout=log, stderr=log, process_group=0)
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                _end(process)
                code = LATE
            except BaseException:
                _end(process)
                raise
            os.write(ours, b"\n")
            if whole:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            log.seek(max(0, log.seek(0, os.SEEK_END) - kept))
            return Ended(code, log.read())
    finally:
        os.close(theirs)
        os.close(ours)


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(_PATIENCE)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
