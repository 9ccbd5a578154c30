"""Logins found where users keep them, and shown nowhere."""

import base64
import html
import json
import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest
import requests

from sifmod.image.oci.content import LARGEST
from sifmod.image.registry import credentials
from sifmod.image.registry.credentials import Credentials, Logins, Netrc, auth_files
from sifmod.image.registry.mirrors import Place
from sifmod.image.registry.sent import quoted
from sifmod.image.registry.url import Url

SECRET = "s3cret:with:colons"
Put = Callable[..., Path]


def login(username: str = "me") -> dict[str, str]:
    return {"auth": base64.b64encode(f"{username}:{SECRET}".encode()).decode()}


@pytest.fixture
def put(own_home: Path) -> Put:
    """Write a file of logins below the home."""

    def put(path: str, content: object) -> Path:
        file = own_home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return file

    return put


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """A credential helper on PATH; what it was asked is in the file of its name with .asked."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    def helper(name: str, script: str) -> Path:
        path = programs / f"docker-credential-{name}"
        path.write_text(f'#!/bin/sh\n[ "$1" = get ] || exit 7\ncat > "$0.asked"\n{script}\n')
        path.chmod(0o755)
        return path.with_name(f"{path.name}.asked")

    return helper


def find(host: str = "ghcr.io", repository: str = "group/name", *, named: bool = True) -> Credentials | None:
    return Logins(os.environ).find(Place(host, repository, named))


def names(host: str = "ghcr.io", repository: str = "group/name") -> str:
    found = find(host, repository)
    return found.username if found else ""


def test_nothing_is_found_where_nothing_is() -> None:
    logins = Logins(os.environ)
    assert logins.find(Place("ghcr.io", "group/name")) is None
    assert logins.notes == []


@pytest.mark.parametrize("variable", ["APPTAINER", "SINGULARITY"])
def test_variables_win_and_are_for_the_named_registry_only(
    put: Put, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    put(".docker/config.json", {"auths": {"ghcr.io": login("file")}})
    monkeypatch.setenv(f"{variable}_DOCKER_USERNAME", "variable")
    assert names() == "file"  # half a login is none
    monkeypatch.setenv(f"{variable}_DOCKER_PASSWORD", SECRET)
    found = find()
    assert found is not None
    assert (found.username, found.password, found.origin) == ("variable", SECRET, f"{variable}_DOCKER_USERNAME")
    mirror = find(named=False)
    assert mirror is not None
    assert mirror.username == "file"


def test_apptainer_wins_over_singularity(monkeypatch: pytest.MonkeyPatch) -> None:
    for prefix in ("SINGULARITY", "APPTAINER"):
        monkeypatch.setenv(f"{prefix}_DOCKER_USERNAME", prefix)
        monkeypatch.setenv(f"{prefix}_DOCKER_PASSWORD", SECRET)
    assert names() == "APPTAINER"


def test_the_files_of_every_tool_are_read_in_order(
    put: Put, own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(own_home / "run"))
    paths = [
        "named-for-apptainer",
        "named-for-singularity",
        "named",
        ".apptainer/docker-config.json",
        ".singularity/docker-config.json",
        ".docker/config.json",
        "run/containers/auth.json",
        ".config/containers/auth.json",
    ]
    for variable, path in zip(
        ("APPTAINER_AUTH_FILE", "SINGULARITY_AUTHFILE", "REGISTRY_AUTH_FILE"), paths[:3], strict=True
    ):
        monkeypatch.setenv(variable, str(own_home / path))
    files = [put(path, {"auths": {"ghcr.io": login(path)}}) for path in paths]
    for path, file in zip(paths, files, strict=True):
        assert names() == path
        file.unlink()
    assert names() == ""
    for variable, name in (("DOCKER_CONFIG", "config.json"), ("APPTAINER_CONFIGDIR", "docker-config.json")):
        monkeypatch.setenv(variable, str(tmp_path / variable))
        put(str(tmp_path / variable / name), {"auths": {"ghcr.io": login(variable)}})
        assert names() == variable
    assert auth_files({"HOME": "/h"})[:2] == (
        Path("/h/.apptainer/docker-config.json"),
        Path("/h/.singularity/docker-config.json"),
    )


@pytest.mark.parametrize("key", ["docker.io", "https://index.docker.io/v1/", "index.docker.io", "registry-1.docker.io"])
def test_docker_hub_is_known_by_all_its_names(put: Put, key: str) -> None:
    put(".docker/config.json", {"auths": {key: login()}})
    assert names("docker.io", "library/debian") == "me"
    assert names("ghcr.io") == ""


@pytest.mark.parametrize("key", ["ghcr.io", "https://ghcr.io", "https://ghcr.io/v2/", "ghcr.io/"])
def test_a_registry_is_known_however_it_is_spelled(put: Put, key: str) -> None:
    put(".docker/config.json", {"auths": {key: login()}})
    assert names() == "me"
    assert names("ghcr.io:443") == ""
    assert names("notghcr.io") == ""


def test_the_most_specific_entry_wins(put: Put) -> None:
    keys = ("ghcr.io", "ghcr.io/group", "ghcr.io/group/name", "ghcr.io/gro")
    put(".docker/config.json", {"auths": {key: login(key) for key in keys}})
    assert names() == "ghcr.io/group/name"
    assert names(repository="group/other") == "ghcr.io/group"
    assert names(repository="else/other") == "ghcr.io"


def test_tokens_are_taken_as_such(put: Put) -> None:
    put(".docker/config.json", {"auths": {"ghcr.io": {"identitytoken": SECRET}, "quay.io": {"registrytoken": SECRET}}})
    identity, registry = find(), find("quay.io")
    assert identity is not None
    assert registry is not None
    assert (identity.identity_token, registry.registry_token) == (SECRET, SECRET)


def test_a_helper_is_asked_for_its_registry_and_wins_in_its_file(put: Put, helper: Callable[[str, str], Path]) -> None:
    asked = helper("one", f"""echo '{{"ServerURL": "x", "Username": "helped", "Secret": "{SECRET}"}}'""")
    store = helper("store", """echo '{"Username": "<token>", "Secret": "identity"}'""")
    put(
        ".docker/config.json",
        {"auths": {"ghcr.io": login("file")}, "credHelpers": {"ghcr.io": "one"}, "credsStore": "store"},
    )
    found = find()
    assert found is not None
    assert (found.username, found.password, found.origin) == ("helped", SECRET, "docker-credential-one")
    assert asked.read_text() == "ghcr.io"
    assert not store.exists()
    hub = find("docker.io", "library/debian")
    assert hub is not None
    assert (hub.identity_token, hub.username) == ("identity", "")
    assert store.read_text() == "https://index.docker.io/v1/"


@pytest.mark.parametrize(
    ("script", "note"),
    [
        ("echo 'credentials not found in native keychain'; exit 1", ""),
        (f"echo {SECRET}; echo 'no \033[2J session' >&2; exit 1", "docker-credential-one failed: no [2J session"),
        ("echo 'ghp_0123456789abcdefABCD expired' >&2; exit 1", "docker-credential-one failed: ... expired"),
        ("set -x; PASSWORD=hunter2; exit 1", "docker-credential-one failed: + PASSWORD=... + exit 1"),
        (f"echo {SECRET}", "docker-credential-one gave an invalid login"),
        ("echo '[1]'", "docker-credential-one gave an invalid login"),
        ("yes", "docker-credential-one wrote more than 1048576 bytes, and was stopped"),
        ("yes >&2", "docker-credential-one wrote more than 1048576 bytes, and was stopped"),
        ("yes & exec yes >&2", "docker-credential-one wrote more than 1048576 bytes, and was stopped"),
        (None, "docker-credential-one could not be run: No such file or directory"),
    ],
)
def test_a_helper_that_fails_is_passed_over_and_noted(
    put: Put, helper: Callable[[str, str], Path], script: str | None, note: str
) -> None:
    if script is not None:
        helper("one", script)
    put(".docker/config.json", {"auths": {"ghcr.io": login("file")}, "credsStore": "one"})
    logins = Logins(os.environ)
    found = logins.find(Place("ghcr.io", "group/name"))
    assert found is not None
    assert found.username == "file"
    assert logins.notes == ([note] if note else [])


def test_a_helper_is_a_name_and_no_path(put: Put) -> None:
    for name in ("/../../x", "x/../../x"):
        put(".docker/config.json", {"credsStore": name})
        logins = Logins(os.environ)
        assert logins.find(Place("ghcr.io", "group/name")) is None
        assert logins.notes == [f"the credential helper '{name}' is not a program's name"]


@pytest.mark.parametrize(
    ("content", "note"),
    [
        ("{", "{} could not be read: it is not a JSON object, or too large"),
        ({"auths": [1]}, "{} is not in the format of `docker login`"),
        ({"auths": {"ghcr.io": {"auth": "%%%"}}}, "{} is not in the format of `docker login`"),
        ({"auths": {"ghcr.io": 1}}, "{} is not in the format of `docker login`"),
    ],
)
def test_a_file_that_cannot_be_used_is_noted_and_the_next_one_read(put: Put, content: object, note: str) -> None:
    broken = put(".apptainer/docker-config.json", content)
    put(".docker/config.json", {"auths": {"ghcr.io": login()}})
    logins = Logins(os.environ)
    found = logins.find(Place("ghcr.io", "group/name"))
    assert found is not None
    assert found.username == "me"
    assert logins.notes == [note.format(broken)]


def test_a_login_is_not_shown(put: Put) -> None:
    put(".docker/config.json", {"auths": {"ghcr.io": {**login(), "identitytoken": SECRET, "registrytoken": SECRET}}})
    found = find()
    assert found is not None
    assert SECRET not in repr(found)
    assert SECRET not in str(found)
    assert found.basic == "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()


def test_where_logins_may_be_kept() -> None:
    home = (
        "{}/.apptainer/docker-config.json",
        "{}/.singularity/docker-config.json",
        "{}/.docker/config.json",
        "{}/containers/auth.json",
        "{}/.config/containers/auth.json",
    )
    run = f"/run/user/{os.getuid()}"
    bare = tuple(Path(path.format(run if path.startswith("{}/cont") else "/nonexistent")) for path in home)
    variables = ("APPTAINER_AUTH_FILE", "SINGULARITY_AUTHFILE", "SINGULARITY_AUTH_FILE", "REGISTRY_AUTH_FILE")
    places = ("APPTAINER_CONFIGDIR", "SINGULARITY_CONFIGDIR", "DOCKER_CONFIG", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME")
    assert auth_files({}) == bare
    assert auth_files(dict.fromkeys((*variables, *places, "HOME"), "")) == bare
    assert auth_files({**{name: f"/{name}" for name in (*variables, *places)}, "HOME": "/h"}) == (
        *(Path(f"/{name}") for name in variables),
        Path("/APPTAINER_CONFIGDIR/docker-config.json"),
        Path("/SINGULARITY_CONFIGDIR/docker-config.json"),
        Path("/DOCKER_CONFIG/config.json"),
        Path("/XDG_RUNTIME_DIR/containers/auth.json"),
        Path("/XDG_CONFIG_HOME/containers/auth.json"),
    )
    assert auth_files({"HOME": "/h", "REGISTRY_AUTH_FILE": "/h/.docker/config.json"})[:2] == (
        Path("/h/.docker/config.json"),
        Path("/h/.apptainer/docker-config.json"),
    )
    assert len(auth_files({"REGISTRY_AUTH_FILE": "/nonexistent/.docker/config.json"})) == len(bare)


@pytest.mark.parametrize("what", ["USERNAME", "PASSWORD"])
def test_half_a_login_in_variables_is_none(what: str) -> None:
    logins = Logins({f"APPTAINER_DOCKER_{what}": "x", "HOME": "/nonexistent", "XDG_RUNTIME_DIR": "/nonexistent"})
    assert logins.find(Place("ghcr.io", "group/name", True)) is None


def test_what_is_in_the_way_of_a_file_is_noted_where_it_is_one(own_home: Path) -> None:
    (own_home / ".docker").write_text("no directory")
    (own_home / ".apptainer" / "docker-config.json").mkdir(parents=True)
    large = own_home / ".singularity" / "docker-config.json"
    large.parent.mkdir()
    large.write_bytes(b'{"auths": {}}' + b" " * LARGEST)
    logins = Logins(os.environ)
    assert logins.find(Place("ghcr.io", "group/name")) is None
    assert logins.notes == [
        f"{own_home}/.apptainer/docker-config.json could not be read: Is a directory",
        f"{large} could not be read: it is not a JSON object, or too large",
    ]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"username": "me", "password": "secret"}, ("me", "secret", "", "")),
        ({"username": "me"}, ("me", "", "", "")),
        ({"username": "other", "password": "x", "auth": "bWU6c2VjcmV0"}, ("me", "secret", "", "")),
        ({"auth": "bWU6c2VjcmV0AAA="}, ("me", "secret", "", "")),  # docker pads with NUL
        ({"auth": "bWU="}, ("me", "", "", "")),
        ({"identitytoken": "i"}, ("", "", "i", "")),
        ({"registrytoken": "r"}, ("", "", "", "r")),
        ({"auth": "bWU6c2VjcmV0", "identitytoken": "i", "registrytoken": "r"}, ("me", "secret", "i", "r")),
        ({"password": "secret"}, None),
        ({}, None),
    ],
)
def test_what_an_entry_gives(put: Put, entry: dict[str, str], expected: tuple[str, ...] | None) -> None:
    path = put(".docker/config.json", {"auths": {"ghcr.io/group/name": entry, "ghcr.io": login("less specific")}})
    found = find()
    assert found is not None
    if expected is None:
        assert found.username == "less specific"
    else:
        assert (found.username, found.password, found.identity_token, found.registry_token) == expected
    assert found.origin == str(path)


@pytest.mark.parametrize("auth", ["bWU6c2VjcmV0!", "bWU6c2VjcmV", "/////w=="])
def test_an_entry_that_is_no_login_is_noted(put: Put, auth: str) -> None:
    path = put(".docker/config.json", {"auths": {"ghcr.io": {"auth": auth}}})
    logins = Logins(os.environ)
    assert logins.find(Place("ghcr.io", "group/name")) is None
    assert logins.notes == [f"{path} is not in the format of `docker login`"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('{"Username": "me", "Secret": "secret"}', ("me", "secret", "")),
        ('{"Username": "me", "Secret": ""}', ("me", "", "")),
        ('{"Username": "", "Secret": "secret"}', ("", "secret", "")),
        ('{"Username": "<token>", "Secret": "secret"}', ("", "", "secret")),
        ('{"Username": "", "Secret": ""}', None),
    ],
)
def test_what_a_helper_gives(
    put: Put, helper: Callable[[str, str], Path], answer: str, expected: tuple[str, ...] | None
) -> None:
    helper("one", f"echo '{answer}'")
    put(".docker/config.json", {"credsStore": "one"})
    logins = Logins(os.environ)
    found = logins.find(Place("ghcr.io", "group/name"))
    assert (found and (found.username, found.password, found.identity_token)) == expected
    assert logins.notes == []


def test_a_helper_has_the_users_variables_and_is_asked_once(
    put: Put, helper: Callable[[str, str], Path], own_home: Path
) -> None:
    helper("one", f'echo x >>{own_home}/times; echo "$OWN" >&2; exit 1')
    put(".docker/config.json", {"credHelpers": {"https://ghcr.io/v2/": "one"}, "credsStore": "one"})
    logins = Logins({**os.environ, "OWN": "my own"})
    assert logins.find(Place("ghcr.io", "group/name")) is None
    assert logins.notes == ["docker-credential-one failed: my own"]
    assert (own_home / "times").read_text() == "x\n"


def test_a_helper_that_fails_gives_way_to_the_store(put: Put, helper: Callable[[str, str], Path]) -> None:
    helper("one", "echo 'credentials not found in native keychain' >&2; exit 1")
    helper("store", """echo '{"Username": "stored", "Secret": "secret"}'""")
    put(".docker/config.json", {"credHelpers": {"ghcr.io": "one"}, "credsStore": "store"})
    assert names() == "stored"


def test_a_helper_that_does_not_answer_is_noted(
    put: Put, helper: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    helper("one", "exec sleep 60")
    monkeypatch.setattr(credentials, "_PATIENCE", 0.05)
    put(".docker/config.json", {"credsStore": "one"})
    logins = Logins(os.environ)
    assert logins.find(Place("ghcr.io", "group/name")) is None
    assert logins.notes == ["docker-credential-one gave no answer"]


def test_the_error_of_a_helper_has_no_secret(
    put: Put, helper: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cret-token")
    helper("bad", 'echo s3cret-password; echo "no s3cret-password, $MY_TOKEN, https://me:s3cret@h/x" >&2; exit 1')
    put(".docker/config.json", {"credsStore": "bad"})
    logins = Logins(os.environ)
    assert logins.find(Place("ghcr.io", "group/name")) is None
    assert logins.notes == ["docker-credential-bad failed: no ..., ..., https://h/x"]


def test_netrc_is_for_its_host_over_https(own_home: Path) -> None:
    netrc = own_home / ".netrc"
    netrc.write_text("machine some.host login me password secret\n")
    netrc.chmod(stat.S_IRUSR)
    assert Netrc().authorization(Url.parse("https://some.host/x")) == "Basic bWU6c2VjcmV0"
    assert Netrc().authorization(Url.parse("https://some.host:8443/x")) == "Basic bWU6c2VjcmV0"
    assert Netrc().authorization(Url.parse("https://other.host/x")) == ""
    assert Netrc().authorization(Url.parse("http://some.host/x")) == ""


def test_the_default_of_a_netrc_is_not_for_the_target_of_a_redirect(own_home: Path) -> None:
    file = own_home / ".netrc"
    file.write_text("machine named.host login me password secret\ndefault login any password other\n")
    file.chmod(0o600)
    authority = Netrc()
    assert authority.authorization(Url.parse("https://some.host/x")) == "Basic YW55Om90aGVy"
    assert authority.authorization(Url.parse("https://evil.host/x")) == ""
    assert authority.authorization(Url.parse("https://some.host:8443/x")) == ""  # another user's server
    assert authority.authorization(Url.parse("https://named.host/x")) == "Basic bWU6c2VjcmV0"
    assert authority.authorization(Url.parse("https://some.host/y")) == "Basic YW55Om90aGVy"  # the next piece


@pytest.mark.parametrize("kind", ["variable", "registrytoken"])
def test_a_login_that_is_no_text_is_told(own_home: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    if kind == "variable":
        monkeypatch.setenv("APPTAINER_DOCKER_USERNAME", "me")
        monkeypatch.setenv("APPTAINER_DOCKER_PASSWORD", "p\udcff")
    else:
        (own_home / ".docker").mkdir()
        entry = {"username": "me", "password": "x", kind: "\ud800"}
        (own_home / ".docker/config.json").write_text(json.dumps({"auths": {"registry.test": entry}}))
    logins = Logins(os.environ)
    assert logins.find(Place("registry.test", "", named=True)) is None
    assert "is not UTF-8, or its token is not printable ASCII" in logins.notes[0]


@pytest.mark.parametrize("escape", [str, html.escape, partial(html.escape, quote=False), json.dumps, quote])
def test_a_login_that_a_server_escapes_is_left_out(escape: Callable[[str], str]) -> None:
    login = f"me:p<a>s&s\"w'o\\rd{SECRET}"
    header = Credentials("x", *login.split(":", 1)).basic
    asked = requests.Request("GET", "https://h.invalid/x", {"Authorization": header}).prepare()
    assert quoted(f"no {escape(login)} here", asked).replace('"', "") == "no *** here"
    alone = base64.b64encode(login.partition(":")[2].encode()).decode().rstrip("=")
    assert quoted(f"no {alone} here", asked) == "no *** here"


def test_a_password_of_a_proxy_that_it_says_in_base64_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", f"http://me:{SECRET}@proxy.invalid:3128")
    asked = requests.Request("GET", "https://h.invalid/x").prepare()
    alone = base64.b64encode(SECRET.encode()).decode().rstrip("=")
    assert quoted(f"no {alone}, no {SECRET} here", asked) == "no ***, no *** here"
