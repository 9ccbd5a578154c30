"""Layers that meet each form of header, number, name and attribute that a tar archive may have."""

import base64
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace

from support import sparse
from support.layer_stacks import BASE, Stack
from support.ustar import GNU, V7, Member, device, directory, file, gnu_long, hardlink, pax, symlink, tar, whiteout

CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)  # cap_net_raw=ep
LONG = "/".join(("directory-with-a-rather-long-name",) * 8)
MIB = 1024 * 1024
SIZE = 9 * MIB + 7
PIECES = {0x10000: b"one" * 1024, 5 * MIB: b"two" * 70144}  # offset: data, of a sparse file of SIZE bytes
MANY = {n * 8192: b"%04d" % n * 128 for n in range(100)}


def types() -> Stack:
    """Every type flag: devices, fifos, contiguous files, files without a flag, and some that nobody knows."""
    layer = (
        *BASE,
        directory("t"),
        device("t/null", "c", 1, 3),
        device("t/large-numbers", "b", 4095, 1_000_000),
        device("t/fifo", "p"),
        replace(file("t/no-flag", "data"), kind=b"\0"),
        replace(file("t/v7", "data"), kind=b"\0", magic=V7),
        replace(file("t/v7-directory/"), kind=b"\0", magic=V7, mode=0o711),
        replace(file("t/zero-directory/"), kind=b"0", mode=0o711),
        replace(directory("t/with-type-bits"), mode=0o040751),
        replace(file("t/with-type-bits/file", "data"), mode=0o104711),
        symlink("t/symlink", "null", mode=0o600, owner=(4, 5)),
        symlink("t/to-nothing", "not/there"),
        symlink("t/loop", "loop"),
    )
    return (tar(layer),)


def modes() -> Stack:
    """Every special bit, no bit at all, and owners small and large."""
    bits = (0o4755, 0o2755, 0o6755, 0o1755, 0o7777, 0o000, 0o111, 0o600)
    owners = ((0, 0), (1, 2), (65534, 65534), (2_000_000, 2_000_001), (4_294_967_294, 4_294_967_294))
    layer = (
        *BASE,
        *(file(f"mode/file-{mode:04o}", "x", mode=mode, owner=(7, 7)) for mode in bits),
        *(directory(f"mode/directory-{mode:04o}", mode=mode, owner=(7, 7)) for mode in bits),
        *(file(f"mode/directory-{mode:04o}/inside", "x") for mode in bits),
        *(file(f"owner/file-{number}", "x", owner=owner) for number, owner in enumerate(owners)),
        *(directory(f"owner/directory-{number}", owner=owner) for number, owner in enumerate(owners)),
        *(symlink(f"owner/link-{number}", "x", owner=owner) for number, owner in enumerate(owners)),
        file("owner/name", "x", owner=(41, 42), names=(b"root", b"daemon")),
        file("owner/pax", "x", pax={b"uid": b"3000000000", b"gid": b"17", b"uname": b"bin", b"gname": b"bin"}),
    )
    return (tar((*BASE, directory("mode"), directory("owner"), *layer)),)


def times() -> Stack:
    """Before 1970, after 2038 and 2106, and with fractions."""
    octal = {"zero": 0, "2038": 2_200_000_000, "2100": 4_102_444_800}
    layer = (
        *(file(f"times/{name}", "x", mtime=mtime) for name, mtime in octal.items()),
        file("times/fraction", "x", pax={b"mtime": b"1600000000.987654321", b"atime": b"1.5", b"ctime": b"2"}),
        file("times/pax-integer", "x", pax={b"mtime": b"1500000000"}),
        directory("times/directory", mtime=1_400_000_000),
        file("times/directory/file", "x"),
        symlink("times/link", "zero", mtime=1_300_000_000),
    )
    return (tar((*BASE, directory("times", mtime=1_200_000_000), *layer)),)


def odd_times() -> Stack:
    """Times that a squashfs cannot hold."""
    layer = (
        file("odd/before-1970", "x", mtime=-1),
        file("odd/pax-before-1970", "x", pax={b"mtime": b"-1000000000.5"}),
        file("odd/after-2106", "x", mtime=5_000_000_000),
        file("odd/pax-after-2106", "x", pax={b"mtime": b"9000000000.25"}),
    )
    return (tar((*BASE, directory("odd"), *layer)),)


def names() -> Stack:
    """Long names in each of the three ways, and names in bytes that are no text."""
    layer: tuple[Member | bytes, ...] = (
        directory(LONG[:90].rpartition("/")[0]),
        file("short", "x", pax={b"path": f"pax/{LONG}/file".encode()}),
        symlink("short", "x", pax={b"path": b"pax/link", b"linkpath": f"/{LONG}/../x".encode()}),
        hardlink("short", "x", pax={b"path": b"pax/hard", b"linkpath": f"pax/{LONG}/file".encode()}),
        gnu_long(file(f"gnu/{LONG}/file", "y")),
        gnu_long(symlink(f"gnu/{LONG}/link", f"./{LONG}")),
        gnu_long(hardlink(f"gnu/{LONG}/hard", f"gnu/{LONG}/file")),
        file("file", "z", prefix=f"ustar/{'d' * 100}/{'e' * 40}".encode()),
        file("gnu-magic", "x", magic=GNU, prefix=b"00000000000\x0000000000000\0"),  # atime and ctime, not a prefix
        *(
            file(b"bytes/" + name, "x")
            for name in (b"\xff\xfe", b"latin-\xe9", b"new\nline", b" ", b"-", b"a\\b", b"\x7f")
        ),
        file("u", "x", pax={b"path": "bytes/ü漢".encode()}),
        symlink(b"bytes/link-\xe9", b"\xff/\xfe"),
        file("component", "x", pax={b"path": b"bytes/" + b"n" * 255}),
        directory("bytes/.wh"),
        file("bytes/.wha", "x"),
        file("bytes/x.wh.y", "x"),
    )
    return (tar((*BASE, directory("bytes"), directory("pax"), *layer)),)


def spellings() -> Stack:
    """Paths with `./`, `/`, `//`, `..` and slashes at the end; a later layer that spells the same files otherwise."""
    lower = (
        directory("./s"),
        file("./s/dot", "x"),
        file("/s/absolute", "x"),
        file("s//double", "x"),
        file("s/./inner-dot", "x"),
        file("../../s/above", "x"),
        file("s/inner/../up", "x"),
        hardlink("./s/hard", "/s/absolute"),
        hardlink("s/hard-dot", "./s/dot"),
        file("./s/replaced", "lower"),
        file("/s/gone", "lower"),
    )
    upper = (file("s/replaced", "upper"), replace(whiteout("s/gone"), path=b"./s/.wh.gone"))
    return tar((*BASE, *lower)), tar(upper)


def attributes() -> Stack:
    """Extended attributes of every prefix and on every type, in both of the keywords that are in use."""
    schily = {
        b"SCHILY.xattr.user.text": b"value",
        b"SCHILY.xattr.user.bytes": bytes(range(256)) + b"=\n",
        b"SCHILY.xattr.trusted.overlay": b"y",
    }
    layer = (
        file("x/capability", "x", mode=0o755, pax={b"SCHILY.xattr.security.capability": CAPABILITY}),
        file("x/owned", "x", mode=0o755, owner=(9, 9), pax={b"SCHILY.xattr.security.capability": CAPABILITY}),
        file("x/file", "x", pax=schily),
        directory("x/directory", pax=schily),
        hardlink("x/hard", "x/file"),
        replace(device("x/device", "c", 1, 5), pax={b"SCHILY.xattr.trusted.device": b"d"}),
        symlink("x/link", "file", pax={b"SCHILY.xattr.trusted.link": b"l"}),
        file("x/large", "x", pax={b"SCHILY.xattr.user.large": b"v" * 3000}),
        *(file(f"x/shared-{number}", "x", pax={b"SCHILY.xattr.user.shared": b"s" * 90}) for number in range(600)),
    )
    upper = (directory("x/directory", pax={b"SCHILY.xattr.user.upper": b"u"}), file("x/file-above", "x"))
    return tar((*BASE, directory("x"), *layer)), tar(upper)


def odd_attributes() -> Stack:
    """Attributes that are not kept, or that only some tools read."""
    encoded = base64.b64encode(b"libarchive's").rstrip(b"=")
    layer = (
        file("o/selinux", "x", pax={b"SCHILY.xattr.security.selinux": b"system_u:object_r:usr_t:s0\0"}),
        file("o/libarchive", "x", pax={b"LIBARCHIVE.xattr.user.name": encoded}),
        file("o/acl", "x", pax={b"SCHILY.acl.access": b"user::rw-,group::r--,other::r--"}),
        file("o/unknown-keyword", "x", pax={b"VENDOR.key": b"value", b"charset": b"BINARY"}),
    )
    return (tar((*BASE, directory("o"), *layer)),)


def empty_attributes() -> Stack:
    """A value of no bytes, which in PAX also means that the attribute is unset."""
    return (tar((*BASE, file("e", "x", pax={b"SCHILY.xattr.user.empty": b""}))),)


def sparse_files() -> Stack:
    """One content in each of PAX's three sparse forms, with a hole first, between and last."""
    layer = (
        sparse.pax_0_0(b"sparse/pax-0.0", PIECES, SIZE),
        sparse.pax_0_1(b"sparse/pax-0.1", PIECES, SIZE),
        sparse.pax_1_0(b"sparse/pax-1.0", PIECES, SIZE),
        sparse.pax_1_0(b"sparse/only-a-hole", {}, SIZE),
        sparse.pax_1_0(b"sparse/many", MANY, 100 * 8192),
        file("sparse/zeros", bytes(MIB)),
    )
    return (tar((*BASE, directory("sparse"), *layer)),)


def crowd() -> Stack:
    """A directory of so many names, and so many owners, that squashfs holds them in another way than a few.

    Of a listing beyond 64 KiB the inode is another, with an index; 2048 owners fill a block of them. More names are in
    test_squashfs_limits.py: mksquashfs, with which apptainer packs, takes the square of their number.
    """
    members = (file(f"crowd/{n:020}", b"%d" % n, owner=(n, 0)) for n in range(3000))
    return (tar((*BASE, directory("crowd"), *members)),)


FORMS: Mapping[str, Callable[[], Stack]] = {
    "types": types,
    "modes": modes,
    "times": times,
    "odd-times": odd_times,
    "names": names,
    "spellings": spellings,
    "attributes": attributes,
    "odd-attributes": odd_attributes,
    "empty-attributes": empty_attributes,
    "sparse-files": sparse_files,
    "crowd": crowd,
}

# forms that apptainer refuses, and the same in forms that it reads
REFUSED: Mapping[str, tuple[tuple[Member | bytes, ...], tuple[Member | bytes, ...]]] = {
    "contiguous file": ((replace(file("a", "x"), kind=b"7"),), (file("a", "x"),)),
    "unknown type": (
        (file("a", "x"), Member(b"b", b"Z", b"its data"), file("c", "y")),
        (file("a", "x"), file("c", "y")),
    ),
    "global header": ((pax({b"comment": b"a" * 5000}, b"g"), file("a", "x")), (file("a", "x"),)),
    "old sparse form": (
        (sparse.old(b"a", PIECES, SIZE), sparse.old(b"many", MANY, 100 * 8192)),
        (sparse.pax_1_0(b"a", PIECES, SIZE), sparse.pax_1_0(b"many", MANY, 100 * 8192)),
    ),
}
