"""What lets us read one repository: nothing at first, then what the registry's 401 asks for (a token or a password).

Token authentication as Docker's registry does it (its `spec/auth/token.md` and `oauth.md`), and basic authentication.
"""

import json
import os
import re
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

import requests

from sifmod.errors import FetchError, ImageError
from sifmod.image.oci.content import plain, read_content
from sifmod.image.registry.credentials import Credentials, Logins
from sifmod.image.registry.http import Authority, Http, beginning, in_the_clear, refusal
from sifmod.image.registry.mirrors import Place, covers
from sifmod.image.registry.network import TransientError, within, without_secrets

_LARGEST_ANSWER = 1 << 20  # bytes of a token server's answer
_CHALLENGE = re.compile(r'\b(Bearer|Basic)\s+((?:[\w-]+\s*=\s*(?:"[^"]*"|[^\s",]+)\s*,?\s*)+)', re.IGNORECASE)
_PARAMETER = re.compile(r'([\w-]+)\s*=\s*(?:"([^"]*)"|([^\s",]+))')


@dataclass(frozen=True)
class Challenge:
    """What a 401 asks for: a token of the server at the URL `realm`, or a password where that is ""."""

    realm: str = ""
    service: str = ""
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Agreed:
    """An Authorization header, "" for none, and whether it took a login to get it."""

    header: str = ""
    is_secret: bool = False


class RegistryAuthority(Authority):
    """Who lets us read one repository. Several threads may ask it; one of them renews.

    A login goes to the registry itself, and to a server of tokens on the same host or among `token_servers`; never in
    the clear. To others the request for a token goes without it.
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

    def authorization(self, url: str) -> str:
        """What the registry has accepted; "" for any other host, wherever the registry redirects to."""
        agreed = self._agreed
        return agreed.header if self._is_ours(url) and not (agreed.is_secret and in_the_clear(url)) else ""

    def renew(self, response: requests.Response, sent: str) -> bool:
        """Get what the 401 asks for. Raises FetchError where the server that gives tokens refuses."""
        if not self._is_ours(response.url):
            return False
        with self._lock:
            if self._agreed.header == sent:
                challenge = _challenge(response.headers.get("WWW-Authenticate", ""))
                self._agreed = self._answer(challenge, response.url) if challenge else _Agreed()
            return self._agreed.header not in ("", sent)

    def refused(self, response: requests.Response) -> FetchError:
        """With the advice that this registry needs."""
        login = self._login.origin if self._login and not self._withheld else ""
        notes = tuple(map(plain, self._logins.notes)) if self._logins else ()
        notes = (*notes, self._withheld) if self._withheld else notes
        return refused_by(response, self._place, login, notes, pushing="push" in self._actions)

    def _is_ours(self, url: str) -> bool:
        try:
            parts, own = urlsplit(url), urlsplit(f"//{self._place.server}")
            port = parts.port
        except ValueError:  # no such port
            return False
        if parts.hostname != own.hostname or not (parts.scheme == "https" or self._http.is_insecure(parts.netloc)):
            return False
        usual = {"http": 80, "https": 443}
        return port == own.port or (own.port is None and port == usual.get(parts.scheme))

    def _answer(self, challenge: Challenge, url: str) -> _Agreed:
        """What the challenge of the registry at `url` asks for."""
        login = self._login_for(url, challenge)
        if not challenge.realm:
            return _Agreed(login.basic, is_secret=True) if login and login.username else _Agreed()
        if login and login.registry_token:
            return _Agreed(f"Bearer {login.registry_token}", is_secret=True)
        try:
            return _Agreed(f"Bearer {self._token(challenge, login)}", is_secret=login is not None)
        except _RefusedError:
            if login is None:
                raise
            self._rejected = True  # a stale login must not stand in the way of a public image
            return _Agreed(f"Bearer {self._token(challenge, None)}")

    def _login_for(self, url: str, challenge: Challenge) -> Credentials | None:
        """The login, where it may be sent to the server that the challenge of the registry at `url` names."""
        if self._logins is None:  # not before it is asked for: a credential helper may take its time
            self._logins = Logins(os.environ)
            self._login = self._logins.find(self._place)
        if self._login is None or self._rejected:
            return None
        self._withheld = self._why_not(url, challenge)
        return None if self._withheld else self._login

    def _why_not(self, url: str, challenge: Challenge) -> str:
        """Why the login is sent neither to the registry at `url` nor to its server of tokens; "" where it may be."""
        login = self._login.origin if self._login else ""
        if in_the_clear(url):
            return f"the login in {login} was not sent, for {self._place.host} was asked over plain http"
        if not challenge.realm or (self._login and self._login.registry_token):
            return ""
        if in_the_clear(challenge.realm):
            return f"the login in {login} was not sent to {without_secrets(challenge.realm)}, which is not https"
        server = urlsplit(challenge.realm)
        own = urlsplit(f"//{self._place.server}").hostname
        if server.hostname == own or covers(self._token_servers, server.netloc.lower()):
            return ""
        return (
            f"the login in {login} was not sent to {plain(server.netloc)}, where {self._place.host} sends for a token:"
            f" where that is right, say in the site file  token_servers:"
            f" {{'{self._place.host}': ['{plain(server.netloc)}']}}"
        )

    def _token(self, challenge: Challenge, login: Credentials | None) -> str:
        realm, host = challenge.realm, plain(urlsplit(challenge.realm).netloc)
        own = f"repository:{self._place.repository}:{self._actions}"
        scopes = dict.fromkeys((*challenge.scopes, own) if "push" in self._actions else challenge.scopes or (own,))
        service = {"service": challenge.service} if challenge.service else {}
        server = _TokenServer(self, realm, login)
        opened: AbstractContextManager[requests.Response]
        if login and login.identity_token:
            secret = {"grant_type": "refresh_token", "refresh_token": login.identity_token, "client_id": "sifmod"}
            opened = self._http.post(realm, {**service, "scope": " ".join(scopes), **secret}, server)
        else:
            asked = urlencode([*service.items(), *(("scope", scope) for scope in scopes)])
            opened = self._http.resource(f"{realm}{'&' if '?' in realm else '?'}{asked}", server)({})
        with within(self._http.timeouts.whole), opened as response:
            raw = response.raw.read(_LARGEST_ANSWER, decode_content=True)
        try:
            content = read_content(raw, f"the token of {host}")
            token = content.text("token") or content.text("access_token")
        except ImageError as error:
            raise FetchError(error.message) from None
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise FetchError(f"{host} answered without a token")
        return token


class _RefusedError(FetchError):
    """The server that gives tokens gives none."""


class _TokenServer(Authority):
    """The authority over a token: the login, sent only to the server that the registry named."""

    def __init__(self, registry: RegistryAuthority, realm: str, login: Credentials | None) -> None:
        self._registry = registry
        self._origin = urlsplit(realm)[:2]
        self._login = login

    def authorization(self, url: str) -> str:
        known = self._login and self._login.username and not self._login.identity_token
        return self._login.basic if self._login and known and urlsplit(url)[:2] == self._origin else ""

    def refused(self, response: requests.Response) -> FetchError:
        error = self._registry.refused(response) if response.status_code != 404 else refusal(response, "")
        if isinstance(error, TransientError) or response.status_code not in (400, 401, 403):
            return error
        return _RefusedError(error.message, error.hint)


def _challenge(header: str) -> Challenge | None:
    """The strongest known challenge of a WWW-Authenticate header; None where it holds none."""
    found = {
        match[1].lower(): {name.lower(): quoted or bare for name, quoted, bare in _PARAMETER.findall(match[2])}
        for match in _CHALLENGE.finditer(header[:8192])
    }
    bearer = found.get("bearer", {})
    if _is_url(realm := bearer.get("realm", "")):
        return Challenge(realm, bearer.get("service", ""), tuple(bearer.get("scope", "").split()))
    return Challenge() if re.search(r"(?i)(^|,)\s*basic\b", header) else None


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("https", "http") and bool(parts.hostname) and "@" not in parts.netloc
        return good and (parts.port or 1) > 0
    except ValueError:
        return False


_ECR = re.compile(r"\.dkr\.ecr(-fips)?\.[a-z0-9-]+\.amazonaws\.com(\.cn)?$")
_WAYS_OUT = (
    "the whole cluster may share one address and one limit: log in to the registry, name a mirror of your site"
    " (`mirrors:` in the site file), or give a SIF made elsewhere with --source PATH"
)
_SOON = 600  # seconds


def refused_by(
    response: requests.Response, place: Place, login: str, notes: tuple[str, ...], *, pushing: bool = False
) -> FetchError:
    """The error for an answer of the registry at `place`; `login` says which login was used ("": none).

    `notes` are what else is known about the logins, each one line.
    """
    said, host = _said(response), place.host
    if pushing and (advice := _not_taken(response, place, login)):
        return refusal(response, advice, said, final=response.status_code == 507)
    match response.status_code:
        case 401 | 403 if _ECR.search(host):
            advice = _ecr(host, login)
        case 401:
            advice = _log_in(host, login, pushing=pushing)
        case 403:
            advice = _no_access(place, login)
        case 404:
            advice = f"correct the name or the tag of the source: {host} does not have it in {place.repository}"
        case 429:
            return _limited(response, said)
        case _:
            advice = ""
    if response.status_code in (401, 403) and notes:
        advice = "; ".join((*notes, advice))
    return refusal(response, advice, said)


def _not_taken(response: requests.Response, place: Place, login: str) -> str:
    """What to do about an answer to an upload; "" where the same helps as for a download."""
    who = f"the login in {login}" if login else "a user without a login"
    match response.status_code:
        case 400 | 403 | 409 | 412 if response.request.method == "PUT" and "/manifests/" in response.url:
            return "the registry may forbid that a tag is overwritten: push under another tag, or ask its owner"
        case 401 if "insufficient_scope" in response.headers.get("WWW-Authenticate", ""):  # a token of less
            ask = "ask its owner for the right to push"
            return f"{who} may not push to {place.repository} on {place.host}: {ask if login else _command(place.host)}"
        case 403:
            return f"{who} may not push to {place.repository} on {place.host}: ask its owner for the right to push"
        case 404:
            return f"{place.host} has no place for {place.repository}: correct the name, or make the repository there"
        case 405:
            return f"{place.host} takes nothing now: it may be read-only"
        case 500:
            return f"{place.host} has trouble, and its disk may be full: try again later, or tell its owner"
        case 507:
            return f"{place.host} is full: remove images there, or ask its owner for room"
    return ""


def _command(host: str) -> str:
    return (
        f"log in: `apptainer registry login --username USER docker://{host}` (docker's and podman's logins do as well)"
    )


def _log_in(host: str, login: str, *, pushing: bool) -> str:
    refused, right = f"it did not accept the login in {login}: " if login else "", "write" if pushing else "read"
    if host == "nvcr.io":
        return (
            f"{refused}NGC's user name is `$oauthtoken`, exactly so, and the password an API key of NGC:"
            " `apptainer registry login --username '$oauthtoken' docker://nvcr.io`"
        )
    if host == "ghcr.io":
        return f"{refused}the password is a personal access token with `{right}:packages`: {_command(host)}"
    if "gitlab" in host:
        return f"{refused}the password is a deploy token or an access token with `{right}_registry`: {_command(host)}"
    if pushing:
        return f"{refused}{_command(host)}"
    return f"{refused}correct the name, for one that does not exist often reads like this, or {_command(host)}"


def _ecr(host: str, login: str) -> str:
    old = f"ECR's passwords live for 12 hours, and the one in {login} may be older" if login else "ECR needs a login"
    return (
        f"{old}: `aws ecr get-login-password | apptainer registry login --username AWS --password-stdin"
        f" docker://{host}`, or the credential helper ecr-login"
    )


def _no_access(place: Place, login: str) -> str:
    if place.host == "nvcr.io":
        return (
            "accept the image's licence on NGC's web page with the account of the API key, and see that the key's"
            " organisation may pull it (user name `$oauthtoken`)"
        )
    who = f"the login in {login}" if login else "a user without a login"
    return f"{who} may not read {place.repository} on {place.host}, or it does not exist: ask its owner for access"


def _limited(response: requests.Response, said: str) -> FetchError:
    """Docker Hub counts pulls: `ratelimit-limit: 100;w=21600`, and the same for what remains."""
    limit, window = _count(response.headers.get("RateLimit-Limit", ""))
    left, _ = _count(response.headers.get("RateLimit-Remaining", ""))
    reset = response.headers.get("X-RateLimit-Reset", "")
    known = [f"{limit} pulls{f' in {window / 3600:g} hours' if window else ''}" if limit >= 0 else ""]
    known.append(f"{left} left" if left >= 0 else "")
    if reset.isascii() and reset.isdecimal() and len(reset) <= 12:
        wait = int(reset) - (time.time() if int(reset) > 1e9 else 0)
        known.append(f"again in {max(0, wait) / 60:.0f} minutes")
    text = ", ".join(part for part in known if part)
    exhausted = left == 0 and window > _SOON
    return refusal(response, f"{f'{text}; ' if text else ''}{_WAYS_OUT}", said, final=exhausted)


def _count(header: str) -> tuple[int, int]:
    """The number and the window in seconds of `100;w=21600`; -1 and 0 where it has none."""
    found = re.match(r"\s*(\d{1,9})(?:\s*;\s*w=(\d{1,9}))?", header)
    return (int(found[1]), int(found[2] or 0)) if found else (-1, 0)


def _said(response: requests.Response) -> str:
    """The registry's own words: the first of its `errors`, or a token server's `details`."""
    try:
        content = json.loads(beginning(response))
    except (ValueError, RecursionError):
        return ""
    if not isinstance(content, dict):
        return ""
    errors = content.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else content
    words = (first.get(key) for key in ("message", "details", "error_description")) if isinstance(first, dict) else ()
    return plain(next((word for word in words if isinstance(word, str) and word), ""))
