"""Layers on top of each other: whiteouts, types, hard links and symlinks across layers, and what is read for it."""

import tarfile
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO

import pytest

from sifmod.errors import FetchError, ImageError
from sifmod.image.convert.inode import Content, Directory, File
from sifmod.image.convert.layers.merge_layers import Merged, merge_layers
from support.layers import EPOCH, Entry, Memory, Seen, Stored, directory, hard_link, merged, seen, symlink, tar

OPAQUE = ".wh..wh..opq"
BIG = bytes(range(256)) * 2000


def file(name: str, content: bytes = b"x") -> Entry:
    return Entry(name, content=content)


def whiteout(name: str) -> Entry:
    return Entry(name)


@dataclass(frozen=True)
class Read:
    """A merged stack: what is in it, what was written, and how often each layer was opened."""

    tree: dict[bytes, Seen]
    written: list[bytes]
    opened: list[int]

    def names(self) -> list[str]:
        return sorted(path.decode().removeprefix("./") for path in self.tree if path != b".")


@dataclass
class Counted:
    """A blob that counts how often it is opened."""

    blob: Stored
    opened: list[int] = field(default_factory=lambda: [0])
    digest: str = "sha256:counted"
    diff_id: str = ""
    size: int = 1000

    def open(self) -> BinaryIO:
        self.opened[0] += 1
        return self.blob.open()

    def seekable(self) -> BinaryIO:
        return self.open()


def stack(*layers: Sequence[Entry]) -> Read:
    data = Memory()
    blobs = [Counted(Stored(tar(layer))) for layer in layers]
    root = merge_layers(blobs, data, epoch=EPOCH, progress=lambda _read, _total: None).root
    written = [data.bytes_of(Content(0, number)) for number in range(len(data.files))]
    return Read(seen(root, data), written, [blob.opened[0] for blob in blobs])


def refused(*layers: Sequence[Entry]) -> str:
    with pytest.raises(ImageError) as caught:
        merged([Stored(tar(layer)) for layer in layers])
    return caught.value.message


def test_the_upper_file_wins_and_only_it_is_written() -> None:
    read = stack([file("a", b"lower"), file("b", b"b")], [file("a", b"upper")])
    assert read.tree[b"./a"].content == b"upper"
    assert sorted(read.written) == [b"b", b"upper"]
    assert read.opened == [1, 1]


def test_large_files_are_read_or_skipped_too() -> None:
    read = stack([file("a", BIG), file("b", BIG + b"b")], [whiteout(".wh.a"), file("c", BIG)])
    assert read.tree[b"./b"].content == BIG + b"b"
    assert len(read.written) == 2


def test_whiteouts_hide_lower_layers_only() -> None:
    read = stack(
        [file("d/gone"), file("d/again", b"old"), file("e/f")],
        [file("d/again", b"new"), whiteout("d/.wh.again"), whiteout("d/.wh.gone"), whiteout(".wh.e")],
    )
    assert read.names() == ["d", "d/again"]
    assert read.tree[b"./d/again"].content == b"new"
    assert read.written == [b"new"]


@pytest.mark.parametrize("first", (True, False))
def test_opaque_directories_whatever_their_order(first: bool) -> None:
    upper = [directory("d", 0o700), file("d/new")]
    upper.insert(0 if first else 2, whiteout("d/.wh..wh..opq"))
    read = stack([directory("d", 0o755), file("d/old"), file("d/sub/old")], upper)
    assert read.names() == ["d", "d/new"]
    assert read.tree[b"./d"].mode == 0o700


def test_a_removed_and_made_again_directory_has_nothing_of_the_lower_one() -> None:
    read = stack([directory("d", 0o700), file("d/old")], [whiteout(".wh.d"), file("d/new")])
    assert read.names() == ["d", "d/new"]
    assert (read.tree[b"./d"].mode, read.tree[b"./d"].mtime) == (0o755, EPOCH)


def test_nothing_of_a_removed_directory_comes_back() -> None:
    """A layer puts something into directories of the one below, then removes them: they are its own, as if new."""
    old = replace(directory("d", 0o700), uid=5, gid=6, mtime=7)
    lower = [old, replace(old, name="d/e"), replace(old, name="d/f"), file("d/e/old"), file("d/f/old")]
    upper = [file("d/e/new"), directory("d/f", 0o711), file("d/f/new")]
    entangled = [hard_link("link", "other")]  # of a lower layer: the layers are applied one by one
    for removed in ([".wh.d"], ["d/.wh.e", "d/.wh.f"], ["d/" + OPAQUE]):
        for extra in ([], entangled):
            tree = stack([file("other"), *lower], [*upper, *map(whiteout, removed), *extra]).tree
            plain = Seen("directory", 0o755, (0, 0), EPOCH, first=b"./d/e")
            assert tree[b"./d/e"] == plain
            assert tree[b"./d/f"].mode == 0o711
            assert (tree[b"./d"].owner, tree[b"./d"].mode) == (
                ((0, 0), 0o755) if removed == [".wh.d"] else ((5, 6), 0o700)
            )
            assert {path for path in tree if path.startswith(b"./d/")} == {
                *(b"./d/e", b"./d/e/new", b"./d/f", b"./d/f/new")
            }


def test_whiteouts_of_nothing_make_nothing() -> None:
    read = stack([whiteout("a/b/.wh.c"), whiteout(".wh.x"), whiteout("d/.wh..wh..opq"), whiteout(".wh..wh.plnk")])
    assert read.names() == []


def test_types_replace_each_other() -> None:
    assert stack([directory("a"), file("a/x")], [file("a", b"f")]).tree[b"./a"].content == b"f"
    read = stack([file("a/low")], [file("a")], [directory("a", 0o711), file("a/x")])
    assert read.names() == ["a", "a/x"]
    assert read.tree[b"./a"].mode == 0o711
    assert stack([symlink("a", "b"), file("b/x")], [directory("a"), file("a/y")]).names() == ["a", "a/y", "b", "b/x"]


def test_attributes_are_the_uppermost_entry_s() -> None:
    read = stack([directory("d", 0o700)], [directory("d", 0o711)], [file("d/x")])
    assert (read.tree[b"./d"].mode, read.opened) == (0o711, [1, 1, 1])
    assert stack([directory("./", 0o700)], [file("x")]).tree[b"."].mode == 0o700
    assert stack([directory("d", 0o700), directory("d", 0o711)]).tree[b"./d"].mode == 0o711


def test_the_last_of_the_same_name_in_a_layer_wins() -> None:
    assert stack([file("a", b"1"), symlink("a", "t"), file("a", b"2")]).tree[b"./a"].content == b"2"
    assert stack([file("a/b"), file("a", b"2")]).names() == ["a"]
    assert stack([file("a"), file("a/b")]).names() == ["a", "a/b"]


def test_hard_links_share_an_inode() -> None:
    read = stack([file("a", b"1"), hard_link("b/c", "./a"), symlink("s", "a"), hard_link("t", "/s")])
    assert [read.tree[path].first for path in (b"./b/c", b"./t")] == [b"./a", b"./s"]
    assert read.written == [b"1"]
    assert read.opened == [1]


@pytest.mark.parametrize(
    "upper", ([whiteout(".wh.a")], [file("a", b"new")], [directory("a")], [whiteout(".wh..wh..opq")])
)
def test_a_hard_link_to_what_an_upper_layer_hides(upper: list[Entry]) -> None:
    opaque = upper[0].name == OPAQUE
    read = stack([file("a", BIG), hard_link("b", "a"), hard_link("d/c", "b")], upper)
    if opaque:
        assert read.names() == []
        return
    assert read.tree[b"./b"].content == BIG
    assert read.tree[b"./d/c"].first == b"./b"
    assert read.opened == [2, 1]


def test_a_hard_link_to_a_lower_layer() -> None:
    read = stack([file("a", b"1"), file("z", BIG)], [hard_link("b", "a"), file("c", b"3")], [file("a", b"2")])
    assert [read.tree[path].content for path in (b"./a", b"./b", b"./c")] == [b"2", b"1", b"3"]
    assert sorted(read.written) == sorted([b"1", b"2", b"3", BIG])
    assert all(times <= 3 for times in read.opened)


def test_a_hard_link_to_the_same_name_is_that_file() -> None:
    assert stack([file("a", b"1"), hard_link("a", "a")]).tree[b"./a"].content == b"1"


@pytest.mark.parametrize("layers", ([[hard_link("b", "a")]], [[file("a")], [whiteout(".wh.a"), hard_link("b", "a")]]))
def test_a_hard_link_to_nothing_is_refused(layers: list[list[Entry]]) -> None:
    message = refused(*layers)
    assert "hard link to nothing: b to a" in message
    assert Stored(tar(layers[-1])).digest in message


def test_a_hard_link_to_a_directory_is_refused() -> None:
    assert "hard link to a directory: b to d" in refused([directory("d"), hard_link("b", "d")])


def test_an_entry_below_a_lower_symlink_goes_where_that_leads() -> None:
    base = [symlink("lib", "usr/lib"), file("usr/lib/a", b"1"), directory("usr/lib", 0o711)]
    read = stack(base, [file("lib/b", b"2"), whiteout("lib/.wh.a")])
    assert read.names() == ["lib", "usr", "usr/lib", "usr/lib/b"]
    assert read.tree[b"./usr/lib"].mode == 0o711
    assert read.written == [b"2"]


@pytest.mark.parametrize(
    ("target", "path"),
    (("../../../x", "x"), ("/x", "x"), ("/../x/./y", "x/y"), ("d/../x", "x"), ("other", "x")),
)
def test_symlinks_lead_nowhere_outside_the_root(target: str, path: str) -> None:
    read = stack([symlink("link", target), symlink("other", "/x")], [file("link/f", b"1")])
    assert read.tree[f"./{path}/f".encode()].content == b"1"


def test_an_entry_behind_a_loop_of_symlinks_is_refused() -> None:
    assert "loop of symlinks: a;" in refused([symlink("a", "b"), symlink("b", "a")], [file("a/f")])


def test_the_root_is_a_directory() -> None:
    assert "root that is not a directory" in refused([symlink("./", "x")])


def test_devices_and_pipes_are_kept() -> None:
    block = Entry("sda", tarfile.BLKTYPE, device=(8, 300))
    read = stack([block, replace(block, name="null", kind=tarfile.CHRTYPE), Entry("pipe", tarfile.FIFOTYPE)])
    assert [(read.tree[path].kind, read.tree[path].device) for path in (b"./sda", b"./null", b"./pipe")] == [
        ("b", (8, 300)),
        ("c", (8, 300)),
        ("fifo", (0, 0)),
    ]


def test_no_layers_and_empty_layers() -> None:
    assert stack().names() == []
    assert stack([], [file("a")], []).names() == ["a"]
    assert merged([Stored(b"")]).root.entries == {}


def test_progress_is_told_in_compressed_bytes() -> None:
    layers = [Stored(tar([file("a", BIG * 20)])), Stored(tar([file("b", BIG * 20)]))]
    told: list[tuple[int, int]] = []
    merge_layers(layers, Memory(), epoch=0, progress=lambda read, total: told.append((read, total)))
    assert told == sorted(told)
    assert told[-1] == (sum(layer.size for layer in layers),) * 2


class Full(Memory):
    def finish(self) -> Content:
        raise OSError(28, "No space left on device")


def test_what_the_writer_raises_is_raised() -> None:
    with pytest.raises(OSError, match="No space"):
        merged([Stored(tar([file("a", BIG)]))], Full())


@dataclass(frozen=True)
class Broken(Stored):
    def open(self) -> BinaryIO:
        raise FetchError("the download failed")


def test_what_a_blob_raises_is_raised() -> None:
    with pytest.raises(FetchError, match="the download failed"):
        merged([Stored(tar([file("a")])), Broken(b""), Stored(tar([file("b")]))])


def test_the_same_layers_give_the_same_calls() -> None:
    layers = [Stored(tar([file(f"d{each % 7}/{each}", b"%d" % each) for each in range(500)])) for _ in range(3)]
    first, second = Memory(), Memory()

    def flat(result: Merged, data: Memory) -> list[tuple[bytes, Seen]]:
        return list(seen(result.root, data).items())

    assert flat(merged(layers, first), first) == flat(merged(layers, second), second)
    assert first.files == second.files


def test_many_files_in_one_directory_take_linear_time() -> None:
    """70 000 files, half of them replaced by the upper layer; quadratic time would be minutes."""
    lower = Stored(tar([file(f"d/{each}", b"1") for each in range(70_000)], tarfile.USTAR_FORMAT))
    upper = Stored(tar([file(f"d/{each}", b"2") for each in range(0, 70_000, 2)], tarfile.USTAR_FORMAT))
    data = Memory()
    found = seen(merged([lower, upper], data).root, data)
    assert len(found) == 70_002
    assert [found[b"./d/%d" % each].content for each in (0, 1, 69_999)] == [b"2", b"1", b"1"]


def test_nodes_have_their_own_attributes() -> None:
    root = merged([Stored(tar([replace(file("a"), mode=0o4711, uid=5, gid=6, mtime=7)]))]).root
    node = root.entries[b"a"]
    assert isinstance(node, File)
    assert (node.mode, node.uid, node.gid, node.mtime, node.xattrs) == (0o4711, 5, 6, 7, ())


def test_deep_paths_are_no_deep_recursion() -> None:
    deep = "/".join("d" * 2000)
    base = [symlink("s", "d"), file(deep)]
    upper = [file(f"s/{deep[2:]}f"), whiteout("d/.wh..wh..opq")]
    data = Memory()
    entries = merged([Stored(tar(base)), Stored(tar(upper))], data).root.entries
    for depth in range(1999):
        node = entries[b"d"]
        assert isinstance(node, Directory), depth
        entries = node.entries
    assert list(entries) == [b"df"]


def test_deep_paths_that_are_hidden_take_little_memory() -> None:
    lower = Stored(tar([file("/".join(f"{number % 10}" * 2000)) for number in range(200)]))
    tracemalloc.start()
    try:
        assert merged([lower, Stored(tar([file("x"), whiteout(OPAQUE)]))]).root.entries.keys() == {b"x"}
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()
