"""Which stored images the generations on disk use."""

import os
from contextlib import suppress
from pathlib import Path

from sifmod.tree.layout import Layout
from sifmod.tree.receipt import known_modules, numbers


def used_images(root: Path) -> frozenset[str]:
    """The digests of the store that links in the generation at `root` lead to, whatever its receipt says.

    What another run takes away meanwhile uses none. Raises OSError.
    """
    found = set()
    with suppress(FileNotFoundError), os.scandir(root) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_symlink():
                    target = Path(os.readlink(entry.path))  # noqa: PTH115 (an entry's path is a text)
                    if target.suffix == ".sif" and target.parent.name == "sha256":
                        found.add(target.stem)
    return frozenset(found)


def all_used_images(layout: Layout) -> frozenset[str]:
    """The digests that any generation in the tree uses, live or not."""
    roots = (
        layout.generation(module, number) for module in known_modules(layout) for number in numbers(layout, module)
    )
    return frozenset(sha256 for root in roots for sha256 in used_images(root))
