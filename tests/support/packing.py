"""Layers as registries hold them: one tar, packed in each of the ways that builders pack it."""

import gzip
import io
import json
import struct
import zlib
from collections.abc import Callable, Mapping

import zstandard

from support.oci import OCI, Packed, digest_of
from support.ustar import END, file, written

LAYER = f"{OCI}.layer.v1.tar"
DOCKER = "application/vnd.docker.image.rootfs.diff.tar"
SKIPPED = struct.pack("<II", 0x184D2A50, 12) + b"not the data"
PIECE = 10_000  # bytes; no multiple of a tar's block


def pieces(tar: bytes) -> list[bytes]:
    """The tar, cut where no member ends."""
    return [tar[start : start + PIECE] for start in range(0, len(tar), PIECE)]


def gzip_with_all_fields(tar: bytes) -> bytes:
    """A gzip header with an extra field, a name, a comment and its own checksum (RFC 1952)."""
    head = b"\x1f\x8b\x08" + bytes([2 | 4 | 8 | 16]) + bytes(4) + b"\x00\xff"
    head += struct.pack("<H", 4) + b"AB\0\0" + b"layer.tar\0" + b"made by hand\0"
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    deflated = zlib.compressobj(6, wbits=-15)
    body = deflated.compress(tar) + deflated.flush()
    return head + body + struct.pack("<II", zlib.crc32(tar), len(tar) & 0xFFFFFFFF)


def estargz(tar: bytes) -> tuple[bytes, bytes]:
    """The blob and its tar: many gzip members, a landmark and a table of contents in front of a footer."""
    body = tar.removesuffix(END)
    landmark = written(file(".no.prefetch.landmark", b"\x0f"))
    contents = written(file("stargz.index.json", json.dumps({"version": 1, "entries": []})))
    start = b"".join(map(_gzip, (landmark, *pieces(body))))
    # an empty member whose extra field says where the table of contents begins
    extra = b"SG" + struct.pack("<H", 22) + b"%016x" % len(start) + b"STARGZ"
    footer = b"\x1f\x8b\x08\x04" + bytes(4) + b"\x00\xff" + struct.pack("<H", len(extra)) + extra
    footer += b"\x01\x00\x00\xff\xff" + bytes(8)
    return start + _gzip(contents + END) + footer, landmark + body + contents + END


def zstd_with_skippable_frames(tar: bytes) -> bytes:
    """Several frames, with frames between and behind that a reader skips, as zstd:chunked has them at its end."""
    return SKIPPED.join(map(_zstd, pieces(tar))) + SKIPPED


def zstd_without_size(tar: bytes) -> bytes:
    """One frame, with a checksum, that does not say how long it will be."""
    stream = io.BytesIO()
    with zstandard.ZstdCompressor(write_checksum=True).stream_writer(stream, closefd=False) as writer:
        writer.write(tar)
    return stream.getvalue()


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, 6, mtime=0)


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def _of(suffix: str, pack: Callable[[bytes], bytes], base: str = LAYER) -> Callable[[bytes], Packed]:
    return lambda tar: Packed(pack(tar), digest_of(tar), base + suffix)


def _estargz(tar: bytes) -> Packed:
    blob, whole = estargz(tar)
    return Packed(blob, digest_of(whole), f"{LAYER}+gzip")


PACKINGS: Mapping[str, Callable[[bytes], Packed]] = {
    "plain": _of("", bytes),
    "gzip": _of("+gzip", _gzip),
    "gzip-stored": _of("+gzip", lambda tar: gzip.compress(tar, 0, mtime=0)),
    "gzip-members": _of("+gzip", lambda tar: b"".join(map(_gzip, (*pieces(tar), b"")))),
    "gzip-all-fields": _of("+gzip", gzip_with_all_fields),
    "gzip-docker": _of(".gzip", _gzip, DOCKER),
    "estargz": _estargz,
    "zstd": _of("+zstd", _zstd),
    "zstd-frames": _of("+zstd", lambda tar: b"".join(map(_zstd, pieces(tar)))),
    "zstd-skippable": _of("+zstd", zstd_with_skippable_frames),
    "zstd-skippable-first": _of("+zstd", lambda tar: SKIPPED + _zstd(tar)),
    "zstd-without-size": _of("+zstd", zstd_without_size),
    "gzip-called-plain": _of("", _gzip),
    "plain-called-gzip": _of("+gzip", bytes),
}
