"""A Finding: a file, a link or a layer that is not as its receipt says."""

import os
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from sifmod.digest import sha256_file
from sifmod.result import Described, PathText
from sifmod.tree.durable import names
from sifmod.tree.layer import IMAGE, TREE, Layer
from sifmod.tree.receipt import FileRecord

_LARGEST = 1 << 28  # bytes of a file that sifmod writes, except images and layers
Kind = Literal["missing", "changed", "unreadable", "added", "released"]


class Finding(NamedTuple):
    """One difference from the receipt."""

    kind: Annotated[Kind, Described("added and released are the user's doing, and no fault")]
    path: PathText
    expected: str
    found: str

    @property
    def fault(self) -> bool:
        """Whether the module may not work as installed."""
        return self.kind not in ("added", "released")


def verify_layer(layer: Layer) -> tuple[Finding, ...]:
    """Hash a layer again; () if it is as its receipt says. The packages of an unpacked one only have to exist."""
    if not layer.image:
        return (Finding("unreadable", f"{layer.root}/layer.json", "a receipt", "none that can be read"),)
    root, found = Path(layer.root), _commands(layer)
    if layer.packed:
        return (*of_file(root / IMAGE, FileRecord(IMAGE, layer.digest, 0o644), layer.size), *found)
    if (root / TREE).exists():
        return found
    return (Finding("missing", str(root / TREE), "the packages", "nothing"), *found)


def _commands(layer: Layer) -> tuple[Finding, ...]:
    """The findings about a layer's lock and its commands on the host."""
    root = Path(layer.root)
    there = {f"bin/{name}" for name in names(root / "bin")}
    made = dict(layer.made)
    records = (FileRecord(path, digest, 0o755 if path in there else 0o644) for path, digest in sorted(made.items()))
    found = [finding for record in records for finding in of_file(root / record.path, record)]
    more = [Finding("changed", str(root / path), "nothing", "a file") for path in sorted(there - made.keys())]
    return (*found, *more)


def of_file(path: Path, record: FileRecord, most: int = _LARGEST) -> list[Finding]:
    """The findings about a file; one of over `most` bytes is another file, and is not read."""
    expected = f"sha256:{record.sha256}"
    if not os.path.lexists(path):
        return [Finding("missing", str(path), expected, "nothing")]
    if path.is_symlink() or not path.is_file():
        return [Finding("changed", str(path), expected, "not a regular file")]
    try:
        size = path.stat().st_size
        found = f"{size} bytes" if size > most else f"sha256:{sha256_file(path)}"
    except OSError as error:
        return [Finding("unreadable", str(path), expected, os.strerror(error.errno or 0))]
    if found != expected:
        return [Finding("changed", str(path), expected, found)]
    if record.mode & 0o111 and not path.stat().st_mode & 0o100:
        return [Finding("changed", str(path), f"mode {record.mode:o}", f"mode {path.stat().st_mode & 0o777:o}")]
    return []


def of_link(path: Path, target: str) -> list[Finding]:
    if not os.path.lexists(path):
        return [Finding("missing", str(path), f"a link to {target}", "nothing")]
    found = os.readlink(path) if path.is_symlink() else None  # noqa: PTH115 (compared as text)
    if found == target:
        return []
    return [Finding("changed", str(path), f"a link to {target}", "no link" if found is None else f"a link to {found}")]
