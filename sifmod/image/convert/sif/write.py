"""Write a SIF's header, descriptors and small objects before its root file system.

The layout of the runtimes' tools: at 4096 a table of 48 descriptors, with unused ones for later signatures, then the
small objects, and last, at a multiple of 4096, the primary partition.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Literal

from sifmod.errors import ImageError
from sifmod.image.convert.sif.header import (
    ARCHES,
    DEFFILE,
    DESCRIPTOR,
    GROUP_MASK,
    HEADER,
    JSON,
    LABELS,
    MAGIC,
    PARTITION,
    PRIMARY,
    SQUASHFS,
    VERSION,
    arch_code,
)

_LAUNCH = b"#!/usr/bin/env run-singularity\n"
_TABLE = 4096  # start of the descriptors
_SLOTS = 48  # as siftool and the runtimes do
_DATA = _TABLE + _SLOTS * DESCRIPTOR.size
_ALIGNMENT = 4096
_TYPES = {"deffile": DEFFILE, "labels": LABELS, "json": JSON}
_GROUP = GROUP_MASK | 1  # the first group, which contains every object of a runtime's SIF


@dataclass(frozen=True)
class DataObject:
    """One small object. The runtimes find JSON texts by name, at most 128 bytes; others need no name."""

    kind: Literal["deffile", "labels", "json"]
    name: str
    content: bytes


def partition_offset(objects: Sequence[DataObject]) -> int:
    """The offset of the root file system in bytes: the first multiple of 4096 after all `objects`."""
    end = _DATA + sum(len(entry.content) for entry in objects)
    return -(-end // _ALIGNMENT) * _ALIGNMENT


def write_header(file: BinaryIO, objects: Sequence[DataObject], partition_size: int, arch: str, created: int) -> None:
    """Write everything in a SIF except its root file system into `file`, before `partition_offset(objects)`.

    A squashfs of `partition_size` bytes belongs there. `arch` is Go's name, `created` in seconds since 1970; the
    same arguments give the same bytes, including the SIF's UUID. Raises ImageError for an unsupported architecture,
    ValueError for too many objects or too long names, and errors of the file system.
    """
    if arch not in ARCHES:
        raise ImageError(f"a SIF cannot have the architecture {arch!r}: expected one of {', '.join(ARCHES)}")
    code = arch_code(arch)
    offset = partition_offset(objects)
    rows, at = list[bytes](), _DATA
    for entry in objects:
        rows.append(_row(len(rows) + 1, _TYPES[entry.kind], (at, len(entry.content), 0), created, entry.name))
        at += len(entry.content)
    extra = struct.pack("<ii3s", SQUASHFS, PRIMARY, code)
    rows.append(_row(len(rows) + 1, PARTITION, (offset, partition_size, offset - at), created, "", extra))
    free = _SLOTS - len(rows)
    identity = _uuid(objects, (partition_size, created), code)
    places = (free, _SLOTS, _TABLE, _SLOTS * DESCRIPTOR.size, _DATA, offset + partition_size - _DATA)
    header = HEADER.pack(_LAUNCH, MAGIC, VERSION, code, identity, created, created, *places)
    file.seek(0)
    file.write(header.ljust(_TABLE, b"\0"))
    file.write(b"".join(rows).ljust(_SLOTS * DESCRIPTOR.size, b"\0"))
    file.write(b"".join(entry.content for entry in objects).ljust(offset - _DATA, b"\0"))


def _row(number: int, kind: int, place: tuple[int, int, int], created: int, name: str, extra: bytes = b"") -> bytes:
    """A descriptor; `place` is the object's offset, its size and the padding before it. Raises ValueError."""
    offset, size, padding = place
    text = name.encode()
    if number > _SLOTS or len(text) > 128:
        raise ValueError(f"object {number} ({name}) does not fit in a SIF's table")
    where = (offset, size, size + padding, created, created, 0, 0)
    return DESCRIPTOR.pack(kind, 1, number, _GROUP, 0, *where, text, extra)


def _uuid(objects: Sequence[DataObject], numbers: tuple[int, int], code: bytes) -> bytes:
    """A UUID (RFC 9562, version 8) of the SIF's content: the manifest among the objects names all layers."""
    digest = hashlib.sha256(repr((numbers, code)).encode())
    for entry in objects:
        digest.update(hashlib.sha256(entry.content).digest())
    value = bytearray(digest.digest()[:16])
    value[6] = value[6] & 0x0F | 0x80
    value[8] = value[8] & 0x3F | 0x80
    return bytes(value)
