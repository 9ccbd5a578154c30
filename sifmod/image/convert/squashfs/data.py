"""Data: the contents of files become blocks, holes and fragments of a squashfs."""

from sifmod.image.convert.inode import EMPTY, PLACE, Content, content_of
from sifmod.image.convert.squashfs.compression import Buffer
from sifmod.image.convert.squashfs.pipeline import Block, Pipeline

BLOCK = 1 << 17
ZEROS = bytes(BLOCK)

_place = PLACE.pack


class DataWriter:
    """Takes the data of one file after the other, in any order of the files.

    What is given must not be changed afterwards. Raises what the file system raises, also for earlier data, and
    ImageError when there is more than 4 TiB of it.
    """

    BLOCK = BLOCK

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._blocks: list[Block] = []  # the batch that grows
        self._places: list[int] = []
        self._fragment = 0  # index of the fragment that grows, and what is in it
        self._pieces: list[bytes] = []
        self._filled = 0
        self._size = 0  # of the file that grows, and what is not yet in a block of it
        self._open: list[Buffer] = []
        self._open_size = 0
        self._first = (0, 0)
        self._stored = 0  # blocks that are not holes
        self._holes = 0  # bytes, of the file that grows

    def add(self, data: bytes) -> Content:
        """Give the whole of a file. One of BLOCK bytes or more has blocks of its own, as it would have by `start`."""
        return content_of(self.small(data)) if len(data) < BLOCK else self._add_large(data)

    def small(self, data: bytes) -> bytes:
        """Give the whole of a file of less than BLOCK bytes; returns its PLACE."""
        size = len(data)
        offset = self._filled
        end = offset + size
        if end > BLOCK:
            self._seal_fragment()
            offset, end = 0, size
        elif not size:
            return EMPTY
        self._filled = end
        self._pieces.append(data)
        return _place(self._fragment, offset, size)

    def start(self) -> None:
        """Begin a file of any size; nothing else is given before its `finish`."""
        self._first = (len(self._pipeline.written.sizes), self._stored)
        self._size = self._holes = 0
        self._open, self._open_size = [], 0

    def write(self, chunk: Buffer) -> None:
        """Give the next bytes of the file."""
        size = len(chunk)
        self._size += size
        taken = 0
        if self._open_size:
            taken = min(size, BLOCK - self._open_size)
            self._extend(chunk if taken == size else memoryview(chunk)[:taken], taken)
        if size - taken >= BLOCK:
            view = memoryview(chunk)
            while size - taken >= BLOCK:
                self._whole(view[taken : taken + BLOCK])
                taken += BLOCK
        if taken < size:
            self._extend(memoryview(chunk)[taken:], size - taken)

    def hole(self, size: int) -> None:
        """Let the next `size` bytes of the file be zeros; takes no time and no memory to speak of."""
        self._size += size
        if self._open_size:
            taken = min(size, BLOCK - self._open_size)
            self._extend(memoryview(ZEROS)[:taken], taken)
            size -= taken
        self._skip(size // BLOCK)
        if size % BLOCK:
            self._extend(memoryview(ZEROS)[: size % BLOCK], size % BLOCK)

    def finish(self) -> Content:
        """End the file."""
        if self._size < BLOCK:
            return self.add(b"".join(self._open))
        if self._open_size:
            self._seal(b"".join(self._open))
            self._open, self._open_size = [], 0
        return Content(self._size, *self._first, sparse=self._holes)

    def flush(self) -> None:
        """Hand everything over that is still held back for company."""
        if self._filled:
            self._seal_fragment()
        if self._blocks:
            self._submit()

    def _add_large(self, data: bytes) -> Content:
        self.start()
        self.write(data)
        return self.finish()

    def _extend(self, piece: Buffer, size: int) -> None:
        """Add a piece to the block that grows, which has room for it."""
        if size:
            self._open.append(piece)
            self._open_size += size
        if self._open_size == BLOCK:
            whole = b"".join(self._open)
            self._open, self._open_size = [], 0
            self._whole(memoryview(whole))

    def _whole(self, block: memoryview) -> None:
        """Give one block of BLOCK bytes, which may be a hole."""
        if not block[0] and not block[-1] and bytes(block) == ZEROS:
            self._skip(1)
        else:
            self._seal(block)

    def _skip(self, count: int) -> None:
        self._pipeline.written.reserve(count)
        self._holes += count * BLOCK

    def _seal(self, block: Buffer) -> None:
        sizes = self._pipeline.written.sizes
        self._pipeline.written.reserve(1)
        self._stored += 1
        self._blocks.append(block)
        self._places.append(len(sizes) - 1)
        if len(self._blocks) >= self._pipeline.batch:
            self._submit()

    def _seal_fragment(self) -> None:
        if self._pieces:
            self._blocks.append(self._pieces)
            self._places.append(~self._fragment)
            self._fragment += 1
            self._pieces, self._filled = [], 0
        if len(self._blocks) >= self._pipeline.batch:
            self._submit()

    def _submit(self) -> None:
        blocks, places = self._blocks, self._places
        self._blocks, self._places = [], []
        self._pipeline.submit(blocks, places)
