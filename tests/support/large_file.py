"""A layer of megabytes with a file of more than 8 GiB, which octal digits in a tar header cannot count."""

import io
from collections.abc import Iterator

import zstandard

from support.oci import OCI, Packed
from support.ustar import END, file, header

MIB = 1024 * 1024
SIZE = 8 * 1024 * MIB + 4 * MIB
PATH = "beyond-8-gib"
BEGIN, END_OF_DATA = b"begin...", b"the end."
# of the tar, which takes seconds to hash; a conversion refuses a layer whose digest is another
DIFF_ID = "sha256:af2d6e3cea60088e176c51c63a1769245e32abf83f0abc4c84aab91443efb248"


def packed() -> Packed:
    """The layer, in zstd: a mebibyte of data, 8 GiB of zeros, a mebibyte of data."""
    stream = io.BytesIO()
    with zstandard.ZstdCompressor(level=1).stream_writer(stream, closefd=False) as writer:
        for piece in _tar():
            writer.write(piece)
    return Packed(stream.getvalue(), DIFF_ID, f"{OCI}.layer.v1.tar+zstd")


def expected(place: int) -> bytes:
    """Eight bytes of the file, from a multiple of eight on."""
    return BEGIN if place < MIB else END_OF_DATA if place >= SIZE - MIB else bytes(8)


def _tar() -> Iterator[bytes]:
    yield header(file(PATH, size=SIZE))
    yield BEGIN * (MIB // 8)
    zeros = bytes(MIB)
    for _ in range(SIZE // MIB - 2):
        yield zeros
    yield END_OF_DATA * (MIB // 8)
    yield END
