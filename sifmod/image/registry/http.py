"""HTTP: one session that keeps its connections, follows redirects safely, and reports errors in one line."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import NamedTuple, Protocol

import requests

from sifmod.errors import FetchError
from sifmod.image.artifact import Get
from sifmod.image.reference import is_loopback
from sifmod.image.registry.mirrors import covers
from sifmod.image.registry.network import (
    BROKEN,
    TIMEOUTS,
    Timeouts,
    connection_closed,
    minimum_rate,
    network_errors,
    within,
)
from sifmod.image.registry.network import TransientError as TransientError  # part of what a Get promises
from sifmod.image.registry.sent import quoted, remember
from sifmod.image.registry.session import Session
from sifmod.image.registry.url import Url

_MOST_REDIRECTS = 10
_MOST_RENEWALS = 2
_REDIRECTS = (301, 302, 303, 307, 308)
_AS_ASKED = (307, 308)  # those after which a request that changes something may be repeated
_READING = ("GET", "HEAD")
_GOOD = (200, 206, 416)
_LONGEST_WAIT = 600.0  # seconds; a server that asks for a longer wait has failed
_SMALL = 1 << 16  # bytes of an error's body
_SOON = 10.0  # seconds to read it


class Authority(Protocol):
    """The authorization for a resource, and the errors if it is refused."""

    def authorization(self, url: Url) -> str:
        """The Authorization header for `url`; "" for none, as for any other host."""

    def renew(self, response: requests.Response, sent: str) -> bool:  # noqa: ARG002
        """Renew the header after a 401 to `sent`; returns whether there is another one. Raises FetchError."""
        return False

    def refused(self, response: requests.Response) -> FetchError:
        """The error for a response that is not the resource, with advice."""


class RequestSpec(NamedTuple):
    """A request. `good` are the accepted status codes; any other is an error, unless a redirect or a login helps.

    A body with a `secret` is never sent unencrypted to another machine, or to the target of a redirect.
    """

    method: str = "GET"
    body: bytes | None = None
    good: tuple[int, ...] = _GOOD
    seconds: float = 0.0  # that the head of the answer may take beyond the usual limit
    secret: bool = False

    @property
    def followed(self) -> tuple[int, ...]:
        """The status codes of the redirects to follow."""
        return _REDIRECTS if self.method in _READING else () if self.secret else _AS_ASKED


GET = RequestSpec()


class Http:
    """The connections of one fetch: https, and plain http only to this machine and to `insecure` hosts.

    May be used by several threads at once.
    """

    def __init__(self, insecure: tuple[str, ...] = (), timeouts: Timeouts = TIMEOUTS) -> None:
        self._insecure = insecure
        self.timeouts = timeouts
        self._session = Session(timeouts)

    def resource(self, url: Url, authority: Authority, asked: RequestSpec = GET) -> Get:
        return lambda headers: self._opened(url, headers, authority, asked)

    def is_insecure(self, host: str) -> bool:
        """Whether plain http to `host`, with or without a port, is allowed."""
        return is_loopback(host) or covers(self._insecure, host)

    @contextmanager
    def _opened(
        self, url: Url, headers: Mapping[str, str], authority: Authority, asked: RequestSpec
    ) -> Iterator[requests.Response]:
        redirects = renewals = 0
        if not self.may_ask(url) or (asked.secret and in_the_clear(url)):
            raise FetchError(f"{url.shown} is not https, so nothing was sent there")
        while True:
            if sent := authority.authorization(url):
                remember(sent)
            with network_errors(url.place):
                response = self._answer(url, {**headers, **({"Authorization": sent} if sent else {})}, asked)
            with response:
                if response.status_code in asked.good:
                    with network_errors(url.place, response.request), minimum_rate(self.timeouts.silence):
                        yield response
                    return
                if response.status_code in asked.followed:
                    url, redirects = self._redirected(url, response), redirects + 1
                    if redirects > _MOST_REDIRECTS:
                        last = quoted(url.shown, response.request)
                        raise FetchError(f"more than {_MOST_REDIRECTS} redirects, the last one to {last}")
                elif response.status_code == 401 and renewals < _MOST_RENEWALS and authority.renew(response, sent):
                    renewals += 1
                else:
                    raise authority.refused(response)
                # a body that is read to its end leaves the connection open for the next request
                read_beginning(response)

    def _answer(self, url: Url, headers: Mapping[str, str], asked: RequestSpec) -> requests.Response:
        try:
            return self._session.ask(asked.method, url, headers, asked.body, asked.seconds)
        except requests.ConnectionError as error:
            if not connection_closed(error) or asked.method not in _READING:
                raise
            return self._session.ask(asked.method, url, headers)  # most likely the server has closed a kept connection

    def may_ask(self, url: Url) -> bool:
        """Whether `url` is https, or plain http to its host is allowed."""
        return url.scheme == "https" or self.is_insecure(url.server)

    def _redirected(self, url: Url, response: requests.Response) -> Url:
        location = response.headers.get("Location", "")
        if not location:
            raise FetchError(f"{url.place} redirects without a target; nothing was sent")
        target = url.join(location, f"{url.place} redirects to", lambda text: quoted(text, response.request))
        if not self.may_ask(target) or (target.scheme == "http" and url.scheme == "https"):
            where = quoted(target.shown, response.request)
            raise FetchError(f"the server redirects to {where}, which is not https; nothing was sent there")
        return target


def in_the_clear(url: Url) -> bool:
    """Whether others can read data sent to `url`: it is not https, and leaves this machine."""
    return url.scheme != "https" and not is_loopback(url.host)


def read_beginning(response: requests.Response) -> bytes:
    """The first 64 KiB of a body at most; b"" if they cannot be read, or not in time."""
    try:
        with within(_SOON):
            return response.raw.read(_SMALL, decode_content=True) or b""
    except (*BROKEN, ValueError):
        return b""


def refusal(response: requests.Response, advice: str, said: str = "", *, final: bool = False) -> FetchError:
    """The error for a response that is not a file: a TransientError if a retry within ten minutes may help.

    `said` is the server's message; `final`: a retry would get the same response.
    """
    status, after = response.status_code, retry_after(response)
    transient = (status in (408, 429) or status >= 500) and not final
    if not advice:
        advice = "the server has a problem: try again later" if status >= 500 else "check the URL"
    if after is not None:
        advice += f"; the server asks to retry in {after:.0f} seconds"
    message = f"{Url.parse(response.url).place} answered {status} {quoted(response.reason or '', response.request)}"
    message = f"{message.rstrip()}: {quoted(said, response.request)}" if said else message.rstrip()
    if transient and (after is None or after <= _LONGEST_WAIT):
        return TransientError(message, advice, status, after)
    return FetchError(message, advice, status)


def retry_after(response: requests.Response) -> float | None:
    """The seconds to wait that the server requests (a number, a date, or seconds since 1970); None if it does not."""
    text = response.headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdecimal() and len(text) <= 12:
        seconds = float(text)
        return max(0.0, seconds - time.time()) if seconds > 1e9 else seconds
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
