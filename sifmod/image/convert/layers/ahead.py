"""Read ahead: decompress and hash layers in threads while earlier ones are merged."""

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import NamedTuple, Self

from sifmod.config.limits import limits, raised
from sifmod.image.convert.layers import decompress
from sifmod.image.convert.layers.decompress import chunks, threads_for
from sifmod.image.convert.layers.stream import Blob, Malformed

_AHEAD = 3  # maximum queued chunks of a layer after decompression and again after hashing
_MOST = 8  # concurrent layers

Progress = Callable[[int, int], None]
"""Called with compressed bytes read so far, and in total."""


class ReadAhead:
    """The layers' uncompressed bytes, one layer after the other, in the order given.

    At most 8 layers are read at once, and no more than `processors` allow, each with a bounded number of chunks; a
    large gzip layer uses several processors. A context manager: leaving it ends the threads at their next chunk. Errors
    of a blob are raised while its layer is read.
    """

    def __init__(self, blobs: Sequence[Blob], progress: Progress, processors: int = 1) -> None:
        self._waiting = deque(blobs)
        self._progress = progress
        self._processors = processors
        self._total = sum(blob.size for blob in blobs)
        self._most = limits().layer_ratio * sum({blob.digest or id(blob): blob.size for blob in blobs}.values())
        self._unpacked = 0
        self._read = 0  # compressed bytes
        self._counting = threading.Lock()
        self._under_way: deque[_Layer] = deque()

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        for layer in self._under_way:
            layer.decompressed.stop()
            layer.certified.stop()

    @contextmanager
    def layer(self) -> Iterator[Iterator[bytes]]:
        """The chunks of the next layer. Leaving the block reads the rest, also after Malformed.

        So a layer is only accepted after all of it was read with the expected digests. A wrong digest of the blob is
        raised instead of a Malformed that the block raises. Raises Malformed for a stream that is damaged or differs
        from the image's config; and errors of the blob.
        """
        certified = self._chunks()
        try:
            yield certified
        except Malformed:
            with suppress(Malformed):
                deque(certified, maxlen=0)
            raise
        deque(certified, maxlen=0)
        self._under_way.popleft()
        self._begin()

    def _begin(self) -> None:
        while self._waiting and len(self._under_way) < _MOST:
            blob = self._waiting[0]
            threads = threads_for(blob, self._processors)
            if self._under_way and sum(layer.threads for layer in self._under_way) + threads > self._processors:
                return
            decompressed = _Thread(chunks(blob, self._count, threads), "decompress")
            certified = _Thread(_hashed(decompressed, blob.diff_id), "hash")
            self._under_way.append(_Layer(threads, decompressed, certified))
            self._waiting.popleft()

    def _chunks(self) -> Iterator[bytes]:
        for chunk in self._under_way[0].certified:
            self._progress(self._read, self._total)
            self._unpacked += len(chunk)
            if self._unpacked > max(decompress.FREE, self._most):  # as one of a few bytes that is named many times
                raise Malformed(
                    f"and those below unpack to over {limits().layer_ratio} times their size{raised('layer_ratio')}"
                )
            yield chunk
        self._progress(self._read, self._total)

    def _count(self, size: int) -> None:
        with self._counting:
            self._read += size


class _Thread:
    """A thread that makes chunks, at most _AHEAD of their reader. They are read once; the reader raises its errors.

    `stop` ends the thread at its next chunk; a thread that waits for a download ends with the download.
    """

    def __init__(self, made: Iterable[bytes], name: str) -> None:
        self._made = made
        self._stopped = False
        self._filled: SimpleQueue[bytes | BaseException | None] = SimpleQueue()
        self._places = threading.Semaphore(_AHEAD)
        threading.Thread(target=self._run, name=name).start()

    def __iter__(self) -> Iterator[bytes]:
        while (item := self._filled.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            self._places.release()
            yield item

    def stop(self) -> None:
        self._stopped = True
        self._places.release()

    def _run(self) -> None:
        end: BaseException | None = None
        try:
            for chunk in self._made:
                self._places.acquire()
                if self._stopped:
                    break
                self._filled.put(chunk)
        except BaseException as error:
            end = error
        self._filled.put(end)


class _Layer(NamedTuple):
    threads: int  # threads for decompression
    decompressed: _Thread
    certified: _Thread


def _hashed(uncompressed: Iterable[bytes], diff_id: str) -> Iterator[bytes]:
    digest = hashlib.sha256()
    for chunk in uncompressed:
        digest.update(chunk)
        yield chunk
    found = f"sha256:{digest.hexdigest()}"
    if diff_id not in ("", found):
        raise Malformed(f"does not match the image's config: expected the diff_id {diff_id}, got {found}")
