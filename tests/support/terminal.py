"""A command on a terminal, where somebody answers its question."""

import fcntl
import os
import pty
import subprocess
import termios
from collections.abc import Mapping, Sequence

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
