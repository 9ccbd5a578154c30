"""To whom a login is sent, and what a token is asked for with."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
import requests

from sifmod.cli.main import run
from sifmod.errors import FetchError
from sifmod.image.registry.authority import RegistryAuthority
from sifmod.image.registry.credentials import Netrc
from sifmod.image.registry.http import Http, RequestSpec
from sifmod.image.registry.mirrors import Place, token_servers
from sifmod.image.registry.network import RetryPolicy
from sifmod.image.registry.registry import Registry
from sifmod.image.registry.url import Url
from sifmod.image.settings import DEFAULT, Settings
from sifmod.image.sources.source_kinds import parse
from support.misbehaving import BLOB, LAYER, MANIFEST, OCI, Misbehaving, challenge, client, digest, guarded, log_in
from support.web import Answer, Handler, Web, answer

LOGIN = "Basic " + base64.b64encode(b"me:secret").decode()
NAME = "registry.test:5000"  # reached through a proxy, which is how it can be another machine than this one
TOKEN = b'{"token": "t"}'


@pytest.fixture
def start() -> Iterator[Callable[[Web], None]]:
    running: list[Web] = []

    def start(server: Web) -> None:
        running.append(server)
        server.start()

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def web(start: Callable[[Web], None]) -> Misbehaving:
    server = Misbehaving()
    start(server)
    return server


@pytest.fixture
def other(start: Callable[[Web], None]) -> Web:
    """A server of tokens for anybody, on what counts as another host."""
    server = Web()
    server.answers["/token"] = answer(200, TOKEN)
    start(server)
    return server


def address(web: Web, host: str = "127.0.0.1") -> str:
    return f"{host}:{web.server_address[1]}"


def wants_token(web: Misbehaving, header: str, good: bytes = MANIFEST) -> None:
    web.put("manifests/1.0", guarded("Bearer t", answer(200, good), challenge(header)))


def sent(web: Web, path: str) -> list[str]:
    """The Authorization headers of the requests for `path`."""
    return [headers.get("authorization", "") for asked, headers in web.asked if asked == path]


def identity(home: Path, host: str) -> None:
    (home / ".docker").mkdir()
    (home / ".docker" / "config.json").write_text(json.dumps({"auths": {host: {"identitytoken": "secret"}}}))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", [("scope", "repository:group/name:pull")]),
        (',service="",scope=""', [("scope", "repository:group/name:pull")]),
        (',service="s"', [("service", "s"), ("scope", "repository:group/name:pull")]),
        (
            ',scope="repository:group/name:pull repository:other/name:pull,push"',
            [("scope", "repository:group/name:pull"), ("scope", "repository:other/name:pull,push")],
        ),
    ],
)
@pytest.mark.parametrize("query", ["", "?account=a"])
def test_a_token_is_asked_for_with_what_the_challenge_names(
    web: Misbehaving, header: str, expected: list[tuple[str, str]], query: str
) -> None:
    asked: list[tuple[str, str]] = []

    def give(handler: Handler) -> None:
        asked.extend(parse_qsl(urlsplit(handler.path).query, keep_blank_values=True))
        answer(200, TOKEN)(handler)

    web.answers["/token"] = give
    wants_token(web, f'Bearer realm="{web.url("/token", "127.0.0.1")}{query}"{header}')
    client(web).manifest()
    assert asked == [*parse_qsl(query[1:]), *expected]


def test_the_form_with_a_refresh_token_names_all_scopes_in_one(web: Misbehaving, own_home: Path) -> None:
    forms: list[list[tuple[str, str]]] = []

    def give(handler: Handler) -> None:
        forms.append(parse_qsl(handler.path.partition("?")[2], keep_blank_values=True))
        answer(200, TOKEN)(handler)

    web.answers["/token"] = give
    identity(own_home, address(web))
    wants_token(web, f'Bearer realm="{web.url("/token", "127.0.0.1")}",scope="a:b:pull c:d:pull"')
    client(web).manifest()
    assert forms == [
        [
            ("scope", "a:b:pull c:d:pull"),
            ("grant_type", "refresh_token"),
            ("refresh_token", "secret"),
            ("client_id", "sifmod"),
        ]
    ]


@pytest.mark.parametrize("kind", ["password", "refresh token"])
def test_a_server_of_tokens_elsewhere_gets_no_login(web: Misbehaving, other: Web, own_home: Path, kind: str) -> None:
    log_in(own_home, address(web), address(other, "localhost")) if kind == "password" else identity(
        own_home, address(web)
    )
    posted: list[str] = []

    def give(handler: Handler) -> None:
        posted.append(handler.path)
        answer(200, TOKEN)(handler)

    other.answers["/token"] = give
    wants_token(web, f'Bearer realm="{other.url("/token")}",service="s"')
    client(web).manifest()  # a token without a login is no harm
    assert sent(other, "/token") == [""]
    assert "secret" not in "".join(posted)


def test_a_login_that_was_not_sent_is_told_with_the_setting(web: Misbehaving, other: Web, own_home: Path) -> None:
    log_in(own_home, address(web))
    header = f'Bearer realm="{other.url("/token")}"'
    web.put("manifests/1.0", challenge(header))  # the token of nobody is not enough
    with pytest.raises(FetchError) as caught:
        client(web).manifest()
    assert sent(other, "/token")[0] == ""
    assert "answered 401" in caught.value.message
    hint = caught.value.hint
    assert f"was not sent to {address(other, 'localhost')}" in hint
    assert f"token_servers: {{'{address(web)}': ['{address(other, 'localhost')}']}}" in hint
    assert "did not accept" not in hint
    assert "secret" not in caught.value.message + hint
    other.answers["/token"] = answer(401, b'{"details": "who are you?"}')
    with pytest.raises(FetchError) as caught:
        client(web).manifest()
    assert "token_servers: {" in caught.value.hint


@pytest.mark.parametrize("port", [True, False])
def test_a_server_of_tokens_that_the_site_names_gets_the_login(
    web: Misbehaving, other: Web, own_home: Path, port: bool
) -> None:
    log_in(own_home, address(web))
    wants_token(web, f'Bearer realm="{other.url("/token")}"')
    named = address(other, "localhost") if port else "localhost"
    registry = address(web) if port else "127.0.0.1"
    client(web, settings=Settings(token_servers=((registry, (named,)),))).manifest()
    assert sent(other, "/token") == [LOGIN]
    other.asked.clear()
    settings = Settings(token_servers=(("localhost", (named,)), (registry, ("elsewhere.test",))))
    client(web, settings=settings).manifest()
    assert sent(other, "/token") == [""]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("docker.io", ("auth.docker.io",)),
        ("registry.gitlab.com", ("gitlab.com",)),
        ("registry.gitlab.com:5000", ("gitlab.com",)),
        ("registry.site.org", ("gitlab.site.org",)),
        ("ghcr.io", ()),
    ],
)
def test_which_servers_of_tokens_are_known(host: str, expected: tuple[str, ...]) -> None:
    assert token_servers(Place(host, "a/b"), (("registry.site.org", ("gitlab.site.org",)),)) == expected
    hub = (("index.docker.io", ("x.y",)),)
    assert token_servers(Place("docker.io", "a/b"), hub) == ("auth.docker.io", "x.y")


@pytest.fixture
def in_the_clear(web: Misbehaving, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """NAME is the registry `web`, over plain http through a proxy, and the user has a login for it."""
    monkeypatch.setenv("http_proxy", web.url("", "127.0.0.1"))
    for path, how in tuple(web.answers.items()):
        web.answers[f"http://{NAME}{path}"] = how
    log_in(own_home, NAME)
    return Settings(insecure_registries=(NAME,))


def through_proxy(settings: Settings) -> FetchError | None:
    try:
        Registry(parse(f"docker://{NAME}/group/name:1.0"), settings, "amd64", RetryPolicy(1, 1)).manifest()
    except FetchError as error:
        assert "secret" not in error.message + error.hint
        return error
    return None


def put(web: Misbehaving, path: str, how: Answer) -> None:
    web.answers[f"http://{NAME}{path}"] = how


def test_a_password_is_not_sent_in_the_clear(web: Misbehaving, in_the_clear: Settings) -> None:
    assert through_proxy(in_the_clear) is None  # what is public is there for all
    put(web, "/v2/group/name/manifests/1.0", guarded(LOGIN, answer(200, MANIFEST), challenge("Basic")))
    error = through_proxy(in_the_clear)
    assert error is not None
    assert f"was not sent, because the connection to {NAME} is plain http" in error.hint
    assert not any("authorization" in headers for _, headers in web.asked)


@pytest.mark.parametrize("kind", ["password", "refresh token", "registry token"])
def test_no_token_is_got_with_a_login_in_the_clear(
    web: Misbehaving, in_the_clear: Settings, own_home: Path, kind: str
) -> None:
    if kind != "password":
        entry = {"identitytoken" if kind == "refresh token" else "registrytoken": "secret"}
        (own_home / ".docker" / "config.json").write_text(json.dumps({"auths": {NAME: entry}}))
    header = f'Bearer realm="http://{NAME}/token"'
    put(web, "/v2/group/name/manifests/1.0", guarded("Bearer t", answer(200, MANIFEST), challenge(header)))
    put(web, "/token", answer(200, TOKEN))
    assert through_proxy(in_the_clear) is None
    assert sent(web, f"http://{NAME}/token") == [""]
    put(web, "/token", answer(401))
    error = through_proxy(in_the_clear)
    assert error is not None
    assert "is plain http" in error.hint


@pytest.mark.usefixtures("in_the_clear")
@pytest.mark.parametrize("insecure", [(), (NAME,)])
def test_a_form_with_a_refresh_token_is_not_sent_in_the_clear(web: Misbehaving, insecure: tuple[str, ...]) -> None:
    put(web, "/token", answer(200, TOKEN))
    asked = RequestSpec("POST", b"refresh_token=secret", (200,), secret=True)
    form = Http(insecure).resource(Url.parse(f"http://{NAME}/token?q=secret"), Netrc(), asked)({})
    with pytest.raises(FetchError, match=r"^http://registry\.test:5000/token is not https, so nothing was sent"), form:
        raise AssertionError
    assert web.asked == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_form_with_a_refresh_token_follows_no_redirect(
    web: Misbehaving, other: Web, own_home: Path, status: int
) -> None:
    identity(own_home, address(web))
    wants_token(web, f'Bearer realm="{web.url("/token", "127.0.0.1")}"')
    web.answers["/token"] = answer(status, b"", {"Location": other.url("/token")})
    other.answers["/token"] = answer(200, TOKEN)
    with pytest.raises(FetchError, match=f" answered {status} "):
        client(web).manifest()
    assert other.asked == []


def test_a_server_of_tokens_that_leads_to_another_port_keeps_the_login(
    web: Misbehaving, other: Web, own_home: Path, tmp_path: Path
) -> None:
    """Behind another port of one host there may be another user's server."""
    log_in(own_home, address(web))
    wants_token(web, f'Bearer realm="{web.url("/token", "127.0.0.1")}"')
    web.answers["/token"] = answer(302, b"", {"Location": other.url("/token", "127.0.0.1")})
    run(["fetch", f"oras://{address(web)}/group/name:1.0", "-o", str(tmp_path / "x.sif")])
    assert (sent(web, "/token"), sent(other, "/token")) == ([LOGIN], [""])


def test_a_cookie_that_a_login_earns_goes_nowhere(web: Misbehaving, other: Web, own_home: Path) -> None:
    """Cookies know no ports."""
    log_in(own_home, address(web))
    cookie = answer(200, MANIFEST, {"Content-Type": OCI, "Set-Cookie": "session=secret; Path=/"})
    web.put("manifests/1.0", guarded(LOGIN, cookie, challenge("Basic")))
    web.put(f"blobs/{digest(BLOB)}", answer(307, b"", {"Location": other.url("/blob", "127.0.0.1")}))
    other.answers["/blob"] = answer(200, BLOB)
    registry = client(web)
    registry.manifest()
    with registry.blob(LAYER)({}) as response:
        assert response.status_code == 200
    assert other.asked
    assert not [headers for _, headers in (*web.asked, *other.asked) if "cookie" in headers]


def test_a_login_is_sent_to_this_machine_itself(web: Misbehaving, own_home: Path) -> None:
    log_in(own_home, address(web))
    web.put("manifests/1.0", guarded(LOGIN, answer(200, MANIFEST), challenge("Basic")))
    client(web, settings=DEFAULT).manifest()
    assert sent(web, "/v2/group/name/manifests/1.0") == ["", LOGIN]


def test_the_site_names_servers_of_tokens(
    web: Misbehaving, other: Web, own_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.setenv("SIFMOD_ARCH", "amd64")
    log_in(own_home, address(web))
    wants_token(web, f'Bearer realm="{other.url("/token")}"')
    settings = own_home / ".config" / "sifmod" / "config.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"token_servers: {{'{address(web)}': ['{address(other, 'LOCALHOST')}']}}\n")
    run(["show", web.source()])  # its layer is none, which is seen after its manifest has come
    assert sent(other, "/token") == [LOGIN]


@pytest.mark.parametrize("value", ["{registry.site.org/a: [x.y]}", "{x.y: ['https://x.y/token']}", "{x.y: [y.z/a]}"])
def test_a_server_of_tokens_is_a_host(tmp_path: Path, capfd: pytest.CaptureFixture[str], value: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(f"token_servers: {value}\n")
    assert run(["check", str(path)]) == 5
    assert "site.yaml:1:" in capfd.readouterr().out


def test_what_was_agreed_on_over_https_is_not_said_over_http(own_home: Path) -> None:
    log_in(own_home, NAME)
    authority = RegistryAuthority(Http((NAME,)), Place(NAME, "group/name", True))
    asked = requests.Response()
    asked.status_code, asked.url = 401, f"https://{NAME}/v2/group/name/manifests/1.0"
    asked.headers["WWW-Authenticate"] = "Basic"
    assert authority.renew(asked, "")
    assert authority.authorization(Url.parse(f"https://{NAME}/v2/x")) == LOGIN
    assert authority.authorization(Url.parse(f"http://{NAME}/v2/x")) == ""
    assert authority.authorization(Url.parse("https://other.test:5000/v2/x")) == ""


def test_what_a_login_was_needed_for_is_not_said_over_http(other: Web, own_home: Path) -> None:
    asked = requests.Response()
    asked.status_code, asked.url = 401, f"https://{NAME}/v2/group/name/manifests/1.0"
    asked.headers["WWW-Authenticate"] = f'Bearer realm="{other.url("/token", "LocalHost")}"'
    for hosts, secret in ((), False), ((address(other, "localhost"),), True):
        log_in(own_home, NAME)
        authority = RegistryAuthority(Http((NAME,)), Place(NAME, "group/name", True), hosts)
        assert authority.renew(asked, "")
        assert authority.authorization(Url.parse(f"https://{NAME}/v2/x")) == "Bearer t"
        assert authority.authorization(Url.parse(f"http://{NAME}/v2/x")) == ("" if secret else "Bearer t")
    assert sent(other, "/token") == ["", LOGIN]


def test_a_login_that_was_refused_once_is_not_sent_again(web: Misbehaving, own_home: Path) -> None:
    log_in(own_home, address(web))
    given = [0]

    def give(handler: Handler) -> None:
        if handler.headers.get("Authorization"):
            return answer(401)(handler)
        given[0] += 1
        return answer(200, json.dumps({"token": f"t{given[0]}"}).encode())(handler)

    def wants_new(handler: Handler) -> None:
        good = given[0] and handler.headers.get("Authorization") == f"Bearer t{given[0]}"
        (answer(200, MANIFEST) if good else asks)(handler)

    web.answers["/token"] = give
    asks = challenge(f'Bearer realm="{web.url("/token", "127.0.0.1")}"')
    web.put("manifests/1.0", wants_new)
    opened = client(web)
    opened.manifest()
    given[0] += 5  # what was given is not good any more
    opened.manifest()
    assert sent(web, "/token") == [LOGIN, "", ""]
