"""The proxy for a URL, from the variables that curl and the runtimes read."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit

import requests
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from sifmod.errors import FetchError

_HINT = (
    "write it as http://USER:PASSWORD@HOST:PORT, with %2F for a `/` in the password, %3F for `?`, %23 for `#`, %40 for "
    "`@`, %25 for `%`"
)


def proxies_for(url: str) -> Mapping[str, str]:
    """The environment's proxies, for requests. Raises FetchError with the variable's name if that of `url` is unusable.

    A URL parser would find the end of the host in an unescaped password, and show a part of the password in its error.
    """
    if _is_excluded(url):
        return {}
    found: Mapping[str, str] = requests.utils.get_environ_proxies(url)
    if proxy := requests.utils.select_proxy(url, found):
        if not _is_url(proxy):
            raise FetchError(f"the variable {_variable(proxy)} is not the URL of a proxy; nothing was sent", _HINT)
        kind = proxy.partition("://")[0].lower() if "://" in proxy else "http"
        if kind not in ("http", "https") and not (kind.startswith("socks") and find_spec("socks")):
            raise FetchError(
                f"the variable {_variable(proxy)} names a {kind} proxy, which sifmod cannot use; nothing was sent",
                "name an http proxy; for a SOCKS proxy install Python's package PySocks beside sifmod",
            )
    return found


def _is_excluded(url: str) -> bool:
    """Whether `no_proxy` excludes the host in a form that requests does not know: `*.site`, or a network of IPv6."""
    parts, text = urlsplit(url), os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    host = parts.hostname or ""
    for word in text.lower().replace(" ", "").split(","):
        if word.startswith("*.") and (host.endswith(word[1:]) or f"{host}:{parts.port}".endswith(word[1:])):
            return True
        with suppress(ValueError):  # a name
            if ip_address(host) in ip_network(re.sub(r"[\[\]]", "", word), strict=False):
                return True
    return False


def _variable(proxy: str) -> str:
    """The variable with this value; the lower-case name, which takes precedence, if two have it."""
    names = sorted((name for name in os.environ if name.lower().endswith("_proxy")), reverse=True)
    return next((name for name in names if os.environ[name] == proxy), "https_proxy")


def _is_url(proxy: str) -> bool:
    text = proxy if "://" in proxy else f"http://{proxy}"
    rest = re.split("[/?#]", text.partition("://")[2], maxsplit=1)
    if re.search(r"[\x00-\x20\x7f\\]", text) or "@" in "".join(rest[1:]):
        return False
    try:
        parts = parse_url(text)
        unquote(parts.auth or "", errors="strict").encode("latin-1")  # as requests sends it
    except (LocationParseError, UnicodeError):
        return False
    return bool(parts.host)
