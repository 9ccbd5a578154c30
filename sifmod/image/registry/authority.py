"""The authorization for one repository: none at first, then what the registry's 401 requires (a token or a password).

Token authentication as in Docker's registry (`spec/auth/token.md` and `oauth.md`), and basic authentication.
"""

import os
import re
import threading
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlencode

import requests

from sifmod.errors import FetchError, ImageError
from sifmod.image.oci.content import plain, read_content
from sifmod.image.registry.credentials import Credentials, Logins
from sifmod.image.registry.http import Authority, Http, RequestSpec, in_the_clear, refusal
from sifmod.image.registry.mirrors import Place, covers
from sifmod.image.registry.network import TransientError, within
from sifmod.image.registry.refused import refused_by
from sifmod.image.registry.sent import check_answer
from sifmod.image.registry.url import Url

_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_LARGEST_ANSWER = 1 << 20  # bytes of a token server's answer
_CHALLENGE = re.compile(r'\b(Bearer|Basic)\s+((?:[\w-]+\s*=\s*(?:"[^"]*"|[^\s",]+)\s*,?\s*)+)', re.IGNORECASE)
_PARAMETER = re.compile(r'([\w-]+)\s*=\s*(?:"([^"]*)"|([^\s",]+))')


@dataclass(frozen=True)
class Challenge:
    """The challenge of a 401: a token of the server at `realm`, or a password if that is None."""

    realm: Url | None = None
    service: str = ""
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Agreed:
    """An Authorization header, "" for none, and whether a login was needed for it."""

    header: str = ""
    is_secret: bool = False


class RegistryAuthority(Authority):
    """The authorization for one repository. Several threads may use it; one of them renews it.

    A login is sent to the registry itself, and to a token server on the same host or in `token_servers`; never
    unencrypted to another machine. Other token servers get requests without it.
    """

    def __init__(self, http: Http, place: Place, token_servers: tuple[str, ...] = (), actions: str = "pull") -> None:
        self._http = http
        self._place = place
        self._actions = actions
        self._token_servers = token_servers
        self._logins: Logins | None = None
        self._login: Credentials | None = None
        self._withheld = ""
        self._rejected = False
        self._agreed = _Agreed()
        self._lock = threading.Lock()

    def authorization(self, url: Url) -> str:
        """The header that answers the last challenge; "" for any other host, and for a login that others could read."""
        agreed = self._agreed
        return agreed.header if self._is_ours(url) and not (agreed.is_secret and in_the_clear(url)) else ""

    def renew(self, response: requests.Response, sent: str) -> bool:
        """Get the authorization for a 401; returns whether it changed. Raises FetchError if a token is refused."""
        url = Url.parse(response.url)
        if not self._is_ours(url):
            return False
        with self._lock:
            if self._agreed.header == sent:
                challenge = _challenge(response.headers.get("WWW-Authenticate", ""))
                self._agreed = self._answer(challenge, url) if challenge else _Agreed()
            return self._agreed.header not in ("", sent)

    def refused(self, response: requests.Response) -> FetchError:
        """The error for `response`, with advice for this registry."""
        login = self._login.origin if self._login and not self._withheld else ""
        notes = tuple(map(plain, self._logins.notes)) if self._logins else ()
        notes = (*notes, self._withheld) if self._withheld else notes
        return refused_by(response, self._place, login, notes, pushing="push" in self._actions)

    def _is_ours(self, url: Url) -> bool:
        own = Url.parse(f"{url.scheme}://{self._place.server}", "the registry")
        return (url.host, url.port) == (own.host, own.port) and self._http.may_ask(url)

    def _answer(self, challenge: Challenge, url: Url) -> _Agreed:
        """The answer to the challenge of the registry at `url`."""
        login = self._login_for(url, challenge)
        if challenge.realm is None:
            return _Agreed(login.basic, is_secret=True) if login and login.username else _Agreed()
        if login and login.registry_token:
            return _Agreed(f"Bearer {login.registry_token}", is_secret=True)
        try:
            return _Agreed(f"Bearer {self._token(challenge, challenge.realm, login)}", is_secret=login is not None)
        except _RefusedError:
            if login is None:
                raise
            self._rejected = True  # a stale login must not stand in the way of a public image
            return _Agreed(f"Bearer {self._token(challenge, challenge.realm, None)}")

    def _login_for(self, url: Url, challenge: Challenge) -> Credentials | None:
        """The login, if it may be sent to the server in the challenge of the registry at `url`; else None."""
        if self._logins is None:  # not before it is asked for: a credential helper may take its time
            self._logins = Logins(os.environ)
            self._login = self._logins.find(self._place)
        if self._login is None or self._rejected:
            return None
        self._withheld = self._why_not(url, challenge)
        return None if self._withheld else self._login

    def _why_not(self, url: Url, challenge: Challenge) -> str:
        """The reason why the login must not be sent to the registry at `url` or its token server; "" if it may."""
        login = self._login.origin if self._login else ""
        if in_the_clear(url):
            return f"the login in {login} was not sent, because the connection to {self._place.host} is plain http"
        if challenge.realm is None or (self._login and self._login.registry_token):
            return ""
        if in_the_clear(challenge.realm):
            return f"the login in {login} was not sent to {challenge.realm.shown}, which is not https"
        server = challenge.realm
        own = Url.parse(f"{url.scheme}://{self._place.server}", "the registry")
        if server.host == own.host or covers(self._token_servers, server.server):
            return ""
        return (
            f"the login in {login} was not sent to {server.place}, the token server of {self._place.host}: if that "
            f"is correct, add to the site file: token_servers: {{'{self._place.host}': ['{server.place}']}}"
        )

    def _token(self, challenge: Challenge, realm: Url, login: Credentials | None) -> str:
        host = realm.place
        own = f"repository:{self._place.repository}:{self._actions}"
        scopes = dict.fromkeys((*challenge.scopes, own) if "push" in self._actions else challenge.scopes or (own,))
        service = {"service": challenge.service} if challenge.service else {}
        server = _TokenServer(self, realm, login)
        if login and login.identity_token:
            secret = {"grant_type": "refresh_token", "refresh_token": login.identity_token, "client_id": "sifmod"}
            form = urlencode({**service, "scope": " ".join(scopes), **secret})
            opened = self._http.resource(realm, server, RequestSpec("POST", form.encode(), (200,), secret=True))(_FORM)
        else:
            asked = urlencode([*service.items(), *(("scope", scope) for scope in scopes)])
            opened = self._http.resource(realm.asking(asked), server)({})
        with within(self._http.timeouts.whole), opened as response:
            raw = response.raw.read(_LARGEST_ANSWER, decode_content=True)
        check_answer(raw, response, f"the token of {host}")
        try:
            content = read_content(raw, f"the token of {host}")
            token = content.text("token") or content.text("access_token")
        except ImageError as error:
            raise FetchError(error.message) from None
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise FetchError(f"{host} sent no valid token")
        return token


class _RefusedError(FetchError):
    """The token server refused a token: it answered 400, 401 or 403."""


class _TokenServer(Authority):
    """The authority for a token request: the login, sent only to the server that the registry named."""

    def __init__(self, registry: RegistryAuthority, realm: Url, login: Credentials | None) -> None:
        self._registry = registry
        self._realm = realm
        self._login = login

    def authorization(self, url: Url) -> str:
        known = self._login and self._login.username and not self._login.identity_token
        ours = (url.scheme, url.host, url.port) == (self._realm.scheme, self._realm.host, self._realm.port)
        return self._login.basic if self._login and known and ours else ""

    def refused(self, response: requests.Response) -> FetchError:
        error = self._registry.refused(response) if response.status_code != 404 else refusal(response, "")
        if isinstance(error, TransientError) or response.status_code not in (400, 401, 403):
            return error
        return _RefusedError(error.message, error.hint)


def _challenge(header: str) -> Challenge | None:
    """The Bearer challenge of a WWW-Authenticate header, else its Basic one; None if it has neither."""
    found = {
        match[1].lower(): {name.lower(): quoted or bare for name, quoted, bare in _PARAMETER.findall(match[2])}
        for match in _CHALLENGE.finditer(header[:8192])
    }
    bearer = found.get("bearer", {})
    with suppress(FetchError):  # a challenge whose realm is not a URL is ignored
        server = Url.parse(bearer.get("realm", ""))
        return Challenge(server, bearer.get("service", ""), tuple(bearer.get("scope", "").split()))
    return Challenge() if re.search(r"(?i)(^|,)\s*basic\b", header) else None
