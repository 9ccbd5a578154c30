"""A SIF's header, descriptors and small objects, written around a root file system that is already in the file.

The format is that of the Go module github.com/apptainer/sif, version 01, as its own tools make it: a header of 128
bytes, from 4096 on a table of 48 descriptors, of which the unused ones are for signatures to come, then the small
objects, and last, at a multiple of 4096, the primary partition.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Literal

from sifmod.errors import ImageError

_HEADER = struct.Struct("<32s10s3s3s16s8q")
_DESCRIPTOR = struct.Struct("<i?IIIqqqqqqq128s384s")
_LAUNCH = b"#!/usr/bin/env run-singularity\n"
_MAGIC, _VERSION = b"SIF_MAGIC\0", b"01\0"
_TABLE = 4096  # where the descriptors begin
_SLOTS = 48  # as siftool and the runtimes make it
_DATA = _TABLE + _SLOTS * _DESCRIPTOR.size
_ALIGNMENT = 4096
_TYPES = {"deffile": 0x4001, "labels": 0x4003, "json": 0x4006}
_PARTITION, _SQUASHFS, _PRIMARY = 0x4004, 1, 2
_GROUP = 0xF0000001  # the first group, which every object of a runtime's own SIF is in
_ARCHES = (  # the place is the number in the SIF, counted from 1
    *("386", "amd64", "arm", "arm64", "ppc64", "ppc64le", "mips", "mipsle", "mips64", "mips64le"),
    *("s390x", "riscv64", "loong64"),
)


@dataclass(frozen=True)
class DataObject:
    """One small object. Its name is how the runtimes find a JSON text, at most 128 bytes; the others need none."""

    kind: Literal["deffile", "labels", "json"]
    name: str
    content: bytes


def partition_offset(objects: Sequence[DataObject]) -> int:
    """Where the root file system has to begin, in bytes: the first multiple of 4096 after all `objects`."""
    end = _DATA + sum(len(entry.content) for entry in objects)
    return -(-end // _ALIGNMENT) * _ALIGNMENT


def write_header(file: BinaryIO, objects: Sequence[DataObject], partition_size: int, arch: str, created: int) -> None:
    """Write everything of a SIF but its root file system into `file`, before `partition_offset(objects)`.

    The squashfs of `partition_size` bytes is there already. `arch` is Go's name, `created` in seconds since 1970; the
    same arguments give the same bytes, the SIF's UUID among them. Raises ImageError for an architecture that no SIF
    can name, and what the file system raises.
    """
    if arch not in _ARCHES:
        raise ImageError(f"a SIF cannot name the architecture {arch!r}: expected one of {', '.join(_ARCHES)}")
    code = b"%02d\0" % (_ARCHES.index(arch) + 1)
    offset = partition_offset(objects)
    rows, at = list[bytes](), _DATA
    for entry in objects:
        rows.append(_row(len(rows) + 1, _TYPES[entry.kind], (at, len(entry.content), 0), created, entry.name))
        at += len(entry.content)
    extra = struct.pack("<ii3s", _SQUASHFS, _PRIMARY, code)
    rows.append(_row(len(rows) + 1, _PARTITION, (offset, partition_size, offset - at), created, "", extra))
    free = _SLOTS - len(rows)
    identity = _uuid(objects, (partition_size, created), code)
    places = (free, _SLOTS, _TABLE, _SLOTS * _DESCRIPTOR.size, _DATA, offset + partition_size - _DATA)
    header = _HEADER.pack(_LAUNCH, _MAGIC, _VERSION, code, identity, created, created, *places)
    file.seek(0)
    file.write(header.ljust(_TABLE, b"\0"))
    file.write(b"".join(rows).ljust(_SLOTS * _DESCRIPTOR.size, b"\0"))
    file.write(b"".join(entry.content for entry in objects).ljust(offset - _DATA, b"\0"))


def _row(number: int, kind: int, place: tuple[int, int, int], created: int, name: str, extra: bytes = b"") -> bytes:
    """A descriptor; `place` is offset, size and the padding before it."""
    offset, size, padding = place
    text = name.encode()
    if number > _SLOTS or len(text) > 128:
        raise ValueError(f"object {number} ({name}) does not fit into a SIF's table")
    where = (offset, size, size + padding, created, created, 0, 0)
    return _DESCRIPTOR.pack(kind, True, number, _GROUP, 0, *where, text, extra)


def _uuid(objects: Sequence[DataObject], numbers: tuple[int, int], code: bytes) -> bytes:
    """A UUID (RFC 9562, version 8) of what the SIF holds: the manifest among the objects names all the layers."""
    digest = hashlib.sha256(repr((numbers, code)).encode())
    for entry in objects:
        digest.update(hashlib.sha256(entry.content).digest())
    value = bytearray(digest.digest()[:16])
    value[6] = value[6] & 0x0F | 0x80
    value[8] = value[8] & 0x3F | 0x80
    return bytes(value)
