"""The network: time limits for servers, and errors in one line each, with whether a retry may help.

Each read from one of our sockets obeys the limits of its thread. A socket's timeout is for one read, so a server that
sends a byte a minute never exceeds it.
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
from sifmod.image.registry.sent import quoted

SLOWEST = 1024  # bytes a second


class Timeouts(NamedTuple):
    """Time limits for a server, in seconds."""

    connect: float = 15.0
    silence: float = 60.0  # without a byte; over the same time it must send SLOWEST on average
    whole: float = 60.0  # for an answer's head, and for all of a small resource


TIMEOUTS = Timeouts()


class TooSlowError(OSError):
    """The server exceeded a time limit, or sent less than SLOWEST bytes a second."""


class _Deadline:
    """A time limit: `left` gives the seconds for the next read, and `error` the error to raise if none are left."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return self._end - time.monotonic()

    def count(self, size: int, seconds: float) -> None:
        pass

    def error(self) -> TooSlowError:
        return TooSlowError(f"the response was not complete after {self._seconds:g} seconds")


class _Rate:
    """The limit SLOWEST, used like _Deadline. Only time that a read waits for the server counts."""

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
        return TooSlowError(f"{self._came} bytes arrived in {self._seconds:g} seconds, less than {SLOWEST} a second")


_LONG = 3.0  # seconds of a wait that is reported
_limits: ContextVar[tuple[_Deadline | _Rate, ...]] = ContextVar("limits", default=())
"""The limits of this thread."""
_report: ContextVar[Callable[[str], None]] = ContextVar("report", default=lambda _text: None)
"""Is called before this thread waits for long."""


def within(seconds: float) -> AbstractContextManager[None]:
    """Limit this thread's reads in the block to `seconds` in total, or raise TooSlowError."""
    return _limited(_Deadline(seconds))


def minimum_rate(seconds: float) -> AbstractContextManager[None]:
    """Raise TooSlowError if reads in the block get less than SLOWEST bytes a second over `seconds` of waiting."""
    return _limited(_Rate(seconds))


@contextmanager
def _limited(limit: _Deadline | _Rate) -> Iterator[None]:
    before = _limits.get()
    _limits.set((*before, limit))
    try:
        yield
    finally:
        _limits.set(before)


@contextmanager
def reporting_waits(report: Callable[[str], None]) -> Iterator[None]:
    """Report why and how long this thread waits in the block before it repeats a request, if that is long."""
    before = _report.set(report)
    try:
        yield
    finally:
        _report.reset(before)


class PlainSocket(socket.socket):
    def recv_into(self, buffer: bytearray | memoryview, nbytes: int = 0, flags: int = 0) -> int:  # type: ignore[override]
        return _read(self, lambda: super(PlainSocket, self).recv_into(buffer, nbytes, flags))


class TlsSocket(ssl.SSLSocket):
    def recv_into(self, buffer: bytearray | memoryview, nbytes: int | None = None, flags: int = 0) -> int:  # type: ignore[override]
        return _read(self, lambda: super(TlsSocket, self).recv_into(buffer, nbytes, flags))

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """As TLS within TLS reads, behind a proxy over https."""
        buffer = bytearray(buflen)
        return bytes(buffer[: self.recv_into(buffer, buflen, flags)])


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
"""The errors of requests, urllib3 and sockets when a connection fails, but not disk errors."""


class TransientError(FetchError):
    """The same request may work later; `retry_after` is the number of seconds that the server asks to wait, if any.

    `elsewhere`: it will go to another server, for which the attempts at this one do not count.
    """

    def __init__(
        self, message: str, hint: str = "", status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message, hint, status)
        self.retry_after = retry_after
        self.elsewhere = False


class StalledError(TransientError):
    """The server sent nothing, or too little, for as long as a limit allows."""


class SlowError(StalledError):
    """The server is too slow; data that arrived does not count as progress."""


@contextmanager
def network_errors(host: str, request: requests.PreparedRequest | None = None) -> Iterator[None]:
    """Raise an error of requests in one line: as TransientError, or as FetchError if a retry cannot help.

    The secrets of `request`, or of the one that the error names, are not repeated.
    """
    try:
        yield
    except BROKEN as error:
        raise _explained(host, error, getattr(error, "request", None) or request) from error


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and those that requests and urllib3 wrapped in it, outermost first."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        inner = next((argument for argument in seen.args if isinstance(argument, BaseException)), None)
        reason = getattr(seen, "reason", None)
        seen = reason if isinstance(reason, BaseException) else inner


def connection_closed(error: BaseException) -> bool:
    """Whether the other side closed the connection without a response."""
    return any(
        isinstance(seen, (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)) for seen in causes(error)
    )


def _explained(host: str, error: Exception, request: requests.PreparedRequest | None = None) -> FetchError:
    cause = _cause(error, request)
    if any(isinstance(seen, TooSlowError) for seen in causes(error)):
        return SlowError(f"{host} is too slow: {cause}", "try again later, or use a mirror or a copy of the image")
    if isinstance(error, requests.exceptions.ProxyError):
        return TransientError(f"{host}: the proxy: {cause}", "see the variables https_proxy and no_proxy")
    if isinstance(error, requests.exceptions.SSLError) and not re.search("(?i)eof|reset|timed out", cause):
        return FetchError(
            f"{host}: its certificate or its TLS cannot be trusted: {cause}",
            "for a certificate of your site's own authority set SSL_CERT_FILE to its file, or put it in "
            f"~/.config/containers/certs.d/{host}/ca.crt",
        )
    if isinstance(error, (requests.exceptions.InvalidURL, requests.exceptions.InvalidHeader)):
        return FetchError(f"{host}: {cause}")
    unknown = any(isinstance(seen, (socket.gaierror, urllib3.exceptions.NameResolutionError)) for seen in causes(error))
    hint = _about_name(host) if unknown else "try again, or check whether this node has a network"
    if "timed out" in cause and "connect" not in cause:
        return StalledError(f"{host} stopped responding", hint)
    return TransientError(f"{host} cannot be reached or closed the connection: {cause}", hint)


def _about_name(host: str) -> str:
    """The hint for a host whose name this node does not find, and which the user may never have typed."""
    here = "check whether this node has a network, or needs a proxy (https_proxy) or a mirror (`mirrors` of the site)"
    return here if host.endswith(("docker.io", "docker.com")) else f"{here}; or correct the name {host} in the source"


def _cause(error: BaseException, request: requests.PreparedRequest | None) -> str:
    """The innermost reason with a message."""
    text = ""
    for seen in causes(error):
        text = quoted((seen.strerror if isinstance(seen, OSError) else None) or str(seen), request) or text
    return re.sub(r"^\w*Connection(Pool)?\([^)]*\): |Failed to establish a new connection: |\[Errno -?\d+\] ", "", text)


@dataclass(frozen=True)
class RetryPolicy:
    """Limits of consecutive attempts without progress, and delays between attempts in seconds."""

    attempts: int = 8  # of a server that has answered before
    first_attempts: int = 3  # of one that never did: a wrong name or a node without a network fails soon
    delay: float = 0.5  # before the second attempt; it doubles
    longest_delay: float = 30.0
    stalls: int = 3  # attempts that waited until a limit, a minute each


RETRY_POLICY = RetryPolicy()


class Attempts:
    """The attempts at one request; `fruitless` counts consecutive ones without progress."""

    def __init__(self, patience: RetryPolicy = RETRY_POLICY) -> None:
        self._patience = patience
        self._begun = time.monotonic()
        self.fruitless = self._stalls = 0

    def is_progress(self, came: int) -> bool:
        """Whether this attempt's bytes are more than SLOWEST a second; then the next attempt begins."""
        now = time.monotonic()
        progress = came > SLOWEST * (now - self._begun)
        self._begun = now if progress else self._begun
        return progress

    def failed(self, error: TransientError, *, came: int, answered: bool) -> float:
        """The seconds to wait before the next attempt: with jitter, and never less than the server requests.

        Raises FetchError after too many attempts without progress. `came`: the bytes of this attempt, which are
        progress from SLOWEST a second on; `answered`: the server has responded before.
        """
        progress = error.elsewhere or self.is_progress(came)
        self._begun = time.monotonic() + (error.retry_after or 0.0)
        self.fruitless = 0 if progress else self.fruitless + 1
        self._stalls = 0 if progress else self._stalls + isinstance(error, StalledError)
        most = self._patience.attempts if answered else self._patience.first_attempts
        if self.fruitless >= most or self._stalls >= self._patience.stalls:
            raise FetchError(f"{error.message} ({self.fruitless} attempts)", error.hint, error.status) from error
        longest = min(self._patience.delay * 2.0 ** max(0, self.fruitless - 1), self._patience.longest_delay)
        return max(longest * random.uniform(0.5, 1), error.retry_after or 0.0)  # noqa: S311  no secret


def retry(ask: Callable[[], _Result], patience: RetryPolicy = RETRY_POLICY) -> _Result:
    """The result of `ask`, retried after a TransientError; raises FetchError after too many attempts."""
    attempts = Attempts(patience)
    while True:
        try:
            return ask()
        except TransientError as error:
            seconds = attempts.failed(error, came=0, answered=error.status is not None)
            if seconds >= _LONG:
                _report.get()(f"{error.message}; retrying in {seconds:.0f} s")
            time.sleep(seconds)
