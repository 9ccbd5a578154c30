"""A Url from a server or a file, parsed once, by the parser of the library that connects (urllib3)."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self
from urllib.parse import quote, urljoin

import idna
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from sifmod.errors import FetchError
from sifmod.image.oci.content import plain

_ODD = re.compile(r"[\x00-\x20\x7f-\xa0\\]")
_AUTHORITY = re.compile(r"(?i)https?://([^/?#]*)([^#]*)")
# a look-up raises a UnicodeError for a part that is empty or has more than 63 letters
_NAME = re.compile(r"(?!.{254}[^.]|.*(\.\.|-\.?$|[^.]{64}))[a-z0-9_][a-z0-9_.-]*|\[[0-9a-f:.]+\]")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Url:
    """A URL; its `target` (path and query) is sent unchanged. The host is in lower case and has no login before it.

    Every URL parser finds the same host and port in `str(url)`, since nothing else in it could be taken for them.
    """

    scheme: str  # http or https
    host: str  # IDNA in ASCII; an IPv6 address in brackets
    port: int
    target: str

    @classmethod
    def parse(cls, text: str, what: str = "the URL", quoted: Callable[[str], str] = plain) -> Self:
        """Parse `text`. Raises FetchError, which names `what` and no secret, for an invalid URL or one with a login.

        Characters that only some parsers treat as the end of a host (a backslash, blanks, control characters, an @) are
        refused, and so are other characters that host names do not have. `quoted` gives the text for the message.
        """
        if _ODD.search(text):
            raise _refused(text, what, quoted, "it contains a backslash, a blank or a control character")
        found = _AUTHORITY.match(text)
        try:
            parts = parse_url(text)
            host = (parts.host or "").lower()
            host = host if host.isascii() else idna.encode(host, uts46=True).decode()
        except (LocationParseError, UnicodeError) as error:
            raise _refused(text, what, quoted, "it is not a URL") from error
        if found is None or parts.scheme not in _PORTS or not host:
            raise _refused(text, what, quoted, "it is not an http or https URL with a host")
        if parts.auth is not None or "@" in found[1]:
            raise _refused(text, what, quoted, "a URL must not contain a login", "put it in ~/.netrc")
        if not _NAME.fullmatch(host):
            raise _refused(text, what, quoted, "it has no valid host")
        port = _PORTS[parts.scheme] if parts.port is None else parts.port
        if not 0 < port < 65536:
            raise _refused(text, what, quoted, "it has an invalid port")
        target = found[2] if found[2].startswith("/") else f"/{found[2]}"
        return cls(parts.scheme, host, port, quote(target, safe="".join(map(chr, range(33, 127)))))

    def join(self, location: str, what: str, quoted: Callable[[str], str] = plain) -> Self:
        """The URL in `location`, a header of a response from this URL. Raises FetchError like `parse`."""
        with suppress(UnicodeError):
            location = location.encode("latin-1").decode()  # as http.client reads the bytes of a header
        if _ODD.search(location):
            raise _refused(location, what, quoted, "it contains a backslash, a blank or a control character")
        try:
            absolute = location if _AUTHORITY.match(location) else urljoin(str(self), location)
        except ValueError as error:
            raise _refused(location, what, quoted, "it is not a URL") from error
        return self.parse(absolute, what, quoted)

    def asking(self, query: str) -> Self:
        """The URL with `query`, encoded parameters joined by `&`, added to its query."""
        return replace(self, target=f"{self.target}{'&' if '?' in self.target else '?'}{query}")

    @property
    def place(self) -> str:
        """`host`, with its port unless it is the default."""
        return self.host if self.port == _PORTS[self.scheme] else f"{self.host}:{self.port}"

    @property
    def server(self) -> str:
        """`host:port`, also with the default port: settings may name either."""
        return f"{self.host}:{self.port}"

    @property
    def shown(self) -> str:
        """The URL for messages: without the query, which may be a signature."""
        return plain(f"{self.scheme}://{self.place}{self.target.partition('?')[0]}")

    def __str__(self) -> str:
        return f"{self.scheme}://{self.place}{self.target}"


def _refused(text: str, what: str, quoted: Callable[[str], str], why: str, hint: str = "") -> FetchError:
    """The error for a text that is not a Url: its beginning, without a possible login or signature."""
    shown = re.sub(r"(?s)^([a-z]+:/*)?.*@", r"\1", re.split("[?#]", quoted(text), maxsplit=1)[0])
    return FetchError(f"{what} {shown}: {why}; nothing was sent there", hint)
