"""Durable changes to the disk: a write that stops halfway, directories that others remove, trees that are removed."""

from pathlib import Path

import pytest

from sifmod.tree.durable import write
from support.small_disk import PAGE, filled, small_disk


def test_a_write_that_takes_only_a_part_is_an_error_not_half_a_file(tmp_path: Path) -> None:
    """The disk has room for the first page of three: the kernel writes that and says so, and fails at the next."""
    with small_disk(tmp_path / "disk", 1 << 20) as disk, filled(disk / "ballast", 1):
        with pytest.raises(OSError, match="No space left"):
            write(disk / "file", bytes(3 * PAGE), disk)
        assert (disk / "file").stat().st_size <= PAGE
