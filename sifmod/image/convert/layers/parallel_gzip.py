"""A large gzip layer on a machine of many processors: rapidgzip decompresses it with several threads at once."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from sifmod.image.convert.layers.stream import Blob

_WORTH = 16 << 20  # bytes of a blob: below that starting the threads costs more than they save
_FEWEST, _MOST = 4, 8  # threads: it takes twice the processor time of isa-l, and some 40 MB of memory a thread
_CHUNK = 1 << 20  # bytes
_FAILURES = (RuntimeError, ValueError, OSError)  # what its C++ raises; also for what the blob raises in its threads


class Unfinished(Exception):  # noqa: N818 - not an error: isa-l reads what this could not
    """It stopped after `size` bytes, all of them right as far as the stream goes."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size


def threads(blob: Blob, processors: int) -> int:
    """How many threads are worth starting for `blob`: 1, or half of the processors, for the rest merge and compress."""
    wanted = min(processors // 2, _MOST)
    return wanted if wanted >= _FEWEST and blob.size >= _WORTH else 1


def chunks(blob: Blob, count: Callable[[int], None], threads: int) -> Iterator[bytes]:
    """As `decompress.chunks` for a gzip `blob`. Raises Unfinished where rapidgzip fails, and what the blob raises.

    It reads the blob in an order of its own, so a further thread reads it from its start to its end for its digest.
    """
    import rapidgzip  # type: ignore[import-not-found] # 8 MB of code, for few machines

    beside = ThreadPoolExecutor(1, "certify")
    certified = beside.submit(_read, blob, count)
    beside.shutdown(wait=False)
    size = 0
    try:
        with blob.seekable() as file, rapidgzip.RapidgzipFile(file, parallelization=threads) as stream:
            while chunk := stream.read(_CHUNK):
                size += len(chunk)
                yield chunk
    except _FAILURES:
        certified.result()
        raise Unfinished(size) from None
    certified.result()


def _read(blob: Blob, count: Callable[[int], None]) -> None:
    with blob.open() as file:
        while data := file.read(_CHUNK):
            count(len(data))
