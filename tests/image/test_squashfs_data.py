"""How files' data becomes blocks and fragments: sizes around blocks, holes, in whatever pieces it is given."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sifmod.image.convert.inode import OWNER, Directory, Entries, Fifo, File, content_of, unpacked
from sifmod.image.convert.squashfs.writer import DataWriter
from support.squashfs_trees import FOLDER, PLAIN, build, noise, reader
from support.squashfs_trees import unpacked as unpacked_by_tool

BLOCK = 131072
NOISE = noise(4 * BLOCK)
SIZES = (0, 1, *(blocks * BLOCK + more for blocks in (1, 2, 3) for more in (-1, 0, 1)))
COMPRESSIONS = ("zstd:1", "gzip:1", "lz4")

Piece = tuple[str, int]
"""`data`, `zeros` (given as bytes) or `hole`, and how many bytes."""

near_blocks = st.builds(lambda blocks, more: max(0, blocks * BLOCK + more), st.integers(0, 3), st.integers(-2, 2))
pieces = st.lists(st.tuples(st.sampled_from(("data", "zeros", "hole")), near_blocks | st.integers(0, 3)), max_size=6)


def expected(given_pieces: list[Piece]) -> bytes:
    return b"".join(NOISE[:size] if kind == "data" else bytes(size) for kind, size in given_pieces)


def in_pieces(writer: DataWriter, given_pieces: list[Piece]) -> File:
    writer.start()
    for kind, size in given_pieces:
        if kind == "hole":
            writer.hole(size)
        else:
            writer.write(expected([(kind, size)]))
    return File(*PLAIN, writer.finish())


def whole(writer: DataWriter, given_pieces: list[Piece]) -> File:
    return File(*PLAIN, writer.add(expected(given_pieces)))


def data_of(image: Path) -> dict[bytes, bytes]:
    found = reader(image)
    return {path: found.read(path, stat.size) for path, stat, _ in found.walk()}


def check(image: Path, files: dict[bytes, list[Piece]], compression: str) -> None:
    """Every file in pieces and at once: unsquashfs and our own reader give back what was put in."""

    def make(writer: DataWriter) -> Directory:
        nodes: Entries = {}
        for name, parts in files.items():
            nodes[b"p" + name] = in_pieces(writer, parts)
            nodes[b"w" + name] = whole(writer, parts)
        return Directory(*FOLDER, nodes)

    build(image, make, compression)
    wanted = {how + name: expected(parts) for name, parts in files.items() for how in (b"p", b"w")}
    assert data_of(image) == wanted
    out = unpacked_by_tool(image, image.with_suffix(".out"))
    assert {path.name.encode(): path.read_bytes() for path in out.iterdir()} == wanted


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("before", (0, 1, BLOCK - 1), ids=("empty", "begun", "all but full"))
@pytest.mark.parametrize("size", SIZES)
def test_sizes_around_blocks_by_add(tmp_path: Path, size: int, before: int, compression: str) -> None:
    """Into a fragment block that is empty, that has something in it, and that lacks one byte."""

    def make(writer: DataWriter) -> Directory:
        nodes: Entries = {b"a": File(*PLAIN, writer.add(NOISE[:before]))}
        nodes |= {name: File(*PLAIN, writer.add(NOISE[:size])) for name in (b"b", b"c")}
        nodes[b"d"] = File(*PLAIN, writer.add(b"last"))
        return Directory(*FOLDER, nodes)

    image = tmp_path / "image"
    build(image, make, compression)
    wanted = {b"a": NOISE[:before], b"b": NOISE[:size], b"c": NOISE[:size], b"d": b"last"}
    assert data_of(image) == wanted
    out = unpacked_by_tool(image, tmp_path / "out")
    assert {path.name.encode(): path.read_bytes() for path in out.iterdir()} == wanted


def test_files_that_fill_a_fragment_to_its_last_byte(tmp_path: Path) -> None:
    sizes = (BLOCK - 1, 1, 0, 1, BLOCK - 1, 0, BLOCK, 0, 5)

    def make(writer: DataWriter) -> Directory:
        return Directory(*FOLDER, {b"%d" % i: File(*PLAIN, writer.add(NOISE[:size])) for i, size in enumerate(sizes)})

    build(tmp_path / "image", make)
    out = unpacked_by_tool(tmp_path / "image", tmp_path / "out")
    assert [(out / str(i)).read_bytes() for i in range(len(sizes))] == [NOISE[:size] for size in sizes]


@pytest.mark.parametrize("kind", ("data", "zeros", "hole"))
def test_sizes_around_blocks_in_pieces(tmp_path: Path, kind: str) -> None:
    files = {
        b"%d.%d.%s" % (first, size, second.encode()): [(second, first), (kind, size)]
        for size in SIZES
        for first in (0, 1, BLOCK - 1, BLOCK)
        for second in ("data", "hole")
    }
    check(tmp_path / "image", files, "lz4")


@settings(deadline=None, max_examples=40)
@given(st.lists(pieces, min_size=1, max_size=4), st.sampled_from(COMPRESSIONS))
def test_any_files_of_any_pieces(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[Piece]], compression: str
) -> None:
    named = {b"%d" % number: parts for number, parts in enumerate(files)}
    check(tmp_path_factory.mktemp("any") / "image", named, compression)


def test_a_plain_file_is_what_a_node_of_it_is(tmp_path: Path) -> None:
    """Packed in a few bytes or a node, the image is the same, byte for byte; also without the data that nobody has."""

    def image(packed: bool, dropped: int) -> bytes:
        def make(writer: DataWriter) -> Directory:
            root = Directory(*FOLDER)
            for number, size in enumerate((0, 1, 5000, BLOCK - 1, 0, 70_000, 100_000, *range(600))):
                attributes = (0o600 + number % 8, number % 3, number % 5, 1_600_000_000 + number, ())
                place = writer.small(NOISE[:size])
                node = File(*attributes, content_of(place))
                plain = OWNER.pack(*attributes[:4]) + place
                assert unpacked(plain).content == node.content
                root.entries[b"%03d" % number] = plain if packed else node
                root.entries[b"%03d is a fifo" % number] = Fifo(*PLAIN)
            for _ in range(dropped):
                writer.small(NOISE[: BLOCK - 1])
            root.entries = dict(list(root.entries.items())[-8:]) if dropped else root.entries
            return root

        build(path := tmp_path / "image", make)
        return path.read_bytes()

    for dropped in (0, 20):
        assert image(packed=True, dropped=dropped) == image(packed=False, dropped=dropped)
        out = unpacked_by_tool(tmp_path / "image", tmp_path / f"out{dropped}")
        assert (out / "606").read_bytes() == NOISE[:599]
