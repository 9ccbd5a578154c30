"""A server that sends something from time to time, and never enough."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sifmod.image.registry.credentials import Netrc
from sifmod.image.registry.http import Http, RequestSpec
from sifmod.image.registry.mirrors import Place
from sifmod.image.registry.network import SLOWEST, SlowError, Timeouts
from sifmod.image.registry.registry import Repository
from sifmod.image.registry.url import Url
from support.misbehaving import MANIFEST, Misbehaving, challenge, guarded
from support.web import Answer, Handler, answer, make_certificate

SHORT = Timeouts(connect=5.0, silence=5.0, whole=0.5)  # a byte comes much more often than `silence`
EVERY = 0.05  # seconds


def drips(head: bytes, body: bytes = b"", more: bytes = b"x") -> Answer:
    """These, and then a byte from time to time, for a minute: no test waits for that long."""

    def send(handler: Handler) -> None:
        handler.wfile.write(head + body)
        for _ in range(int(60 / EVERY)):
            handler.wfile.write(more)
            handler.wfile.flush()
            if handler.server.ended.wait(EVERY):
                return

    return send


@pytest.fixture(params=["http", "https"])
def web(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Misbehaving]:
    certificate = make_certificate(tmp_path) if request.param == "https" else None
    if certificate:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    server = Misbehaving(certificate)
    server.start()
    yield server
    server.stop()


def repository(web: Misbehaving, timeouts: Timeouts = SHORT) -> Repository:
    return Repository(Http(timeouts=timeouts), Place(f"127.0.0.1:{web.server_address[1]}", "group/name", True), ())


def manifest(web: Misbehaving) -> bytes:
    return repository(web).read("manifests/1.0", "*/*", "the manifest")[0]


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n"
SLOW: list[Answer] = [
    drips(b"", more=b"H"),  # not even a line
    drips(b"HTTP/1.1 200 OK\r\nX-Long: "),
    drips(HEAD),
    drips(HEAD, b"{" * 100_000),
    drips(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", more=b"1\r\n{\r\n"),
]


@pytest.mark.parametrize("slow", SLOW)
def test_a_manifest_that_comes_too_slowly_is_given_up(web: Misbehaving, slow: Answer) -> None:
    web.put("manifests/1.0", slow)
    with pytest.raises(SlowError) as caught:
        manifest(web)
    assert caught.value.message == (
        f"127.0.0.1:{web.server_address[1]} is too slow: the response was not complete after 0.5 seconds"
    )


def test_a_token_that_comes_too_slowly_is_given_up(web: Misbehaving) -> None:
    web.answers["/token"] = drips(HEAD, b'{"token": "')
    header = f'Bearer realm="{web.url("/token", "127.0.0.1")}"'
    web.put("manifests/1.0", guarded("Bearer t", answer(200, MANIFEST), challenge(header)))
    with pytest.raises(SlowError, match="is too slow"):
        manifest(web)


def test_a_form_that_is_answered_too_slowly_is_given_up(web: Misbehaving) -> None:
    web.answers["/token"] = drips(b"HTTP/1.1 200 OK\r\nX: ")
    form = RequestSpec("POST", b"refresh_token=secret", (200,), secret=True)
    with (
        pytest.raises(SlowError, match="is too slow"),
        Http(timeouts=SHORT).resource(Url.parse(web.url("/token", "127.0.0.1")), Netrc(), form)({}),
    ):
        raise AssertionError


@pytest.mark.parametrize("slow", [drips(b"", more=b"H"), drips(b"HTTP/1.1 200 OK\r\n", more=b"X: y\r\n")])
def test_a_proxy_that_answers_too_slowly_is_given_up(
    web: Misbehaving, slow: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "do_CONNECT", Handler.do_GET, raising=False)
    monkeypatch.setenv("https_proxy", web.url("", "127.0.0.1"))
    web.answers["host.invalid:443"] = slow
    with (
        pytest.raises(SlowError, match="is too slow"),
        Http(timeouts=SHORT).resource(Url.parse("https://host.invalid/x.sif"), Netrc())({}),
    ):
        raise AssertionError


@pytest.mark.parametrize("slow", [SLOW[0], SLOW[3]])
def test_a_server_behind_a_proxy_has_the_same_limits(
    web: Misbehaving, slow: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also behind one over https: TLS within TLS."""
    (tmp_path / "behind").mkdir()
    certificate = make_certificate(tmp_path / "behind")
    behind = Misbehaving(certificate)
    behind.put("manifests/1.0", slow)

    def tunnel(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with socket.create_connection(("127.0.0.1", behind.server_address[1])) as inner:
            threading.Thread(target=copy, args=(inner, handler.connection), daemon=True).start()
            copy(handler.connection, inner)

    authorities = [*tmp_path.glob("certificate.pem"), certificate.with_name("certificate.pem")]
    (tmp_path / "all.pem").write_text("".join(path.read_text() for path in authorities))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "all.pem"))
    monkeypatch.setattr(Handler, "do_CONNECT", Handler.do_GET, raising=False)
    monkeypatch.setenv("https_proxy", web.url("", "127.0.0.1"))
    web.answers["registry.test:443"] = tunnel
    behind.start()
    try:
        with pytest.raises(SlowError, match="not complete after"):
            far = Repository(Http(timeouts=SHORT), Place("registry.test", "group/name", True), ())
            far.read("manifests/1.0", "*/*", "the manifest")
    finally:
        behind.stop()


def copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)


def test_what_is_said_with_an_error_is_not_waited_for(web: Misbehaving) -> None:
    web.put("manifests/1.0", drips(b"HTTP/1.1 404 Not Found\r\nContent-Length: 60000\r\n\r\n"))
    with pytest.raises(Exception, match="answered 404 Not Found"):
        manifest(web)


def test_a_blob_has_to_come_at_a_least_rate(web: Misbehaving) -> None:
    web.put("blobs/x", drips(HEAD, b"x" * 5000))
    few = Timeouts(connect=5.0, silence=1.0)
    with pytest.raises(SlowError) as caught, repository(web, few).get("blobs/x")({}) as response:
        response.raw.read(4_000_000)
    assert f"bytes arrived in 1 seconds, less than {SLOWEST} a second" in caught.value.message


def test_a_slow_line_is_no_slow_server(web: Misbehaving) -> None:
    """Slower than any deadline would allow, but at twice the least rate."""
    count = [0]

    def slowly(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6144\r\n\r\n")
        while count[0] < 6144:
            handler.wfile.write(b"x" * 512)
            handler.wfile.flush()
            count[0] += 512
            handler.server.ended.wait(0.1)

    web.put("blobs/x", slowly)
    few = Timeouts(connect=5.0, silence=1.0, whole=0.5)
    with repository(web, few).get("blobs/x")({}) as response:
        assert response.content == b"x" * 6144


def test_a_reader_may_take_its_time(web: Misbehaving) -> None:
    """Only what a read waits for counts."""
    web.put("blobs/x", answer(200, b"x" * 100))
    few = Timeouts(connect=5.0, silence=0.2)
    with repository(web, few).get("blobs/x")({}) as response:
        for _ in range(5):
            web.ended.wait(0.1)
            assert response.raw.read(20) == b"x" * 20
