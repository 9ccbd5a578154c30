"""Nodes: the bytes of each kind of inode that is not a directory, and of its extended form."""

import struct
from array import array
from typing import NamedTuple

from sifmod.errors import ImageError
from sifmod.image.convert.inode import Content, Device, Fifo, File, Node, Socket, Symlink
from sifmod.image.convert.squashfs.metadata import little
from sifmod.image.convert.squashfs.superblock import (
    BLOCK_DEVICE,
    CHARACTER_DEVICE,
    EXTENDED,
    FIFO,
    FILE,
    NONE,
    SOCKET,
    SYMLINK,
)

MOST_BLOCKS = 1 << 25  # 4 TiB of files in blocks of 128 KiB, 128 MiB of memory
BLOCK = 1 << 17

_COMMON = struct.Struct("<HHHHII")
_LARGE = struct.Struct("<QQQIIII")
_MOST_TARGET = 4095  # bytes; Linux reads no longer one


class Written:
    """Sizes of all blocks in the order given (holes have 0), starts of those stored, and the fragments."""

    def __init__(self, block_size: int = BLOCK) -> None:
        self.block_size = block_size  # bytes
        self.sizes = array("I")
        self.starts = array("Q")  # of stored blocks
        self.fragment_starts = array("Q")
        self.fragment_sizes = array("I")

    def reserve(self, count: int) -> None:
        """Add blocks; they are holes until they are noted. Raises ImageError when there are too many."""
        if len(self.sizes) + count > MOST_BLOCKS:
            raise ImageError("the image's files have more than 4 TiB in all, holes included")
        self.sizes.frombytes(bytes(4 * count))

    def note(self, place: int, position: int, word: int) -> None:
        """Note one stored block, or for a place below 0 a fragment, in the order of the file."""
        if place < 0:
            self.fragment_starts.append(position)
            self.fragment_sizes.append(word)
        else:
            self.sizes[place] = word
            self.starts.append(position)


class Common(NamedTuple):
    """What an inode says of itself beside its kind: the indexes of its ids, its number, links and attributes."""

    uid: int
    gid: int
    number: int
    links: int
    xattrs: int  # number of the set, NONE without


def pack_node(node: Node, common: Common, written: Written) -> tuple[int, bytes]:
    """Return an inode's basic type and its bytes. Raises ImageError for a symlink that Linux could not read."""
    if isinstance(node, File):
        return FILE, _file(node, common, written)
    if isinstance(node, Symlink):
        if not 0 < len(node.target) <= _MOST_TARGET:
            raise ImageError(f"a symbolic link's target has {len(node.target)} bytes, expected 1 to {_MOST_TARGET}")
        body = struct.pack("<II", common.links, len(node.target)) + node.target
        return SYMLINK, _special(node, common, SYMLINK, body)
    if isinstance(node, Device):
        kind = BLOCK_DEVICE if node.kind == "b" else CHARACTER_DEVICE
        return kind, _special(node, common, kind, struct.pack("<II", common.links, _device(node)))
    if isinstance(node, Fifo):
        return FIFO, _special(node, common, FIFO, struct.pack("<I", common.links))
    if isinstance(node, Socket):
        return SOCKET, _special(node, common, SOCKET, struct.pack("<I", common.links))
    raise ImageError(f"a squashfs cannot hold a {type(node).__name__}")


def _head(node: Node, common: Common, kind: int) -> bytes:
    return _COMMON.pack(kind, node.mode, common.uid, common.gid, node.mtime, common.number)


def _special(node: Node, common: Common, kind: int, body: bytes) -> bytes:
    if common.xattrs == NONE:
        return _head(node, common, kind) + body
    return _head(node, common, kind + EXTENDED) + body + struct.pack("<I", common.xattrs)


def _device(node: Device) -> int:
    """Linux's encoding of a device's numbers in 32 bits. Raises ImageError where they do not fit."""
    if not (0 <= node.major < 1 << 12 and 0 <= node.minor < 1 << 20):
        raise ImageError(f"device numbers {node.major}, {node.minor} are larger than Linux knows")
    return (node.minor & 0xFF) | node.major << 8 | (node.minor & ~0xFF) << 12


def _file(node: File, common: Common, written: Written) -> bytes:
    content = node.content
    fragment = content.fragment if content.fragment >= 0 else NONE
    sizes = block_sizes(content, written)
    start = written.starts[content.stored] if any(sizes) else 0
    body = little(sizes)
    if common.links == 1 and common.xattrs == NONE and not content.sparse and max(start, content.size) < 1 << 32:
        return _head(node, common, FILE) + struct.pack("<IIII", start, fragment, content.offset, content.size) + body
    sparse = min(content.sparse, content.size - 1) if content.sparse else 0
    place = (common.links, fragment, content.offset, common.xattrs)
    return _head(node, common, FILE + EXTENDED) + _LARGE.pack(start, content.size, sparse, *place) + body


def block_sizes(content: Content, written: Written) -> "array[int]":
    """The words of a file's block list: what is in a fragment is in none of them."""
    blocks, rest = divmod(content.size, written.block_size)
    return written.sizes[content.block : content.block + blocks + (rest > 0 and content.fragment < 0)]
