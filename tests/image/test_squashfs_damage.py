"""Squashfs images that say something wrong in one place, byte by byte: each is told, and what is just right is read."""

import lzma
import struct
import zlib
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from sifmod.errors import ImageError
from sifmod.image.convert.inode import Content, Device, Directory, Entries, Fifo, File, Node, Symlink
from sifmod.image.convert.squashfs.blocks import Blocks, Cursor, Stat
from sifmod.image.convert.squashfs.compression import Compression, decompressor, parse
from sifmod.image.convert.squashfs.metadata import MetadataWriter, XattrTable, indexed, little, stored
from sifmod.image.convert.squashfs.pipeline import MOST_BLOCKS, Written
from sifmod.image.convert.squashfs.reader import SquashfsReader
from sifmod.image.convert.squashfs.superblock import Superblock, parse_superblock
from sifmod.image.convert.squashfs.tables import Common, Heads, Ids, block_sizes, pack_node, survey
from support.squashfs_trees import FOLDER, PLAIN, build, noise

BLOCK = 131072
NONE, NOWHERE = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
SUPERBLOCK = Superblock(1, 2, 3, 6, 0x80, 1, 0, 9000, 8000, NOWHERE, 96, 5000, 7000, 7500)


def refusal(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(ImageError) as caught:
        call(*arguments)
    return caught.value.message


def uncompressed(blocks: list[bytes | memoryview]) -> list[bytes]:
    """As a compressor that never makes anything shorter."""
    return [bytes(block) for block in blocks]


def test_a_superblock_is_read_as_it_was_written() -> None:
    assert parse_superblock(SUPERBLOCK.pack(), 9000) == SUPERBLOCK
    assert parse_superblock(SUPERBLOCK.pack() + b"more", 9001) == SUPERBLOCK


@pytest.mark.parametrize("log", range(10, 23))
def test_sizes_of_blocks(log: int) -> None:
    data = bytearray(SUPERBLOCK.pack())
    struct.pack_into("<I", data, 12, 1 << log)
    struct.pack_into("<H", data, 22, log)
    if 12 <= log <= 20:
        assert parse_superblock(bytes(data), 9000).block_size == 1 << log
    else:
        assert refusal(parse_superblock, data, 9000).endswith(f"block size is {1 << log}, its logarithm {log}")
    struct.pack_into("<H", data, 22, 15 if log != 15 else 16)
    assert "its block size is" in refusal(parse_superblock, data, 9000)


@pytest.mark.parametrize(
    ("at", "form", "value", "message"),
    [
        (0, "4s", b"sqsh", "not a squashfs file system: its magic number is missing"),
        (28, "<H", 3, "squashfs version 3.0 is not supported, only 4.0"),
        (30, "<H", 1, "squashfs version 4.1 is not supported, only 4.0"),
        (40, "<Q", 9001, "truncated squashfs: it should have 9001 bytes, but there are 9000"),
        *((at, "<Q", value, "damaged squashfs: its tables are outside of it") for at, value in (
            (64, 95), (64, 5000), (64, 5001), (72, 96), (72, 9000), (48, 95), (48, 9000),
        )),
    ],
)  # fmt: skip
def test_a_superblock_that_is_wrong(at: int, form: str, value: int | bytes, message: str) -> None:
    data = bytearray(SUPERBLOCK.pack())
    struct.pack_into(form, data, at, value)
    assert refusal(parse_superblock, data, 9000) == message
    assert refusal(parse_superblock, data[:95], 9000) == "not a squashfs file system: its magic number is missing"


@pytest.mark.parametrize(("at", "value"), [(64, 4999), (72, 97), (72, 8999), (48, 96), (48, 8999)])
def test_tables_at_the_ends_of_what_there_is(at: int, value: int) -> None:
    data = bytearray(SUPERBLOCK.pack())
    struct.pack_into("<Q", data, at, value)
    parse_superblock(bytes(data), 9000)


class Hand:
    """A squashfs with just a superblock, and bytes behind it that a test lays out."""

    def __init__(
        self, path: Path, content: bytes, *, fragments: int = 0, table: int = 96, block_size: int = 4096
    ) -> None:
        used = 96 + len(content)
        superblock = Superblock(1, 0, fragments, 1, 0, 1, 0, used, 96, NOWHERE, 96, 97, table, 0, block_size)
        path.write_bytes(superblock.pack() + content + b"what follows is no part of it")
        self.blocks = Blocks(path.open("rb"), 0, path.stat().st_size)


def test_bytes_outside_the_image(tmp_path: Path) -> None:
    blocks = Hand(tmp_path / "image", b"content").blocks
    assert blocks.raw(96, 7) == b"content"
    assert blocks.raw(0, 4) == b"hsqs"
    assert refusal(blocks.raw, 96, 8) == "damaged squashfs: 8 bytes at 96 are outside of it"
    assert refusal(blocks.raw, -1, 1) == "damaged squashfs: 1 bytes at -1 are outside of it"
    (tmp_path / "image").write_bytes(b"cut")
    assert refusal(blocks.raw, 96, 7) == "truncated squashfs: it ends before 103"


def test_an_image_in_a_space_of_no_size(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(SUPERBLOCK.pack())
    with (tmp_path / "image").open("rb") as file:
        for size in (-5, 0, 95):
            assert "magic number is missing" in refusal(Blocks, file, 0, size)


def test_a_metadata_block(tmp_path: Path) -> None:
    compress = parse("gzip:1").compressor()
    packed = bytes(compress([bytes(8192)])[0])
    content = stored(b"first") + struct.pack("<H", len(packed)) + packed + stored(bytes(8192))
    blocks = Hand(tmp_path / "image", content).blocks
    second = 96 + 7
    assert blocks.metadata(96) == (b"first", second)
    assert blocks.metadata(96) == (b"first", second)
    assert blocks.metadata(second) == (bytes(8192), second + 2 + len(packed))
    assert blocks.metadata(second + 2 + len(packed))[0] == bytes(8192)


def test_a_metadata_block_that_is_wrong(tmp_path: Path) -> None:
    compress = parse("gzip:1").compressor()
    empty, large = (bytes(compress([bytes(size)])[0]) for size in (0, 8193))
    for content, message in (
        (stored(b""), "a metadata block at 96 of 0 bytes"),
        (stored(bytes(8193)), "a metadata block at 96 of 8193 bytes"),
        (struct.pack("<H", len(empty)) + empty, "an empty metadata block at 96"),
        (struct.pack("<H", len(large)) + large, "cannot be decompressed: it is truncated or too large"),
    ):
        assert message in refusal(Hand(tmp_path / "image", content).blocks.metadata, 96)


def test_very_many_metadata_blocks_are_read(tmp_path: Path) -> None:
    """More than are kept; the first is then read again."""
    blocks = Hand(tmp_path / "image", b"".join(stored(b"%04d" % each) for each in range(300))).blocks
    at = 96
    for each in range(300):
        data, at = blocks.metadata(at)
        assert data == b"%04d" % each
    assert blocks.metadata.cache_info().currsize == 128
    assert blocks.metadata(96)[0] == b"0000"


def test_a_data_block_of_the_size_that_it_should_have(tmp_path: Path) -> None:
    packed = bytes(parse("gzip:1").compressor()([bytes(4096)])[0])
    blocks = Hand(tmp_path / "image", packed + bytes(4096)).blocks
    assert blocks.data(96, len(packed), 4096) == bytes(4096)
    assert blocks.data(96 + len(packed), 4096 | 1 << 24, 4096) == bytes(4096)
    wrong = "damaged squashfs: a data block of 4096 bytes at 96, expected 4095"
    assert refusal(blocks.data, 96, len(packed), 4095) == wrong
    for word in (4097, 4097 | 1 << 24):
        large = "damaged squashfs: a data block of 4097 bytes, more than the block size 4096"
        assert refusal(blocks.data, 96, word, 1) == large
    for word in (1 << 25, 1 << 31, 1 << 25 | 4097):
        assert (
            refusal(blocks.data, 96, word, 1) == f"damaged squashfs: a data block has the invalid size field {word:#x}"
        )


def fragments(path: Path, *words: int) -> Blocks:
    """Fragments of the bytes behind the superblock, with these sizes."""
    data = bytes(range(256)) * 16
    entries = stored(b"".join(struct.pack("<QII", 96, word, 0) for word in words))
    content = data + entries + struct.pack("<Q", 96 + len(data))
    return Hand(path, content, fragments=len(words), table=96 + len(data) + len(entries)).blocks


def test_fragments_are_read_whatever_was_read_before(tmp_path: Path) -> None:
    blocks = fragments(tmp_path / "image", *(size | 1 << 24 for size in range(1, 8)))
    for index in (0, 1, 2, 3, 4, 5, 6, 6, 0, 1):
        assert blocks.fragment(index) == bytes(range(index + 1))
    assert blocks.fragment.cache_info().currsize == 4
    assert refusal(blocks.fragment, 7) == "damaged squashfs: fragment 7 of 7"


def test_a_fragment_that_is_wrong(tmp_path: Path) -> None:
    stored_word = 1 << 24
    blocks = fragments(tmp_path / "image", 4096 | stored_word, 4097 | stored_word, 1 << 25, 100)
    assert len(blocks.fragment(0)) == 4096
    assert refusal(blocks.fragment, 1) == "damaged squashfs: a fragment of 4097 bytes, more than the block size 4096"
    assert refusal(blocks.fragment, 2) == "damaged squashfs: a fragment has the invalid size field 0x2000000"
    assert refusal(blocks.fragment, 3).startswith("damaged squashfs: a gzip block cannot be decompressed")


def test_an_indexed_table(tmp_path: Path) -> None:
    numbers = struct.pack("<5000I", *range(5000))
    table, place = indexed(numbers, uncompressed, 96)
    blocks = Hand(tmp_path / "image", table).blocks
    for number in (0, 1, 2047, 2048, 4095, 4096, 4999):
        assert blocks.indexed(place, number, 4) == struct.pack("<I", number)
    assert refusal(blocks.indexed, place, 5000, 4) == f"damaged squashfs: a table at {place} has no entry 5000"
    assert struct.unpack("<3Q", table[place - 96 :]) == (96, 96 + 8194, 96 + 2 * 8194)


def test_a_cursor_goes_over_blocks(tmp_path: Path) -> None:
    blocks = Hand(tmp_path / "image", stored(b"abcd") + stored(b"ef") + stored(b"ghij")).blocks
    cursor = Cursor(blocks, 96, 1)
    assert [cursor.take(size) for size in (0, 1, 2, 0, 4, 1, 1)] == [b"", b"b", b"cd", b"", b"efgh", b"i", b"j"]
    assert (cursor.start, cursor.offset) == (96 + 6 + 4, 4)
    assert Cursor(blocks, 96, 4).take(2) == b"ef"
    assert refusal(Cursor(blocks, 96, 5).take, 1) == "damaged squashfs: offset 5 in a metadata block of 4 bytes"


def test_metadata_is_cut_into_blocks() -> None:
    writer = MetadataWriter(uncompressed)
    for size in (8191, 1, 20_000):
        writer.buffer += noise(size)
        writer.flush()
        assert len(writer.buffer) < 8192
    assert (len(writer.buffer), writer.start) == (20_000 - 2 * 8192, 3 * 8194)
    table = writer.finish()
    assert (len(writer.buffer), len(table)) == (0, 3 * 8194 + 2 + 20_000 - 2 * 8192)
    assert table[:2] == table[8194:8196] == struct.pack("<H", 8192 | 0x8000)
    at_once = MetadataWriter(uncompressed)
    at_once.buffer += noise(20_000)
    assert len(at_once.finish()) == 3 * 2 + 20_000
    assert MetadataWriter(uncompressed).finish() == b""
    shorter = MetadataWriter(lambda blocks: [bytes(len(blocks[0]) - 1)])
    shorter.buffer += b"1234"
    assert shorter.finish() == b"\3\0" + bytes(3)


IMAGE: tuple[Node, ...] = (
    Symlink(0o777, 0, 0, 1, (), b"target"),
    Device(0o660, 1, 2, 3, (), "b", 8, 300),
    Device(0o666, 1, 2, 3, (), "c", 4095, 1048575),
    Fifo(0o600, 5, 6, 7, ()),
)


def one(path: Path, node: Node | bytes, data: bytes = b"") -> tuple[SquashfsReader, Stat]:
    """An image of one entry `x`, nothing of it compressed shorter, and what the reader says of the entry."""
    build(
        path, lambda writer: Directory(*FOLDER, {b"x": File(*PLAIN, writer.add(data)) if node == b"" else node}), "lz4"
    )
    found = SquashfsReader(path.open("rb"), 0, path.stat().st_size)
    stat = found.lookup("x", follow=False)
    assert stat is not None
    return found, stat


def device_numbers(stat: Stat) -> tuple[int, int]:
    """As Linux decodes them."""
    return stat.device >> 8 & 0xFFF, (stat.device & 0xFF) | (stat.device >> 12 & 0xFFF00)


@pytest.mark.parametrize("node", IMAGE, ids=("link", "block", "char", "fifo"))
@pytest.mark.parametrize("xattrs", ((), ((b"user.a", b"1"),)), ids=("plain", "attributes"))
def test_each_kind_of_inode_says_what_it_is(
    tmp_path: Path, node: Node, xattrs: tuple[tuple[bytes, bytes], ...]
) -> None:
    node = type(node).__new__(type(node))
    source = next(each for each in IMAGE if type(each) is type(node))
    for name in ("mode", "uid", "gid", "mtime", *(("target",) if isinstance(node, Symlink) else ())):
        setattr(node, name, getattr(source, name))
    if isinstance(node, Device):
        node.kind, node.major, node.minor = "b", 8, 300
    node.xattrs = xattrs
    image, stat = one(tmp_path / "image", node)
    assert (stat.mode, stat.uid, stat.gid, stat.mtime, stat.links) == (node.mode, node.uid, node.gid, node.mtime, 1)
    assert image.xattrs(stat) == xattrs
    if isinstance(node, Symlink):
        assert (stat.kind, stat.target, stat.size) == ("l", b"target", 6)
    elif isinstance(node, Device):
        assert (stat.kind, *device_numbers(stat)) == ("b", 8, 300)
    else:
        assert (stat.kind, stat.size) == ("p", 0)


def test_the_largest_numbers_of_a_device(tmp_path: Path) -> None:
    _, stat = one(tmp_path / "image", IMAGE[2])
    assert (stat.kind, *device_numbers(stat)) == ("c", 4095, 1048575)


@pytest.mark.parametrize("numbers", [(4095, 0x100), (0xF00, 0xFF), (0, 0xFFF00), (1, 0)])
def test_the_bits_of_a_device_do_not_mix(tmp_path: Path, numbers: tuple[int, int]) -> None:
    _, stat = one(tmp_path / "image", Device(*PLAIN, "b", *numbers))
    assert device_numbers(stat) == numbers


def test_inodes_in_many_blocks(tmp_path: Path) -> None:
    nodes: Entries = {b"%04d" % each: Fifo(0o600, each % 3, each % 5, each, ()) for each in range(2000)}
    build(tmp_path / "image", lambda _: Directory(*FOLDER, nodes), "lz4")
    image = SquashfsReader((tmp_path / "image").open("rb"), 0, (tmp_path / "image").stat().st_size)
    found = [(stat.mode, stat.uid, stat.gid, stat.mtime) for _, stat, _ in image.walk()]
    assert found == [(0o600, each % 3, each % 5, each) for each in range(2000)]


def test_an_inode_outside_its_table(tmp_path: Path) -> None:
    image, _ = one(tmp_path / "image", Fifo(*PLAIN))
    superblock = image.superblock
    size = superblock.directory_table - superblock.inode_table
    at = superblock.directory_table
    assert refusal(image.stat, size << 16) == f"damaged squashfs: an inode at {at}, outside the table of inodes"
    assert "damaged" in refusal(image.stat, (size - 1) << 16)


def packing(node: Node) -> str:
    return refusal(pack_node, node, Common(0, 0, 1, 1, NONE), Written())


def test_nodes_that_no_squashfs_holds() -> None:
    plain = (0o644, 0, 0, 0, ())
    assert packing(Symlink(*plain, b"")) == "a symbolic link's target has 0 bytes, expected 1 to 4095"
    assert packing(Symlink(*plain, b"x" * 4096)) == "a symbolic link's target has 4096 bytes, expected 1 to 4095"
    pack_node(Symlink(*plain, b"x" * 4095), Common(0, 0, 1, 1, NONE), Written())
    for major, minor in ((4096, 0), (0, 1 << 20), (-1, 0), (0, -1)):
        message = packing(Device(*plain, "c", major, minor))
        assert message == f"device numbers {major}, {minor} are larger than Linux allows"
    assert packing(Node(*plain)) == "a squashfs cannot contain a Node"


def file_of(content: Content, links: int = 1, start: int = 1000, xattrs: int = NONE) -> bytes:
    written = Written()
    written.reserve(8)
    if not content.sparse:
        for each in range(3):
            written.note(each, start + each, 100 + each)
    return pack_node(File(*PLAIN, content), Common(1, 2, 3, links, xattrs), written)[1]


def test_the_form_of_a_file_s_inode() -> None:
    """The short one where everything fits into it."""
    head = struct.pack("<HHHHII", 2, 0o644, 1, 2, 1_700_000_000, 3)
    long_head = struct.pack("<H", 9) + head[2:]
    fragment = Content(5, fragment=7, offset=11)
    blocks = Content(2 * BLOCK + 1)
    words = struct.pack("<3I", 100, 101, 102)
    assert file_of(fragment) == head + struct.pack("<4I", 0, 7, 11, 5)
    assert file_of(blocks) == head + struct.pack("<4I", 1000, NONE, 0, blocks.size) + words
    assert file_of(Content(BLOCK, block=1, stored=2))[16:20] == struct.pack("<I", 1002)
    assert file_of(blocks, start=(1 << 32) - 1)[:2] == b"\2\0"
    tail = struct.pack("<4I", 1, NONE, 0, NONE)
    large = long_head + struct.pack("<QQQ", 1 << 32, blocks.size, 0) + tail + words
    assert file_of(blocks, start=1 << 32) == large
    linked = struct.pack("<QQQ4I", 0, 5, 0, 2, 7, 11, NONE)
    assert file_of(fragment, links=2) == long_head + linked
    assert file_of(fragment, xattrs=6) == long_head + struct.pack("<QQQ4I", 0, 5, 0, 1, 7, 11, 6)
    holes = Content(BLOCK, sparse=BLOCK)
    assert file_of(holes) == long_head + struct.pack("<QQQ", 0, BLOCK, BLOCK - 1) + tail + bytes(4)
    assert file_of(Content(1 << 32, stored=0, block=0, sparse=0))[:2] == b"\x09\0"


def test_the_blocks_of_a_file() -> None:
    written = Written()
    written.reserve(4)
    for each in range(4):
        written.note(each, 0, each + 1)
    assert list(block_sizes(Content(BLOCK, block=1), written)) == [2]
    assert list(block_sizes(Content(BLOCK + 1, block=1), written)) == [2, 3]
    assert list(block_sizes(Content(2 * BLOCK, block=1), written)) == [2, 3]
    assert list(block_sizes(Content(0), written)) == []
    assert list(block_sizes(Content(5, fragment=0), written)) == []


def test_as_many_blocks_as_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sifmod.image.convert.squashfs.pipeline.MOST_BLOCKS", 5)
    written = Written()
    written.reserve(2)
    written.reserve(3)
    assert list(written.sizes) == [0] * 5
    assert (
        refusal(written.reserve, 1)
        == "the image's files have more than 5 blocks of 131072 bytes in total, including holes"
    )
    written.reserve(0)
    written.note(2, 700, 30)
    written.note(-1, 800, 40)
    assert (list(written.sizes), list(written.starts)) == ([0, 0, 30, 0, 0], [700])
    assert (list(written.fragment_starts), list(written.fragment_sizes)) == ([800], [40])
    assert MOST_BLOCKS * BLOCK == 4 << 40


def test_owners_are_numbered_as_they_come() -> None:
    ids = Ids()
    assert [ids[value] for value in (1000, 0, 1000, (1 << 32) - 1)] == [0, 1, 0, 2]
    for value in (-1, 1 << 32):
        assert refusal(ids.__getitem__, value) == f"owner id {value} is not in 0…4294967295"
    for value in range(70_000, 70_000 + 65535 - 3):
        assert ids[value] >= 3
    assert ids[70_000] == 3
    assert "more than 65535 different owner and group ids" in refusal(ids.__getitem__, 5)


def test_how_the_inode_of_a_plain_file_begins() -> None:
    ids = Ids()
    heads = Heads(ids)
    owner = struct.pack("<HxxII", 0o640, 7, 8)
    assert heads[owner] == heads[owner] == struct.pack("<HHHH", 2, 0o640, 0, 1)
    assert list(ids) == [7, 8]


def tree(*names: bytes) -> Directory:
    return Directory(*FOLDER, {name: Fifo(*PLAIN) for name in names})


@pytest.mark.parametrize("name", (b"", b"a/b", b"/", b"a\0", b".", b".."))
def test_names_that_no_file_can_have(name: bytes) -> None:
    wanted = "an entry . or .." if name.strip(b".") == b"" and name else "an invalid file name"
    assert wanted in refusal(survey, tree(b"a", name, b"z"))
    assert wanted in refusal(survey, tree(name, *(b"!%d" % each for each in range(20))))


def test_names_as_long_as_linux_takes_them() -> None:
    assert survey(tree(b"x" * 255, b"y" * 255)).inodes == 3
    message = f"a name of 256 bytes is too long for Linux (at most 255): {b'x' * 256!r}"
    assert refusal(survey, tree(b"a", b"x" * 256)) == message


def test_a_tree_is_surveyed_from_above() -> None:
    shared = Fifo(*PLAIN)
    lower, upper = Directory(*FOLDER, {b"s": shared}), Directory(*FOLDER)
    root = Directory(*FOLDER, {b"b": lower, b"a": upper, b"s": shared, b"f": Fifo(*PLAIN), b"p": bytes(28)})
    seen = survey(root)
    assert seen.directories == (root, upper, lower)
    assert seen.names == ([b"a", b"b", b"f", b"p", b"s"], [], [b"s"])
    assert (seen.inodes, seen.parents) == (6, (7, 1, 1))
    assert seen.numbers == {id(root): 1, id(upper): 2, id(lower): 3}
    assert seen.links == {id(shared): 2}
    upper.entries[b"again"] = lower
    assert refusal(survey, root) == "a directory of the image has two names"


def test_a_table_of_attributes() -> None:
    table = XattrTable(uncompressed)
    assert table.number(()) == NONE
    assert table.finish(1000) == (b"", NOWHERE)
    first, second = ((b"user.a", b"1"), (b"trusted.bc", b"")), ((b"security.x", b"22"),)
    assert [table.number(each) for each in (first, second, first)] == [0, 1, 0]
    data, place = table.finish(1000)
    pairs = (
        struct.pack("<HH", 0, 1) + b"a" + struct.pack("<I", 1) + b"1"
        + struct.pack("<HH", 1, 2) + b"bc" + struct.pack("<I", 0)
    )  # fmt: skip
    third = struct.pack("<HH", 2, 1) + b"x" + struct.pack("<I", 2) + b"22"
    lookup = struct.pack("<QII", 0, 2, 18) + struct.pack("<QII", len(pairs), 1, 11)
    before = stored(pairs + third) + stored(lookup)
    assert place == 1000 + len(before)
    start = 1000 + len(stored(pairs + third))
    assert data == before + struct.pack("<QII", 1000, 2, 0) + struct.pack("<Q", start)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zstd", Compression("zstd", 3)),
        ("gzip", Compression("gzip", 2)),
        ("lz4", Compression("lz4", 0)),
        ("lz4hc", Compression("lz4hc", 12)),
        ("zstd:1", Compression("zstd", 1)),
        ("zstd:22", Compression("zstd", 22)),
        ("gzip:9", Compression("gzip", 9)),
        ("lz4hc:1", Compression("lz4hc", 1)),
    ],
)
def test_a_compression_by_its_name(text: str, expected: Compression) -> None:
    assert parse(text) == expected
    assert parse(expected.text) == expected


def test_what_a_superblock_says_of_each_compression() -> None:
    said = {text: (parse(text).number, parse(text).squashfs, parse(text).options) for text in ("zstd:7", "gzip:4")}
    said |= {text: (parse(text).number, parse(text).squashfs, parse(text).options) for text in ("lz4", "lz4hc:5")}
    assert said == {
        "zstd:7": (6, "zstd", struct.pack("<I", 7)),
        "gzip:4": (1, "gzip", struct.pack("<IHH", 4, 15, 0)),
        "lz4": (5, "lz4", struct.pack("<II", 1, 0)),
        "lz4hc:5": (5, "lz4", struct.pack("<II", 1, 1)),
    }
    assert [parse(text).versions()[1][0] for text in ("zstd", "gzip:2", "gzip:3", "lz4", "lz4hc")] == [
        *("libzstd", "isa-l", "zlib", "lz4", "lz4"),
    ]


def test_lz4hc_takes_its_time() -> None:
    data = b"".join(b"%d of %d " % (each * each % 977, each % 13) for each in range(9000))
    sizes = [len(parse(text).compressor()([data])[0]) for text in ("lz4", "lz4hc:1", "lz4hc:12")]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3


def test_as_much_as_was_asked_for_and_no_more_comes_out() -> None:
    for number, packed in (
        (1, zlib.compress(bytes(5000))),
        (4, lzma.compress(bytes(5000), preset=0)),
        (6, zstandard.ZstdCompressor(write_content_size=False).compress(bytes(5000))),
        (6, zstandard.ZstdCompressor().compress(bytes(5000))),
    ):
        expand = decompressor(number)
        assert expand(packed, 5000) == expand(packed, 5001) == bytes(5000)
        assert "cannot be decompressed" in refusal(expand, packed, 4999)


def test_an_xz_block_takes_no_more_memory_than_a_kernel_gives() -> None:
    """Its dictionary is as large as a block, which preset 9 makes 64 times as large."""
    assert decompressor(4)(lzma.compress(b"x", preset=6), 10) == b"x"
    assert "Memory usage limit" in refusal(decompressor(4), lzma.compress(b"x", preset=9), 10)


def test_frames_of_zstd_have_no_checksum() -> None:
    """The kernel's and squashfs-tools' have none."""
    (packed,) = parse("zstd:3").compressor()([bytes(1000)])
    assert not zstandard.get_frame_parameters(bytes(packed)).has_checksum


@pytest.mark.parametrize(("number", "name"), [(0, "0"), (2, "lzma"), (3, "lzo"), (7, "7")])
def test_a_compression_that_is_not_read(number: int, name: str) -> None:
    assert refusal(decompressor, number) == f"squashfs compression {name} is not supported"


@pytest.mark.parametrize("text", ("gzip:1", "gzip:9", "zstd:1", "lz4", "lz4hc:3"))
@pytest.mark.parametrize("data", (bytes(8192), noise(8192), b"x"), ids=("zeros", "noise", "short"))
def test_a_block_comes_back_and_no_larger_one(text: str, data: bytes) -> None:
    compression = parse(text)
    (packed,) = compression.compressor()([data])
    expand = decompressor(compression.number)
    assert expand(bytes(packed), len(data)) == data
    assert expand(bytes(packed), len(data) + 1) == data
    wanted = f"damaged squashfs: a {compression.squashfs} block cannot be decompressed"
    assert refusal(expand, bytes(packed), len(data) - 1).startswith(wanted)
    assert refusal(expand, bytes(packed)[:-1], len(data)).startswith(wanted)
    assert refusal(expand, b"", 10).startswith(wanted)


def test_little_endian_numbers() -> None:
    assert little(array("Q", [1, 2])) == b"\1" + bytes(7) + b"\2" + bytes(7)
    assert little(array("I", [258])) == b"\2\1\0\0"
