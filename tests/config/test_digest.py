"""Digests of files: of a regular file alone, without waiting and without anything left open."""

import os
from pathlib import Path

import pytest

from sifmod.config.input import Input, read_input
from sifmod.digest import sha256_bytes, sha256_file


def test_a_file_and_a_link_to_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content := os.urandom(700_000))
    (tmp_path / "link").symlink_to("file")
    assert sha256_file(tmp_path / "file") == sha256_file(str(tmp_path / "link")) == sha256_bytes(content)


@pytest.mark.parametrize("kind", ["directory", "pipe", "device", "dead link"])
def test_what_is_no_regular_file_has_none(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    match kind:
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case _:
            path.symlink_to("nowhere")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match=rf"{path}'$"):
        sha256_file(path)
    assert read_input(str(path), {}) == Input(str(path), None)
    assert os.listdir("/proc/self/fd") == before
