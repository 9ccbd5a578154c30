"""A Repository: one place, opened resource by resource (OCI distribution specification 1.1)."""

import http.client
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import requests

from sifmod.errors import FetchError, ImageError
from sifmod.image.oci.content import LARGEST
from sifmod.image.registry.authority import RegistryAuthority
from sifmod.image.registry.http import Get, Http
from sifmod.image.registry.network import SlowError, causes
from sifmod.image.registry.pace import within
from sifmod.image.registry.place import Place


class Repository:
    """The repository at `place`, whose `token_servers` may have the login for it.

    A host that may be spoken to over plain http is asked over http first, and over https where it turns out to speak
    that. May be used by several threads at once.
    """

    def __init__(self, http: Http, place: Place, token_servers: tuple[str, ...]) -> None:
        self.place = place
        self._http = http
        self._authority = RegistryAuthority(http, place, token_servers)
        self._scheme = "" if http.is_insecure(place.server) else "https"

    def get(self, path: str) -> Get:
        """What opens `path` below this repository: `manifests/TAG`, `blobs/DIGEST`."""
        return lambda headers: self._opened(path, headers)

    def read(self, path: str, accept: str, name: str) -> tuple[bytes, Mapping[str, str]]:
        """A small resource, called `name` in messages, and its headers.

        Raises as a Get does, also where it takes longer than it should, and ImageError as soon as it is known to have
        more than 4 MiB.
        """
        with within(self._http.timeouts.whole), self.get(path)({"Accept": accept}) as response:
            if response.status_code != 200:
                raise FetchError(f"{self.place.server} answered {response.status_code} for the whole of {name}")
            length = response.headers.get("Content-Length", "")
            announced = int(length) if re.fullmatch("[0-9]{1,18}", length) else 0
            raw = bytearray()
            while announced <= LARGEST and len(raw) <= LARGEST:
                if not (chunk := response.raw.read(LARGEST + 1 - len(raw), decode_content=True)):
                    return bytes(raw), response.headers
                raw += chunk
            raise ImageError(f"{self.place.server} sends {announced or 'more than 4 million'} bytes as {name}")

    @contextmanager
    def _opened(self, path: str, headers: Mapping[str, str]) -> Iterator[requests.Response]:
        with ExitStack() as stack:
            try:
                response = stack.enter_context(self._resource(self._scheme or "http", path)(headers))
                self._scheme = self._scheme or "http"
            except FetchError as error:
                if self._scheme or not _may_speak_tls(error):
                    raise
                response = stack.enter_context(self._over_tls(path, headers, error))
            if response.headers.get("Content-Type", "").lower().startswith("text/html"):
                raise FetchError(
                    f"{self.place.server} sent an HTML page instead of {path}",
                    "a login page or a proxy may be in the way; or it is no registry: correct the name of the source",
                )
            yield response

    @contextmanager
    def _over_tls(self, path: str, headers: Mapping[str, str], first: FetchError) -> Iterator[requests.Response]:
        with ExitStack() as stack:
            try:
                response = stack.enter_context(self._resource("https", path)(headers))
            except FetchError as error:
                speaks = error.__cause__ is None or "certificate verify" in error.message
                speaks = speaks or isinstance(error, SlowError)
                raise error if speaks else first from None
            self._scheme = "https"
            yield response

    def _resource(self, scheme: str, path: str) -> Get:
        url = f"{scheme}://{self.place.server}/v2/{self.place.repository}/{path}"
        return self._http.resource(url, self._authority)


def _may_speak_tls(error: FetchError) -> bool:
    """Whether a server that failed so over plain http may be one of TLS: it answers 400, resets, or talks no HTTP."""
    if " answered 400" in error.message or error.__cause__ is None:
        return " answered 400" in error.message
    kinds = (ConnectionResetError, http.client.BadStatusLine)
    return any(type(seen) in kinds for seen in causes(error.__cause__))
