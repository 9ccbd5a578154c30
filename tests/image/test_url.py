"""URLs that two parsers read differently, in every place that takes one: a login stays where it belongs.

The foreign server is a real one on another address of this machine; it notes whatever it is sent.
"""

import json
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from urllib3.util import parse_url

from sifmod.cli.main import run as sifmod
from sifmod.errors import FetchError, SifmodError
from sifmod.image.oci.manifest import Descriptor
from sifmod.image.registry import upload as uploads
from sifmod.image.registry.credentials import Netrc
from sifmod.image.registry.http import Http
from sifmod.image.registry.mirrors import Place
from sifmod.image.registry.network import RetryPolicy
from sifmod.image.registry.registry import Repository
from sifmod.image.registry.upload import Blob, upload
from sifmod.image.registry.url import Url
from support.misbehaving import BLOB, LAYER, Misbehaving, client, digest, guarded, log_in
from support.web import Handler, Web, answer

LOGIN = "Basic bWU6c2VjcmV0"


class Foreign(ThreadingHTTPServer):
    """Another host: every request to it, whole."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.3", 0), Noting)
        self.heard: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class Noting(Handler):
    def _note(self) -> None:
        self.server.heard.append(f"{self.requestline}\n{self.headers}")  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = _note  # noqa: N815


@pytest.fixture
def foreign() -> Iterator[Foreign]:
    server = Foreign()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def web(own_home: Path) -> Iterator[Misbehaving]:
    """A registry that wants a login, which this user has."""
    server = Misbehaving()
    log_in(own_home, f"127.0.0.1:{server.server_address[1]}")
    asks = answer(401, b"{}", {"WWW-Authenticate": 'Basic realm="x"'})
    for path, good in list(server.answers.items()):
        server.answers[path] = guarded(LOGIN, good, asks)
    server.start()
    yield server
    server.stop()


def odd(own: str, other: str) -> list[str]:
    """Locations that one parser takes for `own` and another one for `other`, each a host with its port."""
    port = other.partition(":")[2]
    return [
        f"http://{other}\\@{own}/x",
        f"http://{other}\\\\@{own}/x",
        f"http:\\\\{other}\\x",
        f"http:/\\{other}/@{own}/x",
        f"\\\\{other}/x",
        f"/\\{other}/x",
        f"http://{own}@{other}/x",
        f"http://{own}:80@{other}/x",
        f"http://me:secret@{other}/x",
        f"http://{other}@{own}/x",
        f"http://@{other}/x",
        f"http://{other}\t@{own}/x",
        f"http://{own}\t@{other}/x",
        f"ht\ttp://{other}/x",
        f"http://{other} @{own}/x",
        f"http://{other}\x0b@{own}/x",
        f"http://{own}%40{other}/x",
        f"http://{own}%2f@{other}/x",
        f"http://{other}#@{own}/x",
        f"http://{other}?@{own}/x",
        f"http://{other}/@{own}/x",
        f"http://127.0.0.%33:{port}/x",
        f"http://[::ffff:127.0.0.3]:{port}/x",
        f"http://[::1%25lo]:{port}/x",
        f"http://127。0。0。3:{port}/x",
        f"http://\uff11\uff12\uff17.0.0.3:{port}/x",
        f"http://2130706435:{port}/x",
        f"http://0x7f000003:{port}/x",
        f"http://127.0.0.3.:{port}/x",
        f"//{other}/x",
        f"///{other}/x",
        f"http:///{other}/x",
        f"http:{other}/x",
        f"http://{own}:0/x",
        f"http://{own}0000/x",
        "//[",
        "//a\u2100b/x",
        f"http://{'a' * 64}.test/x",
        "http://a..test/x",
        f"http://{'a.' * 127}test/x",
    ]


NUMBERS = range(len(odd("a:1", "b:2")))


@pytest.mark.parametrize("number", NUMBERS)
def test_a_login_follows_no_redirect(
    web: Misbehaving, foreign: Foreign, number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    own = f"127.0.0.1:{web.server_address[1]}"
    location = odd(own, f"127.0.0.3:{foreign.port}")[number]
    redirect = answer(307, b"", {"Location": location.encode().decode("latin-1")})
    asks = answer(401, b"{}", {"WWW-Authenticate": 'Basic realm="x"'})
    web.put(f"blobs/{digest(BLOB)}", guarded(LOGIN, redirect, asks))
    registry = client(web)
    registry.manifest()
    with pytest.raises(SifmodError) as caught, registry.blob(LAYER)({}) as response:
        raise SifmodError(f"{response.status_code}")
    assert not any("uthorization" in heard or "c2VjcmV0" in heard for heard in foreign.heard)
    assert "secret" not in f"{caught.value.message} {caught.value.hint} {capfd.readouterr()}"


@pytest.mark.parametrize("number", NUMBERS)
def test_a_login_follows_no_upload(
    web: Misbehaving, foreign: Foreign, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "_PATIENCE", RetryPolicy(attempts=2, first_attempts=2, delay=0.01))
    own = f"127.0.0.1:{web.server_address[1]}"
    location = odd(own, f"127.0.0.3:{foreign.port}")[number].encode().decode("latin-1")
    asks = answer(401, b"{}", {"WWW-Authenticate": 'Basic realm="x"'})
    begun = answer(202, b"", {"Location": location})
    web.answers["/v2/group/name/blobs/uploads/"] = guarded(LOGIN, begun, asks)
    repository = Repository(Http(), Place(own, "group/name", named=True), (), "pull,push")
    content = b"mine"
    blob = Blob(Descriptor("x", digest(content), len(content)), lambda start: iter((content[start:],)))
    with pytest.raises(SifmodError) as caught:
        upload(repository, blob, lambda _: None)
    assert ("/v2/group/name/blobs/uploads/", True) in [(path, "authorization" in sent) for path, sent in web.asked]
    assert not any("uthorization" in heard or "c2VjcmV0" in heard for heard in foreign.heard)
    assert "secret" not in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("number", NUMBERS)
def test_a_login_follows_no_realm(web: Misbehaving, foreign: Foreign, number: int) -> None:
    own = f"127.0.0.1:{web.server_address[1]}"
    location = odd(own, f"127.0.0.3:{foreign.port}")[number].encode().decode("latin-1")
    bearer = f'Bearer realm="{location}",service="s"'
    web.put("manifests/1.0", answer(401, b"{}", {"WWW-Authenticate": bearer}))
    with pytest.raises(SifmodError):
        client(web).manifest()
    assert not any("uthorization" in heard or "c2VjcmV0" in heard for heard in foreign.heard)


@pytest.mark.parametrize("number", NUMBERS)
def test_an_odd_source_is_refused_or_goes_where_it_says(
    tmp_path: Path, own_home: Path, foreign: Foreign, number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    (own_home / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    (own_home / ".netrc").chmod(0o600)
    source = odd("127.0.0.1:1", f"127.0.0.3:{foreign.port}")[number]
    words = ["fetch", source, "-o", str(tmp_path / "x y.sif"), "--json"]
    assert sifmod(words) != 0
    assert not any("uthorization" in heard for heard in foreign.heard)
    out = capfd.readouterr()
    assert "secret" not in f"{out}"
    assert json.loads(out.out)["error"]
    assert list(tmp_path.glob("*.sif")) == []


@given(st.text(alphabet="ht:/\\@[]%.?#& \t\nab127038\uff11。é_-", max_size=24))
def test_what_is_accepted_is_read_alike_by_all_parsers(rest: str) -> None:
    for text in (f"http://{rest}", f"https://registry.test{rest}", rest):
        try:
            url = Url.parse(text)
        except FetchError:
            continue
        split, parsed = urlsplit(str(url)), parse_url(str(url))
        prepared = urlsplit(str(requests.Request("GET", str(url)).prepare().url))
        host = url.host.strip("[]")
        assert split.hostname == host == (parsed.host or "").strip("[]") == prepared.hostname
        assert (split.port or url.port) == url.port == (parsed.port or url.port) == (prepared.port or url.port)
        assert "@" not in split.netloc
        assert Url.parse(str(url)) == url


SIGNED = "/b%2fc%2F%7e~/a+b%20c/x.sif?X-Sig=a%2fb%2B%3d&n=%e2%82%ac&*=('!)"


def test_what_is_signed_arrives_as_it_was_written() -> None:
    lines = []

    def note(handler: Handler) -> None:
        lines.append(handler.requestline)
        answer(200, b"x")(handler)

    server = Web()
    server.answers[SIGNED.partition("?")[0]] = note
    server.answers["/first"] = answer(302, b"", {"Location": SIGNED})
    server.start()
    try:
        for begin in (SIGNED, "/first"):
            with Http().resource(Url.parse(server.url(begin)), Netrc())({}) as response:
                assert response.status_code == 200
    finally:
        server.stop()
    assert lines == [f"GET {SIGNED} HTTP/1.1"] * 2


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("https://HOST.test/x", "host.test", 443),
        ("HTTPS://host.test:443/x", "host.test", 443),
        ("http://host.test:80", "host.test", 80),
        ("https://host.test:/x", "host.test", 443),
        ("https://münchen.test/x", "xn--mnchen-3ya.test", 443),
        ("https://[2001:DB8::1]:5000/x", "[2001:db8::1]", 5000),
        ("https://my_host:5000/x", "my_host", 5000),
    ],
)
def test_one_host_in_one_spelling(text: str, host: str, port: int) -> None:
    url = Url.parse(text)
    assert (url.host, url.port) == (host, port)


@pytest.mark.parametrize("url", ["https://127.9.9.9:80/x.sif", "http://127.9.9.9:443/x.sif"])
def test_the_usual_port_of_the_other_scheme_is_not_its_own(
    url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nobody listens at that address; the error names the server that was asked."""
    assert sifmod(["fetch", url, "-o", str(tmp_path / "x.sif")]) == 10
    assert f"{urlsplit(url).netloc} cannot be reached" in capfd.readouterr().err
    assert not list(tmp_path.glob("*x.sif*"))
