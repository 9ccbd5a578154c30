"""Inodes, listings and extended attributes as any writer of squashfs may lay them out, byte by byte."""

import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sifmod.errors import ImageError
from sifmod.image.convert.inode import Xattrs
from sifmod.image.convert.squashfs.blocks import Blocks, Stat, read_stat
from sifmod.image.convert.squashfs.compression import parse
from sifmod.image.convert.squashfs.metadata import ListingWriter, MetadataWriter, stored
from sifmod.image.convert.squashfs.pipeline import Pipeline
from sifmod.image.convert.squashfs.reader import SquashfsReader, read_xattrs, tree_digest
from sifmod.image.convert.squashfs.superblock import Superblock

NONE, NOWHERE = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
UNIT = 1 << 20
ROOT = Stat("d", 0o755, 1, 2, 3, 1, 2, 100)
IDS = (1000, 2000, 3000)


def refusal(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(ImageError) as caught:
        call(*arguments)
    return caught.value.message


def blocks(path: Path, content: bytes, *, inodes: int = 0, xattr_table: int = NOWHERE) -> Blocks:
    """A squashfs of a superblock and this content, of which so many bytes are the table of inodes."""
    superblock = Superblock(1, 0, 0, 1, 0, 1, 0, 96 + len(content), 96, xattr_table, 96, 96 + (inodes or 1), 0, 0)
    path.write_bytes(superblock.pack() + content)
    return Blocks(path.open("rb"), 0, path.stat().st_size)


def read_inode(path: Path, kind: int, form: str, *fields: int | bytes, ids: tuple[int, int] = (1, 2)) -> Stat:
    """The inode of a type with these fields behind what all have, somewhere inside its block."""
    inode = struct.pack("<HHHHII", kind, 0o107755, *ids, 77, 5) + struct.pack(form, *fields)
    table = stored(b"12345" + inode)
    return read_stat(blocks(path, table + b"-", inodes=len(table)), IDS, 5)


COMMON = (0o7755, 2000, 3000, 77, 5)


@pytest.mark.parametrize(
    ("kind", "form", "fields", "expected"),
    [
        (1, "<IIHHI", (9, 3, 103, 8, 1), Stat("d", *COMMON, links=3, size=100, start=9, offset=8)),
        (1, "<IIHHI", (9, 3, 2, 8, 1), Stat("d", *COMMON, links=3, size=0, start=9, offset=8)),
        (8, "<IIIIHHI", (3, 103, 9, 1, 0, 8, 4), Stat("d", *COMMON, links=3, size=100, start=9, offset=8, xattrs=4)),
        (3, "<II6s", (2, 6, b"target"), Stat("l", *COMMON, links=2, size=6, target=b"target")),
        (10, "<II6sI", (2, 6, b"target", 4), Stat("l", *COMMON, links=2, size=6, target=b"target", xattrs=4)),
        (4, "<II", (2, 0x801), Stat("b", *COMMON, links=2, device=0x801)),
        (5, "<II", (2, 0x801), Stat("c", *COMMON, links=2, device=0x801)),
        (11, "<III", (2, 0x801, 4), Stat("b", *COMMON, links=2, device=0x801, xattrs=4)),
        (12, "<III", (2, 0x801, 4), Stat("c", *COMMON, links=2, device=0x801, xattrs=4)),
        (6, "<I", (2,), Stat("p", *COMMON, links=2)),
        (7, "<I", (2,), Stat("s", *COMMON, links=2)),
        (13, "<II", (2, 4), Stat("p", *COMMON, links=2, xattrs=4)),
        (14, "<II", (2, 4), Stat("s", *COMMON, links=2, xattrs=4)),
    ],
)
def test_each_type_of_inode(
    tmp_path: Path, kind: int, form: str, fields: tuple[int | bytes, ...], expected: Stat
) -> None:
    assert read_inode(tmp_path / "image", kind, form, *fields) == expected


def test_both_types_of_a_file_s_inode(tmp_path: Path) -> None:
    """The list of blocks follows."""
    short = read_inode(tmp_path / "image", 2, "<IIIII", 4096, 6, 7, 500, 1)
    assert short == Stat("f", *COMMON, 1, 500, 4096, 7, 6, 96, 5 + 16 + 16)
    long = read_inode(tmp_path / "image", 9, "<QQQIIIII", 1 << 33, 1 << 34, 0, 3, 6, 7, 4, 1)
    assert long == Stat("f", *COMMON, 3, 1 << 34, 1 << 33, 7, 6, 96, 5 + 16 + 40, xattrs=4)


@pytest.mark.parametrize(("kind", "ids"), [(0, (0, 0)), (15, (0, 0)), (6, (3, 0)), (6, (0, 3))])
def test_an_inode_of_no_type_or_owner(tmp_path: Path, kind: int, ids: tuple[int, int]) -> None:
    message = f"damaged squashfs: an inode of type {kind} with owners {ids[0]} and {ids[1]} of 3"
    assert refusal(lambda: read_inode(tmp_path / "image", kind, "<I", 1, ids=ids)) == message


@pytest.mark.parametrize("size", [0, 65536])
def test_a_symbolic_link_of_no_good_length(tmp_path: Path, size: int) -> None:
    read = lambda: read_inode(tmp_path / "image", 3, "<II", 1, size)  # noqa: E731
    assert refusal(read) == f"damaged squashfs: a symbolic link of {size} bytes"


def xattr_image(path: Path, pairs: bytes, *sets: tuple[int, int]) -> Blocks:
    """A table of these pairs, and sets of a place and a count; the first block has 100 bytes of something else."""
    first, second = stored(bytes(100)), stored(pairs)
    lookup = stored(b"".join(struct.pack("<QII", place, count, 0) for place, count in sets))
    at = 96 + len(first) + len(second)
    header = struct.pack("<QII", 96, len(sets), 0) + struct.pack("<Q", at)
    return blocks(path, first + second + lookup + header, xattr_table=at + len(lookup))


def pair(kind: int, name: bytes, value: bytes) -> bytes:
    return struct.pack("<HH", kind, len(name)) + name + struct.pack("<I", len(value)) + value


SECOND = (100 + 2) << 16  # the place of the second block


def test_attributes_that_lie_anywhere(tmp_path: Path) -> None:
    """A value may be that of another attribute; sets are sorted when they are read."""
    first = pair(0, b"z", b"value")
    elsewhere = pair(0x101, b"b", struct.pack("<Q", SECOND | 5))  # behind type, length and name
    third = pair(2, b"", b"")
    image = xattr_image(
        tmp_path / "image", first + elsewhere + third, (SECOND, 3), (SECOND | len(first), 1), (SECOND, 0)
    )
    expected: Xattrs = ((b"security.", b""), (b"trusted.b", b"value"), (b"user.z", b"value"))
    assert read_xattrs(image, 0) == expected
    assert read_xattrs(image, 1) == expected[1:2]
    assert read_xattrs(image, 2) == ()
    assert refusal(read_xattrs, image, 3) == "damaged squashfs: set 3 of 3 of extended attributes"


def test_attributes_as_large_as_linux_has_them(tmp_path: Path) -> None:
    longest = pair(0, b"n" * 255, b"v" * 100)
    image = xattr_image(tmp_path / "image", longest, (SECOND, 1))
    assert read_xattrs(image, 0) == ((b"user." + b"n" * 255, b"v" * 100),)
    for pairs, message in (
        (pair(3, b"x", b""), "an extended attribute of type 3 with a name of 1 bytes"),
        (pair(0x103, b"x", b""), "an extended attribute of type 259 with a name of 1 bytes"),
        (pair(0, b"x" * 256, b""), "an extended attribute of type 0 with a name of 256 bytes"),
        (pair(0x100, b"x", bytes(7)), "the reference to an extended attribute's value has 7 bytes"),
        (struct.pack("<HH", 0, 0) + struct.pack("<I", 65537), "an extended attribute of 65537 bytes"),
    ):
        image = xattr_image(tmp_path / "image", pairs, (SECOND, 1))
        assert refusal(read_xattrs, image, 0) == f"damaged squashfs: {message}"
    image = xattr_image(tmp_path / "image", pair(0, b"x", b"") * 800, (SECOND, 4096), (SECOND, 4097))
    assert refusal(read_xattrs, image, 1) == "damaged squashfs: 4097 extended attributes of one file"
    assert "4096 extended" not in refusal(read_xattrs, image, 0)  # they are read, and end before


def uncompressed(pieces: list[bytes | memoryview]) -> list[bytes]:
    return [bytes(piece) for piece in pieces]


def runs(table: bytes) -> list[tuple[int, int, int, int]]:
    """The runs of a listing in uncompressed blocks: entries, the block of their inodes, base, the last one's delta."""
    content, at = b"", 0
    while at < len(table):
        size = int.from_bytes(table[at : at + 2], "little") & 0x7FFF
        content, at = content + table[at + 2 : at + 2 + size], at + 2 + size
    found, at = [], 0
    while at < len(content):
        count, block, base = struct.unpack_from("<III", content, at)
        at += 12
        for _ in range(count + 1):
            _, delta, _, length = struct.unpack_from("<HhHH", content, at)
            at += 9 + length
        found.append((count + 1, block, base, delta))
    return found


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(5, 10), (6, 11)], [(2, 0, 10, 1)]),
        ([(5, 10), (1 << 16, 11)], [(1, 0, 10, 0), (1, 1, 11, 0)]),
        ([(5, 10), (6, 32777)], [(2, 0, 10, 32767)]),
        ([(5, 10), (6, 32778)], [(1, 0, 10, 0), (1, 0, 32778, 0)]),
        ([(5, 40000), (6, 7232)], [(2, 0, 40000, -32768)]),
        ([(5, 40000), (6, 7231)], [(1, 0, 40000, 0), (1, 0, 7231, 0)]),
        ([(5, 1)] * 256, [(256, 0, 1, 0)]),
        ([(5, 1)] * 257, [(256, 0, 1, 0), (1, 0, 1, 0)]),
        ([(0, 0)], [(1, 0, 0, 0)]),
        ([], []),
    ],
)
def test_the_runs_of_a_listing(entries: Sequence[tuple[int, int]], expected: list[tuple[int, int, int, int]]) -> None:
    """A run ends with the block of its inodes, with the reach of their numbers, and with 256 entries."""
    table = MetadataWriter(uncompressed)
    listing = ListingWriter(table)
    for at, (place, number) in enumerate(entries):
        listing.add(b"%03d" % at, place, number, 2)
    listing.finish()
    assert (listing.size, listing.count, listing.index) == (len(table.buffer), 0, b"")
    assert runs(bytes(table.finish())) == expected


def test_a_run_that_reaches_into_the_next_block_ends_its_own() -> None:
    table = MetadataWriter(uncompressed)
    table.buffer += bytes(8192 - 12 - 2 * 10)  # room for a header and two entries
    begin = len(table.buffer)
    listing = ListingWriter(table)
    assert (listing.start, listing.offset) == (0, begin)
    for each in range(4):
        listing.add(b"%02d" % each, 0, each + 1, 2)
    listing.finish()
    assert (listing.count, listing.size) == (1, 2 * 12 + 4 * 10)
    assert listing.index == struct.pack("<III", 12 + 2 * 10, 8194, 1) + b"02"
    assert table.start == 8194
    assert bytes(table.buffer) == struct.pack("<III", 1, 0, 3) + b"".join(
        struct.pack("<HhHH", 0, each, 2, 1) + b"%02d" % (each + 2) for each in range(2)
    )


@dataclass
class Tree(SquashfsReader):
    """A tree of files for a digest."""

    listed: list[tuple[bytes, Stat, int]] = field(default_factory=list)
    contents: dict[int, list[bytes | int]] = field(default_factory=dict)
    attributes: dict[int, Xattrs] = field(default_factory=dict)
    root: Stat = ROOT

    def walk(self, enter: Callable[[bytes], bool] = lambda _: True) -> Iterator[tuple[bytes, Stat, int]]:
        return iter(name for name in self.listed if enter(name[0]))

    def data(self, file: Stat) -> Iterator[bytes | int]:
        return iter(self.contents[file.number])

    def xattrs(self, inode: Stat) -> Xattrs:
        return self.attributes.get(inode.number, ())


def of_pieces(*pieces: bytes | int) -> str:
    size = sum(piece if isinstance(piece, int) else len(piece) for piece in pieces)
    return tree_digest(Tree([(b"f", Stat("f", 0o644, 0, 0, 0, 2, 1, size), 9)], {2: list(pieces)}))


@pytest.mark.parametrize(
    "pieces",
    [
        (UNIT,),
        (UNIT - 1,),
        (UNIT + 1,),
        (5 * UNIT + 7,),
        (b"x" * (UNIT // 2), 3 * UNIT),
        (b"x" * (UNIT // 2), UNIT // 2, b"y" * UNIT),
        (b"x" * (UNIT // 2), 2 * UNIT + UNIT // 2, b"y" * 9),
        (3 * UNIT, b"z"),
        (5 * UNIT + UNIT // 2, b"y" * 9),
        (b"x" * UNIT, 5, 6, b"y"),
        (0, b"x"),
    ],
)
def test_a_hole_is_as_many_zeros(pieces: tuple[bytes | int, ...]) -> None:
    data = b"".join(bytes(piece) if isinstance(piece, int) else piece for piece in pieces)
    in_blocks = [data[at : at + UNIT // 4] for at in range(0, len(data), UNIT // 4)]
    assert of_pieces(*pieces) == of_pieces(*in_blocks)
    assert of_pieces(*pieces) != of_pieces(*in_blocks[:-1], b"q" * len(in_blocks[-1]))


def test_where_data_lies_counts() -> None:
    one = b"x" * UNIT
    assert len({of_pieces(one, UNIT, UNIT), of_pieces(UNIT, one, UNIT), of_pieces(UNIT, UNIT, one)}) == 3


def test_a_digest_is_of_these_records() -> None:
    """What is written down here may never change: receipts hold such digests."""
    xattrs: Xattrs = ((b"user.a", b"1"), (b"user.bc", b""))
    entries = [
        (b"d", Stat("d", 0o755, 4, 5, 6, 2, 2, 999), 1),
        (b"d/dev", Stat("c", 0o600, 0, 0, 7, 3, 2, device=0x103), 2),
        (b"f", Stat("f", 0o644, 1000, 100, 8, 4, 2, 5, xattrs=0), 3),
        (b"l", Stat("l", 0o777, 0, 0, 9, 5, 1, 3, target=b"d/f"), 4),
        (b"out", Stat("f", 0o644, 0, 0, 0, 6, 1, 1), 5),
        (b"z", entry := Stat("f", 0o644, 1000, 100, 8, 4, 2, 5, xattrs=0), 3),
    ]
    assert entry.number == 4
    tree = Tree(entries, {4: [b"hello"], 6: [b"!"]}, {4: xattrs})

    def record(path: bytes, kind: bytes, numbers: tuple[int, ...], size: int, device: int, rest: bytes) -> bytes:
        head = struct.pack("<IcIIIIQ", len(path), kind, *numbers, size)
        target = rest if kind == b"l" else b""
        attributes = (
            struct.pack("<II", 6, 1) + b"user.a1" + struct.pack("<II", 7, 0) + b"user.bc" if kind == b"f" else b""
        )
        lengths = struct.pack("<III", device, len(target), len(attributes))
        return head + lengths + path + target + attributes + (rest if kind == b"f" else b"")

    data = hashlib.sha256(struct.pack("<Q", 0) + b"hello").digest()
    expected = hashlib.sha256(
        b"sifmod squashfs tree 1\n"
        + record(b"", b"d", (0o755, 1, 2, 3), 0, 0, b"")
        + record(b"d", b"d", (0o755, 4, 5, 6), 0, 0, b"")
        + record(b"d/dev", b"c", (0o600, 0, 0, 7), 0, 0x103, b"")
        + record(b"f", b"f", (0o644, 1000, 100, 8), 5, 0, data)
        + record(b"l", b"l", (0o777, 0, 0, 9), 3, 0, b"d/f")
        + struct.pack("<IcQ", 1, b"h", 2)
        + b"z"
    )
    assert tree_digest(tree, {6}) == expected.hexdigest()
    assert tree_digest(tree) != expected.hexdigest()


@pytest.mark.parametrize(("processors", "batch"), [(0, 32), (1, 32), (3, 32), (4, 28), (16, 7), (31, 4), (128, 4)])
def test_more_threads_have_smaller_batches(tmp_path: Path, processors: int, batch: int) -> None:
    """So that the memory of what is under way is bounded."""
    with (tmp_path / "image").open("wb") as file:
        assert Pipeline(file, 0, parse("lz4"), processors).batch == batch
