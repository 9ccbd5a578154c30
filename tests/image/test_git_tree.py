"""What is told of a git server that refuses."""

import base64
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sifmod.config.limits import Limits, use_limits
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


def bomb(directory: Path, depth: int) -> str:
    """The URL of a repository of some kilobytes whose checkout has 10 ** depth files of 50 kB."""

    def git(*words: str, given: str = "") -> str:
        who = {f"GIT_{role}_{key}": "a" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
        done = subprocess.run(("git", *words), cwd=directory, env={**os.environ, **who}, input=given, **TEXT)
        return str(done.stdout).strip()

    directory.mkdir()
    git("init", "--quiet")
    entry = f"100644 blob {git('hash-object', '-w', '--stdin', given='x' * 50_000)}"
    for _ in range(depth):
        entry = "040000 tree " + git("mktree", given="".join(f"{entry}\t{name}\n" for name in range(10)))
    git("update-ref", "HEAD", git("commit-tree", entry.split()[-1], "-m", "bomb"))
    return f"git+file://{directory}"


TEXT: dict[str, Any] = {"text": True, "stdout": subprocess.PIPE, "check": True}


@pytest.mark.usefixtures("own_home")
@pytest.mark.parametrize(
    ("depth", "lowered", "said"),
    [
        (4, Limits(build_files=3000), r"has more files than 3000 \(`limits: \{build_files: N\}`"),
        (4, Limits(package_size=100 << 20), r"has more bytes than 104857600 \(`limits: \{package_size: N\}`"),
        (8, Limits(uv_memory=50 << 20), r"git took more bytes of memory than 52428800 \(`limits: \{uv_memory: N\}`"),
    ],
)
def test_a_repository_without_an_end_is_given_up(tmp_path: Path, depth: int, lowered: Limits, said: str) -> None:
    source = git_source(bomb(tmp_path / "bomb", depth))
    assert source is not None
    use_limits(lowered)
    try:
        with pytest.raises(FetchError, match=said):
            Checkouts(tmp_path / "trees").take(source)
    finally:
        use_limits(Limits())
