"""Pace: how long a server may take. Each read from one of our sockets keeps to the limits that its thread is under.

A timeout of a socket is for one read, and a server that sends a byte a minute never meets it.
"""

import math
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import NamedTuple

SLOWEST = 1024  # bytes a second


class Timeouts(NamedTuple):
    """Seconds that a server has."""

    connect: float = 15.0
    silence: float = 60.0  # without a byte; and over as many it sends SLOWEST on average
    whole: float = 60.0  # for an answer's head, and for all of a small resource


TIMEOUTS = Timeouts()


class TooSlowError(OSError):
    """A limit is not met."""


class _Deadline:
    """`left` is how many seconds the next read may take; where none are left, it raises `error`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return self._end - time.monotonic()

    def count(self, size: int, seconds: float) -> None:
        pass

    def error(self) -> TooSlowError:
        return TooSlowError(f"the answer was not complete after {self._seconds:g} seconds")


class _Rate:
    """The same for SLOWEST. Time counts only while a read waits for the server: its reader may take any time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waited = 0.0
        self._came = 0

    def left(self) -> float:
        return 0.0 if self._waited >= self._seconds else math.inf  # silence has a timeout of its own

    def count(self, size: int, seconds: float) -> None:
        self._waited += seconds
        self._came += size
        if self._came >= SLOWEST * self._seconds:
            self._waited, self._came = 0.0, 0

    def error(self) -> TooSlowError:
        return TooSlowError(
            f"{self._came} bytes came in {self._seconds:g} seconds, and {SLOWEST} a second are expected"
        )


_limits: ContextVar[tuple[_Deadline | _Rate, ...]] = ContextVar("limits", default=())
"""Those that this thread is under."""


def within(seconds: float) -> AbstractContextManager[None]:
    """What this thread reads here comes within `seconds`, else the read raises TooSlowError."""
    return _limited(_Deadline(seconds))


def steadily(seconds: float) -> AbstractContextManager[None]:
    """What this thread reads here comes at SLOWEST or faster over any `seconds` of waiting, else TooSlowError."""
    return _limited(_Rate(seconds))


@contextmanager
def _limited(limit: _Deadline | _Rate) -> Iterator[None]:
    before = _limits.get()
    _limits.set((*before, limit))
    try:
        yield
    finally:
        _limits.set(before)


class PlainSocket(socket.socket):
    def recv_into(self, buffer: bytearray | memoryview, nbytes: int = 0, flags: int = 0) -> int:  # type: ignore[override]
        return _read(self, lambda: super(PlainSocket, self).recv_into(buffer, nbytes, flags))


class TlsSocket(ssl.SSLSocket):
    def recv_into(self, buffer: bytearray | memoryview, nbytes: int | None = None, flags: int = 0) -> int:  # type: ignore[override]
        return _read(self, lambda: super(TlsSocket, self).recv_into(buffer, nbytes, flags))


def _read(own: socket.socket, receive: Callable[[], int]) -> int:
    limits, usual = _limits.get(), own.gettimeout()
    if not limits:
        return receive()
    nearest = min(limits, key=lambda limit: limit.left())
    left, before = nearest.left(), time.monotonic()
    if left <= 0:
        raise nearest.error()
    shorter = usual is None or left < usual
    if shorter:
        own.settimeout(left)
    size = 0
    try:
        size = receive()
    except TimeoutError:
        if shorter:
            raise nearest.error() from None
        raise
    finally:
        if shorter:
            own.settimeout(usual)
        for limit in limits:
            limit.count(size, time.monotonic() - before)
    return size
