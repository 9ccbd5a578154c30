"""A Rootfs: the files of an image, looked at without starting it. Links are followed inside the image only."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sifmod.image.disk import reading
from sifmod.image.inode import Directory, File, Node
from sifmod.image.sif import SifInfo
from sifmod.image.squashfs.reader import SquashfsReader


class Rootfs:
    """Answers about absolute paths; what is not there is empty or False. Every method raises ImageError for damage."""

    def __init__(self, reader: SquashfsReader) -> None:
        self._reader = reader

    def entries(self, path: str) -> tuple[str, ...]:
        """The names in a directory, sorted; () for anything else. Names that are not UTF-8 are left out."""

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory, or a link to one."""

    def is_file(self, path: str) -> bool:
        """Whether there is a regular file, or a link to one."""

    def is_program(self, path: str) -> bool:
        """Whether there is a file that somebody may execute, or a link to one."""

    def read(self, path: str, most: int) -> str:
        """The first `most` bytes of a regular file as text; "" for anything else."""
