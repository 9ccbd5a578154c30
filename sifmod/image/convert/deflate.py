"""Deflate: by isa-l, which is several times as fast, where its wheel is installed; else by Python's own zlib."""

import gzip
import io
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, cast

Compress = Callable[..., bytes]
_BUFFER = 1 << 20  # bytes

ISAL_VERSION = ""
"""The version of isa-l; empty without it, as on ppc64le."""
DAMAGED: tuple[type[Exception], ...] = (EOFError, gzip.BadGzipFile, OverflowError, zlib.error)
"""What a damaged stream raises."""
compress: Compress = zlib.compress
compressobj: Callable[..., Any] = zlib.compressobj
decompressobj: Callable[[], Any] = zlib.decompressobj
_open: Callable[..., Any] | None = None
try:
    from isal import ISAL_VERSION as _VERSION
    from isal import igzip, igzip_lib, isal_zlib
except ImportError:
    pass
else:
    ISAL_VERSION = _VERSION
    DAMAGED = (*DAMAGED, cast(type[Exception], igzip_lib.IsalError))  # its stub declares an instance
    compress, compressobj, decompressobj = isal_zlib.compress, isal_zlib.compressobj, isal_zlib.decompressobj
    _open = igzip.open


def gzip_stream(file: BinaryIO) -> BinaryIO:
    """A file of the uncompressed bytes of the gzip `file`; a read of damaged ones raises an error of DAMAGED."""
    if _open:
        return cast(BinaryIO, _open(file, "rb"))
    # gzip expects that a read returns no more bytes than it asked for
    return cast(BinaryIO, gzip.open(io.BufferedReader(cast(io.RawIOBase, file), _BUFFER), "rb"))
