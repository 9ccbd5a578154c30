"""The ends of what a squashfs holds: many names, ids and attributes, large files, and what is refused."""

import os
from pathlib import Path

import pytest

from sifmod.errors import ImageError
from sifmod.image.convert.inode import Directory, Entries, Fifo, File, Symlink
from sifmod.image.convert.squashfs.compression import parse
from sifmod.image.convert.squashfs.writer import DataWriter, SquashfsWriter
from support.squashfs_trees import (
    FOLDER,
    PLAIN,
    Make,
    build,
    file,
    listed,
    mounted,
    noise,
    reader,
    unpacked,
)


def test_a_directory_of_70000_names(tmp_path: Path) -> None:
    image = tmp_path / "image"

    def make(writer: DataWriter) -> Directory:
        files: Entries = {b"%d" % i: file(writer, b"%d" % i) for i in range(70_000)}
        return Directory(*FOLDER, {b"d": Directory(*FOLDER, files)})

    build(image, make)
    names = sorted(str(i) for i in range(70_000))
    assert [line.split()[-1] for line in listed(image)[-70_000:]] == [f"squashfs-root/d/{name}" for name in names]
    target = tmp_path / "mounted"  # a lookup by name goes through the index here
    with mounted(image, target):
        assert all((target / "d" / str(i)).read_bytes() == b"%d" % i for i in range(0, 70_000, 331))
        assert not (target / "d" / "70000").exists()


def with_ids(count: int) -> Make:
    """Files of so many different owners and groups, root's 0 among them."""

    def make(writer: DataWriter) -> Directory:
        content = writer.add(b"")
        entries: Entries = {}
        for i in range(0, count, 2):
            owner = i * 7, min(i + 1, count - 1) * 7
            entries[b"%06d" % i] = File(0o644, *owner, 0, (), content)
        return Directory(*FOLDER, entries)

    return make


def test_65535_ids_are_kept(tmp_path: Path) -> None:
    image = tmp_path / "image"
    build(image, with_ids(65_535))
    seen = {line.split()[1] for line in listed(image) if "root/" in line}
    assert seen == {f"{i * 7}/{min(i + 1, 65_534) * 7}" for i in range(0, 65_535, 2)}


def test_65536_ids_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="more than 65535 different owner and group ids"):
        build(tmp_path / "image", with_ids(65_536))
    assert not (tmp_path / "image").read_bytes().startswith(b"hsqs")


@pytest.mark.parametrize("name", (b"x" * 256, b"", b".", b"..", b"a/b", b"/", b"a\0b"))
def test_a_name_that_no_file_has_is_refused(tmp_path: Path, name: bytes) -> None:
    with pytest.raises(ImageError):
        build(tmp_path / "image", lambda _: Directory(*FOLDER, {b"a": Fifo(*PLAIN), name: Fifo(*PLAIN)}))


@pytest.mark.parametrize("target", (b"", b"x" * 4096))
def test_a_target_that_linux_cannot_read_is_refused(tmp_path: Path, target: bytes) -> None:
    with pytest.raises(ImageError, match="symbolic link"):
        build(tmp_path / "image", lambda _: Directory(*FOLDER, {b"a": Symlink(*PLAIN, target)}))


def test_a_directory_with_two_names_is_refused(tmp_path: Path) -> None:
    inner = Directory(*FOLDER)
    with pytest.raises(ImageError, match="has two names"):
        build(tmp_path / "image", lambda _: Directory(*FOLDER, {b"a": inner, b"b": inner}))


def test_files_of_over_4_gib_and_holes_cost_nothing(tmp_path: Path) -> None:
    def make(writer: DataWriter) -> Directory:
        writer.start()
        writer.write(b"begin")
        writer.hole(8 << 30)
        writer.write(b"end")
        sparse = File(*PLAIN, writer.finish())
        writer.start()
        writer.hole(1 << 40)
        return Directory(*FOLDER, {b"sparse": sparse, b"terabyte": File(*PLAIN, writer.finish())})

    image = tmp_path / "image"
    build(image, make)
    assert image.stat().st_size < 200_000
    assert [line.split()[2] for line in listed(image)[-2:]] == [str((8 << 30) + 8), str(1 << 40)]
    target = tmp_path / "mounted"
    with mounted(image, target), (target / "sparse").open("rb") as opened:
        assert opened.read(6) == b"begin\0"
        opened.seek((8 << 30) + 3)
        assert opened.read() == b"\0\0end"


def test_zeros_that_are_written_become_holes(tmp_path: Path) -> None:
    def make(writer: DataWriter) -> Directory:
        writer.start()
        for _ in range(8 << 10):
            writer.write(bytes(1 << 20))
        return Directory(*FOLDER, {b"zeros": File(*PLAIN, writer.finish())})

    build(tmp_path / "image", make)
    assert (tmp_path / "image").stat().st_size <= 8192
    assert listed(tmp_path / "image")[-1].split()[2] == str(8 << 30)


def test_more_blocks_than_memory_holds_are_refused(tmp_path: Path) -> None:
    def make(writer: DataWriter) -> Directory:
        writer.start()
        writer.hole(1 << 60)
        return Directory(*FOLDER, {b"x": File(*PLAIN, writer.finish())})

    with pytest.raises(ImageError, match=r"more than [0-9]+ blocks of [0-9]+ bytes"):
        build(tmp_path / "image", make)


def test_data_beyond_4_gib_of_image(tmp_path: Path) -> None:
    image = tmp_path / "image"
    data = noise(3 << 20)
    with image.open("w+b") as opened, SquashfsWriter(opened, 0, parse("zstd:3"), 2, 0) as writer:
        writer._pipeline.position = (1 << 32) - (1 << 20)  # as if a lot were written, without that
        entries: Entries = {name: file(writer, data, PLAIN) for name in (b"across", b"after")}
        entries[b"small"] = file(writer, b"after it")
        writer.close(Directory(*FOLDER, entries))
    ours = reader(image)
    expected = {"across": data, "after": data, "small": b"after it"}
    assert {name: ours.read(name, 1 << 30) for name in expected} == expected
    with mounted(image, tmp_path / "mounted") as target:
        assert {name: (target / name).read_bytes() for name in expected} == expected
    assert {path.name: path.read_bytes() for path in unpacked(image, tmp_path / "out").iterdir()} == expected


def test_extended_attributes_of_any_size(tmp_path: Path) -> None:
    xattrs = (*((b"user.n%04d" % i, noise(i * 40, i)) for i in range(300)), (b"user.z", noise(65536)))

    def make(writer: DataWriter) -> Directory:
        return Directory(*FOLDER, {b"a": File(*PLAIN[:4], xattrs, writer.add(b"")), b"b": Fifo(*PLAIN[:4], xattrs)})

    build(tmp_path / "image", make)
    ours = reader(tmp_path / "image")
    assert [ours.xattrs(stat) for _, stat, _ in ours.walk()] == [xattrs, xattrs]
    target = tmp_path / "mounted"
    with mounted(tmp_path / "image", target):
        assert tuple((n, os.getxattr(target / "a", n)) for n in (b"user.n0299", b"user.z")) == xattrs[-2:]


@pytest.mark.parametrize("xattr", ((b"system.posix_acl_access", b""), (b"user.", b"x"), (b"user.x", bytes(65537))))
def test_an_attribute_that_cannot_be_kept_is_refused(tmp_path: Path, xattr: tuple[bytes, bytes]) -> None:
    with pytest.raises(ImageError, match="extended attribute"):
        build(tmp_path / "image", lambda _: Directory(*FOLDER[:4], (xattr,)))
