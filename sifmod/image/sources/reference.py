"""A Reference: one source of an image, taken apart."""

import difflib
import ipaddress
import re
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import unquote, urlsplit

from sifmod.config.shown import shown
from sifmod.errors import FetchError

Kind = Literal[
    "name", "path", "https", "http", "oci", "oci-archive", "docker-archive", "docker", "oras", "library", "build"
]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_FILE = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*)(?P<port>:[0-9]{1,5})?")
_PART = r"[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(f"{_PART}(/{_PART})*")
_LOCAL: tuple[Kind, ...] = ("name", "path", "oci", "oci-archive", "docker-archive")
_SCHEMES = ("file", *(kind for kind in get_args(Kind) if kind not in ("name", "path", "build")))


@dataclass(frozen=True)
class Reference:
    """One source: its kind and its parts.

    `location` is a file name (name), a path (path, oci, the archives, build), a URL (https, http), or what stands
    between `//` and the tag (docker, oras, library). `tag` and `digest` (`sha256:…`) are empty when not given.
    """

    kind: Kind
    source: str  # as the easyconfig spells it
    location: str
    tag: str = ""
    digest: str = ""

    @property
    def shown(self) -> str:
        """The source as messages and receipts have it."""
        return shown(self.source)

    @property
    def name(self) -> str:
        """The last part of where it is."""
        location = urlsplit(self.location).path if self.kind in ("https", "http") else self.location
        return location.rpartition("/")[2]

    @property
    def is_local(self) -> bool:
        """Whether it can be had without any network."""
        return self.kind in _LOCAL

    @property
    def host(self) -> str:
        """The server it comes from, with its port; empty for a local source."""
        if self.kind in ("https", "http"):
            return urlsplit(self.location).netloc
        if self.kind in ("docker", "oras"):
            first = self.location.split("/", 1)[0]
            return first if "/" in self.location and re.search(r"[.:]|^localhost$", first) else "docker.io"
        return ""


def parse(source: str) -> Reference:
    """Take a source apart; pure. Raises FetchError for what cannot be a source, so that it is never half understood.

    A text without scheme is a path when it holds a `/` and a bare name otherwise. A tag beside a digest is kept, but
    the digest decides. Credentials in a URL are refused: they would end in receipts and messages.
    """
    if not source or source != source.strip() or not source.isprintable():
        raise FetchError(
            f"source {shown(source)!r} is empty, has a blank at an end or a control character in it, or is not UTF-8"
        )
    scheme = _SCHEME.match(source)
    if scheme is None:
        first, slashes, _ = source.partition("//")
        if slashes and first.lower() in _SCHEMES:
            raise _bad(source, f"a colon is missing after {first}", f"for a file of that name write ./{first}//…")
        return Reference("path" if "/" in source else "name", source, source)
    kind, rest = scheme[1], source[scheme.end() :]
    match kind:
        case "file":
            return _file(source)
        case "https" | "http":
            return _url(source)
        case "oci" | "oci-archive":
            return _layout(kind, source, rest)
        case "docker-archive":
            return _docker_archive(source, rest)
        case "docker" | "oras" | "library":
            return _registry(kind, source, rest)
    raise _unknown(source, kind)


def is_loopback(host: str) -> bool:
    """Whether `host`, with or without a port, is this machine."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _file(source: str) -> Reference:
    path = _FILE.fullmatch(source)
    if path is None:
        raise _bad(source, "a file: source is file:///absolute/path", "or give the path alone")
    return Reference("path", source, unquote(path[1]))


def _url(source: str) -> Reference:
    try:
        parts = urlsplit(source)
        _ = parts.port
    except ValueError as error:
        raise _bad(source, str(error)) from None
    if not parts.hostname:
        raise _bad(source, "a URL without a host")
    if "@" in parts.netloc:
        raise _bad(source, "credentials in a URL are refused", "put them into ~/.netrc")
    if parts.scheme == "https":
        return Reference("https", source, source)
    if not is_loopback(parts.netloc):
        hint = f"use https://{shown(source).partition('://')[2]}"
        raise _bad(source, "plain http is refused, except from this machine itself", hint)
    return Reference("http", source, source)


def _layout(kind: Literal["oci", "oci-archive"], source: str, rest: str) -> Reference:
    path, at, digest = rest.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        path, digest = rest, ""  # an @ in the path
    before, colon, tag = path.rpartition(":")
    if not colon or "/" in tag:
        before, tag = path, ""
    if not before:
        raise _bad(source, f"expected {kind}:PATH or {kind}:PATH:TAG")
    return Reference(kind, source, before, tag, digest)


def _docker_archive(source: str, rest: str) -> Reference:
    path, _, tag = rest.partition(":")  # the tag is a whole docker reference: repository/name:1.0
    if not path:
        raise _bad(source, "expected docker-archive:PATH or docker-archive:PATH:NAME:TAG")
    return Reference("docker-archive", source, path, tag)


def _registry(kind: Literal["docker", "oras", "library"], source: str, rest: str) -> Reference:
    expected = f"expected {kind}://REGISTRY/REPOSITORY:TAG or …@sha256:DIGEST"
    name, at, digest = rest.removeprefix("//").partition("@")
    before, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        before, tag = name, ""
    good = rest.startswith("//") and before and not re.search(r"\s|[?#&]|//|/$|^/|:$", name)
    if not good or (at and not _DIGEST.fullmatch(digest)) or (tag and not _TAG.fullmatch(tag)):
        raise _bad(source, expected)
    reference = Reference(kind, source, before, tag, digest)
    if kind != "library":
        _check_name(reference)
    return reference


def _check_name(reference: Reference) -> None:
    repository = reference.location.removeprefix(f"{reference.host}/")
    if not (host := _HOST.fullmatch(reference.host)) or int((host["port"] or ":1")[1:]) not in range(1, 65536):
        raise _bad(reference.source, f"no registry is called {reference.host!r}")
    if not _REPOSITORY.fullmatch(repository):
        hint = "names of repositories are lower-case letters and digits, separated by . _ - and /"
        raise _bad(reference.source, f"no registry has a repository {repository!r}", hint)


def _unknown(source: str, scheme: str) -> FetchError:
    close = difflib.get_close_matches(scheme.lower(), _SCHEMES, 1)
    meant = f"did you mean {close[0]}:?" if close else f"known are {', '.join(f'{name}:' for name in _SCHEMES)}"
    return _bad(source, f"unknown scheme {scheme}:", f"{meant} For a file of that name write ./ before it")


def _bad(source: str, what: str, hint: str = "") -> FetchError:
    """The error for a source; a password in it is not repeated."""
    return FetchError(f"source {shown(source)}: {what}", hint)
