"""A command on a terminal of some width, where somebody may answer its question."""

import fcntl
import os
import pty
import struct
import subprocess
import tempfile
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

EOF = "\x04"  # as ^D is typed


def answered(
    command: Sequence[str], answer: str, terminal: str = "xterm", env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Exit code and all that is shown where `answer` is typed after the question."""
    ours, theirs = pty.openpty()

    def control() -> None:
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)  # so that ^C is a signal

    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=control,
        env={**(os.environ if env is None else env), "TERM": terminal},
    )
    os.close(theirs)
    said, left = b"", answer.encode() if answer == EOF else f"{answer}\n".encode()
    try:
        while part := os.read(ours, 4096):
            said += part
            if left and said.endswith(b": "):
                os.write(ours, left)
                left = b""
    except OSError:  # the other side has ended
        pass
    finally:
        os.close(ours)
    return process.wait(), said.decode()


def shown(command: Sequence[str], width: int) -> tuple[list[str], str]:
    """The lines on a terminal of so many columns, and what went to standard error, which is none."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=theirs, stderr=errors, env=environment)
        os.close(theirs)
        said = b"".join(_parts(ours))
        assert process.wait() == 0
        errors.seek(0)
        return said.decode().splitlines(), errors.read().decode()


def _parts(ours: int) -> Iterator[bytes]:
    with suppress(OSError):  # the other side has ended
        while part := os.read(ours, 4096):
            yield part
    os.close(ours)
