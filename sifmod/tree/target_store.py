"""A store for a single file outside of a tree, beside its target."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from sifmod.errors import FetchError, OptionError, PermissionsError
from sifmod.module.image_origin import NO_ORIGIN, ImageOrigin
from sifmod.system import not_own
from sifmod.tree.durable import is_directory, sync_directory, sync_file
from sifmod.tree.explain import reported
from sifmod.tree.layer import RECEIPT
from sifmod.tree.layout import Layout
from sifmod.tree.locking import Tree, forget_locks
from sifmod.tree.store import Store
from sifmod.tree.umask import umask

_IMAGES = ("images/sha256", "images/partial", "images/marks")
_MANAGED = (*_IMAGES, "modules", "software", "life", "layers", "stacks", "log", ".locks", ".staging")
_OF_BUNDLES = "stacks/*/stack.lock"  # `stack lock` writes it beside the stack that a bundle brought


class _Hidden(Layout):
    """The tree in the hidden directory, which may have any name, because it has no modules.

    Partial downloads are at its top.
    """

    def __post_init__(self) -> None:
        pass

    @property
    def partials(self) -> Path:
        return self.prefix


def check_outside_trees(target: Path) -> None:
    """Raise OptionError for an output file or directory that sifmod manages in a tree or a layer, by any link."""
    place = Path(os.path.realpath(target if target.is_dir() else target.parent))
    place = place if target.is_dir() else place / target.name
    for directory in (place, *place.parents):
        if (found := _managed(directory, place)) and not place.relative_to(directory).match(_OF_BUNDLES):
            raise OptionError(f"{target}: only sifmod writes in {found}; nothing was written", "name another place")


def _managed(directory: Path, place: Path) -> Path | None:
    """What sifmod manages in this directory, if it is a tree or a layer's generation, and has `place` in it."""
    if (directory / RECEIPT).is_file():
        return directory
    holds = any(is_directory(directory / name) for name in ("software", "images/sha256"))
    managed = (directory / name for name in _MANAGED) if holds and is_directory(directory / ".locks") else ()
    return next((top for top in managed if place.is_relative_to(top)), None)


@contextmanager
def target_store(target: Path, tree: Tree, *, replace: bool = False) -> Iterator["TargetStore"]:
    """An artifact.ImageStore for `target` alone; an existing file is only replaced with `replace`, atomically.

    Incomplete files are kept in a hidden directory of this user beside the target, under a lock that holds across
    nodes; `tree` says how to wait for it. The next run resumes a failed download, and removes what a killed run left.
    Raises FetchError, PermissionsError or the error of `check_outside_trees`, before anything is written, for a target
    that cannot be written or exists.
    """
    check_outside_trees(target)
    if target.is_dir():
        raise FetchError(f"{target} is a directory", "name the file: -o DIRECTORY/NAME")
    if target.exists() and not target.is_file():
        raise FetchError(f"{target} is a device, a pipe or a socket, which a file would replace", "name a file")
    if not target.parent.is_dir():
        raise FetchError(f"there is no directory {target.parent}", "create it first, or choose another")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionsError(f"cannot write into {target.parent}", "choose another place with -o")
    _check_way(target, replace)
    hidden = _Hidden(_own_directory(target))
    try:
        with (
            umask(target.parent, 0o077) as users,
            tree.lock("fetch", target, hidden) as held,
            umask(target.parent, users),
        ):
            if why := _of_others(hidden.prefix):  # an earlier run may have removed it before this one had the lock
                raise PermissionsError(why, "repeat the command")
            _check_way(target, replace)  # another run may have created it while this one waited
            yield TargetStore(hidden, held, tree.waiting(target), target=target, replace=replace)
    finally:
        with suppress(OSError):
            forget_locks(hidden)
        with suppress(OSError):  # a partial download is left to resume
            hidden.prefix.rmdir()


def _own_directory(target: Path) -> Path:
    """A hidden directory beside the target that only this user can write to.

    Raises PermissionsError if other users have taken its names.
    """
    first = target.with_name(f".{target.name}.fetching")
    for place in (first, first.with_name(f"{first.name}-{os.geteuid()}")):
        with reported(f"cannot write beside {target}"), suppress(FileExistsError):
            place.mkdir(0o700)
        if not (why := _of_others(place)):
            return place
    raise PermissionsError(why, "choose another directory with -o, or have that one removed")


def _of_others(place: Path) -> str:
    """Like `not_own`, but "" below a directory that nobody else can write, since not every file system has owners."""
    return not_own(place) if place.parent.stat().st_mode & 0o022 else ""


@dataclass(eq=False)
class TargetStore(Store):
    """The store that `target_store` yields: a complete file goes to the target.

    No stored image is ever found, and no other store is searched.
    """

    target: Path = field(kw_only=True)
    replace: bool = field(kw_only=True)

    def add(
        self,
        incoming: Path,
        sha256: str,  # noqa: ARG002
        origin: ImageOrigin = NO_ORIGIN,  # noqa: ARG002
        source: str = "",  # noqa: ARG002
    ) -> Path:
        """Move a complete file to the target (fsync, rename); returns that. Raises FetchError if it exists by now."""
        with self.held.changing(f"cannot write {self.target}"):
            sync_file(incoming)
            if self.replace:
                incoming.replace(self.target)
            else:
                try:
                    os.link(incoming, self.target)  # fails if another run was faster; rename would not
                except OSError:  # that, or a file system without hard links
                    _check_way(self.target, replace=False)
                    incoming.rename(self.target)
            sync_directory(self.target.parent)
        return self.target


def _check_way(target: Path, replace: bool) -> None:
    if os.path.lexists(target) and not replace:
        raise FetchError(f"{target} exists already; nothing was written", "give --force to replace it")
