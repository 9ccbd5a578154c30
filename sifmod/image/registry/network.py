"""The network: how long a server may take, and its failures: in one line each, and whether another try may help.

Each read from one of our sockets keeps to the limits that its thread is under. A timeout of a socket is for one read,
and a server that sends a byte a minute never meets it.
"""

import http.client
import math
import random
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import requests
import urllib3

from sifmod.errors import FetchError
from sifmod.image.oci.content import plain

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


_Result = TypeVar("_Result")
BROKEN = (
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    ssl.SSLError,
    ConnectionError,
    TimeoutError,
    TooSlowError,
)
"""What requests, urllib3 and the sockets below them raise when a connection fails; no failure of a disk."""


class TransientError(FetchError):
    """The same request may work later; `retry_after` is how many seconds the server wants us to wait, if it said."""

    def __init__(
        self, message: str, hint: str = "", status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message, hint, status)
        self.retry_after = retry_after


class SlowError(TransientError):
    """The server is too slow, and what has come of this answer is no sign that it will be faster."""


@contextmanager
def network_errors(host: str) -> Iterator[None]:
    """Say in one line what requests says in five: TransientError, or FetchError where no other try would help."""
    try:
        yield
    except BROKEN as error:
        raise _told(host, error) from error


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it wraps, outermost first, as requests and urllib3 wrap them."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        inner = next((argument for argument in seen.args if isinstance(argument, BaseException)), None)
        reason = getattr(seen, "reason", None)
        seen = reason if isinstance(reason, BaseException) else inner


def hung_up(error: BaseException) -> bool:
    """Whether the other side ended the connection without an answer."""
    return any(
        isinstance(seen, (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)) for seen in causes(error)
    )


def _told(host: str, error: Exception) -> FetchError:
    cause = _cause(error)
    if any(isinstance(seen, TooSlowError) for seen in causes(error)):
        return SlowError(f"{host} is too slow: {cause}", "try again later, or take a mirror or a copy of the image")
    if isinstance(error, requests.exceptions.ProxyError):
        return TransientError(f"{host}: the proxy: {cause}", "see the variables https_proxy and no_proxy")
    if isinstance(error, requests.exceptions.SSLError) and not re.search("(?i)eof|reset|timed out", cause):
        return FetchError(
            f"{host}: its certificate or its TLS cannot be trusted: {cause}",
            "for a certificate of your site's own authority name its file in SSL_CERT_FILE,"
            f" or put it into ~/.config/containers/certs.d/{host}/ca.crt",
        )
    if isinstance(error, (requests.exceptions.InvalidURL, requests.exceptions.InvalidHeader)):
        return FetchError(f"{host}: {cause}")
    unknown = any(isinstance(seen, (socket.gaierror, urllib3.exceptions.NameResolutionError)) for seen in causes(error))
    hint = f"{f'correct the name {host}' if unknown else 'try again'}, or see whether this node has a network"
    if "timed out" in cause and "connect" not in cause:
        return TransientError(f"{host} stopped answering", hint)
    return TransientError(f"{host} cannot be reached or broke off: {cause}", hint)


def _cause(error: BaseException) -> str:
    """The innermost reason that says anything."""
    text = ""
    for seen in causes(error):
        text = plain((seen.strerror if isinstance(seen, OSError) else None) or str(seen)) or text
    return re.sub(r"^\w*Connection(Pool)?\([^)]*\): |Failed to establish a new connection: |\[Errno -?\d+\] ", "", text)


@dataclass(frozen=True)
class Patience:
    """Seconds, and numbers of attempts in a row that give nothing."""

    attempts: int = 8  # of a server that has answered before
    first_attempts: int = 3  # of one that never did: a wrong name or a node without a network fails soon
    delay: float = 0.5  # before the second attempt; it doubles
    longest_delay: float = 30.0


PATIENCE = Patience()


class Attempts:
    """The attempts at one thing; `fruitless` is how many in a row have given nothing."""

    def __init__(self, patience: Patience = PATIENCE) -> None:
        self._patience = patience
        self.fruitless = 0

    def failed(self, error: TransientError, *, progress: bool, answered: bool) -> float:
        """How many seconds to wait before the next attempt: with jitter, and never less than the server wants.

        Raises FetchError where enough attempts have given nothing. `progress` says that this one gave something,
        `answered` that the server has ever given anything.
        """
        self.fruitless = 0 if progress else self.fruitless + 1
        most = self._patience.attempts if answered else self._patience.first_attempts
        if self.fruitless >= most:
            raise FetchError(f"{error.message} ({self.fruitless} attempts)", error.hint, error.status) from error
        longest = min(self._patience.delay * 2.0 ** max(0, self.fruitless - 1), self._patience.longest_delay)
        return max(longest * random.uniform(0.5, 1), error.retry_after or 0.0)  # noqa: S311  no secret


def patiently(ask: Callable[[], _Result], patience: Patience = PATIENCE) -> _Result:
    """What `ask` gives, tried again after a TransientError; raises FetchError where enough attempts gave nothing."""
    attempts = Attempts(patience)
    while True:
        try:
            return ask()
        except TransientError as error:
            time.sleep(attempts.failed(error, progress=False, answered=error.status is not None))
