"""Write the inode table and the directory table of a squashfs from a tree of nodes."""

import struct
from array import array
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from sifmod.errors import ImageError
from sifmod.image.convert.inode import Content, Device, Directory, Fifo, File, Node, Plain, Socket, Symlink
from sifmod.image.convert.squashfs.compression import Compress
from sifmod.image.convert.squashfs.metadata import ListingWriter, MetadataWriter, XattrTable, little
from sifmod.image.convert.squashfs.pipeline import Written
from sifmod.image.convert.squashfs.superblock import (
    BLOCK_DEVICE,
    CHARACTER_DEVICE,
    DIRECTORY,
    EXTENDED,
    FIFO,
    FILE,
    METADATA,
    NONE,
    SOCKET,
    SYMLINK,
)

_OWNER = struct.Struct("<HxxII")
_HEAD = struct.Struct("<HHHH")  # for any inode: type, mode, ids
_NUMBERED = struct.Struct("<I4x")  # for a plain file: the inode's number, and no block
_SHORT = struct.Struct("<HHHHIIIIHHI")  # a directory
_LONG = struct.Struct("<HHHHIIIIIIHHI")
_COMMON = struct.Struct("<HHHHII")  # for any inode, with its time and number
_LARGE = struct.Struct("<QQQIIII")  # a file with large numbers
_MOST_IDS = 65535
_MOST_TARGET = 4095  # bytes; Linux's limit
_MOST_NAME = 255  # bytes


class Ids(dict[int, int]):
    """Index of every user and group id, in the order of their first use."""

    def __missing__(self, value: int) -> int:
        if len(self) == _MOST_IDS:
            raise ImageError(
                f"the image has more than {_MOST_IDS} different owner and group ids, which a squashfs cannot hold",
                "build the image with fewer owner ids",
            )
        if not 0 <= value < 1 << 32:
            raise ImageError(f"owner id {value} is not in 0…{(1 << 32) - 1}")
        self[value] = index = len(self)
        return index


@dataclass(frozen=True)
class Survey:
    """A survey of a tree: directories with parents before children, and nodes with several names."""

    directories: tuple[Directory, ...]
    names: tuple[list[bytes], ...]  # of each directory, sorted
    parents: tuple[int, ...]  # number of each one's parent
    numbers: dict[int, int]  # of directories, from 1, by id()
    links: dict[int, int]  # number of names of each node with several, by id()
    inodes: int


def survey(root: Directory) -> Survey:
    """Survey a whole tree. Raises ImageError for invalid names, and for a directory with two names."""
    directories: list[Directory] = []
    names: list[list[bytes]] = []
    parents: list[int] = []
    numbers: dict[int, int] = {}
    named = array("Q", [id(root)])
    plain = 0
    stack = [(root, 0)]
    while stack:
        directory, parent = stack.pop()
        entries = directory.entries
        listed = sorted(entries)
        _check(listed)
        directories.append(directory)
        names.append(listed)
        parents.append(parent)
        number = len(directories)
        if numbers.setdefault(id(directory), number) != number:
            raise ImageError("a directory of the image has two names")
        nodes = [node for node in entries.values() if type(node) is not Plain]
        named.extend(map(id, nodes))
        plain += len(entries) - len(nodes)
        if any(isinstance(node, Directory) for node in nodes):
            stack += [(node, number) for name in reversed(listed) if isinstance(node := entries[name], Directory)]
    links = _repeated(named)
    inodes = plain + len(named) - sum(links.values()) + len(links)
    parents[0] = inodes + 1  # there is no such inode: the root has no parent
    return Survey(tuple(directories), tuple(names), tuple(parents), numbers, links, inodes)


def _repeated(numbers: "array[int]") -> dict[int, int]:
    """Counts of the numbers that occur more than once; needs less memory than counting all."""
    ordered = sorted(numbers)
    again = Counter(one for one, following in pairwise(ordered) if one == following)
    return {number: times + 1 for number, times in again.items()}


def _check(names: list[bytes]) -> None:
    joined = b"/".join(names)
    if names and (joined.count(b"/") != len(names) - 1 or b"\0" in joined or not names[0]):
        raise ImageError(f"a directory of the image has an invalid file name: {joined[:200]!r}")
    if len(joined) > _MOST_NAME and (longest := max(names, key=len)) and len(longest) > _MOST_NAME:
        raise ImageError(f"a name of {len(longest)} bytes is too long for Linux (at most {_MOST_NAME}): {longest!r}")
    if b"." in names[:32] or b".." in names[:32]:
        raise ImageError("a directory of the image has an entry . or ..")


class Heads(dict[bytes, bytes]):
    """The start of a plain file's inode, by its OWNER without the time."""

    def __init__(self, ids: Ids) -> None:
        super().__init__()
        self._ids = ids

    def __missing__(self, owner: bytes) -> bytes:
        if len(self) >= _MOST_IDS:
            self.clear()
        mode, uid, gid = _OWNER.unpack(owner)
        head = self[owner] = _HEAD.pack(FILE, mode, self._ids[uid], self._ids[gid])
        return head


class TreeWriter:
    """Writes the inode table and the directory table in one walk from the leaves up."""

    def __init__(self, seen: Survey, written: Written, compress: Compress) -> None:
        self.inodes = MetadataWriter(compress)
        self.directories = MetadataWriter(compress)
        self.xattrs = XattrTable(compress)
        self.ids = Ids()
        self._heads = Heads(self.ids)
        self.places = array("Q", bytes(8 * len(seen.directories)))  # reference of each inode, by number - 1
        self._seen = seen
        self._written = written
        self._shared: dict[int, tuple[int, int, int]] = {}  # reference, number and type of nodes with several names

    def write(self) -> int:
        """Write the tree and return its root's reference; the tables then lack only their last blocks."""
        for index in range(len(self._seen.directories) - 1, -1, -1):
            self._directory(index)
        return self.places[0]

    def _directory(self, index: int) -> None:
        """Write the inodes of a directory's files, its listing, and its own inode."""
        directory = self._seen.directories[index]
        entries, places, heads = directory.entries, self.places, self._heads
        inodes, buffer, numbered = self.inodes, self.inodes.buffer, _NUMBERED.pack
        listing = ListingWriter(self.directories)
        add = listing.add
        subdirectories = 0
        for name in self._seen.names[index]:
            node = entries[name]
            if isinstance(node, Plain):
                place = inodes.start << 16 | len(buffer)
                places.append(place)
                number = len(places)
                buffer += heads[node[:12]] + node[12:16] + numbered(number) + node[16:]
                if len(buffer) >= METADATA:
                    inodes.flush()
                add(name, place, number, FILE)
            elif isinstance(node, Directory):
                subdirectories += 1
                number = self._seen.numbers[id(node)]
                add(name, places[number - 1], number, DIRECTORY)
            else:
                add(name, *self._node(node))
        listing.finish()
        self._own(index, listing, subdirectories + 2)

    def _node(self, node: Node) -> tuple[int, int, int]:
        """Write the inode of a link, a device or another file, once; returns its reference, number and type."""
        links = self._seen.links.get(id(node), 1)
        if links > 1 and (known := self._shared.get(id(node))):
            return known
        place = self._here()
        self.places.append(place)
        number = len(self.places)
        common = Common(self.ids[node.uid], self.ids[node.gid], number, links, self.xattrs.number(node.xattrs))
        kind, packed = pack_node(node, common, self._written)
        self.inodes.buffer += packed
        self.inodes.flush()
        if links > 1:
            self._shared[id(node)] = place, number, kind
        return place, number, kind

    def _own(self, index: int, listing: ListingWriter, links: int) -> None:
        node = self._seen.directories[index]
        size = listing.size + 3  # `.` and `..`
        self.places[index] = self._here()
        xattrs = self.xattrs.number(node.xattrs)
        head = (node.mode, self.ids[node.uid], self.ids[node.gid], node.mtime, index + 1)
        parent = self._seen.parents[index]
        start, offset = listing.start, listing.offset
        if xattrs == NONE and size < 1 << 16 and not listing.count:
            packed = _SHORT.pack(DIRECTORY, *head, start, links, size, offset, parent)
        else:
            tail = (links, size, start, parent, listing.count, offset, xattrs)
            packed = _LONG.pack(DIRECTORY + EXTENDED, *head, *tail) + listing.index
        self.inodes.buffer += packed
        self.inodes.flush()

    def _here(self) -> int:
        return self.inodes.start << 16 | len(self.inodes.buffer)


class Common(NamedTuple):
    """Fields of an inode of any kind: the indexes of its ids, its number, links and attributes."""

    uid: int
    gid: int
    number: int
    links: int
    xattrs: int  # number of the set, NONE without


def pack_node(node: Node, common: Common, written: Written) -> tuple[int, bytes]:
    """Return an inode's basic type and its bytes. Raises ImageError for a link or device that Linux cannot read."""
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
    raise ImageError(f"a squashfs cannot contain a {type(node).__name__}")


def _head(node: Node, common: Common, kind: int) -> bytes:
    return _COMMON.pack(kind, node.mode, common.uid, common.gid, node.mtime, common.number)


def _special(node: Node, common: Common, kind: int, body: bytes) -> bytes:
    if common.xattrs == NONE:
        return _head(node, common, kind) + body
    return _head(node, common, kind + EXTENDED) + body + struct.pack("<I", common.xattrs)


def _device(node: Device) -> int:
    """Linux's encoding of a device's numbers in 32 bits. Raises ImageError if they do not fit."""
    if not (0 <= node.major < 1 << 12 and 0 <= node.minor < 1 << 20):
        raise ImageError(f"device numbers {node.major}, {node.minor} are larger than Linux allows")
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
    """The words of a file's block list, without data in a fragment."""
    blocks, rest = divmod(content.size, written.block_size)
    return written.sizes[content.block : content.block + blocks + (rest > 0 and content.fragment < 0)]
