"""No password and no signed query is printed, whichever way an image is named, and whether it works or not."""

import base64
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, quote

import pytest

from sifmod.cli.main import run
from sifmod.config.redact import shown
from sifmod.image.registry.proxy import proxies_for
from support.config import write
from support.images import Images
from support.oci import Entry
from support.web import Answer, Handler, Web, answer, raw

SIGNED = "X-Amz-Signature=s3cret&X-Amz-Credential=s3cret"
EASYCONFIG = """\
name: Tiny
version: '1.0'
description: none
accelerator: none
image:
  sources: ['{source}']
wrappers: []
"""


@pytest.fixture
def web(images: Images) -> Iterator[Web]:
    noise = Entry("opt/noise", random.Random(1).randbytes(3_000_000), mode=0o644)
    server = Web()
    server.answers["/x.sif"] = answer(200, images.tiny("signed", entries=(noise,)).read_bytes())
    server.start()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.setenv("SIFMOD_ARCH", "amd64")
    return tmp_path / "prefix"


def easyconfig(directory: Path, source: str) -> Path:
    path = directory / "Tiny-1.0.yaml"
    path.write_text(EASYCONFIG.format(source=source))
    return path


class Said:
    """Runs command lines; all that they print, with no secret in it."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd
        self.out = ""

    def __call__(self, *arguments: str | Path, code: int | None = 0) -> str:
        ended = run([str(argument) for argument in arguments])
        self.out, errors = self._capfd.readouterr()
        assert "s3cret" not in self.out + errors
        assert code is None or ended == code, self.out + errors
        return self.out + errors


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Said:
    return Said(capfd)


@pytest.mark.parametrize(
    "source",
    [
        "docker://user:s3cret@host.invalid/x",
        "docker:user:s3cret@host.invalid/x",
        "oras://user:s3cret@host.invalid/x:1.0",
        "dokcer://user:a/s3cret@host.invalid/x",
        "https://user:s3cret@host.invalid/x.sif",
        "https://user:a/s3cret@host.invalid/x.sif",
        "http://user:s3cret@host.invalid/x.sif?s3cret",
    ],
)
def test_credentials_in_a_source_are_refused_and_not_repeated(
    said: Said, tmp_path: Path, prefix: Path, source: str
) -> None:
    for arguments in (("fetch", source), ("fetch", "--json", source), ("show", source), ("show", "--json", source)):
        assert "host.invalid/x" in said(*arguments, code=10)
    told = said("new", source, code=10)
    assert "expected " not in told  # what is shown of it would be right
    for verb in ("install", "check", "search", "verify", "uninstall", "import"):
        said(verb, source, code=None)
    path = easyconfig(tmp_path, source)
    for options in (("install",), ("install", "--dry-run"), ("check",), ("install", "--fetch")):
        assert "host.invalid/x" in said(*options, path, code=None)
    good = easyconfig(tmp_path, "x.sif")
    assert "host.invalid/x" in said("install", "--source", source, "--dry-run", good, code=2)
    assert not prefix.exists()


@pytest.mark.parametrize("verb", ["fetch", "show", "new"])
def test_credentials_behind_a_blank_are_not_repeated(said: Said, verb: str) -> None:
    said(verb, " https://user:s3cret@host.invalid/x.sif", code=10)


def test_a_signed_query_is_not_printed(said: Said, web: Web, tmp_path: Path, prefix: Path) -> None:
    url = web.url(f"/x.sif?{SIGNED}")
    path = easyconfig(tmp_path, url)
    assert f"image        {web.url('/x.sif')}\n" in said("install", "--dry-run", path)
    assert f"fetching {web.url('/x.sif')}\n" in said("fetch", url)
    said("fetch", "--json", url)
    assert json.loads(said.out)["source"] == web.url("/x.sif")
    said("install", "--fetch", path)
    said("install", path)
    assert web.url("/x.sif") in said("show", "Tiny/1.0")
    said("show", "--json", "Tiny/1.0")
    said("verify")
    for file in prefix.rglob("*"):  # but for what the user wrote himself
        if file.is_file() and file.name != "easyconfig.yaml" and file.suffix != ".sif":
            assert b"s3cret" not in file.read_bytes(), file


def test_the_query_of_the_option_is_not_stored_and_not_guessed(
    said: Said, web: Web, tmp_path: Path, prefix: Path
) -> None:
    path, url = easyconfig(tmp_path, "x.sif"), web.url("/x.sif")
    given = ("install", "--skip-sanity-check", path, "--source", f"{url}?{SIGNED}")
    said(*given)
    said("show", "--json", "Tiny/1.0")
    assert f"{url}?..." in said.out
    stack = said("stack", "init", "-")
    assert f"{url}?..." in stack
    said("verify")
    for file in prefix.rglob("*"):
        if file.is_file() and file.suffix != ".sif":
            assert b"s3cret" not in file.read_bytes(), file
    modulefiles = [*(prefix / "software").rglob("modulefile.lua")]
    assert all(f"--source '{url}?...'" in file.read_text() for file in modulefiles)
    assert modulefiles
    asked = len(web.asked)
    assert "already installed" in said(*given)
    assert "generation" in said("install", "--module-only", "--yes", "--rebuild", path, "--source", f"{url}?...")
    assert len(web.asked) == asked
    for force in ("--force", "--fetch"):
        told = said("install", force, path, "--source", f"{url}?...", code=10)
        assert f"the query of {url} was not stored" in told
        assert f"--source '{url}?QUERY'" in told
    assert len(web.asked) == asked
    said(*given[:-1], f"{url}?{SIGNED}&other=file")
    assert len(web.asked) > asked  # another query is another file


@pytest.mark.parametrize("options", [(), ("--pip", "aone")], ids=["image", "base"])
def test_a_draft_has_the_query_in_its_source_alone(
    said: Said, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    url = web.url(f"/x.sif?{SIGNED}")
    said("new", *options, *(["--from"] if options else []), url)
    (path,) = tmp_path.glob("*.yaml")
    assert path.name.startswith("x-1.0")
    (source,) = (line for line in path.read_text().splitlines() if "s3cret" in line or "?" in line)
    assert url in source
    assert source.strip().startswith(("sources: ", "from: "))


def test_a_signed_query_is_not_printed_with_an_error(said: Said, web: Web, tmp_path: Path) -> None:
    assert f"{web.url('/x.sif')}: " in said("fetch", "--sha256", "0" * 64, web.url(f"/x.sif?{SIGNED}"), code=10)
    web.answers["/x.sif"] = answer(403, b"<Error>no</Error>")
    for arguments in (("fetch",), ("install", "--source"), ("show",), ("fetch", "--offline")):
        given = [easyconfig(tmp_path, "x.sif")] if arguments[0] == "install" else []
        said(*arguments, web.url(f"/x.sif?{SIGNED}"), *given, code=10)
    web.answers["/x.sif"] = answer(302, headers={"Location": f"http://s3cret:s3cret@host.invalid/x.sif?{SIGNED}"})
    assert "http://host.invalid/x.sif" in said("fetch", web.url("/x.sif"), code=10)
    said("fetch", f"http://host.invalid/x.sif?{SIGNED}", code=10)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x.sif", "x.sif"),
        ("/a/b?c@d#e.sif", "/a/b?c@d#e.sif"),
        ("images//foo?x", "images//foo?x"),
        ("file:/a#b/x?.sif", "file:/a#b/x?.sif"),
        ("oci:/a@b/layout:1", "oci:/a@b/layout:1"),
        ("docker://host:5000/a@sha256:" + "0" * 64, "docker://host:5000/a@sha256:" + "0" * 64),
        ("https://host/@scope/x@1.sif?a=b@c", "https://host/@scope/x@1.sif"),
        ("https://host:8443/x.sif#part", "https://host:8443/x.sif"),
        ("https://[::1]:80/x@y", "https://[::1]:80/x@y"),
        ("HTTPS://me:s3cret@host/x?y", "HTTPS://host/x"),
        ("https://me:s3?cret@host/x", "https://host/x"),
        ("https//me:s3cret@host/x?y", "https//host/x"),
        ("s3://key:s3cret@bucket/x?y", "s3://bucket/x"),
        ("me:s3cret@host/x", "me:host/x"),
    ],
)
def test_how_a_source_is_shown(source: str, expected: str) -> None:
    assert shown(source) == expected


def test_a_mirror_with_credentials_is_refused_and_not_repeated(said: Said, tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("mirrors: {docker.io: ['user:s3cret@mirror.site']}\n")
    assert "credentials do not belong here" in said("check", path, code=None)


def test_a_login_that_does_not_work_is_not_printed(said: Said, web: Web, own_home: Path) -> None:
    host = f"127.0.0.1:{web.server_address[1]}"
    (own_home / ".docker").mkdir()
    auth = {"auth": base64.b64encode(b"user:s3cret").decode(), "identitytoken": "s3cret"}
    (own_home / ".docker" / "config.json").write_text(json.dumps({"auths": {host: auth}}))
    realm = web.url("/token", "127.0.0.1")
    web.answers["/v2/a/b/manifests/1"] = answer(401, headers={"WWW-Authenticate": f'Bearer realm="{realm}?s3cret"'})
    web.answers["/token"] = answer(401)
    assert "it did not accept the login in" in said("fetch", f"docker://{host}/a/b:1", code=10)


def test_a_helper_that_floods_its_output_is_stopped_and_named(
    said: Said, web: Web, own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = f"127.0.0.1:{web.server_address[1]}"
    helper = tmp_path / "programs/docker-credential-flood"
    helper.parent.mkdir()
    helper.write_text("#!/bin/sh\nexec yes s3cret\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{helper.parent}:{os.environ['PATH']}")
    (own_home / ".docker").mkdir()
    (own_home / ".docker" / "config.json").write_text(json.dumps({"credHelpers": {host: "flood"}}))
    web.answers["/v2/a/b/manifests/1"] = answer(401, headers={"WWW-Authenticate": "Basic realm=x"})
    began = time.monotonic()
    told = said("fetch", f"docker://{host}/a/b:1", code=10)
    assert "docker-credential-flood wrote more than 1048576 bytes, and was stopped" in told
    assert time.monotonic() - began < 30  # its output was read for a minute before, into memory


HEADERS = {"WWW-Authenticate": "Basic realm=x"}


def put_login(home: Path, host: str, **others: str) -> str:
    """Write the login, and return its base64."""
    auth = base64.b64encode(b"user:p@s3cret/%").decode()
    (home / ".docker").mkdir()
    (home / ".docker" / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth, **others}}}))
    return auth


def echoing(status: int, place: str) -> Answer:
    """It challenges a request without a login; to another it repeats, at `place`, all that can be read in it."""

    def send(handler: Handler) -> None:
        form = parse_qs(handler.path.partition("?")[2])
        sent = handler.headers.get("Authorization", "") or "".join(form.get("refresh_token", ()))
        if not sent:
            return answer(401, headers=HEADERS)(handler)
        login = base64.b64decode(sent.split()[-1]).decode() if sent.startswith("Basic") else sent
        told = f"echo: {sent} {login} {login.partition(':')[2]} {quote(login, safe='')} end"
        if place == "status":
            return raw(f"HTTP/1.1 {status} {told}\r\nContent-Length: 0\r\n\r\n".encode())(handler)
        if place == "location":
            return answer(302, headers={"Location": f"http://host.invalid/{told.replace(' ', '/')}"})(handler)
        if place == "odd location":
            return answer(302, headers={"Location": f"https://host.invalid/{told}"})(handler)
        if place == "blank location":
            return answer(302, headers={"Location": f"http://host.invalid/x y/{login}"})(handler)
        if place == "host":
            return answer(302, headers={"Location": f"http://{sent.split()[-1].rstrip('=')}.localhost:9/"})(handler)
        if place == "digest":
            return answer(status, b'{"schemaVersion": 2}', headers={"Docker-Content-Digest": f"sha256:{login}"})(
                handler
            )
        if place == "kind":
            layer = {"mediaType": f"of {login}", "digest": f"sha256:{'0' * 64}", "size": 1}
            manifest = {"schemaVersion": 2, "config": {**layer, "mediaType": "x"}, "layers": [layer]}
            return answer(status, json.dumps(manifest).encode())(handler)
        if place == "start":
            return answer(status, f"{sent} {login}".encode())(handler)
        key = {"details": told} if place == "details" else {"errors": [{"message": told}]}
        return answer(status, json.dumps(key).encode())(handler)

    return send


@pytest.mark.parametrize(
    ("status", "place"),
    [
        (403, "message"),
        (401, "message"),
        (404, "details"),
        (403, "status"),
        (200, "start"),
        (302, "location"),
        (302, "odd location"),
        (302, "blank location"),
        (302, "host"),
        (200, "digest"),
        (200, "kind"),
    ],
)
def test_a_login_that_a_registry_repeats_is_neither_printed_nor_written(
    said: Said, web: Web, own_home: Path, tmp_path: Path, prefix: Path, status: int, place: str
) -> None:
    host = f"127.0.0.1:{web.server_address[1]}"
    auth = put_login(own_home, host)
    web.answers["/v2/a/b/manifests/1"] = echoing(status, place)
    source = f"docker://{host}/a/b:1"
    told = said("fetch", source, code=10)
    told += said("fetch", "--json", source, code=10)
    (tmp_path / "stack.yaml").write_text("name: echo\neasyconfigs: [Tiny-1.0.yaml]\n")
    easyconfig(tmp_path, source)
    told += said("stack", "apply", tmp_path / "stack.yaml", code=None)
    sent = [headers["authorization"] for _, headers in web.asked if "authorization" in headers]
    assert f"Basic {auth}" in sent  # so that there was something to repeat
    logs = [file for file in prefix.rglob("*") if file.is_file()]
    assert any(file.suffix == ".log" for file in logs)
    for text in (told, *(file.read_bytes().decode("utf-8", "replace") for file in logs)):
        assert "s3cret" not in text
        assert auth.rstrip("=") not in text


@pytest.mark.parametrize("place", ["message", "details", "status", "start"])
@pytest.mark.parametrize("kind", ["password", "identity token"])
def test_a_login_that_a_token_server_repeats_is_not_printed(
    said: Said, web: Web, own_home: Path, place: str, kind: str
) -> None:
    host = f"127.0.0.1:{web.server_address[1]}"
    auth = put_login(own_home, host, **({} if kind == "password" else {"identitytoken": "s3cret/%"}))
    realm = web.url("/token", "127.0.0.1")
    web.answers["/v2/a/b/manifests/1"] = answer(401, headers={"WWW-Authenticate": f'Bearer realm="{realm}"'})
    web.answers["/token"] = echoing(200 if place == "start" else 409, place)
    assert auth.rstrip("=") not in said("fetch", f"docker://{host}/a/b:1", code=10)


def proxy(status: bytes) -> Answer:
    def send(handler: Handler) -> None:
        sent = handler.headers["Proxy-Authorization"]
        login = base64.b64decode(sent.split()[-1])
        raw(b"HTTP/1.1 ", status, b" for ", sent.encode(), b" ", login, b"\r\nContent-Length: 0\r\n\r\n")(handler)

    return send


def test_a_login_that_a_proxy_repeats_is_not_printed(said: Said, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "do_CONNECT", Handler.do_GET, raising=False)
    monkeypatch.setenv("https_proxy", web.url("", "joe:s3cret%2Fpx@127.0.0.1"))
    web.answers["host.invalid:443"] = proxy(b"407 need auth")
    told = said("fetch", "https://host.invalid/x.sif", code=10)
    assert "407 need auth for Basic ***" in told
    assert base64.b64encode(b"joe:s3cret/px").decode().rstrip("=") not in told


@pytest.mark.parametrize(
    ("hosts", "through"),
    [
        ("x.org", True),
        ("*.invalid", False),
        ("x.org, *.INVALID", False),
        (".invalid", False),
        ("*.x.invalid", True),
        ("*", False),
    ],
)
@pytest.mark.parametrize("variable", ["no_proxy", "NO_PROXY"])
def test_a_proxy_that_the_user_excludes_is_not_asked(
    said: Said, web: Web, monkeypatch: pytest.MonkeyPatch, variable: str, hosts: str, through: bool
) -> None:
    monkeypatch.setattr(Handler, "do_CONNECT", Handler.do_GET, raising=False)
    monkeypatch.setenv("https_proxy", web.url("", "127.0.0.1"))
    monkeypatch.setenv(variable, hosts)
    web.answers["host.invalid:443"] = answer(403)
    said("fetch", "https://host.invalid/x.sif", code=10)
    assert bool(web.asked) == through


@pytest.mark.parametrize(
    ("host", "hosts", "through"),
    [
        ("[fd00::12]", "fd00::/8", False),
        ("[fd00::12]", "x.org,[FD00::]/8", False),
        ("[fd00::12]", "fd00:0::12", False),
        ("[fd00::12]", "[fd00::12]", False),
        ("[fd00::12]", "fe80::/10,10.0.0.0/8", True),
        ("10.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "11.0.0.0/8,fd00::/8", True),
        ("host.site", "fd00::/8,10.0.0.0/8", True),
        ("host.site", "*.site:5000", False),
        ("host.site", "*.site:5001", True),
    ],
)
def test_networks_without_a_proxy(monkeypatch: pytest.MonkeyPatch, host: str, hosts: str, through: bool) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", hosts)
    assert ("https" in proxies_for(f"https://{host}:5000/v2/")) == through


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("https_proxy", "http://joe:s3cret/px@127.0.0.1:1"),
        ("HTTPS_PROXY", "http://joe:123/s3cret@127.0.0.1:1"),
        ("all_proxy", "joe:s3cret/px@127.0.0.1:1"),
        ("ALL_PROXY", "http://joe:s3cret?px@127.0.0.1:1"),
        ("https_proxy", "http://joe:s3cret#px@127.0.0.1:1"),
        ("https_proxy", "http://joe:s3cret\\px@127.0.0.1:1"),
        ("https_proxy", "http://joe:s3cret px@127.0.0.1:1"),
        ("https_proxy", "http://s3cret:port"),
        ("https_proxy", "http://joe:s3cret@"),
        ("https_proxy", "http://joe:s3cret%E2%82%AC@127.0.0.1:1"),  # a Euro sign, which no Basic login has
    ],
)
def test_a_proxy_that_is_no_url_is_refused_by_its_variable(
    said: Said, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    told = said("fetch", "https://host.invalid/x.sif", code=10)
    assert f"the variable {name} is not the URL of a proxy" in told
    assert "%2F" in told
    assert "joe" not in told


@pytest.mark.parametrize("kind", ["socks5h", "ftp"])
def test_a_proxy_of_another_kind_is_refused_by_its_variable(
    said: Said, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("https_proxy", f"{kind}://joe:s3cret@127.0.0.1:1")
    told = said("fetch", "https://host.invalid/x.sif", code=10)
    assert f"the variable https_proxy names a {kind} proxy, which sifmod cannot use; nothing was sent" in told
    assert "for a SOCKS proxy install Python's package PySocks" in told


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("aone @ https://host.invalid/aone-1.0-py3-none-any.whl?token=s3cret",), ""),
        (("https://host.invalid/aone-1.0-py3-none-any.whl?x=1&sig=s3cret&se=2",), ""),
        (("aone @ git+https://host.invalid/x.git?private%5Ftoken=s3cret",), ""),
        (("aone", "--find-links", "https://host.invalid/simple/?X-Amz-Signature=s3cret"), ""),
        (("aone", "--index-url", "https://host.invalid/simple/?X-Goog-Signature=s3cret"), ""),
        (("aone", "--index-url", "https://host.invalid/simple/#token=s3cret"), ""),
        (("aone", "--extra-index-url", "https://host.invalid/simple;jwt=s3cret/x/"), ""),
        (("aone", "--find-links", "https://host.invalid/simple/#a=b&token=s3cret"), ""),
        (("aone @ https://host.invalid/x;token=s3cret/aone-1.0-py3-none-any.whl",), ""),
        (("https://host.invalid/aone-1.0-py3-none-any.whl#sha256=00&token=s3cret",), ""),
        (("aone @ git+https://host.invalid/x.git#subdirectory=a&db_pwd=s3cret",), ""),
        (("-r", "wanted.txt"), "aone @ https://host.invalid/aone-1.0-py3-none-any.whl?api_key=s3cret"),
        (("-r", "wanted.txt"), "--find-links https://host.invalid/?auth=s3cret\naone"),
        (("-r", "wanted.txt"), "--index-url https://host.invalid/${TOK}/simple/\naone"),
        (("-r", "wanted.txt"), "--extra-index-url https://host.invalid/${MY_API_TOKEN}/simple/\naone"),
        (("-r", "wanted.txt"), "--find-links https://host.invalid/${PIP_PASSWORD}/\naone"),
    ],
)
def test_a_token_for_packages_is_refused_and_not_repeated(
    said: Said, images: Images, tmp_path: Path, prefix: Path, monkeypatch: pytest.MonkeyPatch, words: str, line: str
) -> None:
    for name in ("TOK", "MY_API_TOKEN", "PIP_PASSWORD"):
        monkeypatch.setenv(name, "s3cret")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wanted.txt").write_text(f"{line}\n")
    said("install", "--skip-sanity-check", easyconfig(tmp_path, str(images.tiny("plain"))))
    told = said("add", "Tiny/1.0", *words, code=2)
    assert "stored where other users can read it" in told
    assert "~/.netrc" in told
    for file in prefix.rglob("*"):
        assert not file.is_file() or b"s3cret" not in file.read_bytes(), file


def test_a_token_in_a_recipe_or_a_lock_is_refused_and_not_repeated(
    said: Said, images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    (tmp_path / "wanted.txt").write_text("--index-url https://host.invalid/${TOKEN}/simple/\naone\n")
    wheel = '{url = "https://host.invalid/aone-1-py3-none-any.whl?tok\\u0065n=s3cret", hashes = {sha256 = "00"}}'
    (tmp_path / "pylock.toml").write_text(
        f'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "aone"\nversion = "1"\nwheels = [{wheel}]\n'
    )
    for name in ("wanted.txt", "pylock.toml"):
        path = easyconfig(tmp_path, "x.sif")
        build = f"image:\n  build: {{from: '{images.tiny_sif}', requirements: {name}}}"
        path.write_text(path.read_text().replace("image:\n  sources: ['x.sif']", build))
        assert "stored where other users can read it" in said("install", "--yes", path, code=None)


@pytest.mark.parametrize(
    "words",
    [
        ("add", "Tiny/1.0", "-r", "https://me:S3CRET@h.test/r.txt"),
        ("add", "Tiny/1.0", "foo", "-c", "https://me:S3CRET@h.test/c.txt"),
        ("add", "Tiny/1.0", "https://me:S3CRET@h.test/x-1.0-py3-none-any.whl"),
        ("layer", "sync", "Tiny/1.0", "https://me:S3CRET@h.test/pylock.toml"),
        ("stack", "plan", "https://me:S3CRET@h.test/s.yaml"),
        ("install", "https://me:S3CRET@h.test/x.yaml"),
    ],
)
def test_an_error_does_not_repeat_a_login_that_was_typed_for_a_path(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Output lands in the logs of others' machines."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.chdir(tmp_path)
    assert run(list(words)) not in (0, 70)
    output = capfd.readouterr()
    assert "S3CRET" not in output.out + output.err


LONG = "hunter2-" + "x" * 500


@pytest.mark.parametrize("source", ["https://me:{}@x.invalid/x.sif", "https://me:{}@x.invalid\\@y/x.sif"])
def test_a_login_is_not_repeated_up_to_where_a_message_is_cut(said: Said, tmp_path: Path, source: str) -> None:
    assert "hunter2" not in said("fetch", source.format(LONG), code=10)
    for key in ("image: {{sources: [{}]}}", "family: {}", "binds: [{}]", "{}: 1", "host_env: {{{}: x}}"):
        file = tmp_path / "Tiny-1.yaml"
        file.write_text("name: Tiny\nversion: '1'\n" + key.format(f"'{source.format(LONG)}'") + "\n")
        assert "hunter2" not in said("check", str(file), code=5)


ALIAS = 'set_alias("x", "singularity exec docker://a/b:1 y")\n'


@pytest.mark.parametrize(
    ("name", "text", "words", "code"),
    [
        ("a/1.lua", ALIAS + 'setenv("SINGULARITYENV_X", "$(get {})")', "import {file} -o {out}", 0),
        ("a/1.lua", ALIAS + 'setenv("SINGULARITY_BINDPATH", "{}")', "import {file} -o {out}", 0),
        ("a/1.lua", ALIAS + 'family("a")\nfamily("{}")', "import {file} -o {out}", 0),
        ("Tiny-1.yaml", "name: !{} Tiny\nversion: '1'\n", "check {file}", 5),
        ("Tiny-1.yaml", "name: !<tag:{}> Tiny\nversion: '1'\n", "check {file}", 5),
        ("Dockerfile", "FROM {}\n", "fetch build:{file} -o {out}", 10),
        ("x.def", "Bootstrap: docker\nFrom: a/b:1\n%files\n{} /x\n", "fetch build:{file} -o {out}", 10),
        ("requirements.txt", "torch @ {}", "add Tiny -r {file}", 2),
        ("requirements.txt", "torch==1 --hash={}", "add Tiny -r {file}", 2),
        ("x", "", "deprecate Tiny --message {}", 2),
        ("x", "", "retire Tiny --message {}", 2),
    ],
)
@pytest.mark.parametrize("length", [300, 70_000])
def test_nor_of_another_text(
    name: str, text: str, words: str, code: int, length: int, said: Said, web: Web, tmp_path: Path
) -> None:
    """Neither in what is printed nor in a file that is written."""
    file, out = tmp_path / "here" / name, tmp_path / "out"
    login = f"https://me:hunter2-{'x' * length}@x.invalid/{'x' * 300}"
    write(file, text.replace("{}", login))
    assert run(["install", str(easyconfig(tmp_path, web.url("/x.sif"))), "--skip-sanity-check"]) == 0
    line = [word.replace("{file}", str(file)).replace("{out}", str(out)).replace("{}", login) for word in words.split()]
    assert "hunter2" not in said(*line, code=code)
    assert not any("hunter2" in made.read_text() for made in out.rglob("*.yaml"))
