"""Read and check the header of a SIF (version 01, as in the Go module github.com/apptainer/sif, little-endian).

128 bytes of global header, a table of descriptors of 585 bytes each, then the data objects that they point to. Files of
other kinds are identified for messages.
"""

import os
import re
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sifmod.errors import ImageError
from sifmod.image.convert.squashfs.superblock import COMPRESSIONS
from sifmod.image.convert.squashfs.superblock import MAGIC as SQUASHFS_MAGIC
from sifmod.image.disk import reading
from sifmod.secret import cut
from sifmod.system import size_text

HEADER = struct.Struct("<32s10s3s3s16s8q")
"""Launch line, magic, version, architecture, UUID; eight numbers: times, descriptors free and all, table, data."""
DESCRIPTOR = struct.Struct("<iBIIIqqqqqqq128s384s")
"""Type, used, number, group, link, offset, size, size with padding, created, modified, uid, gid, name, extra."""
MAGIC, VERSION = b"SIF_MAGIC\0", b"01\0"
MOST_DESCRIPTORS = 4096  # maximum that is accepted from a header

DEFFILE, LABELS, PARTITION, SIGNATURE, JSON, OCI_ROOT_INDEX = 0x4001, 0x4003, 0x4004, 0x4005, 0x4006, 0x400A
KINDS = {
    DEFFILE: "definition",
    0x4002: "environment",
    LABELS: "labels",
    PARTITION: "partition",
    SIGNATURE: "signature",
    JSON: "JSON",
    0x4007: "data",
    0x4008: "key for an encrypted partition",
    0x4009: "bill of materials",
    OCI_ROOT_INDEX: "OCI index",
    0x400B: "OCI blob",
}
"""Names of object types for people."""
SQUASHFS, PRIMARY = 1, 2  # a partition's file system, and its use
ARCHES = (
    *("386", "amd64", "arm", "arm64", "ppc64", "ppc64le", "mips", "mipsle", "mips64", "mips64le"),
    *("s390x", "riscv64", "loong64"),
)
"""Go's names; the index is the number in a SIF, counted from 1."""
GROUP_MASK = 0xF0000000


def kind_of(number: int) -> str:
    return KINDS.get(number, f"object of type {number:#x}")


def arch_code(arch: str) -> bytes:
    """An architecture of ARCHES as encoded in headers and partitions."""
    return b"%02d\0" % (ARCHES.index(arch) + 1)


_COVERED = struct.Struct("<iBIIqqqq128s384s")
_FARTHEST = 1 << 20  # bytes before the table of descriptors that are kept in memory; apptainer writes 4096
_LARGEST = 1 << 60  # bytes
START = 512  # leading bytes that `file_kind` needs

_PARTITION = struct.Struct("<ii3s")
_SUPERBLOCK = struct.Struct("<4s16xH18xQ")  # of squashfs: magic, compression and bytes used
_LAUNCH = (b"#!/usr/bin/env run-singularity", b"#!/usr/bin/env run-apptainer")
_ARCHES = {arch_code(arch): arch for arch in ARCHES}
_BEGINNINGS = (
    (b"\x1f\x8b", "a gzip file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"\xfd7zXZ", "an xz file"),
    (b"BZh", "a bzip2 file"),
    (b"PK\x03\x04", "a zip file"),
    (b"\x7fELF", "a program"),
    (SQUASHFS_MAGIC, "a bare squashfs image without a SIF"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself"),
    (b"%PDF", "a PDF document"),
)


@dataclass(frozen=True)
class SifObject:
    """One data object. `group` is 0 for none; `link` is the number of the object or group that it refers to."""

    type: int
    id: int
    group: int
    link: int
    links_group: bool
    offset: int  # bytes
    size: int
    name: str
    extra: bytes
    raw: bytes  # the whole descriptor

    @property
    def title(self) -> str:
        """The object's name in messages: `partition (object 4)`."""
        named = f" {self.name}" if self.name and self.name.isprintable() else ""
        return f"{kind_of(self.type)}{named} (object {self.id})"

    def covered(self, relative: int) -> bytes:
        """The bytes of the descriptor that a signature covers; `relative` is the object's number in its group."""
        row = DESCRIPTOR.unpack(self.raw)
        kind, used, _, _, link, _, size, _, created, _, uid, gid, name, extra = row
        return _COVERED.pack(kind, used, relative, link, size, created, uid, gid, name, extra)


def _objects(table: bytes) -> Iterator[SifObject]:
    """The objects with complete descriptors in use."""
    for at in range(0, len(table) - DESCRIPTOR.size + 1, DESCRIPTOR.size):
        raw = table[at : at + DESCRIPTOR.size]
        kind, used, number, group, link, offset, size, *_, name, extra = DESCRIPTOR.unpack(raw)
        if used:
            text = name.rstrip(b"\0").decode("utf-8", "replace")
            numbers = (group & ~GROUP_MASK, link & ~GROUP_MASK, link & GROUP_MASK == GROUP_MASK)
            yield SifObject(kind, number, *numbers, offset, size, text, extra, raw)


@dataclass(frozen=True)
class SifInfo:
    """The values of a valid header. `arch` is Go's name for the architecture, amd64, arm64…, or unknown."""

    arch: str
    size: int  # bytes
    descriptors: tuple[SifObject, ...]
    primary: SifObject  # the partition with the root file system
    created: int  # seconds since 1970
    header: bytes  # the part that a signature covers
    compression: str = ""  # of the squashfs: gzip, zstd, … or unknown; "" for another file system


def read_sif(path: Path, name: str = "") -> SifInfo:
    """Read and check the header of the SIF at `path` (`name` in messages) without reading its data.

    Raises ImageError with the actual kind of the file, or how much of it is missing; PermissionsError or FetchError if
    it is unreadable.
    """
    name, fetched = name or str(path), bool(name)
    with reading(path):
        mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a pipe would block
        raise ImageError(f"{name} is not a SIF: it is not a regular file")
    with reading(path), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(START)
        if wrong := file_kind(start, quoted=fetched):  # a file of the user's may be private, a server's answer explains
            raise ImageError(f"{name} is not a SIF: it is {wrong}")
        header = HEADER.unpack_from(start)
        offset, end = _table(name, header)
        _check_within(name, size, end)
        file.seek(offset)
        info = _describe(name, size, header, file.read(end - offset))
        file.seek(info.primary.offset)
        start = file.read(_SUPERBLOCK.size)
        magic, compression, used = _SUPERBLOCK.unpack(start) if len(start) == _SUPERBLOCK.size else (b"", 0, 0)
        if _PARTITION.unpack_from(info.primary.extra)[0] == SQUASHFS:
            if magic != SQUASHFS_MAGIC:
                raise ImageError(f"{name} is a damaged SIF: its primary partition is not a squashfs")
            if used > info.primary.size:
                of = f"a squashfs of {used} bytes in a partition of {info.primary.size}"
                raise ImageError(f"{name} is a damaged SIF: {of}")
        if magic == SQUASHFS_MAGIC:
            info = replace(info, compression=COMPRESSIONS.get(compression, "unknown"))
        return info


def _table(name: str, header: tuple[Any, ...], most: int | None = None) -> tuple[int, int]:
    """The first byte of the table of descriptors, and the one after its last.

    Raises ImageError for impossible numbers, and if the table starts after `most`.
    """
    total, offset = header[8], header[9]
    if not 0 < total <= MOST_DESCRIPTORS or offset < HEADER.size or (most is not None and offset > most):
        raise ImageError(f"{name} is a damaged SIF: its header has {total} descriptors at {offset}")
    return offset, offset + total * DESCRIPTOR.size


def sif_end(start: bytes, name: str) -> int | None:
    """Where the SIF `name` ends, in bytes, that begins with `start`; None if `start` does not include all descriptors.

    Raises ImageError if the descriptors are not in the first megabytes, or if no file can be as large.
    """
    if len(start) < HEADER.size:
        return None
    header = HEADER.unpack_from(start)
    offset, end = _table(name, header, _FARTHEST)
    if len(start) < end:
        return None
    data: int = header[11]
    length: int = header[12]
    end = max(end, data + length, *(entry.offset + entry.size for entry in _objects(start[offset:end])))
    if end > _LARGEST:
        raise ImageError(f"{name} is a damaged SIF: its header describes {end} bytes")
    return end


def check_sif(path: Path, arch: str, name: str = "") -> SifInfo:
    """Like `read_sif`, but raises ImageError if the header names another architecture than `arch`."""
    info = read_sif(path, name)
    if info.arch not in (arch, "unknown"):
        raise ImageError(
            f"{name or path} is for another architecture: expected {arch}, its header says {info.arch}",
            "use a source for this machine, or set the image's `arch:` in the easyconfig",
        )
    return info


def file_kind(start: bytes, *, quoted: bool = True) -> str:
    """The kind of a file that is not a SIF, by its first START bytes `start`; "" for a SIF.

    `quoted`: with the first line of a text.
    """
    if start[32:42] == MAGIC and len(start) >= HEADER.size:
        version = start[42:44].decode("ascii", "replace")
        return "" if version == "01" else f"a SIF of the unknown version {version!r}"
    if not start:
        return "empty"
    if start.startswith(_LAUNCH):
        return f"a truncated SIF of {len(start)} bytes" if len(start) < HEADER.size else "a SIF without its magic"
    if not start.strip(b"\0"):
        return "only zero bytes"
    for beginning, name in _BEGINNINGS:
        if start.startswith(beginning):
            return name
    if start[257:262] == b"ustar":
        return "a tar archive"
    if text := _text(start):
        return text if quoted else text.partition(" (")[0]
    return f"unknown data that starts with the bytes {start[:8].hex(' ')}" if quoted else "unknown data"


def _text(start: bytes) -> str:
    head = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if re.match(rb"<(!doctype\s+html|html|head|body)\b", head, re.IGNORECASE):
        title = re.search(rb"<title[^>]*>([^<]{1,80})", head, re.IGNORECASE)
        name = " ".join(title[1].decode("utf-8", "replace").split()) if title else ""
        return f"an HTML page ({name!r})" if name else "an HTML page"
    if head[:5].lower() == b"<?xml":
        return "an XML document"
    if not head or re.search(rb"[^\t\r\n\x20-\x7e]", head):
        return ""
    line = cut(head.splitlines()[0].decode("ascii"), 80)
    return f"a JSON document ({line})" if head[:1] in (b"{", b"[") else f"a text ({line})"


def _describe(name: str, size: int, header: tuple[Any, ...], table: bytes) -> SifInfo:
    launch, magic, version, code, identity, created, *_ = header
    used = tuple(_objects(table))
    for entry in used:
        if entry.offset < HEADER.size or entry.size < 0:
            raise ImageError(f"{name} is a damaged SIF: object {entry.id} has {entry.size} bytes at {entry.offset}")
    _check_within(name, size, max((entry.offset + entry.size for entry in used), default=0))
    partitions = (entry for entry in used if entry.type == PARTITION)
    primary = [entry for entry in partitions if _PARTITION.unpack_from(entry.extra)[1] == PRIMARY]
    if len(primary) != 1:
        if any(entry.type == OCI_ROOT_INDEX for entry in used):
            raise ImageError(f"{name} is an OCI-SIF", "pull it again without --oci")
        raise ImageError(f"{name} is a SIF with {len(primary)} primary partitions instead of one")
    outer, inner = _ARCHES.get(code, ""), _ARCHES.get(_PARTITION.unpack_from(primary[0].extra)[2], "")
    if outer and inner and outer != inner:
        raise ImageError(
            f"{name} is a damaged SIF: its header has architecture {outer} and its primary partition {inner}"
        )
    covered = launch + magic + version + identity
    return SifInfo(inner or outer or "unknown", size, used, primary[0], created, covered)


def _check_within(name: str, size: int, end: int) -> None:
    if end > size:
        raise ImageError(f"{name} is truncated: {size} bytes ({size_text(size)}) of at least {end} ({size_text(end)})")
