"""What is told of a git server that refuses."""

import base64
import socket
from pathlib import Path

import pytest

from sifmod.errors import FetchError
from sifmod.image.packages import git_tree
from sifmod.image.packages.git_tree import Checkouts, git_source
from support.config import write
from support.misbehaving import guarded
from support.web import Web, answer

LOGIN = "me:S3CRET"
SENT = base64.b64encode(LOGIN.encode()).decode()
SAID = f"no, {LOGIN} {SENT}"
ADVERTISED = {"Content-Type": "application/x-git-upload-pack-advertisement"}


@pytest.mark.parametrize("way", ["netrc", "helper"])
@pytest.mark.parametrize("place", ["page", "packet"])
def test_a_login_that_a_git_server_repeats_is_not_printed(own_home: Path, tmp_path: Path, way: str, place: str) -> None:
    server = Web()
    host = f"127.0.0.1:{server.server_address[1]}"
    refusal = f"ERR {SAID}"
    packet = f"001e# service=git-upload-pack\n0000{len(refusal) + 4:04x}{refusal}".encode()
    said = (
        answer(200, packet, ADVERTISED)
        if place == "packet"
        else answer(403, SAID.encode(), {"Content-Type": "text/plain"})
    )
    asks = answer(401, headers={"WWW-Authenticate": "Basic realm=x"})
    server.answers["/x.git/info/refs"] = guarded(f"Basic {SENT}", said, asks)
    if way == "netrc":
        write(own_home / ".netrc", "machine 127.0.0.1 login me password S3CRET\n").chmod(0o600)
    else:
        write(own_home / ".gitconfig", "[credential]\nhelper = store\n")
        write(own_home / ".git-credentials", f"http://{LOGIN}@{host.replace(':', '%3a')}\n")
    source = git_source(f"git+http://{host}/x.git")
    assert source is not None
    server.start()
    try:
        with pytest.raises(FetchError) as caught:
            Checkouts(tmp_path / "trees").take(source)
    finally:
        server.stop()
    told = f"{caught.value.message} {caught.value.hint}"
    assert any(sent.get("authorization") == f"Basic {SENT}" for _, sent in server.asked)
    assert ("S3CRET" in told, SENT in told) == (False, False), told
    assert f"git ls-remote http://{host}/x.git" in told


@pytest.mark.usefixtures("own_home")
@pytest.mark.parametrize("url", ["git+http://127.0.0.1:{}/x.git", "git+ssh://git@127.0.0.1:{}/x.git"])
def test_a_git_server_that_falls_silent_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr(git_tree, "_SILENCE", "1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = git_source(url.format(silent.getsockname()[1]))
        assert source is not None
        with pytest.raises(FetchError, match=r"Operation too slow|timed out"):
            Checkouts(tmp_path / "trees").take(source)
