"""A SIF from a web server: streamed to its place while it is hashed."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urljoin, urlsplit

import requests

from sifmod import __version__
from sifmod.errors import FetchError, ImageError
from sifmod.image.disk import check_space
from sifmod.image.fetched import Fetched, Request
from sifmod.image.reference import is_loopback
from sifmod.image.sif import what_it_is
from sifmod.image.sink import Sink

CHUNK = 1 << 20  # bytes
TIMEOUT = (15.0, 60.0)  # seconds: to connect, and without a byte

_MOST_REDIRECTS = 10
_REDIRECTS = (301, 302, 303, 307, 308)
_ADVICE = {
    401: "give your credentials for this host in ~/.netrc",
    403: "ask the owner for access; credentials for this host are read from ~/.netrc",
    404: "look whether the file has moved, and correct the source in the easyconfig or with --source",
    407: "the proxy wants credentials: see the variable https_proxy",
    410: "the file was withdrawn: correct the source in the easyconfig or with --source",
    429: "the server limits how often it is asked: wait, or use a copy of the file with --source PATH",
}


def download(request: Request, timeout: tuple[float, float] = TIMEOUT) -> Fetched:
    """Stream the file to `incoming`; `timeout` is in seconds: to connect, and between two bytes.

    https only, plain http only from this machine itself, redirects included. Raises FetchError for whatever the
    network or the server does, ImageError as soon as the beginning shows that it is not a SIF.
    """
    url = request.reference.location
    shown = f"downloading {urlsplit(url).path.rpartition('/')[2] or url}"
    with _Session() as session, _following(session, url, timeout) as response:
        announced = _announced(response)
        check_space(request.incoming.parent, announced or 0)
        with Sink(request.incoming) as sink:
            for chunk in _body(response):
                if not sink.size and (wrong := what_it_is(chunk)):
                    raise ImageError(
                        f"the server sent {wrong} instead of a SIF",
                        "open the URL in a browser: a login or a download page is often in the way",
                    )
                sink.write(chunk)
                if announced is not None and sink.size > announced:
                    raise FetchError(f"the server sent more than the {announced} bytes that it announced")
                request.progress(shown, sink.size, announced)
    if announced is not None and sink.size < announced:
        raise FetchError(f"the connection ended after {sink.size} of {announced} bytes", "try again")
    if not sink.size:
        raise ImageError("the server sent an empty file")
    return Fetched(sink.path, sink.sha256, sink.size)


class _Session(requests.Session):
    """A session that follows no redirect by itself: it would read the body of one, however long, into memory."""

    def get_redirect_target(self, resp: requests.Response) -> None:  # noqa: ARG002
        return None


@contextmanager
def _following(session: requests.Session, url: str, timeout: tuple[float, float]) -> Iterator[requests.Response]:
    """The final answer for `url`: 200, and every hop allowed. Credentials of one host never reach another."""
    session.headers["User-Agent"] = f"sifmod/{__version__}"
    session.headers["Accept-Encoding"] = "identity"
    for _ in range(_MOST_REDIRECTS + 1):
        session.trust_env = urlsplit(url).scheme == "https"  # no proxy can reach this machine's own server
        with _network_errors(url):
            response = session.get(url, stream=True, timeout=timeout)
        with response:
            if response.status_code not in _REDIRECTS:
                _check_status(response)
                yield response
                return
            url = _redirected(url, response.headers.get("Location", ""))
    raise FetchError(f"more than {_MOST_REDIRECTS} redirects, the last one to {_without_query(url)}")


def _redirected(url: str, location: str) -> str:
    try:
        target = urljoin(url, location)
        parts = urlsplit(target)
    except ValueError as error:
        raise FetchError(f"the server redirects to something that is no URL: {_plain(location)}") from error
    good = parts.scheme == "https" or (parts.scheme == "http" and urlsplit(url).scheme == "http")
    if not location or not good or (parts.scheme == "http" and not is_loopback(parts.netloc)):
        where = _without_query(target) if location else "nowhere"
        raise FetchError(f"the server redirects to {where}, and only https is followed; nothing was sent there")
    return target


def _check_status(response: requests.Response) -> None:
    status = response.status_code
    if status == 200:
        return
    again = response.headers.get("Retry-After", "")
    advice = _ADVICE.get(status, "the server has trouble: try again later" if status >= 500 else "check the URL")
    if again.isdecimal():
        advice += f"; the server says: again in {again} seconds"
    host = urlsplit(response.url).netloc
    raise FetchError(f"{host} answered {status} {_plain(response.reason or '')}".rstrip(), advice)


def _announced(response: requests.Response) -> int | None:
    """The length that the server announces, in bytes; None when it does not, or when it compresses."""
    length = response.headers.get("Content-Length", "")
    if not length.isdecimal() or response.headers.get("Content-Encoding", "identity") != "identity":
        return None
    return int(length)


def _body(response: requests.Response) -> Iterator[bytes]:
    response.raw.enforce_content_length = False  # `download` counts, and says how many bytes came
    with _network_errors(response.url):
        yield from response.iter_content(CHUNK)


@contextmanager
def _network_errors(url: str) -> Iterator[None]:
    """Say in one line what requests says in five."""
    host = urlsplit(url).netloc
    try:
        yield
    except requests.exceptions.SSLError as error:
        raise FetchError(
            f"{host}: its certificate or its TLS cannot be trusted: {_cause(error)}",
            "for a certificate of your site's own authority name its file in REQUESTS_CA_BUNDLE",
        ) from error
    except requests.exceptions.ProxyError as error:
        raise FetchError(f"{host}: the proxy: {_cause(error)}", "see the variables https_proxy and no_proxy") from error
    except (requests.exceptions.RequestException, OSError) as error:
        cause = _cause(error)
        said = "stopped answering" if "Read timed out" in cause else f"cannot be reached or broke off: {cause}"
        raise FetchError(f"{host} {said}", "try again, or see whether this node has a network") from error


def _cause(error: BaseException) -> str:
    """The innermost reason that says anything."""
    seen: BaseException | None = error
    text = ""
    while seen is not None:
        text = _plain((seen.strerror if isinstance(seen, OSError) else None) or str(seen)) or text
        inner = next((argument for argument in seen.args if isinstance(argument, BaseException)), None)
        reason = getattr(seen, "reason", None)
        seen = reason if isinstance(reason, BaseException) else inner
    return re.sub(
        r"^HTTPS?Connection(Pool)?\([^)]*\): |Failed to establish a new connection: |\[Errno -?\d+\] ", "", text
    )


def _plain(text: str) -> str:
    """One line of printable text: nothing a server says may steer a terminal."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[:200]


def _without_query(url: str) -> str:
    return _plain(urlsplit(url)._replace(query="", fragment="").geturl())
