"""A Registry: the image of a docker or oras reference, from the site's mirrors or its own registry."""

import difflib
import http.client
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TypeVar

import requests

from sifmod.errors import FetchError, ImageError
from sifmod.image.artifact import Get
from sifmod.image.oci.content import LARGEST, plain, read_content
from sifmod.image.oci.index import ACCEPTED, Index, manifest_behind, parse
from sifmod.image.oci.manifest import Descriptor, ImageConfig, Manifest, check_digest, parse_config
from sifmod.image.reference import Reference
from sifmod.image.registry.authority import RegistryAuthority
from sifmod.image.registry.http import GET, Http, RequestSpec
from sifmod.image.registry.mirrors import Place, places, token_servers
from sifmod.image.registry.network import (
    RETRY_POLICY,
    TIMEOUTS,
    RetryPolicy,
    SlowError,
    StalledError,
    Timeouts,
    TransientError,
    causes,
    retry,
    within,
)
from sifmod.image.registry.sent import check_answer
from sifmod.image.registry.url import Url
from sifmod.image.settings import Settings

_ACCEPT = ", ".join(ACCEPTED)
_BREAKS = 2  # a mirror whose answers break off so often is passed over
_Result = TypeVar("_Result")


class Repository:
    """The repository at `place`, whose `token_servers` may get the login for it.

    A host with plain http allowed is tried over http first, then over https if it may require TLS. `actions` are the
    requested permissions. May be used by several threads at once.
    """

    def __init__(self, http: Http, place: Place, token_servers: tuple[str, ...], actions: str = "pull") -> None:
        self.place = place
        self.breaks = 0  # answers that broke off
        self._http = http
        self._authority = RegistryAuthority(http, place, token_servers, actions)
        self._scheme = "" if http.is_insecure(place.server) else "https"

    def get(self, path: str | Url, asked: RequestSpec = GET) -> Get:
        """The Get for `path` below this repository: `manifests/TAG`, `blobs/DIGEST`; or for a URL from the registry."""
        return lambda headers: self._opened(path, headers, asked)

    def read(self, path: str, accept: str, name: str) -> tuple[bytes, Mapping[str, str]]:
        """A small resource, called `name` in messages, and its headers.

        Raises like a Get, also if it takes too long, and ImageError as soon as it is known to have more than 4 MiB.
        """
        with within(self._http.timeouts.whole), self.get(path)({"Accept": accept}) as response:
            if response.status_code != 200:
                status = response.status_code
                raise FetchError(f"{self.place.server} answered {status} to a request for {name}", status=status)
            length = response.headers.get("Content-Length", "")
            announced = int(length) if re.fullmatch("[0-9]{1,18}", length) else 0
            raw = bytearray()
            while announced <= LARGEST and len(raw) <= LARGEST:
                if not (chunk := response.raw.read(LARGEST + 1 - len(raw), decode_content=True)):
                    check_answer(raw, response, name)
                    return bytes(raw), response.headers
                raw += chunk
            sends = announced if announced > LARGEST else "too many"  # what is announced may be compressed
            raise ImageError(f"{self.place.server} sends {sends} bytes for {name}, more than {LARGEST}")

    @contextmanager
    def _opened(self, path: str | Url, headers: Mapping[str, str], asked: RequestSpec) -> Iterator[requests.Response]:
        with ExitStack() as stack:
            try:
                response = stack.enter_context(self._resource(self._scheme or "http", path, asked)(headers))
                self._scheme = self._scheme or "http"
            except FetchError as error:
                if self._scheme or not _may_speak_tls(error):
                    raise
                try:
                    response = stack.enter_context(self._resource("https", path, asked)(headers))
                except FetchError as second:
                    cause, untrusted = second.__cause__, ssl.SSLCertVerificationError
                    speaks = cause is None or any(isinstance(one, untrusted) for one in causes(cause))
                    raise second if speaks or isinstance(second, SlowError) else error from None
                self._scheme = "https"
            if response.headers.get("Content-Type", "").lower().startswith("text/html"):
                raise FetchError(
                    f"{self.place.server} sent an HTML page instead of {path.shown if isinstance(path, Url) else path}",
                    "it may be a login page or a proxy, or not a registry: correct the name of the source",
                )
            yield response

    def _resource(self, scheme: str, path: str | Url, asked: RequestSpec) -> Get:
        if not isinstance(path, Url):
            path = Url.parse(f"{scheme}://{self.place.server}/v2/{self.place.repository}/{path}", "the registry")
        return self._http.resource(path, self._authority, asked)


def _may_speak_tls(error: FetchError) -> bool:
    """Whether a server with this error over plain http may require TLS: it answers 400, resets, or sends no HTTP."""
    if error.status is not None or error.__cause__ is None:
        return error.status == 400
    kinds = (ConnectionResetError, http.client.BadStatusLine)
    return any(type(seen) in kinds for seen in causes(error.__cause__))


class Registry:
    """The image that `reference` names, for linux on `arch`.

    Mirrors of the reference are tried in order, its own registry last; one that fails is skipped. Manifests and configs
    are verified if their digest is known; blobs are not. Only necessary requests are made: for a public image its
    manifests, its config and its blobs. May be used by several threads.
    """

    def __init__(
        self,
        reference: Reference,
        settings: Settings,
        arch: str,
        patience: RetryPolicy = RETRY_POLICY,
        timeouts: Timeouts = TIMEOUTS,
    ) -> None:
        self._reference = reference
        self._arch = arch
        self._patience = patience
        self.notes: tuple[str, ...] = ()  # for the user, about mirrors that gave something else
        http = Http(settings.insecure_registries, timeouts)
        self._repositories = [
            Repository(
                http,
                replace(place, named=place.named and settings.named),
                token_servers(place, settings.token_servers),
            )
            for place in places(reference, settings.mirrors)
        ]

    def manifest(self) -> Manifest:
        """The manifest for `arch`, also through an index. Raises FetchError or ImageError.

        The error for a missing tag lists similar tags.
        """
        try:
            return self._first(self._resolve)
        except FetchError as error:
            if error.status == 404 and (similar := self._similar_tags()):
                error.hint = f"{error.hint}; it has: {', '.join(similar)}"
            raise

    def config(self, manifest: Manifest) -> ImageConfig:
        """The config of `manifest`, verified. Raises FetchError or ImageError."""
        wanted = manifest.config
        name = f"the config {wanted.digest} of {self._reference.source}"
        if wanted.size > LARGEST:
            raise ImageError(f"{name} has {wanted.size} bytes, too many for a config")

        def read(repository: Repository) -> bytes:
            raw, _ = repository.read(f"blobs/{wanted.digest}", "*/*", name)
            check_digest(raw, name, wanted.digest)
            return raw

        return parse_config(self._first(read), name)

    def blob(self, descriptor: Descriptor) -> Get:
        """The Get for a blob. Its content is not verified here."""
        return lambda headers: self._opened(f"blobs/{descriptor.digest}", headers)

    def _first(self, ask: Callable[[Repository], _Result]) -> _Result:
        """The result of the first repository that works; those before it are not tried again."""
        failures: list[str] = []
        wrong: list[str] = []
        *mirrors, origin = self._repositories
        for mirror in mirrors:
            try:
                found = ask(mirror)
            except FetchError as error:
                failures.append(f"\n    mirror {mirror.place}: {error.message}")
                if error.status is None and not isinstance(error, TransientError):  # not only missing or not reached
                    wrong.append(f"the mirror {mirror.place} failed: {error.message}")
                self._repositories.remove(mirror)
            else:
                break
        else:
            mirror = origin
            try:
                found = retry(lambda: ask(origin), self._patience)
            except FetchError as error:
                error.message += "".join(failures)
                raise
        self.notes += tuple(f"taken from {mirror.place.host}, since {why}" for why in wrong)
        return found

    def _resolve(self, repository: Repository) -> Manifest:
        reference = self._reference

        def read(digest: str) -> tuple[Manifest | Index, str]:
            asked = digest or reference.tag or "latest"
            name = f"{repository.place}{'@' if digest else ':'}{asked}"
            raw, headers = repository.read(f"manifests/{asked}", _ACCEPT, name)
            sent = headers.get("Docker-Content-Digest", "")
            return parse(raw, name, digest or (sent if sent.startswith("sha256:") else "")), name

        return manifest_behind(read, reference.digest, self._arch, reference.source)

    @contextmanager
    def _opened(self, path: str, headers: Mapping[str, str]) -> Iterator[requests.Response]:
        *mirrors, origin = self._repositories
        asked = origin
        try:
            with ExitStack() as stack:
                for mirror in mirrors:
                    try:
                        response = stack.enter_context(mirror.get(path)(headers))
                        asked = mirror
                        break
                    except FetchError as error:
                        if isinstance(error, TransientError):
                            self._pass_over(mirror)
                else:
                    response = stack.enter_context(origin.get(path)(headers))
                yield response
        except TransientError as error:
            asked.breaks += 1
            if asked is not origin and (asked.breaks >= _BREAKS or isinstance(error, StalledError)):
                self._pass_over(asked)
                error.elsewhere = True
            raise
        except FetchError as error:
            if asked is origin or type(error) is not FetchError:  # wrong content is for the caller to judge
                raise
            self._pass_over(asked)  # a retry would not help, but another server may
            other = TransientError(error.message, error.hint, error.status)
            other.elsewhere = True
            raise other from error

    def _pass_over(self, mirror: Repository) -> None:
        with suppress(ValueError):  # another thread was faster
            self._repositories.remove(mirror)

    def _similar_tags(self) -> list[str]:
        wanted = self._reference.tag
        with suppress(FetchError):
            raw, _ = self._repositories[-1].read("tags/list?n=1000", "application/json", "the list of tags")
            tags = read_content(raw, "the list of tags").texts("tags")
            return [plain(tag) for tag in difflib.get_close_matches(wanted, tags, 5)]
        return []
