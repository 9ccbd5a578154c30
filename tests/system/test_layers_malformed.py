"""Layers that are cut, damaged or hold what no file system holds: an error that says so, or a warning."""

import gzip
from pathlib import Path

import pytest

from sifmod.errors import ImageError
from support import sparse
from support.command import run
from support.layers import Entry, Memory, Stored, directory, hard_link, merged, seen, symlink, tar
from support.tars import extended, header, padded, read, records, refused

STAR, LIBARCHIVE = "SCHILY.xattr.", "LIBARCHIVE.xattr."


@pytest.mark.parametrize(
    ("layer", "why"),
    (
        (header()[:300], "ends inside a header"),
        (header(size=b"00000001000\0") + b"x" * 511, "1 bytes before the end of a file"),
        (header(size=b"\x80\0\0\0\0\0\0\1\0\0\0\0") + bytes(100_000), "before the end of a file"),
        (bytes(7) + header(), "no tar header at its byte 0"),
        (header() + b"<html>".ljust(512), "no tar header at its byte 512"),
        (header()[:-1] + b"x", "no tar header"),
        (header(size=b"0000000000x\0"), "not an octal number"),
        (header(size=b"-0000000001\0"), "not an octal number"),
        (header(size=b"\xff" * 12), "size of -1"),
        (header(uid=b"\xff\xff\xff\xff\x7f\xff\xff\xff"), "a uid or gid is -2147483649"),
        (header(uid=b"\x80\0\0\1\0\0\0\0"), "a uid or gid is 4294967296"),
        (header(kind=b"3", major=b"0010000\0"), "squashfs cannot hold"),
        (header(kind=b"2"), "target has 0 bytes"),
        (header(kind=b"1"), "hard link to a directory"),
        (header(kind=b"1", target=b"x"), "hard link to nothing: f to x"),
        (header(name=b".wh."), "whiteout without a name"),
        (header(name=b"a/.wh..."), "whiteout without a name"),
        (header(name=b"./"), "root that is not a directory"),
        (records({"path": "x" * 256}) + header(), "name of 256 bytes"),
        (records({"path": "x/" * 2100}) + header(), "path of 4200 bytes"),
        (records({"linkpath": "x" * 4096}) + header(kind=b"2"), "target has 4096 bytes"),
        (records({"path": b"a\0b"}) + header(), "contains a zero byte"),
        (records({"uid": "--1"}) + header(), "not a number"),
        (records({"gid": "-2147483649"}) + header(), "a uid or gid is -2147483649"),
        (records({"gid": "4294967296"}) + header(), "a uid or gid is 4294967296"),
        (records({"size": "-1"}) + header(), "not a number"),
        (records({"mtime": "now"}) + header(), "a time is"),
        (records({"size": "9" * 30}) + header(), "not a number"),
        (records({"path": "x"}), "ends after an extended header"),
        (records({f"{STAR}user.{'x' * 255}": "1"}) + header(), "xattr that Linux refuses"),
        (records({f"{STAR}user.x": "1" * 70000}) + header(), "xattr that Linux refuses"),
        (records({f"{LIBARCHIVE}user.x": "****"}) + header(), "not base64"),
        (extended(b"5 a=b\n", b"x") + header(), "malformed at its byte 0"),
        (extended(b"6 a=b\n99999 c=d\n", b"x") + header(), "malformed at its byte 6"),
        (extended(b"6 abb\n", b"x") + header(), "malformed"),
        (extended(b"x" * 1000, b"x") + header(), "malformed"),
        (header(kind=b"x", size=b"00004000001\0") + bytes(2 << 20), "extended header has 1048577 bytes"),
        (header(kind=b"L", size=b"77777777777\0"), "more than 1048576 "),
    ),
)
def test_malformed_layers(layer: bytes, why: str) -> None:
    assert why in refused(layer)


def test_every_cut_is_seen_but_what_lacks_zeros_alone() -> None:
    whole = tar([Entry("a", content=b"x" * 700), directory("d"), symlink("s", "a"), hard_link("h", "a")])
    ends = 512 + 1024 + 512 * 3
    found = {0: 1, **dict.fromkeys(range(512 + 700, 1537), 2), 2048: 3, 2560: 4}
    for length in range(ends):
        if length in found:
            assert len(read(whole[:length])) == found[length]
        else:
            refused(whole[:length])
    for length in range(ends, ends + 1025):
        assert len(read(whole[:length])) == 5


@pytest.mark.parametrize("hidden", (False, True), ids=("read", "skipped"))
@pytest.mark.parametrize("size", (1, 511, 513, 131071, 131073, 300_000))
def test_a_layer_may_end_with_its_last_file(size: int, hidden: bool) -> None:
    """As Debian's umoci 0.4.7 writes it: without padding and empty blocks."""
    layer = tar([directory("d"), Entry("d/f", content=b"x" * size)])[: 2 * 512 + size]
    upper = [tar([Entry("d/f", content=b"upper")])] if hidden else []
    tree = read(layer, *upper)
    assert sorted(tree) == [b".", b"./d", b"./d/f"]
    assert tree[b"./d/f"].content == (b"upper" if hidden else b"x" * size)
    with pytest.raises(ImageError, match="is truncated: it ends"):
        read(layer[:-1], *upper)


def test_a_sparse_file_may_be_the_last_too() -> None:
    file = sparse.pax_1_0(b"f", {0: b"x" * 700}, 100_000)
    for kept in (700, 1024):
        layer = file[: len(file) - 1024 + kept]
        assert read(layer)[b"./f"].content == b"x" * 700 + bytes(99_300)
    assert "before the end of a file" in refused(file[: len(file) - 1024 + 699])


def test_an_extended_header_alone_is_a_cut() -> None:
    for kind, data in ((b"x", b"9 path=a\n"), (b"x", b"8 path=\n"), (b"L", b"a\0")):
        whole = extended(data, kind)
        for cut in (whole, whole[: 512 + len(data)], whole + bytes(512), whole + bytes(100)):
            assert "ends after an extended header" in refused(cut)
    assert sorted(read(extended(b"9 path=a\n", b"g") + bytes(1024))) == [b"."]


def test_what_is_behind_one_zero_block_is_not_left_out() -> None:
    """Two of them are the end."""
    said = refused(header() + bytes(512) + header(name=b"g"))
    assert "is damaged: there is one empty block at its byte 512, followed by data" in said
    result = merged([Stored(header() + bytes(1024) + header(name=b"g"))])
    assert sorted(result.root.entries) == [b"f"]
    assert result.warnings == ("a layer has data after its end, which was ignored",)
    assert merged([Stored(header() + bytes(10240))]).warnings == ()


def test_messages_show_names_on_one_line() -> None:
    message = refused(header(kind=b"1", name=b"a\nb\xff", target=b"\x1b[31m"))
    assert "\n" not in message
    assert "\x1b" not in message


def test_warnings_are_bounded_lines_whatever_the_names() -> None:
    names = ["{", "}{0}", "a\nb", *map(str, range(300))]
    warnings = merged([Stored(records({f"{STAR}{name}": "x" for name in names}) + header())]).warnings
    assert set(warnings) >= {f"xattr {name} of 1 file dropped" for name in ("{", "}{0}", r"a\nb")}
    assert len(warnings) == 101
    assert warnings[-1] == "and 203 more warnings of other kinds"
    assert not [text for text in warnings if not text.isprintable()]


def test_what_no_file_system_holds_is_skipped_and_said() -> None:
    layer = (
        header(kind=b"s", name=b"socket", size=b"00000000003\0")
        + padded(b"abc")
        + header(kind=b"V", name=b"v")
        + header()
    )
    data = Memory()
    result = merged([Stored(layer + header(kind=b"s", name=b"t"))], data)
    assert sorted(seen(result.root, data)) == [b".", b"./f"]
    assert result.warnings == ("2 entries skipped: unknown type 's'", "1 entry skipped: unknown type 'V'")


def test_a_layer_of_umoci_insert(tmp_path: Path) -> None:
    layout, file = tmp_path / "layout", tmp_path / "file"
    file.write_bytes(b"x" * 700)
    run(("umoci", "init", "--layout", layout)).ok()
    run(("umoci", "new", "--image", f"{layout}:made")).ok()
    run(("umoci", "insert", "--rootless", "--image", f"{layout}:made", file, "/opt/file")).ok()
    layers = [blob for path in (layout / "blobs/sha256").iterdir() if (blob := path.read_bytes())[:2] == b"\x1f\x8b"]
    data = Memory()
    assert len(gzip.decompress(layers[0])) == 512 + 700  # else umoci has changed
    assert seen(merged([Stored(layers[0])], data).root, data)[b"./opt/file"].content == b"x" * 700
