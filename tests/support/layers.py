"""Layers made for tests, and a root file system read back as plain values."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import zstandard

from sifmod.image.convert.inode import (
    EMPTY,
    PLACE,
    Content,
    Device,
    Directory,
    Fifo,
    File,
    Node,
    Plain,
    Symlink,
    unpacked,
)
from sifmod.image.convert.layers.merge_layers import Merged, merge_layers
from sifmod.image.convert.squashfs.writer import DataWriter

EPOCH = 1_600_000_000


@dataclass(frozen=True)
class Entry:
    """One entry of a layer: `kind` as tarfile has it, `target` of either sort of link."""

    name: str
    kind: bytes = tarfile.REGTYPE
    content: bytes = b""
    target: str = ""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    mtime: int = 1_500_000_000
    device: tuple[int, int] = (0, 0)
    pax: tuple[tuple[str, str], ...] = ()


def directory(name: str, mode: int = 0o755) -> Entry:
    return Entry(name, tarfile.DIRTYPE, mode=mode)


def symlink(name: str, target: str) -> Entry:
    return Entry(name, tarfile.SYMTYPE, target=target)


def hard_link(name: str, target: str) -> Entry:
    return Entry(name, tarfile.LNKTYPE, target=target)


def tar(entries: Iterable[Entry], dialect: int = tarfile.PAX_FORMAT) -> bytes:
    """The entries as a tar, by Python's own writer."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=dialect, encoding="utf-8", errors="surrogateescape") as file:
        for entry in entries:
            info = tarfile.TarInfo(entry.name)
            info.type, info.linkname, info.mode = entry.kind, entry.target, entry.mode
            info.uid, info.gid, info.mtime = entry.uid, entry.gid, entry.mtime
            info.devmajor, info.devminor = entry.device
            info.pax_headers = dict(entry.pax)
            info.size = len(entry.content)
            file.addfile(info, io.BytesIO(entry.content))
    return stream.getvalue()


@dataclass(frozen=True)
class Stored:
    """A blob in memory."""

    data: bytes
    diff_id: str = ""

    @property
    def digest(self) -> str:
        return "sha256:" + hashlib.sha256(self.data).hexdigest()

    @property
    def size(self) -> int:
        return len(self.data)

    def open(self) -> BinaryIO:
        return io.BytesIO(self.data)

    def seekable(self) -> BinaryIO:
        return io.BytesIO(self.data)


def packed(data: bytes, how: str) -> Stored:
    """A tar as a blob: plain, gzip or zstd."""
    match how:
        case "gzip":
            return Stored(gzip.compress(data, 1, mtime=0))
        case "zstd":
            return Stored(zstandard.ZstdCompressor(level=1, write_checksum=True).compress(data))
    return Stored(data)


@dataclass
class Memory(DataWriter):
    """A writer that keeps what it is given: for each content, the pieces and holes in order."""

    files: list[list[bytes | int]] = field(default_factory=list)

    def add(self, data: bytes) -> Content:
        assert type(data) is bytes
        assert len(data) < 131072
        self.start()
        self.write(data)
        return self.finish()

    def small(self, data: bytes) -> bytes:
        number = self.add(data).block
        return PLACE.pack(number, 0, len(data)) if data else EMPTY

    def start(self) -> None:
        self.files.append([])

    def write(self, chunk: bytes | memoryview) -> None:
        self.files[-1].append(bytes(chunk))

    def hole(self, size: int) -> None:
        assert size > 0
        self.files[-1].append(size)

    def finish(self) -> Content:
        size = sum(part if isinstance(part, int) else len(part) for part in self.files[-1])
        return Content(size, len(self.files) - 1)

    def bytes_of(self, content: Content) -> bytes:
        return b"".join(bytes(part) if isinstance(part, int) else part for part in self.parts_of(content))

    def parts_of(self, content: Content) -> list[bytes | int]:
        return self.files[max(content.block, content.fragment)]


def merged(layers: Sequence[Stored], data: Memory | None = None) -> Merged:
    """The layers, lowest first, merged into memory."""
    return merge_layers(layers, data or Memory(), epoch=EPOCH, progress=lambda _read, _total: None)


@dataclass(frozen=True)
class Seen:
    """What is at one path. `first` is the path in order of which the same inode is met first."""

    kind: str
    mode: int
    owner: tuple[int, int]
    mtime: int
    content: bytes = b""
    target: bytes = b""
    device: tuple[int, int] = (0, 0)
    first: bytes = b""
    xattrs: tuple[tuple[bytes, bytes], ...] = ()


def seen(root: Directory, data: Memory) -> dict[bytes, Seen]:
    """Everything in a merged root, by path; the root itself is `.`."""
    found: dict[bytes, Seen] = {}
    first: dict[int, bytes] = {}
    nodes: list[Node] = []

    def visit(path: bytes, entry: Node | Plain) -> None:
        node = unpacked(entry) if isinstance(entry, Plain) else entry
        nodes.append(node)  # so that no two have one id
        assert isinstance(node, Directory | File | Symlink | Device | Fifo)
        found[path] = _seen(node, data, first.setdefault(id(node), path))
        if isinstance(node, Directory):
            for name, child in sorted(node.entries.items()):
                visit(path + b"/" + name, child)

    visit(b".", root)
    return found


def _seen(node: Node, data: Memory, first: bytes) -> Seen:
    kind, content, target, device = "directory", b"", b"", (0, 0)
    match node:
        case File():
            kind, content = "file", data.bytes_of(node.content) if node.content.size else b""
            assert node.content.size == len(content)
        case Symlink():
            kind, target = "symlink", node.target
        case Device():
            kind, device = node.kind, (node.major, node.minor)
        case Fifo():
            kind = "fifo"
    return Seen(kind, node.mode, (node.uid, node.gid), node.mtime, content, target, device, first, node.xattrs)
