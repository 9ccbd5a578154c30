"""A Session of requests: it sends each URL exactly as written, with the certificates of its host."""

import http.client
import os
import socket
import ssl
import threading
from collections.abc import Mapping
from contextvars import ContextVar
from http.cookiejar import DefaultCookiePolicy
from io import BytesIO
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.poolmanager import ProxyManager

from sifmod import __version__
from sifmod.image.reference import is_loopback
from sifmod.image.registry.certificates import has_own, make_context
from sifmod.image.registry.network import SLOWEST, PlainSocket, Timeouts, within
from sifmod.image.registry.proxy import proxies_for
from sifmod.image.registry.url import Url

_CONNECTIONS = 32  # kept per host


_target: ContextVar[str] = ContextVar("target")
"""Path and query of this thread's request."""


class _Response(http.client.HTTPResponse):
    def _read_next_chunk_size(self) -> int:
        """Like that of http.client, in which a negative size makes the next read raise a ValueError."""
        size: int = super()._read_next_chunk_size()  # type: ignore[misc]
        if size < 0:
            raise http.client.IncompleteRead(b"")
        return size


class _AsWritten:
    """Sends a path and a query unchanged: requests and urllib3 would change %2f and %7E.

    A signature may depend on the exact bytes. Its socket is a PlainSocket, also for the answer of a proxy.
    """

    response_class: Any = _Response

    def _new_conn(self) -> PlainSocket:
        made: socket.socket = super()._new_conn()  # type: ignore[misc]
        timeout, own = made.gettimeout(), PlainSocket(fileno=made.detach())
        own.settimeout(timeout)
        return own

    def putrequest(self, method: str, url: str, *more: Any, **options: Any) -> None:
        begin = "" if url.startswith("/") else "/".join(url.split("/", 3)[:3])  # a proxy is given all of it
        super().putrequest(method, f"{begin}{_target.get()}", *more, **options)  # type: ignore[misc]


class _SecureConnection(_AsWritten, HTTPSConnection):
    """A connection over https; its context makes the socket a TlsSocket."""


class _Connection(_AsWritten, HTTPConnection):
    """A connection over http."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


_POOLS = {"http": _Pool, "https": _SecurePool}


class _Adapter(HTTPAdapter):
    """Connections verified by `context`; None for http."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        super().__init__(pool_maxsize=_CONNECTIONS)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **more: object) -> None:
        super().init_poolmanager(connections, maxsize, block, ssl_context=self._context, **more)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **more: object) -> ProxyManager:
        """As in requests; but the server behind the proxy, and a proxy over https, are verified like any other."""
        if proxy.lower().startswith("socks"):
            socks: ProxyManager = super().proxy_manager_for(proxy, ssl_context=self._context, **more)
            return socks
        contexts = {"ssl_context": self._context, "proxy_ssl_context": self._context}
        made: ProxyManager = super().proxy_manager_for(proxy, **contexts, **more)
        made.pool_classes_by_scheme = _POOLS
        return made

    def cert_verify(self, conn: HTTPSConnectionPool, url: str, verify: object, cert: object) -> None:  # noqa: ARG002
        """Verify by the context only: requests would load certifi's certificates into it here."""
        conn.cert_reqs = "CERT_REQUIRED"


class Session(requests.Session):
    """Sends requests from several threads. Proxies and certificates are those of curl and the runtimes.

    It follows no redirect, because requests would read the whole body of one into memory.
    """

    def __init__(self, timeouts: Timeouts) -> None:
        super().__init__()
        self._timeouts = timeouts
        self.trust_env = False  # it would add credentials of its own
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))  # one of a login would go to all ports
        self.headers["User-Agent"] = f"sifmod/{__version__}"
        self.headers["Accept-Encoding"] = "identity"
        self._lock = threading.Lock()
        self._by_host: dict[str, _Adapter] = {}

    def ask(
        self, method: str, url: Url, headers: Mapping[str, str], body: bytes | None = None, more: float = 0.0
    ) -> requests.Response:
        """The head of a response, `more` seconds later than the usual limit at most; its body is not read yet.

        Raises errors of requests, and FetchError for an unusable file of certificates or variable of a proxy.
        """
        data = None if body is None else BytesIO(body)  # sent in pieces, each with the timeout
        text, target = str(url), _target.set(url.target)
        try:
            with within(self._timeouts.whole + more + len(body or b"") / SLOWEST):
                return self.request(
                    method,
                    text,
                    headers=dict(headers),
                    data=data,
                    stream=True,
                    timeout=(self._timeouts.connect, self._timeouts.silence + more),
                    proxies={} if is_loopback(url.host) else dict(proxies_for(text)),
                    allow_redirects=False,
                )
        finally:
            _target.reset(target)

    def get_redirect_target(self, resp: requests.Response) -> None:  # noqa: ARG002
        return None

    def get_adapter(self, url: str | bytes) -> _Adapter:
        """The adapter for a URL: one for http, one for each host with own certificates, and one for all other hosts."""
        parts = Url.parse(str(url))
        host = parts.place
        key = parts.scheme if parts.scheme == "http" or not has_own(host, os.environ) else host
        with self._lock:
            if key not in self._by_host:
                self._by_host[key] = _Adapter(None if key == "http" else make_context(host, os.environ))
            return self._by_host[key]
