"""A session: the connections of one fetch, with our sockets, our trust, the user's proxies, and no redirects."""

import os
import socket
import ssl
import threading
from collections.abc import Mapping
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.poolmanager import ProxyManager

from sifmod import __version__
from sifmod.image.reference import is_loopback
from sifmod.image.registry.pace import PlainSocket, Timeouts, within
from sifmod.image.registry.trust import has_own, make_context

_CONNECTIONS = 32  # kept per host


class _Connection(HTTPConnection):
    """Over http. A connection over https has our socket from its context."""

    def connect(self) -> None:
        super().connect()
        if isinstance(self.sock, socket.socket):
            timeout = self.sock.gettimeout()
            self.sock = PlainSocket(fileno=self.sock.detach())
            self.sock.settimeout(timeout)


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


_POOLS = {"http": _Pool, "https": HTTPSConnectionPool}


class _Adapter(HTTPAdapter):
    """Connections that `context` verifies; None for those over http."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        super().__init__(pool_maxsize=_CONNECTIONS)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **more: object) -> None:
        super().init_poolmanager(connections, maxsize, block, ssl_context=self._context, **more)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **more: object) -> ProxyManager:
        """As requests'; the server behind the proxy, and a proxy over https, are verified like any other."""
        if proxy.lower().startswith("socks"):
            socks: ProxyManager = super().proxy_manager_for(proxy, ssl_context=self._context, **more)
            return socks
        contexts = {"ssl_context": self._context, "proxy_ssl_context": self._context}
        made: ProxyManager = super().proxy_manager_for(proxy, **contexts, **more)
        made.pool_classes_by_scheme = _POOLS
        return made

    def cert_verify(self, conn: HTTPSConnectionPool, url: str, verify: object, cert: object) -> None:  # noqa: ARG002
        """By the context alone: requests would load the certificates of certifi into it here."""
        conn.cert_reqs = "CERT_REQUIRED"


class Session(requests.Session):
    """Asks servers, by several threads at once. Proxies and certificates are those of curl and the runtimes.

    It follows no redirect: requests would read the body of one, however long, into memory.
    """

    def __init__(self, timeouts: Timeouts) -> None:
        super().__init__()
        self._timeouts = timeouts
        self.trust_env = False  # it would add credentials of its own
        self.headers["User-Agent"] = f"sifmod/{__version__}"
        self.headers["Accept-Encoding"] = "identity"
        self._lock = threading.Lock()
        self._by_host: dict[str, _Adapter] = {}

    def ask(
        self, method: str, url: str, headers: Mapping[str, str], form: Mapping[str, str] | None = None
    ) -> requests.Response:
        """The head of an answer, its body not read yet. Raises what requests raises, and FetchError about a file."""
        with within(self._timeouts.whole):
            return self.request(
                method,
                url,
                headers=dict(headers),
                data=form,
                stream=True,
                timeout=(self._timeouts.connect, self._timeouts.silence),
                proxies={} if is_loopback(urlsplit(url).netloc) else requests.utils.get_environ_proxies(url),
                allow_redirects=False,
            )

    def get_redirect_target(self, resp: requests.Response) -> None:  # noqa: ARG002
        return None

    def get_adapter(self, url: str | bytes) -> _Adapter:
        """One for all of http, one for each host that has certificates of its own, and one for all the others."""
        parts = urlsplit(str(url))
        host = parts.netloc.rpartition("@")[2].lower()
        key = parts.scheme if parts.scheme == "http" or not has_own(host, os.environ) else host
        with self._lock:
            if key not in self._by_host:
                self._by_host[key] = _Adapter(None if key == "http" else make_context(host, os.environ))
            return self._by_host[key]
