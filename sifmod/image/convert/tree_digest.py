"""The files in a SIF: a digest of all of them, whatever they are compressed with and wherever they lie."""

from pathlib import Path

from sifmod.image.convert.sif.header import read_sif
from sifmod.image.convert.squashfs.reader import SquashfsReader
from sifmod.image.disk import reading

_WHENCE = ("/.singularity.d/Singularity", "/.singularity.d/labels.json")  # say where it came from, not what it is


def tree_digest(path: Path) -> str:
    """The SHA-256, as hexadecimal, of the root file system of the SIF at `path`; reads all of it.

    Definition and labels are left out, so that the same image has the same digest wherever it was fetched.

    Raises ImageError for a SIF that is damaged or whose file system is no squashfs.
    """
    primary = read_sif(path).primary
    with reading(path), path.open("rb") as file:
        return SquashfsReader(file, primary.offset, primary.size).tree_digest(*_WHENCE)
