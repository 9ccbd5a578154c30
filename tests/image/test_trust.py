"""Whose certificates are believed: the system's, a variable's, and what docker and podman keep for a registry."""

import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import certifi
import pytest

from sifmod.errors import FetchError
from sifmod.image.oci.manifest import Descriptor
from sifmod.image.registry.credentials import Netrc
from sifmod.image.registry.http import Http
from sifmod.image.registry.mirrors import Place
from sifmod.image.registry.registry import Repository
from sifmod.image.registry.upload import Blob, upload
from sifmod.image.registry.url import Url
from support.identity import call_with_etc
from support.misbehaving import Misbehaving, digest
from support.web import Web, answer, make_certificate

CONTENT = b"it is believed"
Start = Callable[..., Web]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a server, with its key; beside it certificate.pem, which is its own authority."""
    return make_certificate(tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="session")
def personal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a user, with its key."""
    return make_certificate(tmp_path_factory.mktemp("user"))


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def start(certificate: Path) -> Iterator[Start]:
    running: list[Web] = []

    def start(client: Path | None = None) -> Web:
        running.append(Web(certificate, client))
        running[-1].answers["/x"] = answer(200, CONTENT)
        running[-1].start()
        return running[-1]

    yield start
    for server in running:
        server.stop()


def read(server: Web) -> bytes:
    with Http().resource(Url.parse(server.url("/x")), Netrc())({}) as response:
        return response.content


def refused(server: Web) -> FetchError:
    with pytest.raises(FetchError) as caught:
        read(server)
    assert caught.value.message.isprintable()
    assert server.asked == []
    return caught.value


def host(server: Web) -> str:
    return f"localhost:{server.server_address[1]}"


def authority(certificate: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(certificate.with_name("certificate.pem"), target)


def test_a_certificate_of_nobody_is_not_believed(start: Start) -> None:
    error = refused(start())
    assert "its certificate or its TLS cannot be trusted" in error.message
    assert "SSL_CERT_FILE" in error.hint
    assert "~/.config/containers/certs.d/localhost:" in error.hint


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"])
def test_a_file_that_a_variable_names_is_believed(
    start: Start, certificate: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(certificate))
    assert read(start()) == CONTENT


def test_every_file_of_the_directories_that_a_variable_names_is_believed(
    start: Start, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under any name, as Go's programs read them."""
    authority(certificate, tmp_path / "certs" / "site.pem")
    (tmp_path / "certs" / "README").write_text("our own")
    monkeypatch.setenv("SSL_CERT_DIR", f"{tmp_path}/none:{tmp_path}/certs")
    assert read(start()) == CONTENT


@pytest.mark.parametrize(
    "bundle", ["ssl/certs/ca-certificates.crt", "pki/tls/certs/ca-bundle.crt", "ssl/ca-bundle.pem"]
)
def test_the_systems_own_authorities_are_believed(start: Start, certificate: Path, tmp_path: Path, bundle: str) -> None:
    authority(certificate, tmp_path / "etc" / bundle)
    server = start()
    assert call_with_etc(tmp_path / "etc", lambda: read(server)) == CONTENT


@pytest.mark.parametrize("place", ["/etc/docker", "/etc/containers", "~/.config/containers"])
def test_what_is_kept_for_a_registry_is_believed_of_it_alone(
    start: Start, certificate: Path, tmp_path: Path, own_home: Path, place: str
) -> None:
    one, other = start(), start()
    etc = tmp_path / "etc"
    etc.mkdir()
    directory = Path(place.replace("~", str(own_home)).replace("/etc", str(etc)))
    authority(certificate, directory / "certs.d" / host(one) / "ca.crt")

    def reads() -> bytes:
        refused(other)
        return read(one)

    assert call_with_etc(etc, reads) == CONTENT


def test_a_client_certificate_is_shown_to_its_registry_alone(
    start: Start, certificate: Path, personal: Path, own_home: Path
) -> None:
    one, other = start(personal), start(personal)
    for server in (one, other):
        directory = own_home / ".config" / "containers" / "certs.d" / host(server)
        authority(certificate, directory / "ca.crt")
    directory = own_home / ".config" / "containers" / "certs.d" / host(one)
    shutil.copy(personal.with_name("certificate.pem"), directory / "client.cert")
    error = refused(one)
    assert error.message == f"{directory}/client.cert has no client.key beside it"
    shutil.copy(personal.with_name("key.pem"), directory / "client.key")
    assert read(one) == CONTENT
    refused(other)


def test_a_pair_that_is_none_is_told(start: Start, certificate: Path, personal: Path, own_home: Path) -> None:
    server = start()
    directory = own_home / ".config" / "containers" / "certs.d" / host(server)
    authority(certificate, directory / "client.cert")
    shutil.copy(personal.with_name("key.pem"), directory / "client.key")
    assert f"{directory}/client.cert cannot be used with client.key: " in refused(server).message
    (directory / "client.cert").unlink()
    (directory / "ca.crt").write_text("no certificate")
    assert f"{directory}/ca.crt contains no certificates: " in refused(server).message


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"])
def test_a_variable_that_names_nothing_is_told(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "none.pem"))
    error = refused(start())
    assert error.message == f"the certificates in {tmp_path}/none.pem cannot be read: No such file or directory"
    assert error.hint == f"correct or unset {variable}"


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_bundle_of_requests_and_curl_stands_for_all_others(
    start: Start, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    authority(certificate, tmp_path / "certs" / "site.pem")
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "certs"))
    monkeypatch.setenv(variable, certifi.where())
    assert "cannot be trusted" in refused(start()).message


def test_a_server_behind_a_proxy_is_verified_too(
    start: Start, certificate: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the name of another machine here: for this machine itself no proxy is asked."""
    server, asked = start(), []

    def serve(listening: socket.socket) -> None:
        for _ in range(2):
            inner, _ = listening.accept()
            asked.append(inner.recv(4096).partition(b" HTTP")[0])
            outer = socket.create_connection(("127.0.0.1", server.server_address[1]))
            with inner, outer:
                inner.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                back = threading.Thread(target=copy, args=(outer, inner))
                back.start()
                copy(inner, outer)
                back.join()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{listening.getsockname()[1]}")
        url = "https://registry.test:5000/x"
        with (
            pytest.raises(FetchError, match="certificate verify failed: self-signed"),
            Http().resource(Url.parse(url), Netrc())({}),
        ):
            raise AssertionError
        authority(certificate, own_home / ".config/containers/certs.d/registry.test:5000/ca.crt")
        with Http().resource(Url.parse(url), Netrc())({}) as response:
            assert response.content == CONTENT
    assert asked == [b"CONNECT registry.test:5000"] * 2


def test_a_proxy_over_https_is_verified_by_the_same_certificates(
    start: Start, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What answers here is a web server, which makes no tunnel: it was believed before it could say so."""
    monkeypatch.setenv("CURL_CA_BUNDLE", str(certificate.with_name("certificate.pem")))
    monkeypatch.setenv("https_proxy", f"https://{host(start())}")
    with (
        pytest.raises(FetchError, match="the proxy: Tunnel connection failed: 501 "),
        Http().resource(Url.parse("https://registry.test:5000/x"), Netrc())({}),
    ):
        raise AssertionError


def copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):  # a client that does not like what it sees resets the connection
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def test_an_upload_leaves_tls_for_no_place(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even for a port of this machine, which another user may serve."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.with_name("certificate.pem")))
    registry, plain = Misbehaving(certificate), Web()
    registry.start()
    plain.start()
    registry.answers["/v2/group/name/blobs/uploads/"] = answer(202, headers={"Location": plain.url("/x?secret=1")})
    repository = Repository(Http(), Place(f"localhost:{registry.server_address[1]}", "group/name", named=True), ())
    blob = Blob(Descriptor("x", digest(CONTENT), len(CONTENT)), lambda at: iter((CONTENT[at:],)))
    try:
        with pytest.raises(FetchError, match=r"wants a blob at http://localhost:[0-9]+/x, which is not https"):
            upload(repository, blob, lambda _: None)
    finally:
        registry.stop()
        plain.stop()
    assert plain.asked == []
