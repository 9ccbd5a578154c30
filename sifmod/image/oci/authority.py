"""The authority over one repository: nothing at first, then what the registry's 401 asks for (a token or a password).

Token authentication as Docker's registry does it (its `spec/auth/token.md` and `oauth.md`), and basic authentication.
"""

import os
import re
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

import requests

from sifmod.errors import FetchError, ImageError
from sifmod.image.oci.advice import refused_by
from sifmod.image.oci.content import read_content
from sifmod.image.oci.credentials import Credentials, Logins
from sifmod.image.oci.http import Http, refusal
from sifmod.image.oci.network import TransientError
from sifmod.image.oci.place import Place

_LARGEST_ANSWER = 1 << 20  # bytes of a token server's answer
_CHALLENGE = re.compile(r'\b(Bearer|Basic)\s+((?:[\w-]+\s*=\s*(?:"[^"]*"|[^\s",]+)\s*,?\s*)+)', re.IGNORECASE)
_PARAMETER = re.compile(r'([\w-]+)\s*=\s*(?:"([^"]*)"|([^\s",]+))')


@dataclass(frozen=True)
class Challenge:
    """What a 401 asks for: the scheme, `bearer` or `basic`, and its parameters."""

    scheme: str
    parameters: Mapping[str, str]


class RegistryAuthority:
    """Who lets us read one repository. Several threads may ask it; one of them renews."""

    def __init__(self, http: Http, place: Place) -> None:
        self._http = http
        self._place = place
        self._logins: Logins | None = None
        self._login: Credentials | None = None
        self._rejected = False
        self._header = ""
        self._lock = threading.Lock()

    def authorization(self, url: str) -> str:
        """What was agreed on with the registry; nothing for any other host, wherever it redirects to."""
        return self._header if self._is_ours(url) else ""

    def renew(self, response: requests.Response, sent: str) -> bool:
        """Get what the 401 asks for. Raises FetchError where the server that gives tokens refuses."""
        if not self._is_ours(response.url):
            return False
        with self._lock:
            if self._header == sent:
                self._header = self._answer(_challenge(response.headers.get("WWW-Authenticate", "")))
            return self._header not in ("", sent)

    def refused(self, response: requests.Response) -> FetchError:
        """With the advice that this registry needs."""
        login = self._login.origin if self._login else ""
        notes = tuple(self._logins.notes) if self._logins else ()
        return refused_by(response, self._place, login, notes)

    def _is_ours(self, url: str) -> bool:
        """Whether `url` is of this registry itself, or of its https where it was asked over http."""
        try:
            parts, own = urlsplit(url), urlsplit(f"//{self._place.server}")
            port = parts.port
        except ValueError:  # nobody's: no such port
            return False
        if parts.hostname != own.hostname or not (parts.scheme == "https" or self._http.is_insecure(parts.netloc)):
            return False
        usual = {"http": 80, "https": 443}
        return port == own.port or (own.port is None and port == usual.get(parts.scheme))

    def _answer(self, challenge: Challenge | None) -> str:
        if challenge is None:
            return ""
        if self._logins is None:  # not before somebody asks: a credential helper may take its time
            self._logins = Logins(os.environ)
            self._login = self._logins.find(self._place)
        login = None if self._rejected else self._login
        if challenge.scheme == "basic":
            return login.basic if login and login.username else ""
        if login and login.registry_token:
            return f"Bearer {login.registry_token}"
        try:
            return f"Bearer {self._token(challenge, login)}"
        except _RefusedError:
            if login is None:
                raise
            self._rejected = True  # a stale login must not stand in the way of a public image
            return f"Bearer {self._token(challenge, None)}"

    def _token(self, challenge: Challenge, login: Credentials | None) -> str:
        realm = challenge.parameters["realm"]
        scope = challenge.parameters.get("scope") or f"repository:{self._place.repository}:pull"
        asked = {"service": challenge.parameters.get("service", ""), "scope": scope}
        server = _TokenServer(self, realm, login)
        opened: AbstractContextManager[requests.Response]
        if login and login.identity_token:
            secret = {"grant_type": "refresh_token", "refresh_token": login.identity_token, "client_id": "sifmod"}
            opened = self._http.post(realm, {**asked, **secret}, server)
        else:
            url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(asked)}"
            opened = self._http.resource(url, server)({})
        with opened as response:
            raw = response.raw.read(_LARGEST_ANSWER, decode_content=True)
        try:
            content = read_content(raw, f"the token of {urlsplit(realm).netloc}")
            token = content.text("token") or content.text("access_token")
        except ImageError as error:
            raise FetchError(error.message) from None
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise FetchError(f"{urlsplit(realm).netloc} answered without a token")
        return token


class _RefusedError(FetchError):
    """The server that gives tokens gives none."""


class _TokenServer:
    """The authority over a token: the login, sent to the server that the registry named and nowhere else."""

    def __init__(self, registry: RegistryAuthority, realm: str, login: Credentials | None) -> None:
        self._registry = registry
        self._origin = urlsplit(realm)[:2]
        self._login = login

    def authorization(self, url: str) -> str:
        known = self._login and self._login.username and not self._login.identity_token
        return self._login.basic if self._login and known and urlsplit(url)[:2] == self._origin else ""

    def renew(self, response: requests.Response, sent: str) -> bool:  # noqa: ARG002
        return False

    def refused(self, response: requests.Response) -> FetchError:
        error = self._registry.refused(response) if response.status_code != 404 else refusal(response, "")
        if isinstance(error, TransientError) or response.status_code not in (400, 401, 403):
            return error
        return _RefusedError(error.message, error.hint)


def _challenge(header: str) -> Challenge | None:
    """The strongest thing that a WWW-Authenticate header asks for; None where it asks for nothing that we know."""
    found = {
        match[1].lower(): {name.lower(): quoted or bare for name, quoted, bare in _PARAMETER.findall(match[2])}
        for match in _CHALLENGE.finditer(header[:8192])
    }
    if "bearer" in found and _is_url(found["bearer"].get("realm", "")):
        return Challenge("bearer", found["bearer"])
    return Challenge("basic", {}) if re.search(r"(?i)(^|,)\s*basic\b", header) else None


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("https", "http") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
