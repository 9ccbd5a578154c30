"""The SIF format, version 01, in numbers: as the Go module github.com/apptainer/sif has it, little-endian.

128 bytes of global header, a table of descriptors of 585 bytes each, then the data objects that they point to.
"""

import struct

HEADER = struct.Struct("<32s10s3s3s16s8q")
"""Launch line, magic, version, architecture, UUID; eight numbers: times, descriptors free and all, table, data."""
DESCRIPTOR = struct.Struct("<iBIIIqqqqqqq128s384s")
"""Type, used, number, group, link, offset, size, size with padding, created, modified, uid, gid, name, extra."""
MAGIC, VERSION = b"SIF_MAGIC\0", b"01\0"
MOST_DESCRIPTORS = 4096  # that a header is believed

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
"""What people call the types of objects."""
SQUASHFS, PRIMARY = 1, 2  # a partition's file system, and its use
ARCHES = (
    *("386", "amd64", "arm", "arm64", "ppc64", "ppc64le", "mips", "mipsle", "mips64", "mips64le"),
    *("s390x", "riscv64", "loong64"),
)
"""Go's names; the place is the number in a SIF, counted from 1."""
GROUP_MASK = 0xF0000000


def kind_of(number: int) -> str:
    return KINDS.get(number, f"object of type {number:#x}")


def arch_code(arch: str) -> bytes:
    """An architecture of ARCHES as headers and partitions have it."""
    return b"%02d\0" % (ARCHES.index(arch) + 1)
