"""A child process that never outlives us."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

# The child gets a process group of its own, and in it a watchdog that holds our end of a pipe: when we are gone,
# however that came, the pipe ends and the watchdog ends the group, grandchildren included. (PR_SET_PDEATHSIG would
# reach the direct child only.) A line down the pipe sends the watchdog home.
_WATCHED = """
exec 3<&0 </dev/null
( trap '' TERM INT HUP; read -r _ <&3 || { kill -TERM 0; sleep 3; kill -KILL 0; } ) 3<&3 &
exec "$@" 3<&-
"""
_PATIENCE = 10.0  # seconds between asking to end and making end


def run_child(args: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: Path) -> int:
    """Run `args` to the end and return the exit code (negative: the signal that ended it).

    Both of its outputs go to the file `output`, its input is empty. On any exception here (^C, a handler of SIGTERM
    that raises) the whole process group is ended before the exception goes on. Raises FileNotFoundError when `args[0]`
    is no program.
    """
    if not os.access(args[0], os.X_OK):
        raise FileNotFoundError(args[0])
    theirs, ours = os.pipe()
    try:
        with output.open("ab") as log:
            command = ("/bin/sh", "-c", _WATCHED, "sh", *args)
            process = subprocess.Popen(command, cwd=cwd, env=env, stdin=theirs, stdout=log, stderr=log, process_group=0)
        try:
            code = process.wait()
        except BaseException:
            _end(process)
            raise
        os.write(ours, b"\n")
        return code
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
