"""How images are converted is said to each command that converts one, and taken at its word."""

import struct
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.config import write
from support.oci import Entry, layer, write_layout
from support.options import options_of_commands

COMMANDS = {  # as each command with the options is typed
    "install": "install Two-1.yaml --skip-sanity-check",
    "fetch": "fetch oci:two",
    "new": "new oci:two --name New --version 1 -o New.yaml",
    "stack apply": "stack apply two.yaml --skip-sanity-check",
    "upgrade": "",  # converts as `install` does, if another image has the tag
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An image that has to be converted, and what names it."""
    place = tmp_path / "a place"
    write_layout(place / "two", [layer([Entry("bin/sh", b"two" * 9000), Entry("etc")])])
    write(place / "Two-1.yaml", "name: Two\nversion: '1'\nimage: {sources: ['oci:two']}\n")
    write(place / "two.yaml", "easyconfigs: [Two-1.yaml]\n")
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "the tree"))
    monkeypatch.chdir(place)
    return place


def test_each_command_with_the_options_is_listed() -> None:
    have = {" ".join(verb) for verb, spellings in options_of_commands() if "--compression" in spellings}
    assert have == set(COMMANDS)


@pytest.mark.parametrize("words", [words for words in COMMANDS.values() if words])
@pytest.mark.parametrize(("kind", "number"), [("gzip:3", 1), ("zstd:3", 6)])
def test_the_compression_of_each(here: Path, words: str, kind: str, number: int) -> None:
    assert run([*words.split(), "--compression", kind, "--processors", "1"]) == 0
    (image,) = (here.parent / "the tree/images/sha256").glob("*.sif")
    data = image.read_bytes()
    assert struct.unpack_from("<H", data, data.index(b"hsqs") + 20) == (number,)
