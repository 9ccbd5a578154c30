"""Certificates: the authorities for servers, and client certificates."""

import os
import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import certifi

from sifmod.errors import FetchError
from sifmod.image.oci.content import plain
from sifmod.image.registry.network import TlsSocket

_NAMED = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Red Hat
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def make_context(host: str, environ: Mapping[str, str]) -> ssl.SSLContext:
    """The SSL context for a connection to `host`, with its port if its URL has one.

    `REQUESTS_CA_BUNDLE` or `CURL_CA_BUNDLE`, a file or a directory, replace all other authorities. Without them, those
    of `SSL_CERT_FILE` are used (if it is not set, the system's, or certifi's if it has none), and those of
    `SSL_CERT_DIR` (if it is not set, OpenSSL's directory). Certificates of docker or podman for this host are added.
    Raises FetchError for a configured file that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = TlsSocket
    context.hostname_checks_common_name = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in curl and Go: an authority need not be a root
    if name := next((name for name in _NAMED if environ.get(name)), ""):
        _load(context, environ[name], f"correct or unset {name}")
    else:
        context.set_default_verify_paths()  # OpenSSL's own, which the two variables replace
        if file := environ.get("SSL_CERT_FILE"):
            _load(context, file, "correct or unset SSL_CERT_FILE")
        else:  # a Python with an OpenSSL of its own looks elsewhere
            bundle = next((path for path in _BUNDLES if os.access(path, os.R_OK)), certifi.where())
            _load(context, bundle, "reinstall the package ca-certificates")
        for given in environ.get("SSL_CERT_DIR", "").split(":"):
            for found in sorted(Path(given).iterdir()) if given and os.access(given, os.R_OK) else ():
                with suppress(ssl.SSLError, OSError):  # a list of revocations, a README
                    context.load_verify_locations(cafile=found)  # OpenSSL wants names by a hash; Go's programs read all
    for directory in _directories(host, environ):
        for path in sorted(directory.glob("*.crt")):
            _load(context, str(path), "replace or remove the file")
    _load_client(context, _directories(host, environ))
    return context


def has_own(host: str, environ: Mapping[str, str]) -> bool:
    """Whether docker or podman keep certificates for `host`."""
    return any(directory.is_dir() for directory in _directories(host, environ))


def _directories(host: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    config = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or "/nonexistent") / ".config")
    places = (config / "containers", Path("/etc/containers"), Path("/etc/docker"))
    return tuple(place / "certs.d" / host for place in places)


def _load(context: ssl.SSLContext, path: str, hint: str) -> None:
    try:
        if os.path.isdir(path):  # noqa: PTH112  may be no path at all
            context.load_verify_locations(capath=path)
        else:
            context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise FetchError(
            f"{plain(path)} contains no certificates: {plain(error.reason or str(error))}", hint
        ) from error
    except OSError as error:
        raise FetchError(f"the certificates in {plain(path)} cannot be read: {error.strerror}", hint) from error


def _load_client(context: ssl.SSLContext, directories: tuple[Path, ...]) -> None:
    """Load the first pair NAME.cert and NAME.key that this user may read. Raises FetchError for an unusable one."""
    found = [path for directory in directories for path in sorted(directory.glob("*.cert"))]
    for certificate in found:
        key = certificate.with_suffix(".key")
        if not key.exists():
            raise FetchError(f"{certificate} has no {key.name} beside it", "add the key, or remove the file")
        if not (os.access(certificate, os.R_OK) and os.access(key, os.R_OK)):
            continue
        try:
            context.load_cert_chain(certificate, key, password=lambda: "")  # a key with a password is refused
        except (ssl.SSLError, OSError) as error:
            reason = error.strerror if not isinstance(error, ssl.SSLError) else error.reason
            raise FetchError(f"{certificate} cannot be used with {key.name}: {plain(reason or str(error))}") from error
        return
