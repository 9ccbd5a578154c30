"""A registry that misbehaves: redirects, tokens, pages, endless answers, limits, and what is told of each."""

import base64
import email.utils
import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import requests

from sifmod.errors import FetchError, ImageError
from sifmod.image.registry.credentials import Netrc
from sifmod.image.registry.http import Http, TransientError, retry_after
from sifmod.image.registry.mirrors import Place
from sifmod.image.registry.refused import refused_by
from sifmod.image.registry.registry import Registry
from sifmod.image.registry.url import Url
from support.misbehaving import (
    BLOB,
    CONFIG,
    INDEX,
    LAYER,
    MANIFEST,
    Misbehaving,
    challenge,
    client,
    descriptor,
    digest,
    guarded,
    log_in,
)
from support.web import Answer, Handler, Web, answer, make_certificate, raw

Start = Callable[[Web], None]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[Web] = []

    def start(server: Web) -> None:
        running.append(server)
        server.start()

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def web(start: Start) -> Misbehaving:
    server = Misbehaving()
    start(server)
    return server


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


def refused(web: Misbehaving) -> FetchError:
    with pytest.raises(FetchError) as caught:
        client(web).manifest()
    assert caught.value.message.isprintable()
    return caught.value


def read(opened: Registry) -> bytes:
    with opened.blob(LAYER)({}) as response:
        return response.content


def in_turn(*answers: Answer) -> Answer:
    """Each once, the last for ever."""
    left = list(answers)
    return lambda handler: (left.pop(0) if len(left) > 1 else left[0])(handler)


def test_nothing_is_asked_twice_and_nothing_for_nothing(web: Misbehaving) -> None:
    opened = client(web)
    found = opened.manifest()
    opened.config(found)
    assert read(opened) == BLOB
    assert web.paths == ["manifests/1.0", f"blobs/{digest(CONFIG)}", f"blobs/{digest(BLOB)}"]
    assert "authorization" not in web.asked[0][1]


def test_one_connection_serves_one_request_after_the_other(web: Misbehaving) -> None:
    ports = set()

    def kept(how: Answer) -> Answer:
        def send(handler: Handler) -> None:
            handler.close_connection = False
            ports.add(handler.client_address[1])
            how(handler)

        return send

    basic = "Basic " + base64.b64encode(b"me:secret").decode()
    web.answers = {path: kept(guarded(basic, how, challenge("Basic"))) for path, how in web.answers.items()}
    log_in(Path.home(), f"127.0.0.1:{web.server_address[1]}")
    opened = client(web)
    opened.config(opened.manifest())
    assert read(opened) == BLOB
    assert web.paths[:2] == ["manifests/1.0"] * 2
    assert len(web.asked) == 4  # the password is known after the first 401
    assert len(ports) == 1


def test_a_registry_on_this_machine_may_speak_tls(
    start: Start, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Misbehaving(certificate)
    start(server)
    with pytest.raises(FetchError, match="its certificate or its TLS cannot be trusted"):
        client(server).manifest()
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    opened = client(server)
    opened.config(opened.manifest())
    assert read(opened) == BLOB
    assert len(server.asked) == 3


def test_a_foreign_registry_is_never_asked_over_http(own_home: Path) -> None:
    assert not Http().is_insecure("registry.invalid:5000")
    assert Http(("registry.invalid",)).is_insecure("registry.invalid:5000")
    assert Http(("registry.invalid:5000",)).is_insecure("registry.invalid:5000")
    assert not Http(("registry.invalid:5000",)).is_insecure("registry.invalid")
    with (
        pytest.raises(FetchError, match=r"http://registry\.invalid/x is not https, so nothing was sent there"),
        Http().resource(Url.parse("http://registry.invalid/x?secret"), Netrc())({}),
    ):
        raise AssertionError
    assert list(own_home.iterdir()) == []


def test_credentials_do_not_follow_a_redirect_to_another_host(web: Misbehaving, start: Start, own_home: Path) -> None:
    storage = Web()
    start(storage)
    storage.answers["/signed"] = answer(200, BLOB)
    hosts = [f"{host}:{storage.server_address[1]}" for host in ("localhost", "127.0.0.1")]
    log_in(own_home, f"127.0.0.1:{web.server_address[1]}", *hosts)
    basic = "Basic " + base64.b64encode(b"me:secret").decode()
    for host in ("localhost", "127.0.0.1"):
        moved = answer(307, b"moved", {"Location": storage.url("/signed?signature=1", host)})
        web.put(f"blobs/{digest(BLOB)}", guarded(basic, moved, challenge("Basic")))
        opened = client(web)
        with opened.blob(LAYER)({"Range": "bytes=5-"}) as response:
            assert response.content == BLOB
    assert [headers.get("range") for _, headers in storage.asked] == ["bytes=5-"] * 2
    assert not any("authorization" in headers for _, headers in storage.asked)


def test_a_401_from_another_host_gets_no_credentials(web: Misbehaving, start: Start, own_home: Path) -> None:
    storage = Web()
    start(storage)
    log_in(own_home, f"127.0.0.1:{web.server_address[1]}", f"127.0.0.1:{storage.server_address[1]}")
    storage.answers["/x"] = challenge("Basic")
    web.put("manifests/1.0", answer(302, b"", {"Location": storage.url("/x", "127.0.0.1")}))
    assert "answered 401" in refused(web).message
    assert [("authorization" in headers) for _, headers in storage.asked] == [False]


def test_credentials_do_not_follow_a_redirect_of_the_token_server(
    web: Misbehaving, start: Start, own_home: Path
) -> None:
    other = Web()
    start(other)
    other.answers["/token"] = answer(200, b'{"token": "t"}')
    web.answers["/token"] = answer(302, b"", {"Location": other.url("/token", "127.0.0.1")})
    bearer = challenge(f'Bearer realm="{web.url("/token", "127.0.0.1")}",service="s"')
    web.put("manifests/1.0", guarded("Bearer t", answer(200, MANIFEST), bearer))
    log_in(own_home, f"127.0.0.1:{web.server_address[1]}")
    client(web).manifest()
    assert dict(web.asked)["/token"]["authorization"].startswith("Basic ")
    assert "authorization" not in other.asked[0][1]


@pytest.mark.parametrize("realm", ["http://auth.invalid/token", "ftp://127.0.0.1/x", "http://[", "", "x"])
def test_a_token_is_not_asked_for_just_anywhere(web: Misbehaving, own_home: Path, realm: str) -> None:
    log_in(own_home, f"127.0.0.1:{web.server_address[1]}")
    web.put("manifests/1.0", challenge(f'Bearer realm="{realm}"'))
    assert "answered 401" in (message := refused(web).message) or "is not https, so nothing was sent" in message


def test_a_token_that_expires_in_the_middle_is_renewed(web: Misbehaving) -> None:
    number = [0]
    lock = threading.Lock()

    def give(handler: Handler) -> None:
        with lock:
            number[0] += 1
        answer(200, json.dumps({"access_token": f"t{number[0]}"}).encode())(handler)

    def only_new(good: Answer) -> Answer:
        return lambda handler: (good if handler.headers["Authorization"] == f"Bearer t{number[0]}" else asks)(handler)

    web.answers["/token"] = give
    asks = challenge(f'Bearer realm="{web.url("/token", "127.0.0.1")}",service="s",scope="repository:group/name:pull"')
    web.put("manifests/1.0", only_new(answer(200, MANIFEST)))
    web.put(f"blobs/{digest(BLOB)}", only_new(answer(200, BLOB)))
    opened = client(web)
    number[0] = 0
    opened.manifest()
    assert read(opened) == BLOB
    assert number[0] == 1
    number[0] += 5  # the server forgets what it gave
    assert read(opened) == BLOB
    assert number[0] == 7


def test_an_identity_token_is_posted(web: Misbehaving, own_home: Path) -> None:
    host = f"127.0.0.1:{web.server_address[1]}"
    (own_home / ".docker").mkdir()
    (own_home / ".docker" / "config.json").write_text(json.dumps({"auths": {host: {"identitytoken": "refresh"}}}))
    posted: list[dict[str, list[str]]] = []

    def give(handler: Handler) -> None:
        posted.append(parse_qs(handler.path.partition("?")[2]))
        answer(200, b'{"access_token": "t"}')(handler)

    web.answers["/token"] = give
    asks = challenge(f'Basic realm="x", Bearer realm="{web.url("/token", "127.0.0.1")}",service="a b"')
    web.put("manifests/1.0", guarded("Bearer t", answer(200, MANIFEST), asks))
    client(web).manifest()
    assert posted == [
        {
            "grant_type": ["refresh_token"],
            "refresh_token": ["refresh"],
            "client_id": ["sifmod"],
            "service": ["a b"],
            "scope": ["repository:group/name:pull"],
        }
    ]
    web.answers["/token"] = answer(302, b"", {"Location": "/elsewhere"})
    assert "answered 302" in refused(web).message
    assert "/elsewhere" not in [path for path, _ in web.asked]


@pytest.mark.parametrize(
    "token",
    [b"", b"{}", b'{"token": ""}', b'{"token": "a\\r\\nX: y"}', b"[" * 10000, b'{"token": "\xc3\xbc"}', b"<html>"],
)
def test_a_token_that_is_none_is_refused(web: Misbehaving, token: bytes) -> None:
    web.answers["/token"] = answer(200, token)
    web.put("manifests/1.0", challenge(f'Bearer realm="{web.url("/token", "127.0.0.1")}"'))
    assert "token" in refused(web).message


def test_a_redirect_loop_ends(web: Misbehaving) -> None:
    web.put("manifests/1.0", answer(302, b"", {"Location": "1.0?again"}))
    assert "more than 10 redirects" in refused(web).message
    assert len(web.asked) == 11


@pytest.mark.parametrize("location", ["", "file:///etc/passwd", "http://example.org/x", "http://[", "ftp://x/y"])
def test_an_odd_redirect_is_refused(web: Misbehaving, location: str) -> None:
    web.put("manifests/1.0", answer(302, b"", {"Location": location}))
    assert " redirects " in refused(web).message


def test_a_page_is_no_manifest_and_no_layer(web: Misbehaving) -> None:
    page = b"<!doctype html><html><title>Log in</title></html>"
    web.put("manifests/1.0", answer(200, page, {"Content-Type": "text/html; charset=utf-8"}))
    error = refused(web)
    assert "sent an HTML page instead of manifests/1.0" in error.message
    assert "login page" in error.hint
    web.put("manifests/1.0", answer(200, page))
    assert "is not JSON: it starts with '<!doctype html" in refused(web).message
    web.put(f"blobs/{digest(BLOB)}", answer(200, page, {"Content-Type": "text/html"}))
    with pytest.raises(FetchError, match="sent an HTML page instead of blobs/"):
        read(client(web))


def test_a_manifest_of_three_gigabytes_is_refused_before_it_is_read(web: Misbehaving) -> None:
    web.put("manifests/1.0", raw(b"HTTP/1.1 200 OK\r\nContent-Length: 3000000000\r\n\r\n{", hang=True))
    error = refused(web)
    assert isinstance(error, ImageError)
    assert "sends 3000000000 bytes for" in error.message


def test_a_manifest_that_is_small_only_while_it_is_compressed_is_refused(web: Misbehaving) -> None:
    web.put("manifests/1.0", answer(200, gzip.compress(b" " * (5 << 20)), {"Content-Encoding": "gzip"}))
    assert "sends too many bytes for" in refused(web).message


def test_a_manifest_without_an_end_is_refused(web: Misbehaving) -> None:
    written = [0]

    def endless(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while written[0] < 1 << 30:
            handler.wfile.write(b" " * (1 << 20))
            written[0] += 1 << 20

    web.put("manifests/1.0", endless)
    assert "sends too many bytes for" in refused(web).message
    assert written[0] < 64 << 20


def test_a_manifest_that_is_not_what_its_header_says_is_refused(web: Misbehaving) -> None:
    web.put("manifests/1.0", answer(200, MANIFEST, {"Docker-Content-Digest": "sha256:" + "0" * 64}))
    assert "has a wrong digest: expected sha256:000" in refused(web).message


def test_a_config_that_is_another_one_is_refused(web: Misbehaving) -> None:
    web.put(f"blobs/{digest(CONFIG)}", answer(200, CONFIG.replace(b"amd64", b"arm64")))
    opened = client(web)
    with pytest.raises(ImageError, match="has a wrong digest"):
        opened.config(opened.manifest())


def test_an_index_that_points_nowhere_is_told(web: Misbehaving) -> None:
    entry = descriptor(MANIFEST, platform={"architecture": "amd64", "os": "linux"})
    web.put("manifests/1.0", answer(200, json.dumps({"mediaType": INDEX, "manifests": [entry]}).encode()))
    error = refused(web)
    assert "answered 404" in error.message
    web.put(f"manifests/{digest(MANIFEST)}", answer(200, MANIFEST + b" "))
    assert "has a wrong digest" in refused(web).message
    web.put(f"manifests/{digest(MANIFEST)}", answer(200, MANIFEST))
    assert client(web).manifest().digest == digest(MANIFEST)


def test_an_index_that_names_itself_ends(web: Misbehaving) -> None:
    entry = descriptor(b"x", INDEX, platform={"architecture": "amd64", "os": "linux"})
    index = json.dumps({"mediaType": INDEX, "manifests": [entry]}).encode()
    web.put("manifests/1.0", answer(200, index))
    web.put(f"manifests/{digest(b'x')}", answer(200, index))
    assert "has a wrong digest" in refused(web).message


@pytest.mark.parametrize(
    "trouble", [answer(500), answer(503, b"", {"Retry-After": "0"}), answer(429), answer(408), raw()]
)
def test_trouble_that_passes_is_waited_for(web: Misbehaving, trouble: Answer) -> None:
    web.put("manifests/1.0", in_turn(trouble, answer(200, MANIFEST)))
    assert client(web).manifest().digest == digest(MANIFEST)
    web.put("manifests/1.0", trouble)
    before = len(web.asked)
    error = refused(web)
    assert not isinstance(error, TransientError)
    assert "attempts)" in error.message
    assert len(web.asked) - before in (2, 3, 4)  # one that hung up is asked again at once


def test_trouble_in_a_blob_is_left_to_who_downloads_it(web: Misbehaving) -> None:
    web.put(f"blobs/{digest(BLOB)}", answer(503, b"", {"Retry-After": "17"}))
    with pytest.raises(TransientError) as caught:
        read(client(web))
    assert caught.value.retry_after == 17
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(BLOB)}\r\n\r\n".encode()
    web.put(f"blobs/{digest(BLOB)}", raw(head, BLOB[:100]))
    with pytest.raises(TransientError, match="cannot be reached or closed the connection"):
        read(client(web))


def test_a_disk_that_is_full_is_no_trouble_of_the_network(web: Misbehaving) -> None:
    with pytest.raises(OSError, match="No space left"), client(web).blob(LAYER)({}):
        raise OSError(28, "No space left on device")


def response(web: Web, status: int, body: object, headers: dict[str, str] | None = None) -> requests.Response:
    web.answers["/"] = answer(status, json.dumps(body).encode(), headers)
    return requests.get(web.url("/"), stream=True, timeout=10)


SAID = {"errors": [{"code": "DENIED", "message": "no \x1b[2J way"}]}


@pytest.mark.parametrize(
    ("host", "status", "login", "advice"),
    [
        ("nvcr.io", 401, "", "NGC's user name is exactly `$oauthtoken`"),
        ("nvcr.io", 401, "~/x", "it did not accept the login in ~/x: NGC's user name is exactly `$oauthtoken`"),
        ("nvcr.io", 403, "~/x", "accept the image's licence on NGC's web page"),
        ("1.dkr.ecr.eu-west-1.amazonaws.com", 401, "", "aws ecr get-login-password | apptainer registry login"),
        (
            "1.dkr.ecr.eu-west-1.amazonaws.com",
            403,
            "~/x",
            "passwords are valid for 12 hours, and the one in ~/x may be older",
        ),
        ("ghcr.io", 401, "", "a personal access token with `read:packages`"),
        ("registry.gitlab.com", 401, "", "`read_registry`"),
        ("docker.io", 401, "", "a missing repository often gives this error, or log in: `apptainer registry login"),
        ("some.host", 403, "", "a user without a login may not read a/b on some.host, or it does not exist"),
        ("some.host", 403, "~/x", "the login in ~/x may not read a/b on some.host"),
        ("some.host", 404, "", "it is not in a/b on some.host"),
        ("some.host", 418, "", "check the URL"),
        ("some.host", 502, "", "the server has a problem: try again later"),
    ],
)
def test_a_refusal_comes_with_advice(web: Misbehaving, host: str, status: int, login: str, advice: str) -> None:
    got = response(web, status, SAID)
    error = refused_by(got, Place(host, "a/b"), login, ())
    assert f"answered {status}" in error.message
    assert error.message.endswith(": no [2J way")
    assert advice in error.hint
    assert isinstance(error, TransientError) == (status == 502)


def test_what_was_wrong_with_a_login_is_told_with_the_refusal(web: Misbehaving) -> None:
    got = response(web, 401, {})
    assert refused_by(got, Place("x.y", "a/b"), "", ("the helper failed",)).hint.startswith(
        "the helper failed; correct"
    )


def test_a_limit_is_told_with_what_is_left_and_three_ways_out(web: Misbehaving) -> None:
    body = {"errors": [{"code": "TOOMANYREQUESTS", "message": "You have reached your pull rate limit."}]}
    headers = {"ratelimit-limit": "100;w=21600", "ratelimit-remaining": "0;w=21600"}
    error = refused_by(response(web, 429, body, headers), Place("docker.io", "a/b"), "", ())
    assert not isinstance(error, TransientError)  # no use in asking again for hours
    assert error.message.endswith("answered 429 Too Many Requests: You have reached your pull rate limit.")
    assert error.hint.startswith("100 pulls in 6 hours, 0 left; ")
    for way in ("log in", "`mirrors:`", "--source PATH"):
        assert way in error.hint
    headers = {"X-RateLimit-Reset": str(int(time.time()) + 630), "Retry-After": "30"}
    error = refused_by(response(web, 429, body, headers), Place("docker.io", "a/b"), "", ())
    assert isinstance(error, TransientError)
    assert error.retry_after == 30
    assert error.hint.startswith(("retry in 10 minutes; ", "retry in 11 minutes; "))
    assert error.hint.endswith("; the server asks to retry in 30 seconds")
    headers = {"Retry-After": "3600", "ratelimit-limit": "none"}
    error = refused_by(response(web, 429, body, headers), Place("docker.io", "a/b"), "", ())
    assert not isinstance(error, TransientError)


def test_when_to_come_back(web: Misbehaving) -> None:
    in_an_hour = time.time() + 3600
    for text, low, high in (
        ("77", 77, 77),
        (email.utils.formatdate(in_an_hour, usegmt=True), 3000, 3600),
        (email.utils.formatdate(0, usegmt=True), 0, 0),
        (str(int(in_an_hour)), 3000, 3600),
    ):
        found = retry_after(response(web, 503, {}, {"Retry-After": text}))
        assert found is not None
        assert low <= found <= high


@pytest.mark.parametrize("text", ["", "soon", "-5", "1e9", "\u0661", "9" * 50])
def test_a_time_that_is_none(web: Misbehaving, text: str) -> None:
    headers = {"Retry-After": text.encode().decode("latin-1")}
    assert retry_after(response(web, 503, {}, headers)) is None
