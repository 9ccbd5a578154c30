"""Digest: one number for the content of a squashfs, whatever its compression, block size and order.

A sha256 over a record for each name in `walk`'s order, the root first: path, type, mode, owners, mtime, extended
attributes and, by type, the size and digest of the data, the link's target or the device's numbers. A further name of
a file seen before is recorded as that. Data is digested in units of 1 MiB, those of zeros left out: holes are zeros.
"""

import hashlib
import struct
from collections.abc import Collection, Iterable
from typing import Protocol

from sifmod.image.convert.inode import Xattrs
from sifmod.image.convert.squashfs.stat import Stat

_UNIT = 1 << 20  # a multiple of every block size
_ZEROS = bytes(_UNIT)


class Tree(Protocol):
    """What is needed of a reader."""

    root: Stat

    def walk(self) -> Iterable[tuple[bytes, Stat, int]]:
        """Path, inode and reference of everything but the root."""

    def data(self, file: Stat) -> Iterable[bytes | int]:
        """A file's data, or sizes of holes."""

    def xattrs(self, inode: Stat) -> Xattrs:
        """Extended attributes."""


def tree_digest(tree: Tree, left_out: Collection[int] = ()) -> str:
    """Return the digest in hexadecimal, without the inodes of the numbers `left_out`. Raises what the reader raises."""
    whole = hashlib.sha256(b"sifmod squashfs tree 1\n")
    whole.update(_record(tree, b"", tree.root, b""))
    names: dict[int, int] = {}  # index of the first name of files with several
    for index, (path, stat, reference) in enumerate(tree.walk()):
        if stat.number in left_out:
            continue
        if stat.kind != "d" and stat.links > 1 and names.setdefault(reference, index) != index:
            whole.update(struct.pack("<IcQ", len(path), b"h", names[reference]) + path)
            continue
        data = _data(tree, stat) if stat.kind == "f" else b""
        whole.update(_record(tree, path, stat, data))
    return whole.hexdigest()


def _record(tree: Tree, path: bytes, stat: Stat, data: bytes) -> bytes:
    xattrs = b"".join(struct.pack("<II", len(n), len(v)) + n + v for n, v in tree.xattrs(stat))
    size = 0 if stat.kind == "d" else stat.size  # a directory's depends on its layout
    head = struct.pack("<IcIIIIQ", len(path), stat.kind.encode(), stat.mode, stat.uid, stat.gid, stat.mtime, size)
    lengths = struct.pack("<III", stat.device, len(stat.target), len(xattrs))
    return head + lengths + path + stat.target + xattrs + data


def _data(tree: Tree, stat: Stat) -> bytes:
    digest = hashlib.sha256()
    unit = bytearray()
    index = 0
    for piece in tree.data(stat):
        if isinstance(piece, bytes):
            unit += piece  # a block never reaches over the end of a unit
            hole = 0
        else:
            room = min(piece, _UNIT - len(unit))
            unit += _ZEROS[:room]
            hole = piece - room
        if len(unit) == _UNIT:
            _put(digest, unit, index)
            index += 1 + hole // _UNIT
            unit += _ZEROS[: hole % _UNIT]
    _put(digest, unit, index)
    return digest.digest()


def _put(digest: "hashlib._Hash", unit: bytearray, index: int) -> None:
    """Digest a unit if there is something in it, and empty it."""
    if not _ZEROS.startswith(unit):
        digest.update(struct.pack("<Q", index))
        digest.update(unit)
    unit.clear()
