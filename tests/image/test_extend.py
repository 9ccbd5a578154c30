"""An image that goes on where another ends: its file system is the base's and the addition, whatever made the base."""

import os
from pathlib import Path

import pytest

from sifmod.image.convert.extend import Addition, extend
from support.extending import EPOCH, apply, base_of, contents, rich_tree, squashfs_in, without_metadata
from support.squashfs_trees import noise, snapshot

BASES = {
    "gzip": (),
    "gzip, small blocks": ("-b", "4096"),
    "gzip, large blocks, tails": ("-b", "1M", "-always-use-fragments"),
    "gzip with options": ("-comp", "gzip", "-Xcompression-level", "1", "-Xwindow-size", "10"),
    "xz": ("-comp", "xz"),
    "xz, small dictionary, filters": ("-comp", "xz", "-Xbcj", "x86", "-b", "64K", "-Xdict-size", "8K"),
    "lz4": ("-comp", "lz4", "-Xhc"),
    "zstd": ("-comp", "zstd", "-Xcompression-level", "19", "-b", "256K"),
    "nothing compressed": ("-noI", "-noD", "-noF", "-noX"),
    "no fragments": ("-no-fragments", "-no-exports"),
    "no duplicates": ("-no-duplicates", "-no-sparse", "-nopad"),
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the bases have."""
    return rich_tree(tmp_path_factory.mktemp("rich") / "tree")


@pytest.fixture
def addition(tmp_path: Path) -> Addition:
    """Files of all sizes, a program, links and directories; something removed, replaced, and below a link."""
    here = tmp_path / "added"
    here.mkdir()
    for size in (0, 1, 4096, 5000, 131072, 140_000, 2_500_000):
        (here / f"{size}").write_bytes(noise(size, 2))
    (here / "holes").write_bytes(b"x" + bytes(5 << 20) + b"y")
    (here / "program").write_text("#!/bin/sh\necho works\n")
    (here / "program").chmod(0o700)
    (here / "link").symlink_to("../program")
    (here / "directory").mkdir()
    files = [(f"opt/new/{path.name}", path) for path in here.iterdir()]
    files += [("usr/lib/same", here / "5000"), ("noise131073", here / "1"), ("dangling", here / "4096")]
    files += [("fifo", here / "link"), ("usr/lib/deep", here / "directory"), ("many/0/1/2", here / "program")]
    return Addition(
        files=tuple(files),
        removed=(
            "many/a rather long name to fill the listing 7",
            "mixed",
            "noise1",
            "nothing/there",
            "absolute",
            "lib/deep",
        ),
        documents=(("opt/new/text", b"text"), ("opt/empty", b"")),
        env=(("GREETING", "it's $HOME `x`"),),
        labels=(("org.example", "yes"),),
        deffile="Bootstrap: docker\nFrom: example\n",
        epoch=EPOCH,
    )


@pytest.mark.parametrize("options", BASES)
def test_the_files_are_the_bases_and_the_additions(
    tree: Path, addition: Addition, tmp_path: Path, options: str
) -> None:
    base = base_of(tree, tmp_path / "base.sif", *BASES[options])
    before = base.read_bytes()
    assert extend(base, addition, tmp_path / "new.sif", 2) == ()
    assert base.read_bytes() == before
    expected = tmp_path / "expected"
    contents(base, expected)
    apply(expected, addition)
    assert without_metadata(contents(tmp_path / "new.sif", tmp_path / "found")) == without_metadata(snapshot(expected))
