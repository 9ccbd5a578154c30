"""A Change: several names that are replaced or removed together.

All content is written before the first name changes. An error reverts the steps already done; a kill leaves a prefix of
the sequence, so the caller chooses the order.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from sifmod.errors import FullError
from sifmod.tree.durable import is_there, move, read, regular, sync_file, take, write
from sifmod.tree.locking import HeldLock
from sifmod.tree.removal import prune


class _Step(NamedTuple):
    target: Path
    new: Path | None  # None: remove the target
    old: Path | None  # the old target, for a revert: a copy, or its new path; None: it did not exist


class Change:
    """Steps prepared in the holder's directory, carried out in order by `apply`."""

    def __init__(self, held: HeldLock) -> None:
        self._held = held
        self._top = held.top  # empty directories are removed only below it
        self._steps: list[_Step] = []

    def file(self, target: Path, text: str, mode: int = 0o666) -> None:
        """Add the step that gives the file `target` this content; `mode` is subject to the umask."""
        new = self._held.path("new")
        write(new, text.encode(), self._top, mode)
        self._steps.append(_Step(target, new, self._copy(target)))

    def link(self, target: Path, text: str) -> None:
        """Add the step that makes `target` a symlink with the text `text`."""
        new = self._held.path("new")
        new.symlink_to(text)
        self._steps.append(_Step(target, new, self._copy(target)))

    def remove(self, target: Path) -> None:
        """Add the removal of `target`, if it exists, and of directories that become empty, except the uppermost one."""
        if is_there(target):
            self._steps.append(_Step(target, None, self._held.path("removed")))

    def apply(self) -> None:
        """Carry all steps out, or none; raises LockError if the lock was lost, and OSError."""
        self._held.check()
        done = []
        try:
            for step in self._steps:
                done.append(step)
                if step.new is not None:
                    move(step.new, step.target, self._top)
                elif step.old is not None:
                    take(step.target, step.old, self._top)
        except BaseException:
            for step in reversed(done):
                self._undo(step)
            raise
        for step in done:
            if step.new is None:
                # `modules/` itself stays: it is in the user's MODULEPATH.
                prune(step.target.parent, self._top / step.target.relative_to(self._top).parts[0])

    def _undo(self, step: _Step) -> None:
        with suppress(OSError):  # ignore errors of the revert; the first error is reported
            if step.old is not None:
                if not step.old.is_symlink():
                    sync_file(step.old)
                move(step.old, step.target, self._top)
            elif step.new is not None and not is_there(step.new):
                take(step.target, self._held.path("undone"), self._top)
            prune(step.target.parent, self._top)

    def _copy(self, target: Path) -> Path | None:
        old = self._held.path("old")
        try:
            if target.is_symlink():
                old.symlink_to(os.readlink(target))  # noqa: PTH115 (the exact text)
            else:
                mode = target.stat(follow_symlinks=False).st_mode & 0o777
                write(old, read(target), self._top, mode, durable=False)  # reverts are rare
        except FileNotFoundError:
            return None
        return old


@contextmanager
def change(held: HeldLock, doing: str) -> Iterator[Change]:
    """A Change that is applied at the end of the block; an OSError is reported with `doing`."""
    with held.changing(doing):
        steps = Change(held)
        yield steps
        steps.apply()


def replace_text(held: HeldLock, target: Path, text: str, doing: str) -> None:
    """Give the JSON file `target` this text. On a full disk in place, if it is not longer: that lets `gc` free more.

    Raises InstallError, PermissionsError, LockError.
    """
    try:
        with change(held, doing) as steps:
            steps.file(target, text)
    except FullError:
        if not _replaced_in_place(held, target, text.encode()):
            raise


def _replaced_in_place(held: HeldLock, target: Path, data: bytes) -> bool:
    held.check()
    try:
        with regular(target, held.top, writing=True) as descriptor:
            if len(data) > (size := os.fstat(descriptor).st_size):
                return False
            os.pwrite(descriptor, data.ljust(size), 0)  # one write, which a kill does not cut; JSON may end in blanks
            os.fsync(descriptor)
            return True
    except OSError:
        return False
