"""What a user has added to a generation, or changed in it: never removed, never hidden."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from sifmod.digest import sha256_file
from sifmod.tree.disk import is_there, sync_directory, sync_file
from sifmod.tree.receipt import FileRecord, Installation, LinkRecord


class Carried(NamedTuple):
    """What became of the additions when a new generation was made; paths relative to the generation."""

    carried: tuple[str, ...]  # now in the new generation too
    left: tuple[str, ...]  # only in the old one: the new one has something else of that name, or it is a special file


def additions(installation: Installation) -> tuple[str, ...]:
    """Files, links and special files in the generation that its receipt does not name, sorted; raises OSError."""
    ours = installation.paths
    return tuple(sorted(path for path in _walk(Path(installation.root), "") if path not in ours))


def changes(installation: Installation) -> tuple[str, ...]:
    """Files of the receipt that are there and are not as sifmod wrote them, sorted; missing ones are not counted."""
    root = Path(installation.root)
    files = (record.path for record in installation.files if _changed_file(root / record.path, record))
    links = (record.path for record in installation.links if _changed_link(root / record.path, record))
    return tuple(sorted((*files, *links)))


def carry_over(installation: Installation, target: Path) -> Carried:
    """Give the generation at `target`, not yet in use, the additions of `installation`, durably; raises OSError."""
    carried: list[str] = []
    left: list[str] = []
    for path in additions(installation):
        done = _copy(Path(installation.root, path), target / path)
        (carried if done else left).append(path)
    for directory in {parent for path in carried for parent in PurePosixPath(path).parents}:
        sync_directory(target / directory)
    return Carried(tuple(carried), tuple(left))


def only_in(installation: Installation, other: Installation | None) -> tuple[str, ...]:
    """The additions of `installation` that `other` does not have as well; raises OSError."""
    if other is None or other.root == installation.root:
        return additions(installation)
    return tuple(
        path for path in additions(installation) if not _same(Path(installation.root, path), Path(other.root, path))
    )


def _walk(directory: Path, inside: str) -> Iterator[str]:
    with os.scandir(directory) as entries:
        for entry in entries:
            path = inside + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(directory / entry.name, f"{path}/")
            else:
                yield path


def _changed_file(path: Path, record: FileRecord) -> bool:
    if not is_there(path):
        return False
    return path.is_symlink() or not path.is_file() or sha256_file(path) != record.sha256


def _changed_link(path: Path, record: LinkRecord) -> bool:
    if not is_there(path):
        return False
    return not path.is_symlink() or os.readlink(path) != record.target  # noqa: PTH115 (compared as text)


def _copy(source: Path, target: Path) -> bool:
    mode = source.lstat().st_mode
    if os.path.lexists(target) or not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISLNK(mode):
        target.symlink_to(os.readlink(source))  # noqa: PTH115 (the exact text)
        return True
    try:
        target.hardlink_to(source)
    except OSError:  # no hard links here, too many of them, or another user's file
        import shutil

        shutil.copy2(source, target)
        sync_file(target)
    return True


def _same(one: Path, other: Path) -> bool:
    """Tell whether both are one file, or links or files with the same content."""
    if not os.path.lexists(other):
        return False
    first, second = one.lstat(), other.lstat()
    if (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino):
        return True
    if stat.S_IFMT(first.st_mode) != stat.S_IFMT(second.st_mode):
        return False
    if stat.S_ISLNK(first.st_mode):
        return os.readlink(one) == os.readlink(other)  # noqa: PTH115 (compared as text)
    return stat.S_ISREG(first.st_mode) and first.st_size == second.st_size and sha256_file(one) == sha256_file(other)
