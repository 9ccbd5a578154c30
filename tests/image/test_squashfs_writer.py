"""The squashfs writer, judged by unsquashfs, the kernel, squashfuse and mksquashfs."""

import os
import stat
import zlib
from pathlib import Path

import pytest

from sifmod.image.convert.inode import Device, Directory, Entries, Fifo, File, Symlink
from sifmod.image.convert.squashfs.reader import tree_digest
from sifmod.image.convert.squashfs.writer import DataWriter
from support.squashfs_trees import (
    FOLDER,
    PLAIN,
    Make,
    all_below,
    build,
    file,
    from_directory,
    listed,
    mksquashfs,
    mounted,
    mounted_by_kernel,
    noise,
    reader,
    snapshot,
    unpacked,
)

COMPRESSIONS = ("zstd:1", "zstd:3", "zstd:19", "gzip:1", "gzip:2", "gzip:3", "gzip:6", "gzip:9", "lz4", "lz4hc:9")
BLOCK = 131072
ODD = ("plain", "with space", "new\nline", "ümlaut", "x" * 255, "-rf", "*", os.fsdecode(b"\xff\xfe not utf-8"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory of everything that an ordinary user can make."""
    top = tmp_path / "tree"
    (top / "deep" / "er" / "empty").mkdir(parents=True)
    for name in ODD:
        (top / name).write_bytes(name.encode(errors="surrogateescape"))
    for size in (0, 1, 4096, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 1_000_003):
        (top / f"text{size}").write_bytes((b"some text %d\n" % size * (size // 8 + 1))[:size])
        (top / f"noise{size}").write_bytes(noise(size))
        (top / f"zeros{size}").write_bytes(bytes(size))
    mixed = bytes(BLOCK) + noise(BLOCK) + bytes(3 * BLOCK) + b"end"
    (top / "holes").write_bytes(mixed)
    (top / "starts with zeros").write_bytes(bytes(BLOCK + 1) + noise(BLOCK))
    (top / "link").symlink_to("deep/er")
    (top / "dangling").symlink_to("x" * 4000)
    os.mkfifo(top / "fifo")
    for name in ("deep/other name", "deep/er/third name"):
        os.link(top / "plain", top / name)
    os.link(top / "noise1000003", top / "deep" / "large with two names")
    os.symlink("target", top / "l1")
    os.link(top / "l1", top / "l2", follow_symlinks=False)
    os.setxattr(top / "plain", "user.binary", bytes(range(256)))
    os.setxattr(top / "plain", "user.empty", b"")
    os.setxattr(top / "text4096", "user.large", noise(3000))
    os.setxattr(top / "deep", "user.of.a.directory", b"x")
    for mode, name in enumerate(("text1", "noise1", "zeros1")):
        kept = 0o7777 if os.geteuid() == 0 else 0o777  # by unsquashfs
        (top / name).chmod((0o4755, 0o2711, 0o0400)[mode] & kept)
    (top / "deep").chmod(0o1777)
    for path in sorted(all_below(top), reverse=True):
        os.utime(path, (0, zlib.crc32(os.fsencode(path.name)) >> 1), follow_symlinks=False)
    return top


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_unsquashfs_unpacks_what_was_put_in(tree: Path, tmp_path: Path, compression: str) -> None:
    image = tmp_path / "image"
    size = build(image, lambda writer: from_directory(writer, tree), compression)
    assert size == image.stat().st_size and size % 4096 == 0
    assert snapshot(unpacked(image, tmp_path / "out")) == snapshot(tree)


def test_an_image_lies_at_any_offset(tree: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    size = build(first, lambda writer: from_directory(writer, tree))
    build(second, lambda writer: from_directory(writer, tree), offset=36864)
    assert second.read_bytes()[36864:] == first.read_bytes() and len(first.read_bytes()) == size
    assert snapshot(unpacked(second, tmp_path / "out", offset=36864)) == snapshot(tree)


@pytest.mark.parametrize("compression", ("zstd:3", "gzip:2", "gzip:9", "lz4", "lz4hc"))
def test_squashfuse_and_the_kernel_read_it(tree: Path, tmp_path: Path, compression: str) -> None:
    image, target = tmp_path / "image", tmp_path / "mounted"
    build(image, lambda writer: from_directory(writer, tree), compression)
    with mounted_by_kernel(image, target):
        assert snapshot(target) == snapshot(tree)
    target.rmdir()
    ours = snapshot(tree, with_xattrs=False)
    with mounted(image, target):
        theirs = snapshot(target, with_xattrs=False)
    assert {path: facts[:5] + facts[7:8] for path, facts in theirs.items()} == {
        path: facts[:5] + facts[7:8] for path, facts in ours.items()
    }


@pytest.mark.usefixtures("needs_root")
def test_owners_devices_and_attributes_of_root(tmp_path: Path) -> None:
    def make(writer: DataWriter) -> Directory:
        capability = ((b"security.capability", b"\1\0\0\2" + bytes(16)), (b"trusted.x", b"\0"))
        entries: Entries = {
            b"block": Device(0o660, 0, 6, 1, capability, "b", 4095, (1 << 20) - 1),
            b"char": Device(0o666, 1, 2, 0, (), "c", 1, 3),
            b"fifo": Fifo(0o600, 4_294_967_294, 65536, 0xFFFFFFFF, capability),
            b"file": file(writer, b"x", (0o4755, 1000, 100, 86400, capability)),
            b"link": Symlink(0o777, 5, 6, 0, capability, b"/file"),
        }
        return Directory(0o711, 3, 4, 5, capability, entries)

    image = tmp_path / "image"
    build(image, make)
    assert [" ".join(line.split()) for line in listed(image) if "root" in line and "block" not in line] == [
        "drwx--x--x 3/4 76 1970-01-01 00:00 squashfs-root",
        "crw-rw-rw- 1/2 1, 3 1970-01-01 00:00 squashfs-root/char",
        "prw------- 4294967294/65536 0 2106-02-07 06:28 squashfs-root/fifo",
        "-rwsr-xr-x 1000/100 1 1970-01-02 00:00 squashfs-root/file",
        "lrwxrwxrwx 5/6 5 1970-01-01 00:00 squashfs-root/link -> /file",
    ]
    with mounted_by_kernel(image, tmp_path / "mounted") as target:  # unsquashfs cannot show such a number
        block = (target / "block").lstat()
        assert (stat.filemode(block.st_mode), block.st_rdev) == ("brw-rw----", os.makedev(4095, (1 << 20) - 1))
    ours = reader(image)
    assert [(path, ours.xattrs(found)) for path, found, _ in ours.walk() if found.kind != "c"] == [
        (name, ((b"security.capability", b"\1\0\0\2" + bytes(16)), (b"trusted.x", b"\0")))
        for name in (b"block", b"fifo", b"file", b"link")
    ]


def test_the_same_calls_give_the_same_bytes(tree: Path, tmp_path: Path) -> None:
    images = []
    for processors in (1, 2, 4, 9):
        image = tmp_path / str(processors)
        build(image, lambda writer: from_directory(writer, tree), processors=processors)
        images.append(image.read_bytes())
    assert images.count(images[0]) == 4


def test_how_data_is_cut_into_pieces_does_not_matter(tmp_path: Path) -> None:
    data = bytes(BLOCK // 2) + noise(BLOCK) + bytes(5 * BLOCK) + noise(3 * BLOCK + 7)

    def make(sizes: tuple[int, ...], holes: bool) -> Make:
        def inner(writer: DataWriter) -> Directory:
            writer.start()
            at = i = 0
            while at < len(data):
                piece = data[at : at + sizes[i % len(sizes)]]
                if holes and piece == bytes(len(piece)):
                    writer.hole(len(piece))
                else:
                    writer.write(memoryview(piece) if i % 2 else piece)
                at, i = at + len(piece), i + 1
            return Directory(*FOLDER, {b"x": File(*PLAIN, writer.finish())})

        return inner

    images = []
    for sizes in ((len(data),), (1000, 1), (BLOCK,), (BLOCK - 1, BLOCK + 1, 0, 5), (1 << 20,), (4096,)):
        for holes in (False, True):
            build(tmp_path / "image", make((*(s or 1 for s in sizes),), holes))
            images.append((tmp_path / "image").read_bytes())
    assert images.count(images[0]) == len(images)
    assert (unpacked(tmp_path / "image", tmp_path / "out") / "x").read_bytes() == data


def test_mksquashfs_says_the_same(tree: Path, tmp_path: Path) -> None:
    (tree / "l2").unlink()  # mksquashfs 4.5 makes two files of a symbolic link with two names, now and then
    build(tmp_path / "ours", lambda writer: from_directory(writer, tree))
    theirs = mksquashfs(tree, tmp_path / "theirs", "-comp", "zstd")
    without_sizes = [
        [[line.split()[:2], line.split()[3:]] if line.startswith("d") else line.split() for line in listed(image)]
        for image in (tmp_path / "ours", theirs)
    ]
    assert without_sizes[0] == without_sizes[1]
    assert tree_digest(reader(tmp_path / "ours")) == tree_digest(reader(theirs))
