"""The squashfs reader: any image of mksquashfs, links inside the image, and damage told as damage."""

import os
import struct
import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from sifmod.errors import ImageError
from sifmod.image.convert.inode import Device, Directory, Entries, Fifo, File, Symlink
from sifmod.image.convert.squashfs.reader import SquashfsReader, tree_digest
from sifmod.image.convert.squashfs.writer import DataWriter
from support.squashfs_trees import FOLDER, PLAIN, build, file, from_directory, mksquashfs, noise, reader, snapshot

OPTIONS = {
    "gzip": (),
    "gzip, small blocks": ("-b", "4096"),
    "gzip, large blocks": ("-b", "1M", "-always-use-fragments"),
    "gzip with options": ("-comp", "gzip", "-Xcompression-level", "1", "-Xwindow-size", "10"),
    "xz": ("-comp", "xz"),
    "xz with filters": ("-comp", "xz", "-Xbcj", "x86,arm", "-b", "64K"),
    "lz4": ("-comp", "lz4", "-Xhc"),
    "zstd": ("-comp", "zstd", "-Xcompression-level", "19"),
    "nothing compressed": ("-noI", "-noD", "-noF", "-noX"),
    "no fragments": ("-no-fragments", "-no-exports"),
    "no duplicates": ("-no-duplicates", "-no-sparse"),
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of many sizes, links, holes, many names and attributes."""
    top = tmp_path_factory.mktemp("reader") / "tree"
    (top / "many").mkdir(parents=True)
    for i in range(3000):
        (top / "many" / f"a rather long name to fill the listing {i}").write_bytes(b"%d" % i)
    for size in (0, 1, 4095, 4096, 131071, 131072, 131073, 1 << 20, (1 << 20) + 1, 3_000_000):
        (top / f"noise{size}").write_bytes(noise(size))
        (top / f"text{size}").write_bytes((b"text" * size)[:size])
        (top / f"zeros{size}").write_bytes(bytes(size))
    (top / "same").write_bytes(noise(1 << 20))
    (top / "mixed").write_bytes(noise(5000) + bytes(3 << 20) + noise(5000))
    (top / "link").symlink_to("many")
    os.link(top / "mixed", top / "many" / "mixed again")
    os.mkfifo(top / "fifo")
    (top / os.fsdecode(b"\xff")).mkdir()
    for i in range(40):
        os.setxattr(top / "same", f"user.{i}", noise(i))
    os.setxattr(top / "text1", "user.large", noise(3500))  # twice: mksquashfs stores the second elsewhere
    os.setxattr(top / "noise1", "user.another", b"")
    os.setxattr(top / "noise1", "user.large", noise(3500))
    return top


@pytest.fixture(scope="module")
def packed(tree: Path) -> Callable[[str], Path]:
    """The tree as mksquashfs packs it with each of the options, once."""

    @cache
    def pack(options: str) -> Path:
        return mksquashfs(tree, tree.with_name(options), *OPTIONS[options])

    return pack


def read_all(image: SquashfsReader) -> dict[bytes, bytes]:
    """Every regular file's data, holes as zeros."""
    return {
        b"/" + path: b"".join(bytes(piece) if isinstance(piece, int) else piece for piece in image.data(found))
        for path, found, _ in image.walk()
        if found.kind == "f"
    }


@pytest.mark.parametrize("options", OPTIONS)
def test_every_image_of_mksquashfs_is_read(tree: Path, packed: Callable[[str], Path], options: str) -> None:
    image = reader(packed(options))
    facts = snapshot(tree)
    assert {b"/" + path for path, _, _ in image.walk()} == set(facts)
    for path, found, _ in image.walk():
        mode, uid, gid, mtime, size, links, _, target, _, xattrs = facts[b"/" + path]
        assert (found.uid, found.gid, found.mtime) == (uid, gid, mtime)
        assert oct(found.mode) == oct(int(str(mode), 8) & 0o7777)
        assert found.kind in "dp" or (found.size, found.links) == (size, links)
        assert found.kind != "l" or found.target == target
        assert {os.fsdecode(name): value for name, value in image.xattrs(found)} == xattrs
    data = read_all(image)
    assert data == {path: (tree / os.fsdecode(path[1:])).read_bytes() for path in data}


def test_one_digest_for_all_layouts_of_one_tree(tree: Path, packed: Callable[[str], Path], tmp_path: Path) -> None:
    build(tmp_path / "ours", lambda writer: from_directory(writer, tree), "lz4")
    digest = tree_digest(reader(tmp_path / "ours"))
    for options in OPTIONS:
        assert tree_digest(reader(packed(options))) == digest


def test_another_digest_for_every_other_tree(tmp_path: Path) -> None:
    xattrs = ((b"user.a", b"b"),)

    def make(change: int) -> str:
        def inner(writer: DataWriter) -> Directory:
            large = file(writer, noise((2 if change != 1 else 1) << 20) + bytes((1 if change != 1 else 2) << 20) + b"x")
            small = File(*PLAIN[:4], xattrs if change != 2 else (), writer.add(b"small" if change != 3 else b"smalk"))
            twin = large if change != 4 else file(writer, noise(2 << 20) + bytes(1 << 20) + b"x")
            entries: Entries = {
                b"large": large,
                b"small" if change != 5 else b"smalk": small,
                b"twin": twin,
                b"link": Symlink(*PLAIN, b"target" if change != 6 else b"tarket"),
                b"device": Device(*PLAIN, "c" if change != 7 else "b", 1, 3 if change != 8 else 4),
                b"fifo": Fifo(
                    0o644 if change != 9 else 0o645, 1 if change != 10 else 2, 1 if change != 11 else 2, 5, ()
                ),
                b"folder": Directory(*FOLDER[:3], 7 if change != 12 else 8, ()),
            }
            return Directory(*(FOLDER if change != 13 else (*FOLDER[:3], 9, ())), entries)

        build(tmp_path / "image", inner)
        return tree_digest(reader(tmp_path / "image"))

    assert len({make(change) for change in range(14)}) == 14


@pytest.fixture
def links(tmp_path: Path) -> SquashfsReader:
    def make(writer: DataWriter) -> Directory:
        inner: Entries = {
            b"file": file(writer, b"content" * 50_000),
            b"up": Symlink(*PLAIN, b"../../usr/./bin//file"),
            b"out": Symlink(*PLAIN, b"../../../../usr/bin/file"),
            b"root": Symlink(*PLAIN, b"/"),
            b"loop": Symlink(*PLAIN, b"loop"),
            b"dangling": Symlink(*PLAIN, b"nothing"),
        }
        usr = Directory(*FOLDER, {b"bin": Directory(*FOLDER, inner)})
        return Directory(
            *FOLDER, {b"usr": usr, b"bin": Symlink(*PLAIN, b"usr/bin"), b"abs": Symlink(*PLAIN, b"/bin/file")}
        )

    build(tmp_path / "image", make)
    return reader(tmp_path / "image")


@pytest.mark.parametrize(
    "path",
    (
        "usr/bin/file",
        "/usr/bin/file",
        "bin/file",
        "abs",
        b"//abs",
        "bin/up",
        "bin/out",
        "bin/root/abs",
        "../bin/../bin/file",
        "usr/../abs",
    ),
)
def test_links_are_followed_inside_the_image(links: SquashfsReader, path: str | bytes) -> None:
    assert links.read(path, 12) == b"contentconte"
    assert links.read(path, 1 << 30) == b"content" * 50_000


def test_what_is_not_there(links: SquashfsReader) -> None:
    for path in ("nothing", "bin/loop", "bin/dangling", "abs/x", "bin/file/..", "zzz", "usr/bin/loop/x"):
        assert links.lookup(path) is None
        with pytest.raises(ImageError, match="the image has no regular file"):
            links.read(path, 1)
    loop, found = links.lookup("bin/loop", follow=False), links.lookup("bin", follow=False)
    assert loop is not None and found is not None and found.kind == "l"
    assert (loop.target, found.target) == (b"loop", b"usr/bin")
    inside = links.lookup("bin/root/bin")
    assert inside is not None
    assert [name for name, _ in links.entries(inside)] == [b"dangling", b"file", b"loop", b"out", b"root", b"up"]
    assert links.lookup("") == links.lookup("/") == links.root
    assert [name for name, _ in links.entries(links.root)] == [b"abs", b"bin", b"usr"]
    assert links.read("abs", 0) == b""


@pytest.mark.parametrize("head", (0, 1, 131072, 131073))
def test_no_more_is_read_than_asked_for_of_a_file_of_holes(tmp_path: Path, head: int) -> None:
    """Such as a hostile one of many GiB, whose holes lie in one piece."""
    hole, start = 600 << 20, b"x" * head

    def make(writer: DataWriter) -> Directory:
        writer.start()
        writer.write(start)
        writer.hole(hole)
        return Directory(*FOLDER, {b"f": File(*PLAIN, writer.finish())})

    build(tmp_path / "image", make)
    image = reader(tmp_path / "image")
    tracemalloc.start()
    for limit in (0, 1, head, head + 1, 131072, 131073, 300_000):
        assert image.read("f", limit) == start[:limit] + bytes(max(0, limit - head))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 3 << 20


@pytest.mark.parametrize("compression", ("lzo", "lzma"))
def test_a_compression_that_cannot_be_read_is_named(tree: Path, tmp_path: Path, compression: str) -> None:
    image = mksquashfs(tree / "many", tmp_path / "image", "-comp", compression)
    with pytest.raises(ImageError, match=f"compression {compression} is not supported"):
        reader(image)


def test_what_is_no_squashfs_is_told(tmp_path: Path) -> None:
    build(tmp_path / "image", lambda _: Directory(*FOLDER))
    whole = (tmp_path / "image").read_bytes()
    for data, message in (
        (b"", "magic number"),
        (b"hsqs", "magic number"),
        (bytes(4096), "magic number"),
        (whole[:120], "truncated squashfs"),
        (whole[:28] + struct.pack("<HH", 3, 1) + whole[32:], "version 3.1"),
        (whole[:12] + struct.pack("<I", 1 << 30) + whole[16:], "block size"),
    ):
        (tmp_path / "bad").write_bytes(data)
        with pytest.raises(ImageError, match=message):
            reader(tmp_path / "bad")


def test_directories_in_a_loop_are_told(tmp_path: Path) -> None:
    (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
    image = mksquashfs(tmp_path / "tree", tmp_path / "image", "-noI")
    data = bytearray(image.read_bytes())
    root, table = (struct.unpack_from("<Q", data, at)[0] for at in (32, 72))
    entry = data.index(b"\0\0b", table) - 6  # offset, number, type, length, name
    struct.pack_into("<H", data, entry, root & 0xFFFF)  # `b` now has the root's inode
    image.write_bytes(data)
    with pytest.raises(ImageError, match="form a loop"):
        list(reader(image).walk())
    with pytest.raises(ImageError, match="form a loop"):
        tree_digest(reader(image))
