"""Tar streams, read as the tars that people really make: GNU tar's five formats, Python's, and headers made by hand."""

import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from support.layers import EPOCH, Entry, Memory, Seen, Stored, merged, seen, tar
from support.tars import gnu_tar, header, padded, read, records, summed

FORMATS = ("v7", "oldgnu", "gnu", "ustar", "posix")
LONG = ("d" * 60 + "/") * 3 + "f" * 90
STAR, LIBARCHIVE = "SCHILY.xattr.", "LIBARCHIVE.xattr."


@pytest.mark.parametrize("form", FORMATS)
def test_each_format_of_gnu_tar(form: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "d" / "e").mkdir(parents=True)
    (root / "d" / "file").write_bytes(b"content")
    (root / "empty").touch()
    (root / "big").write_bytes(os.urandom(3_000_001))
    (root / "link").symlink_to("../outside")
    (root / "again").hardlink_to(root / "d" / "file")
    (root / "d" / "file").chmod(0o4751)
    os.utime(root / "d", (5, 5))
    if form != "v7":
        os.mkfifo(root / "fifo")
    tree = read(gnu_tar(root, f"--format={form}", "--owner=70000", "--group=12"))
    assert tree[b"./d"].mtime == 5
    assert (tree[b"./d/file"].content, tree[b"./d/file"].mode) == (b"content", 0o4751)
    assert tree[b"./d/file"].owner == (70000, 12)
    assert tree[b"./d/file"].first == b"./again"
    assert tree[b"./empty"].content == b""
    assert tree[b"./big"].content == (root / "big").read_bytes()
    assert (tree[b"./link"].kind, tree[b"./link"].target) == ("symlink", b"../outside")
    assert {each.removeprefix(b"./") for each in tree} == {
        bytes(path.relative_to(root)) for path in (root, *root.rglob("*"))
    }


@pytest.mark.parametrize("form", ("oldgnu", "gnu", "posix"))
def test_long_names_and_targets(form: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / LONG).parent.mkdir(parents=True)
    (root / LONG).write_bytes(b"x")
    (root / "s").symlink_to(LONG)
    (root / "z").hardlink_to(root / LONG)
    tree = read(gnu_tar(root, f"--format={form}"))
    assert tree[b"./" + LONG.encode()].content == b"x"
    assert tree[b"./s"].target == LONG.encode()
    assert tree[b"./z"].first == b"./" + LONG.encode()


def test_a_ustar_prefix_and_star_s_shorter_one() -> None:
    prefix = b"p/" * 65 + b"p"
    assert b"./" + prefix + b"/f" in read(header(prefix=prefix))
    times = prefix[:131] + b"12345678901 12345678901 "[:24]
    assert b"./" + prefix + b"/f" in read(header(prefix=times, star=b"tar\0"))


def test_gnu_headers_have_times_where_ustar_has_its_prefix() -> None:
    assert b"./f" in read(header(magic=b"ustar  \0", prefix=b"12345670123\0"))


@pytest.mark.parametrize(
    "name", (b"caf\xe9", b"new\nline", b"\xff\xfe", "ünï".encode(), b"-", b"+x", b"..x", b"...", b" ")
)
@pytest.mark.parametrize("form", FORMATS)
def test_names_are_bytes(name: bytes, form: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / os.fsdecode(name)).write_bytes(b"1")
    tree = read(gnu_tar(root, f"--format={form}"))
    assert sorted(tree) == [b".", b"./" + name]


@pytest.mark.parametrize("spelled", ("../../f", "/f", "./f", "//f", "a/../f", "a/.././f", "/../f", ".//.//f"))
def test_names_stay_inside_the_root(spelled: str) -> None:
    tree = read(tar([Entry(spelled, content=b"1")], tarfile.USTAR_FORMAT))
    assert sorted(tree) == [b".", b"./f"]


def test_numbers_in_octal_and_base_256() -> None:
    big = header(uid=b"\x80\0\0\0\xff\xff\xff\xfe", gid=b"7777777\0", mtime=b"\x80" + (1 << 32).to_bytes(11, "big"))
    assert (read(big)[b"./f"].owner, read(big)[b"./f"].mtime) == ((0xFFFFFFFE, 0o7777777), 0xFFFFFFFF)
    assert read(header(mtime=b"\xff" * 12))[b"./f"].mtime == 0
    spaced = read(header(mode=b"   755 \0", uid=b"    12  ", mtime=b"17 "))[b"./f"]
    assert (spaced.mode, spaced.owner, spaced.mtime) == (0o755, (0o12, 0), 0o17)
    assert read(header(mode=b"0100644\0"))[b"./f"].mode == 0o644


def test_times_before_1970_and_after_2106() -> None:
    times = {"a": "-1.5", "b": "1500000000.987654321", "c": "99999999999", "d": "-7", "e": "3."}
    entries = [Entry(name, pax=(("mtime", time),)) for name, time in times.items()]
    tree = read(tar(entries))
    assert [tree[b"./" + name.encode()].mtime for name in times] == [0, 1500000000, 0xFFFFFFFF, 0, 3]


def test_pax_owners_and_sizes_win_over_the_header() -> None:
    layer = (
        records({"uid": "3000000000", "gid": "2999999999", "size": "3"}) + header() + padded(b"abc") + header(name=b"g")
    )
    tree = read(layer)
    assert (tree[b"./f"].owner, tree[b"./f"].content) == ((3000000000, 2999999999), b"abc")
    assert tree[b"./g"].owner == (0, 0)


def test_global_pax_records_hold_until_the_layer_ends() -> None:
    layer = (
        records({"uid": "5", "mtime": "7"}, b"g")
        + header()
        + records({"uid": "6"})
        + header(name=b"g")
        + header(name=b"h")
    )
    tree = read(layer)
    assert [tree[each].owner[0] for each in (b"./f", b"./g", b"./h")] == [5, 6, 5]
    assert read(layer, header(name=b"i"))[b"./i"].mtime == 0


def test_the_second_of_two_global_headers_wins() -> None:
    """POSIX: a global value holds until another global header gives another value for the same field."""
    first, second = records({"uid": "5", "gid": "7", "mtime": "9"}, b"g"), records({"uid": "6", "mtime": ""}, b"g")
    for between in (b"", header(name=b"e")):
        tree = read(first + between + second + header() + header(name=b"g"))
        assert [tree[each].owner for each in (b"./f", b"./g")] == [(6, 7)] * 2
        assert tree[b"./f"].mtime == tree[b"./g"].mtime == 0
        assert not between or (tree[b"./e"].owner, tree[b"./e"].mtime) == ((5, 7), 9)


def test_a_members_own_header_wins_over_a_global_one_behind_it() -> None:
    own, shared = records({"uid": "6", "mtime": "1"}), records({"uid": "5", "gid": "4"}, b"g")
    for layer in (own + shared, shared + own, own + shared + shared):
        tree = read(layer + header() + header(name=b"g"))
        assert (tree[b"./f"].owner, tree[b"./f"].mtime) == ((6, 4), 1)
        assert (tree[b"./g"].owner, tree[b"./g"].mtime) == ((5, 4), 0)


def test_a_record_without_a_value_deletes_what_was_there() -> None:
    """POSIX: of a global header, of a header before it, and then the member's own fields hold."""
    empty = dict.fromkeys(("path", "linkpath", "uid", "gid", "mtime", "size", "uname", "GNU.sparse.size"), "")
    plain = header(uid=b"0000003\0", gid=b"0000004\0", mtime=b"00000000017\0", size=b"00000000003\0") + padded(b"abc")
    assert read(records(empty) + plain) == read(plain)
    link = header(name=b"l", kind=b"2", target=b"where")
    assert read(records(empty) + link)[b"./l"].target == b"where"
    shared = records({"uid": "5", "gid": "6", "mtime": "7"}, b"g")
    for layer in (shared + records(empty), records(empty) + shared):
        tree = read(layer + plain + header(name=b"g"))
        assert (tree[b"./f"].owner, tree[b"./f"].mtime) == ((3, 4), 0o17)
        assert (tree[b"./g"].owner, tree[b"./g"].mtime) == ((5, 6), 7)
    twice = read(records({"uid": "8"}) + records({"uid": ""}) + plain)
    assert twice[b"./f"].owner == (3, 4)


@pytest.mark.parametrize("value", (-1, -2, -(1 << 31)))
def test_a_negative_owner_is_what_linux_makes_of_it(value: int) -> None:
    field = value.to_bytes(8, "big", signed=True)
    expected = (value % (1 << 32), 0o17)
    assert read(header(uid=field, gid=b"0000017\0"))[b"./f"].owner == expected
    assert read(records({"uid": str(value)}) + header(gid=b"0000017\0"))[b"./f"].owner == expected
    assert read(records({"gid": str(value)}) + header())[b"./f"].owner == (0, expected[0])


def test_owner_names_are_ignored() -> None:
    block = bytearray(header(uid=b"0000005\0"))
    block[265:269] = block[297:301] = b"root"
    assert read(summed(block))[b"./f"].owner == (5, 0)


def test_old_files_and_directories() -> None:
    v7 = bytearray(header(kind=b"\0", name=b"dir/", magic=b""))
    contiguous = header(kind=b"7", name=b"dir/f", size=b"00000000001\0") + padded(b"x")
    tree = read(summed(v7) + contiguous)
    assert (tree[b"./dir"].kind, tree[b"./dir/f"].content) == ("directory", b"x")


def test_checksums_of_signed_bytes() -> None:
    block = bytearray(header(name=b"\xff\xfe"))
    block[148:156] = b"%06o\0 " % (sum(block[:148] + block[156:]) + 256 - 512)
    assert b"./\xff\xfe" in read(bytes(block))


def test_directories_links_and_devices_have_no_data() -> None:
    size = b"00000001000\0"
    layer = b"".join(
        header(kind=kind, name=b"n" + kind, size=size, target=b"f", major=b"0000005\0", minor=b"0001750\0")
        for kind in (b"2", b"3", b"4", b"5", b"6")
    )
    tree = read(header() + layer + header(kind=b"1", name=b"n1", target=b"f", size=size))
    assert [tree[b"./n%d" % each].kind for each in range(2, 7)] == ["symlink", "c", "b", "directory", "fifo"]
    assert tree[b"./n4"].device == (5, 1000)
    assert tree[b"./n1"].first == b"./f"


def test_xattrs() -> None:
    values: dict[str, str | bytes] = {
        f"{STAR}user.a": b"\0\xff=\n1",
        f"{STAR}security.capability": b"\1\0\0\2",
        f"{STAR}trusted.t": "",
        f"{STAR}security.selinux": "system_u",
        f"{STAR}system.posix_acl_access": "x",
        f"{LIBARCHIVE}user.%c3%bc": "eA",
        f"{LIBARCHIVE}user.a": "Zm9v",
        "SCHILY.acl.access": "user::rwx",
    }
    data = Memory()
    result = merged([Stored(records(values) + header() + records(values) + header(name=b"g"))], data)
    assert seen(result.root, data)[b"./f"].xattrs == (
        (b"security.capability", b"\1\0\0\2"),
        (b"trusted.t", b""),
        (b"user.a", b"\0\xff=\n1"),
        ("user.ü".encode(), b"x"),
    )
    assert sorted(result.warnings) == [
        "ACL (access) of 2 files dropped",
        "xattr security.selinux of 2 files dropped",
        "xattr system.posix_acl_access of 2 files dropped",
    ]


def test_defaults_of_what_has_no_entry() -> None:
    tree = read(tar([replace(Entry("a/b/c"), mode=0o600)]))
    assert tree[b"./a/b"] == Seen("directory", 0o755, (0, 0), EPOCH, first=b"./a/b")
    assert tree[b"."] == Seen("directory", 0o755, (0, 0), EPOCH, first=b".")
