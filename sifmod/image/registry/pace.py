"""Pace: how long a server may take. Every read from one of our sockets holds to the limits that its thread is under.

A timeout of a socket is for one read, and a server that sends a byte a minute never meets it.
"""

import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

SLOWEST = 1024  # bytes a second


class Timeouts(NamedTuple):
    """Seconds that a server has."""

    connect: float = 15.0
    silence: float = 60.0  # without a byte; and over as many it sends SLOWEST on average
    whole: float = 60.0  # for an answer's head, and for all of a small resource


TIMEOUTS = Timeouts()


class TooSlowError(OSError):
    """A limit is not met."""


class _Limit(Protocol):
    def left(self) -> float:
        """Seconds that the next read may take; none are left at 0 and below."""

    def count(self, size: int, seconds: float) -> None:
        """So many bytes have come after so many seconds of waiting."""

    def error(self) -> TooSlowError:
        """What is raised where none are left."""


class _Deadline:
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
    """Time counts only while it is waited for the server: a reader may take as long as it likes."""

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


class _Own(threading.local):
    def __init__(self) -> None:
        self.limits: tuple[_Limit, ...] = ()


_own = _Own()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """What this thread reads here comes within `seconds`, else the read raises TooSlowError."""
    with _limited(_Deadline(seconds)):
        yield


@contextmanager
def steadily(seconds: float) -> Iterator[None]:
    """What this thread reads here comes at SLOWEST or faster over any `seconds` of waiting, else TooSlowError."""
    with _limited(_Rate(seconds)):
        yield


@contextmanager
def _limited(limit: _Limit) -> Iterator[None]:
    before = _own.limits
    _own.limits = (*before, limit)
    try:
        yield
    finally:
        _own.limits = before


class PlainSocket(socket.socket):
    """A socket that holds to the limits."""

    def recv_into(self, buffer: bytearray | memoryview, nbytes: int = 0, flags: int = 0) -> int:  # type: ignore[override]
        """As a socket's."""
        return _read(self, lambda: super(PlainSocket, self).recv_into(buffer, nbytes, flags))


class TlsSocket(ssl.SSLSocket):
    """A socket of TLS that holds to the limits."""

    def recv_into(self, buffer: bytearray | memoryview, nbytes: int | None = None, flags: int = 0) -> int:  # type: ignore[override]
        """As a socket's."""
        return _read(self, lambda: super(TlsSocket, self).recv_into(buffer, nbytes, flags))


def _read(own: socket.socket, receive: Callable[[], int]) -> int:
    limits, usual = _own.limits, own.gettimeout()
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
