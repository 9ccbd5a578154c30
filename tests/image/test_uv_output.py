"""What uv prints about a login that it cannot parse."""

import base64
from pathlib import Path

import pytest

from sifmod.image.packages.uv import uv_here
from support.config import write
from support.misbehaving import guarded
from support.web import Web, answer

LOGIN = "http://me:Half, S3CRET@127.0.0.1:1/simple"


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("UV_FIND_LINKS", ""),
        ("UV_EXTRA_INDEX_URL", ""),
        ("UV_INDEX", ""),
        ("", f'extra-index-url = "{LOGIN}"'),
        ("", f'find-links = ["{LOGIN}", 7]'),
        ("", f'[[index]]\nurl = "{LOGIN}"\nexplicit = 7'),
    ],
)
def test_no_part_of_a_login_with_a_blank_is_printed(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, setting: str
) -> None:
    if name:
        monkeypatch.setenv(name, LOGIN)
    write(own_home / ".config/uv/uv.toml", f"{setting}\n")
    (tmp_path / "wanted.in").write_text("demo\n")
    ended = uv_here(tmp_path).run("pip", "compile", str(tmp_path / "wanted.in"), "--offline")
    said = "\n".join(ended.lines)
    assert (ended.code != 0, "S3CRET" in said, "me:Half" in said) == (True, False, False), said


@pytest.mark.parametrize("way", ["variable", "name", "netrc", "uv.toml"])
@pytest.mark.parametrize("encoded", [False, True])
def test_a_login_that_an_index_repeats_is_not_printed(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, encoded: bool
) -> None:
    """In the address to which it redirects."""
    login = "me:S3CRET/%"
    sent = base64.b64encode(login.encode()).decode()

    there = f"/repeated/{sent if encoded else 'me:S3CRET/%25'}"
    asks = answer(401, headers={"WWW-Authenticate": "Basic realm=x"})
    server = Web()
    server.answers["/simple/demo/"] = guarded(f"Basic {sent}", answer(302, headers={"Location": there}), asks)
    server.answers[there] = answer(200)  # without a Content-Type
    server.start()
    plain = server.url("/simple", "127.0.0.1")
    full = plain.replace("//", "//me:S3CRET%2F%25@")
    if way == "variable":
        monkeypatch.setenv("UV_DEFAULT_INDEX", full)
    elif way == "name":
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"company={plain}")
        monkeypatch.setenv("UV_INDEX_COMPANY_USERNAME", "me")
        monkeypatch.setenv("UV_INDEX_COMPANY_PASSWORD", "S3CRET/%")
    elif way == "netrc":
        monkeypatch.setenv("UV_DEFAULT_INDEX", plain)
        write(own_home / ".netrc", "machine 127.0.0.1 login me password S3CRET/%\n").chmod(0o600)
    else:
        write(own_home / ".config/uv/uv.toml", f'index-url = "{full}"\n')
    (tmp_path / "wanted.in").write_text("demo\n")
    try:
        ended = uv_here(tmp_path).run("pip", "compile", str(tmp_path / "wanted.in"))
    finally:
        server.stop()
    said = "\n".join(ended.lines)
    assert server.asked[-1][0] == there
    assert ("/repeated/" in said, "S3CRET" in said, sent.rstrip("=") in said) == (True, False, False), said
