"""The meaning of a registry's refusal, and advice for the user."""

import re
import time

import requests

from sifmod.errors import FetchError
from sifmod.image.oci.content import any_object
from sifmod.image.registry.http import read_beginning, refusal
from sifmod.image.registry.mirrors import Place
from sifmod.image.registry.sent import quoted

_ECR = re.compile(r"\.dkr\.ecr(-fips)?\.[a-z0-9-]+\.amazonaws\.com(\.cn)?$")
_WAYS_OUT = (
    "the whole cluster may share one address and one limit: log in to the registry, use a mirror of your site "
    "(`mirrors:` in the site file), or use a SIF made elsewhere with --source PATH"
)
_SOON = 600  # seconds


def refused_by(
    response: requests.Response, place: Place, login: str, notes: tuple[str, ...], *, pushing: bool = False
) -> FetchError:
    """The error for a response of the registry at `place`; `login` is the origin of the login that was used, or "".

    `notes` are further lines about the logins.
    """
    said, host = _said(response), place.host
    if pushing and (advice := _not_taken(response, place, login)):
        return refusal(response, advice, said, final=response.status_code == 507)
    match response.status_code:
        case 401 | 403 if _ECR.search(host):
            old = f"ECR's passwords are valid for 12 hours, and the one in {login} may be older"
            advice = (
                f"{old if login else 'ECR needs a login'}: `aws ecr get-login-password | apptainer registry login "
                f"--username AWS --password-stdin docker://{host}`, or the credential helper ecr-login"
            )
        case 401:
            advice = _log_in(host, login, pushing=pushing)
        case 403:
            advice = _no_access(place, login)
        case 404:
            advice = f"correct the name or the tag of the source: it is not in {place.repository} on {host}"
        case 429:
            return _limited(response, said)
        case _:
            advice = ""
    if response.status_code in (401, 403) and notes:
        advice = "; ".join((*notes, advice))
    return refusal(response, advice, said)


def _not_taken(response: requests.Response, place: Place, login: str) -> str:
    """Advice for a response to an upload; "" if the advice for a download fits."""
    who = f"the login in {login}" if login else "a user without a login"
    match response.status_code:
        case 400 | 403 | 409 | 412 if response.request.method == "PUT" and "/manifests/" in response.url:
            return "the registry may not allow overwriting a tag: push another tag, or ask its owner"
        case 401 if "insufficient_scope" in response.headers.get("WWW-Authenticate", ""):  # the token lacks rights
            ask = "ask its owner for the right to push"
            return f"{who} may not push to {place.repository} on {place.host}: {ask if login else _command(place.host)}"
        case 403:
            return f"{who} may not push to {place.repository} on {place.host}: ask its owner for the right to push"
        case 404:
            return (
                f"{place.host} has no repository {place.repository}: correct the name, or create the repository there"
            )
        case 405:
            return f"{place.host} accepts no uploads now: it may be read-only"
        case 500:
            return f"{place.host} has a problem, perhaps a full disk: try again later, or inform its owner"
        case 507:
            return f"{place.host} is full: remove images there, or ask its owner for more space"
    return ""


def _command(host: str) -> str:
    return f"log in: `apptainer registry login --username USER docker://{host}` (logins of docker and podman also work)"


def _log_in(host: str, login: str, *, pushing: bool) -> str:
    refused, right = f"it did not accept the login in {login}: " if login else "", "write" if pushing else "read"
    if host == "nvcr.io":
        return (
            f"{refused}NGC's user name is exactly `$oauthtoken`, and the password is an NGC API key: `apptainer "
            "registry login --username '$oauthtoken' docker://nvcr.io`"
        )
    if host == "ghcr.io":
        return f"{refused}the password is a personal access token with `{right}:packages`: {_command(host)}"
    if "gitlab" in host:
        return f"{refused}the password is a deploy token or an access token with `{right}_registry`: {_command(host)}"
    if pushing:
        return f"{refused}{_command(host)}"
    return f"{refused}correct the name, because a missing repository often gives this error, or {_command(host)}"


def _no_access(place: Place, login: str) -> str:
    if place.host == "nvcr.io":
        return (
            "accept the image's licence on NGC's web page with the account of the API key, and check that the key's "
            "organisation may pull it (user name `$oauthtoken`)"
        )
    who = f"the login in {login}" if login else "a user without a login"
    return f"{who} may not read {place.repository} on {place.host}, or it does not exist: ask its owner for access"


def _limited(response: requests.Response, said: str) -> FetchError:
    """The error for a 429. Docker Hub counts pulls: `ratelimit-limit: 100;w=21600`, and the same for what remains."""
    limit, window = _count(response.headers.get("RateLimit-Limit", ""))
    left, _ = _count(response.headers.get("RateLimit-Remaining", ""))
    reset = response.headers.get("X-RateLimit-Reset", "")
    known = [f"{limit} pulls{f' in {window / 3600:g} hours' if window else ''}" if limit >= 0 else ""]
    known.append(f"{left} left" if left >= 0 else "")
    if reset.isascii() and reset.isdecimal() and len(reset) <= 12:
        wait = int(reset) - (time.time() if int(reset) > 1e9 else 0)
        known.append(f"retry in {max(0, wait) / 60:.0f} minutes")
    text = ", ".join(part for part in known if part)
    exhausted = left == 0 and window > _SOON
    return refusal(response, f"{f'{text}; ' if text else ''}{_WAYS_OUT}", said, final=exhausted)


def _count(header: str) -> tuple[int, int]:
    """The number and the window in seconds of `100;w=21600`; -1 and 0 if missing."""
    found = re.match(r"\s*(\d{1,9})(?:\s*;\s*w=(\d{1,9}))?", header)
    return (int(found[1]), int(found[2] or 0)) if found else (-1, 0)


def _said(response: requests.Response) -> str:
    """The registry's own message: the first of its `errors`, or a token server's `details`."""
    content = any_object(read_beginning(response))
    errors = content.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else content
    words = (first.get(key) for key in ("message", "details", "error_description")) if isinstance(first, dict) else ()
    return quoted(next((word for word in words if isinstance(word, str) and word), ""), response.request)
