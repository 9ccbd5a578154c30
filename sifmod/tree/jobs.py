"""What Slurm knows about jobs that may still use an old generation."""

import os
from pathlib import Path
from typing import NamedTuple

_TIMEOUT = 20  # seconds
_NO_SOURCE = "Could not establish a configuration source"


class Jobs(NamedTuple):
    """The answer of Slurm."""

    earliest: float | None  # when the oldest job still known was submitted, seconds since 1970; None: no job
    unknown: str = ""  # why Slurm, though it is there, could not be asked


NO_JOBS = Jobs(None)


def ask_slurm(prefix: Path) -> Jobs:
    """The jobs of everyone who may read `prefix`; no job where there is no Slurm or no cluster. Raises nothing."""
    import shutil
    import subprocess

    squeue = shutil.which("squeue")
    if squeue is None:
        return Jobs(None)
    command = [squeue, "--noheader", "--format=%V"]
    if (owner := _only_reader(prefix)) is not None:
        command.append(f"--user={owner}")
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Jobs(None, f"squeue did not answer: {error}")
    if answer.returncode != 0:
        # its programs are here, and no cluster: no file, no server that is named, none that DNS knows of
        named = any(name in os.environ for name in ("SLURM_CONF", "SLURM_CONF_SERVER"))
        if not named and all(text in answer.stderr for text in (_NO_SOURCE, "Unknown host")):
            return NO_JOBS
        why = answer.stderr.strip().partition("\n")[0] or f"exit code {answer.returncode}"
        return Jobs(None, f"squeue failed: {why}")
    return _read(answer.stdout)


def _read(output: str) -> Jobs:
    from datetime import datetime

    try:
        # Local time without a zone, which is how squeue prints it.
        times = [datetime.fromisoformat(line.strip()).timestamp() for line in output.splitlines() if line.strip()]
    except ValueError as error:
        return Jobs(None, f"squeue printed a time that cannot be read: {error}")
    return Jobs(min(times, default=None))


def _only_reader(prefix: Path) -> int | None:
    """The owner's number when no other user can reach the prefix; None when others can, or where that is unknown."""
    for directory in (prefix, *prefix.parents):
        try:
            status = directory.stat()
        except OSError:
            return None
        if status.st_mode & 0o011 == 0:
            return status.st_uid
    return None
