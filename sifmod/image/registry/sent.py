"""Secrets of a request, which a server may send back: they are removed from the text that a message quotes."""

import base64
import binascii
import html
import json
import re
from collections.abc import Iterator
from io import BytesIO
from urllib.parse import parse_qs, parse_qsl, quote, quote_plus, unquote, urlsplit

import requests

from sifmod.errors import FetchError
from sifmod.image.oci.content import any_object, plain
from sifmod.secret import hide_sent

_SHORTEST = 8  # characters of a query's value that may be a signature; shorter ones are words and numbers
_REMOVED = "***"


def quoted(text: str, request: requests.PreparedRequest | None) -> str:
    """The text of a server in one line, as by `plain`, without the secrets of the request that it answers."""
    return plain(_without(text, request))


def remember(authorization: str) -> None:
    """Leave the login or token in this header out of all later messages, in each way of spelling it."""
    hide_sent(way for one in _of_header(authorization) for way in _ways(one))


def check_answer(raw: bytes | bytearray, response: requests.Response, name: str) -> None:
    """Raise FetchError if the body `raw` is not a JSON object, and contains a secret of its request.

    A parser's error would show the secret.
    """
    text = raw.decode("utf-8", "replace")
    if not any_object(bytes(raw)) and _without(text, response.request) != text:
        raise FetchError(f"{name} is not JSON: the server sent a login or a token back")


def _without(text: str, request: requests.PreparedRequest | None) -> str:
    secrets = set(_secrets(request)) if request is not None else set()
    spelled = {way for one in secrets if one for way in _ways(one)}
    if not spelled:
        return text
    longest_first = sorted(spelled, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), _REMOVED, text, flags=re.IGNORECASE)


def _ways(secret: str) -> tuple[str, ...]:
    """The secret as a URL, a page or JSON spells it."""
    urls = (quote(secret, safe=""), quote(secret), quote_plus(secret))
    return (secret, *urls, html.escape(secret), html.escape(secret, quote=False), json.dumps(secret)[1:-1])


def _secrets(request: requests.PreparedRequest) -> Iterator[str]:
    """The login or token of a request, that of its proxy, and the values in its query."""
    yield from _of_header(request.headers.get("Authorization", ""))
    url = request.url or ""
    if proxy := requests.utils.select_proxy(url, requests.utils.get_environ_proxies(url)):
        yield from _of_proxy(proxy)
    query = urlsplit(url).query
    yield query
    yield from (value for _, value in parse_qsl(query) if len(value) >= _SHORTEST)
    body: object = request.body
    if isinstance(body, BytesIO) and "urlencoded" in request.headers.get("Content-Type", ""):
        yield from parse_qs(body.getvalue().decode()).get("refresh_token", ())


def _of_header(header: str) -> Iterator[str]:
    scheme, _, token = header.partition(" ")
    yield header
    yield from (token, token.rstrip("="))
    if scheme == "Basic":
        try:
            login = base64.b64decode(token).decode()
        except (binascii.Error, ValueError):
            return
        yield from _of_login(login)


def _of_proxy(proxy: str) -> Iterator[str]:
    userinfo = re.sub(r"^[a-zA-Z0-9+.-]+://", "", proxy).rpartition("@")[0]
    for login in (userinfo, unquote(userinfo)):
        encoded = base64.b64encode(login.encode()).decode()
        latin = base64.b64encode(login.encode("latin-1", "replace")).decode()  # as requests sends it
        yield from _of_login(login)
        yield from (way.rstrip("=") for way in (encoded, latin))


def _of_login(login: str) -> Iterator[str]:
    password = login.partition(":")[2]
    yield from (login, password)
    if len(password) >= _SHORTEST:
        yield base64.b64encode(password.encode()).decode().rstrip("=")
