"""The authority over one repository: which requests get its header, and what each challenge is answered with."""

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from sifmod.image.registry.authority import RegistryAuthority
from sifmod.image.registry.http import Http
from sifmod.image.registry.mirrors import Place
from sifmod.image.registry.url import Url
from support.responses import answered

BASIC = "Basic " + base64.b64encode(b"me:secret").decode()
BEARER = "Bearer token of the registry"
BOTH = {"username": "me", "password": "secret", "registrytoken": "token of the registry"}
Make = Callable[..., RegistryAuthority]


@pytest.fixture
def make(own_home: Path) -> Make:
    """The authority over a repository of `host`, for which there is this login."""

    def make(host: str = "registry.test", insecure: tuple[str, ...] = (), **entry: str) -> RegistryAuthority:
        (own_home / ".docker").mkdir()
        (own_home / ".docker" / "config.json").write_text(json.dumps({"auths": {host: entry or BOTH}}))
        return RegistryAuthority(Http(insecure), Place(host, "group/name", True))

    return make


def refused(challenge: str, url: str = "https://registry.test/v2/x") -> requests.Response:
    return answered(401, {"WWW-Authenticate": challenge}, url=url)


@pytest.mark.parametrize(
    ("host", "url", "expected"),
    [
        ("registry.test", "https://registry.test/v2/x", BASIC),
        ("registry.test", "https://REGISTRY.test:443/v2/x", BASIC),
        ("registry.test", "https://registry.test:444/v2/x", ""),
        ("registry.test", "https://registry.test:80/v2/x", ""),
        ("registry.test", "http://registry.test/v2/x", ""),
        ("registry.test", "https://other.test/v2/x", ""),
        ("registry.test:5000", "https://registry.test:5000/v2/x", BASIC),
        ("registry.test:5000", "https://registry.test/v2/x", ""),
        ("registry.test:5000", "https://registry.test:443/v2/x", ""),
        ("localhost", "http://localhost/v2/x", BASIC),
        ("localhost", "http://localhost:80/v2/x", BASIC),
        ("localhost", "http://localhost:443/v2/x", ""),
        ("localhost", "https://localhost:443/v2/x", BASIC),
        ("127.0.0.1:5000", "http://127.0.0.1:5000/v2/x", BASIC),
        ("127.0.0.1:5000", "https://127.0.0.1:5000/v2/x", BASIC),
        ("127.0.0.1:5000", "http://127.0.0.1:5001/v2/x", ""),
    ],
)
def test_its_header_is_for_the_registry_alone(make: Make, host: str, url: str, expected: str) -> None:
    authority = make(host)
    assert authority.authorization(Url.parse(f"https://{host}/v2/x")) == ""
    assert authority.renew(refused("Basic", f"https://{host}/v2/x"), "")
    assert authority.authorization(Url.parse(url)) == expected


@pytest.mark.parametrize("url", ["https://other.test/v2/x", "https://registry.test:444/x", "http://registry.test/v2/x"])
def test_nobody_else_is_answered(make: Make, url: str) -> None:
    authority = make()
    assert not authority.renew(refused("Basic", url), "")
    assert authority.authorization(Url.parse("https://registry.test/v2/x")) == ""


REALM = "https://auth.test/token"


@pytest.mark.parametrize(
    ("challenge", "expected"),
    [
        ("Basic", BASIC),
        ('basic realm="x"', BASIC),
        ('Negotiate, Basic realm="x"', BASIC),
        ("", ""),
        ("Negotiate", ""),
        ("NotBasic", ""),
        ("Basically", ""),
        (f'Bearer realm="{REALM}"', BEARER),
        (f"bearer REALM = {REALM} , service=s", BEARER),
        (f'Basic realm="x", Bearer service="s",realm="{REALM}"', BEARER),
        (f'Bearer realm="{REALM}", Basic realm="x"', BEARER),
        ('Bearer realm="http://127.0.0.1:5000/token"', BEARER),
        ('Bearer realm="ftp://auth.test/token", Basic realm="x"', BASIC),
        ('Bearer realm="ftp://auth.test/token"', ""),
        ('Bearer realm="https:///token"', ""),
        ('Bearer realm="https://me:secret@auth.test/token"', ""),
        ('Bearer realm="https://auth.test:99999/token"', ""),
        ('Bearer realm="https://["', ""),
        ('Bearer service="s"', ""),
        (f'{"x" * 8200} Bearer realm="{REALM}"', ""),
    ],
)
def test_the_strongest_challenge_that_is_known_is_answered(make: Make, challenge: str, expected: str) -> None:
    authority = make()
    assert authority.renew(refused(challenge), "") is bool(expected)
    assert authority.authorization(Url.parse("https://registry.test/v2/x")) == expected


@pytest.mark.parametrize(
    ("entry", "challenge"),
    [
        ({"registrytoken": "x"}, "Basic"),
        ({"identitytoken": "x"}, "Basic"),
        ({"password": "secret"}, "Basic"),
    ],
)
def test_a_login_without_a_user_is_no_password(make: Make, entry: dict[str, str], challenge: str) -> None:
    authority = make(**entry)
    assert not authority.renew(refused(challenge), "")
    assert authority.authorization(Url.parse("https://registry.test/v2/x")) == ""


def test_what_another_thread_has_renewed_is_taken(make: Make) -> None:
    authority = make()
    assert authority.renew(refused("Basic"), "")
    assert authority.renew(refused(f'Bearer realm="{REALM}"'), "")  # to a request that was sent before that
    assert authority.authorization(Url.parse("https://registry.test/v2/x")) == BASIC


def test_what_was_refused_is_not_tried_again(make: Make) -> None:
    authority = make()
    assert authority.renew(refused("Basic"), "")
    assert not authority.renew(refused("Basic"), BASIC)
    assert not authority.renew(refused("Negotiate"), BASIC)
    assert authority.authorization(Url.parse("https://registry.test/v2/x")) == ""


def test_a_login_that_was_refused_is_named(make: Make, own_home: Path) -> None:
    authority = make()
    assert "did not accept" not in authority.refused(refused("Basic")).hint
    authority.renew(refused("Basic"), "")
    assert f"it did not accept the login in {own_home}/.docker/config.json" in authority.refused(refused("Basic")).hint


def test_what_could_not_be_read_is_told(make: Make, own_home: Path) -> None:
    authority = make(password="only")
    (own_home / ".docker" / "config.json").write_text("{")
    authority.renew(refused("Basic"), "")
    expected = (
        f"{own_home}/.docker/config.json could not be read: it is not a JSON object, or too large; correct the name"
    )
    assert authority.refused(refused("Basic")).hint.startswith(expected)


def test_a_login_that_would_be_sent_in_the_clear_is_withheld(make: Make) -> None:
    authority = make(insecure=("registry.test",))
    url = "http://registry.test/v2/x"
    assert not authority.renew(refused("Basic", url), "")
    hint = authority.refused(refused("Basic", url)).hint
    assert "was not sent, because the connection to registry.test is plain http" in hint
    assert "did not accept" not in hint


@pytest.mark.parametrize(
    ("named", "url", "expected"),
    [
        ("name.test:80", "http://name.test/v2/", True),
        ("name.test", "http://name.test/v2/", True),
        ("name.test", "http://name.test:8080/v2/", True),
        ("name.test:8080", "http://name.test:8080/v2/", True),
        ("name.test:8080", "http://name.test/v2/", False),
        ("[fd00::1]", "http://[fd00::1]:5000/v2/", True),
    ],
)
def test_the_default_port_may_be_named(named: str, url: str, expected: bool) -> None:
    assert Http((named,)).may_ask(Url.parse(url)) == expected
