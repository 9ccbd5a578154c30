"""https: a SIF from a web server."""

from functools import partial

from sifmod.config.redact import shown
from sifmod.errors import FetchError
from sifmod.image.artifact import Fetched, Fetching, FetchRequest, Remote
from sifmod.image.convert.sif.header import sif_end
from sifmod.image.download.downloads import download_sif, refuse_other_files
from sifmod.image.reference import Reference, SourceKind, no_files, nothing, refused, says_nothing
from sifmod.image.registry.credentials import Netrc
from sifmod.image.registry.http import Http, in_the_clear
from sifmod.image.registry.network import RETRY_POLICY, TIMEOUTS, RetryPolicy, Timeouts, retry
from sifmod.image.registry.url import Url
from sifmod.secret import NO_QUERY


def _parse(kind: SourceKind, source: str) -> Reference:
    """The reference of a URL. Raises FetchError for plain http, and for a login, which receipts would show."""
    url = Url.parse(source, "source")
    if in_the_clear(url):
        hint = f"use https://{shown(source).partition('://')[2]}"
        raise refused(source, "plain http is refused, except to this machine itself", hint)
    return Reference(kind, source, source)


def download(request: Fetching, timeouts: Timeouts = TIMEOUTS, patience: RetryPolicy = RETRY_POLICY) -> Fetched:
    """Download the file to `request.incoming`; `timeouts` are the limits for the server.

    https only, plain http only to this machine itself, also for redirects. Raises FetchError for errors of the network
    or the server, ImageError as soon as the beginning shows that it is not a SIF, and if it is not the promised one.
    """
    promised = f"sha256:{request.image.sha256}" if request.image.sha256 else ""
    get = Http(timeouts=timeouts).resource(_asked(request.reference), Netrc())
    name = request.image.filename
    end = partial(sif_end, name=name)
    remote = Remote(name, get, digest=promised, check=refuse_other_files, end=end)
    return download_sif(request, remote, patience=patience)


def _asked(reference: Reference) -> Url:
    """The URL to fetch. Raises FetchError for one from a receipt, which lacks the query that the file needs."""
    if reference.location.endswith(NO_QUERY):
        raise FetchError(
            f"the query of {reference.shown} was not stored, because it may be a signature, so nothing was fetched",
            f"give the source with its whole query: --source '{reference.shown}?QUERY'",
        )
    return Url.parse(reference.location, "source")


def _announced(request: FetchRequest) -> int | None:
    """Bytes of the file as announced by the server; None if unknown. Raises FetchError."""

    def ask() -> str:
        with Http().resource(_asked(request.reference), Netrc())({}) as response:
            return response.headers.get("Content-Length", "")

    stated = retry(ask)
    return int(stated) if stated.isascii() and stated.isdecimal() and len(stated) < 20 else None


HTTPS = SourceKind(
    name="https",
    schemes=("https", "http"),
    example="https://host/x.sif",
    location="url",
    parse=_parse,
    watched=no_files,
    local_sif=nothing,
    open=None,
    describe=says_nothing,
    pinned=nothing,
    announced=_announced,
    fetch=download,
)
