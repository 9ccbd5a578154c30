"""The modes and the group of all that sifmod has made in a prefix, for a site that shares it."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sifmod.config.name import ModuleName
from sifmod.digest import sha256_file
from sifmod.tree.durable import is_directory, opened
from sifmod.tree.layout import HISTORY, RECEIPT, Layout
from sifmod.tree.receipt import known_modules, numbers, read_receipt
from sifmod.tree.stage import USER_SOFTWARE
from sifmod.tree.store import entries


class Rights(NamedTuple):
    """What a umask takes away, and the group that directories hand on; None: whichever it is."""

    umask: int
    gid: int | None

    def mode(self, mode: int) -> int:
        """What a file or directory of this mode is to have: its owner's rights as they are, and the others' of them.

        A directory is as open to its group as the umask lets it be: its owner's rights in it are for the owner alone.
        """
        owner = stat.S_IMODE(mode) & 0o700
        if stat.S_ISDIR(mode):
            handed_on = mode & 0o2000 if self.gid is None else 0o2000
            return owner | 0o077 & ~self.umask | handed_on
        return (owner | owner >> 3 | owner >> 6) & ~self.umask

    def fits(self, status: os.stat_result) -> bool:
        return self.mode(status.st_mode) == stat.S_IMODE(status.st_mode) and self.gid in (None, status.st_gid)


class Other(NamedTuple):
    """A file or a directory of sifmod's that has other rights."""

    path: Path
    found: os.stat_result


def others(layout: Layout, rights: Rights) -> Iterator[Other]:
    """What is sifmod's in a tree and has other rights, sorted. Raises OSError."""
    for path in sorted(_ours(layout)):
        with suppress(FileNotFoundError):
            status = path.stat() if path == layout.prefix else path.lstat()
            # where a file has another name it is another's too
            single = stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1)
            if single and not rights.fits(status):
                yield Other(path, status)


def give(layout: Layout, rights: Rights, other: Other) -> None:
    """Give it the rights; no link is followed. Idempotent. Raises OSError, also where it is another user's."""
    path = other.path
    flags = os.O_PATH | os.O_CLOEXEC
    if path == layout.prefix:
        place = os.open(path, flags)
    else:
        with opened(path.parent, layout.prefix) as directory:
            place = os.open(path.name, flags | os.O_NOFOLLOW, dir_fd=directory)
    try:
        status, itself = os.fstat(place), f"/proc/self/fd/{place}"
        if (status.st_dev, status.st_ino) == (other.found.st_dev, other.found.st_ino):
            if rights.gid not in (None, status.st_gid):
                os.chown(itself, -1, rights.gid or 0)
            Path(itself).chmod(rights.mode(status.st_mode))
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(place)


def _ours(layout: Layout) -> set[Path]:
    """Every file and directory in a tree that sifmod has made, but for marks, which are their users'."""
    user_software = layout.prefix / "user-software"
    found = {layout.prefix, layout.staging, layout.images.parent, layout.images}
    for place in (layout.locks, layout.logs, layout.partials, layout.prefix / "layers"):
        found.update(Path(top, name) for top, below, files in os.walk(place) for name in (".", *below, *files))
    for image in entries(layout):
        found |= {image.path, image.path.with_suffix(".json"), layout.inventory(image.sha256)}
    for place in (layout.modules, layout.software, user_software):
        found |= {place, *(path for path in place.glob("*") if is_directory(path))}
    for module in known_modules(layout):
        found |= {layout.user_software(module), layout.user_software(module) / USER_SOFTWARE[0]}
        found.update(_of_module(layout, module))
    return {path for path in found if os.path.lexists(path)}


def _of_module(layout: Layout, module: ModuleName) -> Iterator[Path]:
    place = layout.generations(module)
    yield from (place.parent, place, place / HISTORY)
    for number in numbers(layout, module):
        root = layout.generation(module, number)
        yield from (root, root / RECEIPT)
        if (known := read_receipt(root)) is None:
            continue
        for path in known.paths:
            yield from (parent for parent in (root / path).parents if root in parent.parents)
            yield root / path
        for stub in known.stubs:
            file = layout.modules / stub.path
            if file.is_file() and not file.is_symlink() and sha256_file(file) == stub.sha256:
                yield file
