"""The fields of tars, one by one: numbers, times, PAX records, sparse maps, names; what is right to the last digit."""

from collections.abc import Callable, Iterator, Mapping

import pytest

from sifmod.errors import ImageError
from sifmod.image.convert.layers.decompress import is_zstd
from sifmod.image.convert.layers.fields import (
    MAP,
    check,
    decimal,
    header_map,
    in_force,
    number,
    parse,
    pax_map,
    pax_size,
    seconds,
    whole,
    xattrs,
)
from sifmod.image.convert.layers.member import (
    OPAQUE,
    attributes,
    checksum,
    clamped,
    cleaned,
    header_device,
    header_name,
    is_whiteout,
    overridden,
    whited_out,
)
from sifmod.image.convert.layers.stream import Malformed, Stream, Warnings, naming, printable_name
from support.tars import header

TERA2 = 1 << 41  # bytes; the largest sparse file


def refusal(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(Malformed) as caught:
        call(*arguments)
    return str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (b"0000755\0", 0o755),
        (b"   755 \0", 0o755),
        (b"\0\x00017\0\0\0", 0o17),
        (b"17\0garbage", 0o17),
        (b"17 \0", 0o17),
        (b"\0\0\0\0", 0),
        (b"    ", 0),
        (b"77777777777 ", (8 << 30) - 1),
        (b"\x80\0\0\x01", 1),
        (b"\x80" + ((8 << 30) + 7).to_bytes(11, "big"), (8 << 30) + 7),
        (b"\xbf\xff\xff\xff", 0x3FFFFFFF),
        (b"\xff\xff\xff\xff", -1),
        (b"\xc0\0\0\0", -0x40000000),
    ],
)
def test_a_number_of_a_header(field: bytes, value: int) -> None:
    assert number(field) == value


@pytest.mark.parametrize("text", [b"8", b"1 7", b"-1", b"x", b"0o7", b"\x7f"])
def test_what_is_no_octal_number(text: bytes) -> None:
    assert refusal(number, text + b"\0") == f"is damaged: {text!r} is not an octal number"


def test_a_number_of_a_record() -> None:
    assert decimal(b"0", "x") == 0
    assert decimal(b"9" * 20, "x") == 99999999999999999999
    assert refusal(decimal, b"9" * 21, "a size") == f"is damaged: a size is {b'9' * 21!r}, not a number"
    assert refusal(decimal, b"1x" * 30, "a size") == f"is damaged: a size is {(b'1x' * 20)!r}, not a number"
    assert refusal(decimal, b"", "a size").endswith("b'', not a number")


def test_a_number_of_a_record_that_may_be_negative() -> None:
    assert [whole(text, "x") for text in (b"5", b"-5", b"0", b"-" + b"9" * 20)] == [5, -5, 0, 1 - 10**20]
    for text in (b"--5", b"+5", b"5-", b"-"):
        assert "not a number" in refusal(whole, text, "x")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"1500000000", 1500000000),
        (b"1500000000.999999999", 1500000000),
        (b"3.", 3),
        (b"-3", -3),
        (b"-3.000", -3),
        (b"-3.0001", -4),
        (b"-0.5", -1),
        (b"9" * 20, 10**20 - 1),
    ],
)
def test_a_time_is_rounded_down(text: bytes, value: int) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", [b"", b".", b".5", b"-.5", b"now", b"1.x", b"1.-5", b"9" * 21, b"--1", b"1.2.3"])
def test_what_is_no_time(text: bytes) -> None:
    assert refusal(seconds, text) == f"is damaged: a time is {text!r}"


def test_a_long_time_is_not_shown_whole() -> None:
    assert refusal(seconds, b"x" * 100) == f"is damaged: a time is {b'x' * 40!r}"


def test_times_are_those_that_a_squashfs_holds() -> None:
    assert [clamped(value) for value in (-1, 0, 5, 0xFFFFFFFF, 1 << 32)] == [0, 0, 5, 0xFFFFFFFF, 0xFFFFFFFF]


def test_attributes_of_a_header() -> None:
    def fields(mode: bytes = b"0000644\0", uid: bytes = b"0000005\0", mtime: bytes = b"00000000017\0") -> bytes:
        return mode + uid + b"0000006\0" + mtime

    assert attributes(fields()) == (0o644, 5, 6, 0o17, ())
    assert attributes(fields(mode=b"0107777\0"))[0] == 0o7777
    assert attributes(fields(uid=b"\xff\xff\xff\xff\x80\0\0\0"))[1] == 0x80000000
    assert attributes(fields(uid=b"\x80\0\0\0\xff\xff\xff\xff"))[1] == 0xFFFFFFFF
    assert attributes(fields(mtime=b"\xff" * 12))[3] == 0


def test_records_override_a_header() -> None:
    plain = (0o644, 5, 6, 7, ())
    records = {b"uid": b"-2", b"gid": b"8", b"mtime": b"-9.5"}
    assert overridden(plain, records, Warnings()) == (0o644, 0xFFFFFFFE, 8, 0, ())
    assert overridden(plain, {b"SCHILY.xattr.user.a": b"1"}, Warnings()) == (*plain[:4], ((b"user.a", b"1"),))
    assert overridden(plain, {}, Warnings()) == plain


def test_a_checksum_that_is_no_number_is_that_of_no_header() -> None:
    block = header()
    assert checksum(block[148:156]) == (1 + sum(block)) % 65521
    assert checksum(b"x" * 8) == -1


def test_device_numbers_that_a_squashfs_holds() -> None:
    most = header(kind=b"3", major=b"0007777\0", minor=b"3777777\0")
    assert header_device(most, b"x") == (4095, (1 << 20) - 1)
    for fields, shown_as in (
        ({"major": b"0010000\0"}, "4096:0"),
        ({"minor": b"4000000\0"}, "0:1048576"),
        ({"major": b"\xff" * 8}, "-1:0"),
        ({"minor": b"\xff" * 8}, "0:-1"),
    ):
        message = refusal(header_device, header(kind=b"3", **fields), b"x")
        assert message == f"has a device that a squashfs cannot hold: x is {shown_as}"


def test_a_name_has_its_prefix_where_the_format_has_one() -> None:
    assert header_name(header(name=b"n" * 100, prefix=b"p" * 155)) == b"p" * 155 + b"/" + b"n" * 100
    assert header_name(header(prefix=b"p" * 155, star=b"tar\0")) == b"p" * 131 + b"/f"
    assert header_name(header(prefix=b"p", magic=b"ustar  \0")) == b"f"
    assert header_name(header(name=b"a\0b")) == b"a"


def test_records_of_an_extended_header() -> None:
    assert parse(b"") == {}
    assert parse(b"12 path=a=b\n7 x=\n\n\n"[:12] + b"6 x= \n") == {b"path": b"a=b", b"x": b" "}
    assert parse(b"5 a=\n6 a=1\n") == {b"a": b"1"}
    long = b"x" * 1000
    assert parse(b"1009 key=" + long[:-1] + b"\n") == {b"key": long[:-1]}


@pytest.mark.parametrize(
    ("data", "at"),
    [
        (b"6 a=b", 0),  # no newline
        (b"6 a=b\n\0", 6),
        (b"7 a=b\n", 0),
        (b"5 a=b\n", 0),
        (b"6 abc\n", 0),
        (b"5 =b\n", 0),
        (b" a=b\n", 0),
        (b"-6 a=b\n", 0),
        (b"6a=b\n", 0),
        (b"7 a\0=b\n", 0),
        (b"2 \n", 0),
        (b"0 a=b\n", 0),
        (b"6 a=b\n3 c=d\n", 6),
        (b"0" * 20 + b"26 a=b\n", 0),
    ],
)
def test_a_malformed_extended_header(data: bytes, at: int) -> None:
    assert refusal(parse, data) == f"is damaged: a PAX header is malformed at its byte {at}"


@pytest.mark.parametrize("key", ["path", "linkpath", "GNU.sparse.name"])
def test_names_in_records_hold_no_zero_byte(key: str) -> None:
    body = f" {key}=a".encode() + b"\0b\n"
    data = b"%d" % (len(body) + 2) + body
    assert refusal(parse, data) == f"is damaged: a PAX {key} contains a zero byte: a\\x00b"
    assert parse(b"8 k=a\0b\n") == {b"k": b"a\0b"}


def sparse_records(*names: str) -> bytes:
    return b"".join(b"%d GNU.sparse.%s=%d\n" % (17 + len(name), name.encode(), at) for at, name in enumerate(names))


def test_pairs_of_the_first_sparse_form_are_gathered() -> None:
    assert parse(sparse_records("offset", "numbytes", "offset", "numbytes"))[b"GNU.sparse.map"] == b"0,1,2,3"
    for names in (("numbytes",), ("offset", "offset"), ("offset", "numbytes", "numbytes")):
        assert "offsets and lengths do not alternate" in refusal(parse, sparse_records(*names))


def test_a_record_without_a_value_takes_back_what_was_said() -> None:
    before = {b"a": b"1", b"b": b"2", b"SCHILY.xattr.user.x": b"3"}
    after = {b"a": b"", b"c": b"", b"SCHILY.xattr.user.x": b"", b"LIBARCHIVE.xattr.user.y": b""}
    expected = {b"b": b"2", b"SCHILY.xattr.user.x": b"", b"LIBARCHIVE.xattr.user.y": b""}
    assert in_force(before, after) == expected
    assert in_force({b"a": b"1"}, {b"a": b"2"}) == {b"a": b"2"}


def found_xattrs(records: Mapping[bytes, bytes]) -> tuple[tuple[tuple[bytes, bytes], ...], tuple[str, ...]]:
    warnings = Warnings()
    return xattrs(records, warnings), warnings.texts()


def test_extended_attributes_in_each_form() -> None:
    star, libarchive = b"SCHILY.xattr.", b"LIBARCHIVE.xattr."
    both = {libarchive + b"user.a": b"Yg==", star + b"user.a": b"star", star + b"trusted.t": b""}
    assert found_xattrs(both) == (((b"trusted.t", b""), (b"user.a", b"star")), ())
    assert found_xattrs(dict(reversed(both.items())))[0][1] == (b"user.a", b"star")
    for text, value in ((b"", b""), (b"eA", b"x"), (b"eA==", b"x"), (b"eHk=", b"xy"), (b"eHl6", b"xyz")):
        assert found_xattrs({libarchive + b"user.%25": text}) == (((b"user.%", value),), ())
    assert "an xattr's value is not base64: e-" in refusal(found_xattrs, {libarchive + b"user.a": b"e-"})


def test_attributes_that_a_squashfs_does_not_hold_are_warned_of() -> None:
    records = {
        b"SCHILY.xattr.security.selinux": b"1",
        b"SCHILY.xattr.system.x": b"1",
        b"RHT.security.selinux": b"1",
        b"SCHILY.acl.default": b"1",
        b"comment": b"1",
        b"SCHILY.xattr.security.capability": b"1",
    }
    assert found_xattrs(records) == (
        ((b"security.capability", b"1"),),
        (
            "xattr security.selinux of 2 files dropped",
            "ACL (default) of 1 file dropped",
            "xattr system.x of 1 file dropped",
        ),
    )


def test_attributes_that_linux_refuses() -> None:
    name, star = b"user." + b"x" * 250, b"SCHILY.xattr."
    assert found_xattrs({star + name: bytes(65536)}) == (((name, bytes(65536)),), ())
    for bad, size in ((name + b"x", 0), (name, 65537), (b"user.a\0b", 0), (b"user.", 0)):
        assert refusal(found_xattrs, {star + bad: bytes(size)}).endswith(f", {size} bytes")


def test_the_size_of_a_sparse_file() -> None:
    assert pax_size({}) is None
    assert pax_size({b"GNU.sparse.size": b"5", b"GNU.sparse.realsize": b"7"}) == 7
    assert pax_size({b"GNU.sparse.size": b"%d" % TERA2}) == TERA2
    message = refusal(pax_size, {b"GNU.sparse.size": b"%d" % (TERA2 + 1)})
    assert message.startswith(f"has a sparse file of {TERA2 + 1} bytes, more than {TERA2} (`limits: ")


def blocks(*pieces: bytes) -> Callable[[], bytes]:
    """What reads them one after the other, filled with zeros."""
    left = iter(pieces)
    return lambda: next(left).ljust(512, b"\0")


def test_a_sparse_map_in_records_or_blocks() -> None:
    unread = blocks()
    assert pax_map({b"GNU.sparse.map": b"0,1,2,3"}, unread) == ((0, 1), (2, 3))
    assert pax_map({b"GNU.sparse.map": b""}, unread) == ()
    assert pax_map({b"GNU.sparse.major": b"0"}, unread) == ()
    major = {b"GNU.sparse.major": b"1"}
    assert pax_map(major, blocks(b"2\n0\n1\n2\n3\n9\n")) == ((0, 1), (2, 3))
    assert pax_map(major, blocks(b"0\n")) == ()
    text = b"60\n" + b"".join(b"%d\n1\n" % (100_000 * each) for each in range(60))
    assert len(text) > 512
    in_blocks = blocks(*(text[at : at + 512] for at in range(0, len(text), 512)))
    assert pax_map(major, in_blocks) == tuple((100_000 * each, 1) for each in range(60))


def test_a_sparse_map_in_blocks_that_is_too_long() -> None:
    major, number_of = {b"GNU.sparse.major": b"1"}, MAP // 512
    many = iter([b"99999999999\n" + b"1\n" * 250, *[b"1\n" * 256] * number_of])
    assert refusal(pax_map, major, lambda: next(many)) == "is damaged: a sparse map is too long"
    assert len(list(many)) == 0
    assert refusal(pax_map, major, lambda: b"1" * 512) == "is damaged: a sparse map is too long"
    assert refusal(pax_map, major, blocks(b"1" * 512, b"\n")).endswith("not a number")


def old_block(entries: list[tuple[int, int]], size: int = 100, more: bool = False) -> bytes:
    """The header of a sparse member of GNU's first form, as far as its map."""
    block = bytearray(512)
    packed = b"".join(b"%011o\0%011o\0" % entry for entry in entries)
    block[386 : 386 + len(packed)] = packed
    block[482] = more
    block[483:495] = b"%011o\0" % size
    return bytes(block)


def test_a_sparse_map_in_a_header() -> None:
    assert header_map(old_block([(0, 1), (8, 2)]), blocks()) == (((0, 1), (8, 2)), 100)
    four = [(each * 10, 1) for each in range(4)]
    assert header_map(old_block(four), blocks()) == (tuple(four), 100)
    further = b"".join(b"%011o\0%011o\0" % (50 + each, 1) for each in range(21)).ljust(504, b"\0")
    read = blocks(further + b"\1", further[:24])
    found, _ = header_map(old_block(four, more=True), read)
    assert found == (*four, *((50 + each, 1) for each in range(21)), (50, 1))
    huge = bytearray(old_block([]))
    huge[483:495] = b"\x80" + (TERA2 + 1).to_bytes(11, "big")
    assert f"sparse file of {TERA2 + 1} bytes" in refusal(header_map, huge, blocks())
    huge[483:495] = b"\xff" * 12
    assert "sparse file of -1 bytes" in refusal(header_map, huge, blocks())


def test_a_sparse_map_in_very_many_blocks() -> None:
    most = MAP // 512
    read = blocks(*(bytes(504) + b"\1" for _ in range(most - 1)), b"")
    assert header_map(old_block([], more=True), read) == ((), 100)
    read = blocks(*(bytes(504) + b"\1" for _ in range(most)), b"")
    assert "too long" in refusal(header_map, old_block([], more=True), read)


def test_a_map_must_fit_its_file() -> None:
    assert check(((0, 5), (5, 0), (7, 3)), 10, 8) == ((0, 5), (7, 3))
    assert check((), 10, 0) == ()
    for extents in (((0, 11),), ((5, 1), (5, 1)), ((5, -1),), ((0, 5), (4, 1)), ((-1, 1),)):
        message = refusal(check, extents, 10, 1)
        assert message == "is damaged: a sparse map is out of order or exceeds its file"
    assert refusal(check, ((0, 5),), 10, 4) == "is damaged: a sparse map has 5 bytes of data, but 4 are stored"
    assert refusal(pax_map, {b"GNU.sparse.map": b"1"}, blocks()).endswith("an offset without a length")


def test_a_stream_is_a_window_that_moves_forward() -> None:
    def pieces() -> Iterator[bytes]:
        yield from (b"abc", b"", b"defg", b"h")

    stream = Stream(pieces())
    assert stream.take(0, 2) == b"ab"
    assert stream.take(1, 2) == b"bc"
    assert (stream.base, stream.end) == (0, 3)
    assert stream.take(2, 4) == b"cdef"
    assert (stream.base, stream.end) == (3, 7)
    assert [bytes(view) for view in stream.pieces(4, 4)] == [b"efg", b"h"]
    assert stream.take(7, 5) == b"h"
    assert stream.take(8, 1) == b""
    assert refusal(list, stream.pieces(7, 4)) == "is truncated: it ends 3 bytes before the end of a file"
    assert [bytes(view) for view in Stream(pieces()).rest(2)] == [b"c", b"defg", b"h"]


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        (b"a/./b//c/", (b"a", b"b", b"c")),
        (b"/../a/../b", (b"b",)),
        (b".", ()),
        (b"..", ()),
        (b"", ()),
        (b"x" * 255, (b"x" * 255,)),
    ],
)
def test_a_path_is_cleaned(path: bytes, parts: tuple[bytes, ...]) -> None:
    assert cleaned(path) == parts


def test_a_name_that_is_too_long() -> None:
    message = refusal(cleaned, b"a/" + b"x" * 256)
    assert message.startswith("has a name of 256 bytes; the limit of Linux is 255: a/xxx")


def test_what_is_white_out() -> None:
    assert (is_whiteout(b".wh.a"), is_whiteout(b".wha"), is_whiteout(b"a.wh.b")) == (True, False, False)
    assert whited_out(b".wh.a") == b"a"
    assert whited_out(b".wh..wh..opq") == OPAQUE
    assert whited_out(b".wh..wh.plnk") is None
    assert whited_out(b".wh..a") == b".a"
    assert whited_out(b".wh....") == b"..."
    for name in (b".wh.", b".wh..", b".wh..."):
        assert refusal(whited_out, name) == f"is damaged: it has a whiteout without a name: {name.decode()}"


def test_names_in_messages_are_short_and_printable() -> None:
    assert printable_name("ü".encode()) == "ü"
    assert printable_name(b"a\nb\xff") == "a\\nb\\\\xff"
    assert printable_name(b"x" * 200) == "x" * 200
    assert printable_name(b"x" * 120 + b"y" * 81) == "x" * 100 + "…" + "y" * 80


def test_an_error_names_the_layer() -> None:

    for digest, named in (("sha256:1", "sha256:1"), ("", "without a digest")):
        with pytest.raises(ImageError) as caught, naming(digest):
            raise Malformed("is cut")
        assert caught.value.message == f"layer {named} is cut; nothing was converted"


def test_warnings_are_counted_in_their_order() -> None:
    warnings = Warnings()
    for _ in range(2):
        warnings.count("skipped", "sockets")
        warnings.count("said", "something")
    warnings.count("dropped", "it")
    assert warnings.texts() == ("2 entries skipped: sockets", "something", "it of 1 file dropped")
    for each in range(98):
        warnings.count("dropped", str(each))
    assert warnings.texts()[-2:] == ("96 of 1 file dropped", "and 1 more warnings of other kinds")
    warnings.count("dropped", "0")
    assert warnings.texts()[3] == "0 of 2 files dropped"


def test_the_magic_of_zstd() -> None:
    assert is_zstd(b"\x28\xb5\x2f\xfd")
    assert all(is_zstd(bytes([0x50 + each]) + b"\x2a\x4d\x18more") for each in range(16))
    assert not is_zstd(b"\x28\xb5\x2f")
    assert not is_zstd(b"\x60\x2a\x4d\x18")
    assert not is_zstd(b"\x4f\x2a\x4d\x18")
