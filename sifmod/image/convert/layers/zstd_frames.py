"""Frames of a zstd stream (RFC 8878), followed block by block: the library takes a cut stream for a whole one."""

from sifmod.image.convert.layers.malformed import Malformed

_MAGIC, _SKIPPABLE = 0xFD2FB528, 0x184D2A50


def is_zstd(head: bytes) -> bool:
    """Whether a stream that begins with these bytes is zstd."""
    magic = int.from_bytes(head[:4], "little")
    return len(head) >= 4 and (magic == _MAGIC or magic & ~0xF == _SKIPPABLE)


class Frames:
    """Is fed a stream in pieces; `whole` says whether a frame ended with the last byte."""

    def __init__(self) -> None:
        self._skip = 0  # bytes that mean nothing here
        self._field = b""  # what is there of the next field
        self._wanted = 4  # bytes of it
        self._state = self._magic
        self._checksum = 0  # bytes behind the last block

    @property
    def whole(self) -> bool:
        """Whether the stream may end here."""
        return not self._skip and not self._field and self._state == self._magic

    def feed(self, data: bytes) -> None:
        """Follow the next bytes. Raises Malformed where no frame begins."""
        at = 0
        while at < len(data):
            if self._skip:
                step = min(self._skip, len(data) - at)
                self._skip -= step
                at += step
                continue
            part = data[at : at + self._wanted - len(self._field)]
            at += len(part)
            self._field += part
            if len(self._field) == self._wanted:
                field, self._field = self._field, b""
                self._state(field)

    def _magic(self, field: bytes) -> None:
        if not is_zstd(field):
            raise Malformed("is damaged: its zstd frame is followed by something else")
        if int.from_bytes(field, "little") == _MAGIC:
            self._state, self._wanted = self._descriptor, 1
        else:
            self._state, self._wanted = self._skippable, 4

    def _skippable(self, field: bytes) -> None:
        self._skip = int.from_bytes(field, "little")
        self._state, self._wanted = self._magic, 4

    def _descriptor(self, field: bytes) -> None:
        single = field[0] >> 5 & 1
        content = (single, 2, 4, 8)[field[0] >> 6]
        self._skip = content + (1 - single) + (0, 1, 2, 4)[field[0] & 3]
        self._checksum = 4 * (field[0] >> 2 & 1)
        self._state, self._wanted = self._block, 3

    def _block(self, field: bytes) -> None:
        header = int.from_bytes(field, "little")
        repeated = header >> 1 & 3 == 1
        self._skip = 1 if repeated else header >> 3
        if header & 1:
            self._skip += self._checksum
            self._state, self._wanted = self._magic, 4
