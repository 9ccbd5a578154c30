"""A body whose length the server does not announce: the content's own header limits it."""

from sifmod.errors import ImageError
from sifmod.image.artifact import Remote


class Unannounced:
    """Counts the bytes of a body without an announced length; `end` is where the content ends, None while unknown."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._start = bytearray()  # until the end is known
        self._size = 0
        self.end: int | None = None

    def add(self, data: bytes) -> None:
        """Count the next bytes. Raises ImageError for bytes after the end."""
        self._size += len(data)
        if self.end is None and self._remote.end is not None:
            self._start += data
            self.end = self._remote.end(bytes(self._start))
        if self.end is not None:
            self._start.clear()
            if self._size > self.end:
                raise ImageError(
                    f"the server sent more than the {self.end} bytes that the header of the SIF describes",
                    "it does not announce the file's length; if the file is right, download it with another program, "
                    "and use its path as source",
                )
