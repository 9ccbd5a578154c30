"""The network's failures: in one line each; whether another try may help, how often, and after how long."""

import http.client
import random
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

import requests
import urllib3

from sifmod.errors import FetchError
from sifmod.image.oci.content import plain
from sifmod.image.registry.pace import TooSlowError

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

    def __init__(self, message: str, hint: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, hint)
        self.retry_after = retry_after


class SlowError(TransientError):
    """The server is too slow, and what has come of this answer is no sign that it will be faster."""


@contextmanager
def network_errors(url: str) -> Iterator[None]:
    """Say in one line what requests says in five: TransientError, or FetchError where no other try would help."""
    host = urlsplit(url).netloc.rpartition("@")[2]
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


def without_secrets(url: str) -> str:
    """A URL for a message: without a password, and without a query, which may be a signature."""
    parts = urlsplit(url)
    return plain(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl())


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
            raise FetchError(f"{error.message} ({self.fruitless} attempts)", error.hint) from error
        longest = min(self._patience.delay * 2.0 ** max(0, self.fruitless - 1), self._patience.longest_delay)
        return max(longest * random.uniform(0.5, 1), error.retry_after or 0.0)  # noqa: S311  no secret


def patiently(ask: Callable[[], _Result], patience: Patience = PATIENCE) -> _Result:
    """What `ask` gives, tried again after a TransientError; raises FetchError where enough attempts gave nothing."""
    attempts = Attempts(patience)
    while True:
        try:
            return ask()
        except TransientError as error:
            time.sleep(attempts.failed(error, progress=False, answered=" answered " in error.message))
