"""A server that runs while the tests do: started in the foreground, stopped by its own process."""

import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class Daemon:
    """A child process whose output goes to `log`; `stop` ends it and everything it started in its session."""

    def __init__(self, args: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = str(args[0])
        self.log = log
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                [str(arg) for arg in args],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env=env,
                start_new_session=True,
            )

    def wait_until(self, ready: Callable[[], bool], seconds: float = 60) -> None:
        """Wait for `ready`; the test fails with the log when the server ends or never gets ready."""
        end = time.monotonic() + seconds
        while not ready():
            code = self._process.poll()
            assert code is None, f"{self.name} ended with {code}:\n{self.log.read_text(errors='replace')}"
            assert time.monotonic() < end, f"{self.name} is not ready:\n{self.log.read_text(errors='replace')}"
            time.sleep(0.05)

    def stop(self) -> None:
        """Ask it to end, then make it."""
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """kill -9, and gone; what it has started is left."""
        self._process.kill()
        self._process.wait()


def free_ports(count: int) -> tuple[int, ...]:
    """Ports of the loopback address that nobody listens on, below the ephemeral range's usual start."""
    found: list[int] = []
    port = 17000 + time.time_ns() % 10000
    while len(found) < count:
        port += 1
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return tuple(found)


def listens(port: int) -> bool:
    """Whether somebody answers on that port of the loopback address."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
