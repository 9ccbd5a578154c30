"""A SIF from a web server."""

from sifmod.image.download.download_sif import download_sif, refuse_other_files
from sifmod.image.download.remote import Remote
from sifmod.image.registry.credentials import Netrc
from sifmod.image.registry.http import Http
from sifmod.image.registry.pace import TIMEOUTS, Timeouts
from sifmod.image.registry.retry import PATIENCE, Patience
from sifmod.image.sources.fetched import Fetched, Request


def download(request: Request, timeouts: Timeouts = TIMEOUTS, patience: Patience = PATIENCE) -> Fetched:
    """Download the file to `incoming`; `timeouts` are what the server has.

    https only, plain http only from this machine itself, redirects included. Raises FetchError for whatever the
    network or the server does, ImageError as soon as the beginning shows that it is not a SIF, and where it is not the
    promised one.
    """
    promised = f"sha256:{request.image.sha256}" if request.image.sha256 else ""
    get = Http(timeouts=timeouts).resource(request.reference.location, Netrc())
    remote = Remote(request.image.filename, get, digest=promised, check=refuse_other_files)
    return download_sif(request, remote, patience=patience)
