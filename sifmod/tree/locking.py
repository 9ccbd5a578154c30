"""A lock that works on one node and across nodes, and the fence for changes by its holder.

The lease decides who holds it: flock does not work across nodes, nor everywhere. Taking over from a silent holder is
safe because of the fence: a holder changes what is installed only by renames into or out of its own directory in
`.staging/`, and a new holder first moves that directory away. A holder that wakes up late can then change nothing.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from sifmod.config.name import is_part
from sifmod.errors import LockError
from sifmod.tree import lease as leases
from sifmod.tree.durable import is_full, make_directory, names, opened, take
from sifmod.tree.explain import explain, reported
from sifmod.tree.layout import Chain, Layout, LockRoot, lock_file_name
from sifmod.tree.lease import NO_LOOK, Holder, Look
from sifmod.tree.removal import removable, remove_tree
from sifmod.tree.turn import LockQueue
from sifmod.tree.umask import decided_umask

FENCED = ".fenced"
HOOK = "_SIFMOD_HOOK"  # the variable of a hook's process: the process that waits for it, and what messages call it
_DIRECTORY = re.compile(rf"([^@]+(?:@[^@]+)?)\.([0-9]{{1,18}})\.[0-9a-f]+({FENCED})?")
_BEATS = 6  # per lease time


@dataclass(frozen=True)
class Tree:
    """A tree in which a command works, and how it waits for the locks there."""

    layout: Layout
    lease: float  # seconds without a sign of life after which a holder counts as gone
    waiting: Callable[[object], Callable[[str], None]]  # says who works on something while its lock is waited for
    looks: Mapping[str, Look] = field(default_factory=dict)  # at locks that this process has watched

    def lock(self, name: str, what: object = "", place: LockRoot | None = None) -> AbstractContextManager["HeldLock"]:
        """Hold the lock `name` of the tree or of another `place`: see `lock`. Messages call it `what`, or `name`."""
        look = NO_LOOK if place else self.looks.get(name, NO_LOOK)
        return lock(place or self.layout, name, self.lease, self.waiting(what or name), look)


class HeldLock:
    """A held lock; a context manager that sends beats and releases it at the end.

    `directory` is the holder's own, inside `.staging/`, on the file system of the tree, whose `top` is the prefix.
    What is installed changes by renames into or out of it. `remains` are the directories of dead or too slow former
    holders, already out of their reach; they are removed at the end.
    """

    def __init__(self, workplace: LockRoot, name: str, chain: Chain, number: int, holder: Holder) -> None:
        self.name = name
        self.directory = workplace.staging / f"{lock_file_name(name)}.{number}.{holder.token}"
        self.remains: tuple[Path, ...] = ()
        self.top = workplace.top
        self._chain = chain
        self._number = number
        self._holder = holder
        self._count = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease of {name}", daemon=True)

    @property
    def lease(self) -> float:
        """Seconds of silence after which the lock may be taken over."""
        return self._holder.seconds

    def check(self) -> None:
        """Raise LockError if another process has taken the lock over, or its files were removed."""
        with reported(f"cannot read the lock {self.name}"):
            if leases.holds(self._chain, self._number) and self.directory.is_dir():
                return
            taker = leases.newest(self._chain).holder
        by = f" by {taker}" if taker and taker.token != self._holder.token else ""
        why = f"because this process did not respond for {self._holder.seconds:g} seconds"
        why += "" if by else ", or its files were removed"
        lost = f"the lock {self.name} was taken over{by}, {why}"
        raise LockError(f"{lost}; this run has changed nothing since", "run the same command again", short=lost)

    @contextmanager
    def changing(self, doing: str) -> Iterator[None]:
        """Explain an OSError of the block: as LockError if the lock was lost, else as an error while `doing`."""
        try:
            yield
        except OSError as error:
            self.check()
            raise explain(error, doing) from error

    def discard(self, path: Path) -> None:
        """Remove `path` from the tree, moving it out of reach in one step. Raises OSError."""
        gone = self.path("gone")
        take(path, gone, self.top)
        remove_tree(gone, self.top)

    def path(self, kind: str) -> Path:
        """A fresh path in the holder's directory, with the suffix `kind`."""
        self._count += 1
        return self.directory / f"{self._count}.{kind}"

    def __enter__(self) -> "HeldLock":
        """Start the beats, and move what former holders left out of their reach."""
        try:
            leases.beat(self._chain, self._number, 1)
            self._thread.start()
            self._make_directory()
            self.check()
            self.remains = _fence(self.directory, self.name, self._number, self.top)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _make_directory(self) -> None:
        try:
            make_directory(self.directory, self.top)
        except OSError as error:
            if not is_full(error):
                raise
            # The notes of dead runs are empty files, and stay. A beat has a block and an inode too.
            for remains in _fence(self.directory, self.name, self._number, self.top):
                for path in remains.iterdir():
                    if path.is_dir() or path.lstat().st_size:
                        remove_tree(path, self.top)
            leases.skip_beat(self._chain, self._number)
            make_directory(self.directory, self.top)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread.ident:  # else it could not be started
            self._thread.join()
        # A later run cleans up the rest; this must not hide the error of the block.
        try:
            for directory in (*self.remains, self.directory):
                with suppress(OSError):
                    remove_tree(directory, self.top)
        finally:  # a signal may come during the removal
            with suppress(OSError):
                if leases.holds(self._chain, self._number):
                    leases.free(self._chain, self._number)

    def _beat(self) -> None:
        count = 1
        while not self._stop.wait(self._holder.seconds / _BEATS):
            count += 1
            with suppress(OSError):  # a failed beat is a missed beat; `check` reports the consequence
                leases.beat(self._chain, self._number, count)


@contextmanager
def lock(
    workplace: LockRoot, name: str, lease: float, on_wait: Callable[[str], None], look: Look = NO_LOOK
) -> Iterator[HeldLock]:
    """Hold the lock `name`, waiting as long as it takes; files created meanwhile are as open as the tree.

    `lease`: seconds of silence after which a holder counts as dead; one that died on this node counts as dead
    immediately. `on_wait` is called with the holder, once, and for each new holder. Silence counts from the `look`.
    Raises LockError if it is lost while it is being taken, InstallError or PermissionsError if the tree cannot be
    written.
    """
    chain = Chain(workplace.locks / lock_file_name(name), workplace.top)
    doing = f"cannot lock {name}"
    first_ever = not workplace.locks.exists()
    try:
        with ExitStack() as stack:
            with reported(doing):
                stack.enter_context(decided_umask(workplace.prefix))
                make_directory(*chain)
                turn = LockQueue(chain.directory)
                stack.callback(turn.leave)
                held = stack.enter_context(
                    HeldLock(workplace, name, chain, *_acquire(chain, lease, turn, on_wait, look))
                )
            yield held
    except BaseException:
        if first_ever:
            with suppress(OSError):
                forget_locks(workplace)
        raise


def forget_locks(workplace: LockRoot) -> None:
    """Remove the lock files of a tree that contains nothing else, after a failed first install."""
    with opened(workplace.prefix, workplace.top) as place:
        if set(os.listdir(place)) - {workplace.locks.name, workplace.staging.name}:  # noqa: PTH208 (a descriptor)
            return
        for name in names(workplace.locks, workplace.top):
            leases.forget(workplace.chain(name))
        for directory in (workplace.staging, workplace.locks):
            with suppress(FileNotFoundError):
                os.rmdir(directory.name, dir_fd=place)


def is_held(workplace: LockRoot, name: str) -> bool:
    """Whether a process holds the lock `name`; a process that died on another node counts until takeover.

    False if this user cannot read the lock.
    """
    try:
        return not leases.newest(workplace.chain(name)).vacant
    except OSError:  # closed to this user
        return False


def left_over(workplace: LockRoot) -> tuple[str, ...]:
    """The locks whose holders died on this node and left something behind, sorted. Cheap if there is none.

    If another run holds the lock now, that run cleans up. Closed directories of other users are ignored.
    """
    found = locks_with_files(workplace).items()
    return tuple(sorted(name for name, chain in found if leases.newest(chain).vacant))


def locks_with_files(workplace: LockRoot) -> dict[str, Chain]:
    """The places of locks, by name, whose holders, live or dead, have files in `.staging/` that can be removed."""
    owners = {entry.owner for entry in _entries(workplace.staging) if not entry.fenced or _removable(entry.path)}
    return {owner.replace("@", "/"): workplace.chain(owner) for owner in owners}


def closed_remains(workplace: LockRoot) -> tuple[Path, ...]:
    """Leftovers of dead runs that this user cannot remove, sorted."""
    return tuple(sorted(e.path for e in _entries(workplace.staging) if e.fenced and not _removable(e.path)))


def _removable(directory: Path) -> bool:
    try:
        return removable(directory)
    except OSError:
        return False


class _Entry(NamedTuple):
    """One holder's directory in `.staging/`, parsed from its name."""

    path: Path
    owner: str
    number: int
    fenced: bool


def _entries(staging: Path) -> Iterator[_Entry]:
    for name in names(staging):
        if found := _DIRECTORY.fullmatch(name):  # other users may have created other names
            owner, number, fenced = found.groups()
            if all(map(is_part, owner.split("@"))):
                yield _Entry(staging / name, owner, int(number), bool(fenced))


def _fence(own: Path, name: str, number: int, top: Path) -> tuple[Path, ...]:
    """Move the directories of all earlier holders of the lock out of their reach; returns the new paths.

    One with the same number belongs to a holder that could not remove it (NFS keeps open files) before the lock was
    forgotten and its numbers restarted.
    """
    fenced = []
    for entry in _entries(own.parent):
        if entry.owner != lock_file_name(name) or entry.number > number or entry.path == own:
            continue
        if entry.fenced:
            fenced.append(entry.path)
        else:
            # This rename, not the removal of files, stops a holder that wakes up.
            with suppress(FileNotFoundError):
                fenced.append(_moved_away(entry.path, top))
    return tuple(fenced)


def _moved_away(directory: Path, top: Path) -> Path:
    gone = directory.with_name(f"{directory.name}{FENCED}")
    try:
        take(directory, gone, top)
    except FileNotFoundError:
        raise
    except OSError:  # that name is taken: a holder that was fenced off has made its directory again
        gone = directory.with_name(f"{directory.name}{os.urandom(4).hex()}{FENCED}")
        take(directory, gone, top)
    return gone


def _started_by(holder: Holder) -> str:
    """The hook of a lock's holder that started this process, and for which the holder waits; "" for none."""
    pid, _, hook = os.environ.get(HOOK, "").partition(" ")
    return hook if pid == str(holder.pid) and leases.is_here(holder) and holder.pid in leases.parents() else ""


def _acquire(
    chain: Chain, seconds: float, turn: LockQueue, on_wait: Callable[[str], None], look: Look
) -> tuple[int, Holder]:
    """Wait for the lock and claim it: the number of the new lease, and its holder."""
    seen, since = look  # by this process's own clock
    announced = ""
    while True:
        lease = leases.newest(chain)
        if lease != seen:
            seen, since = lease, time.monotonic()
        last, vacant = lease.holder, lease.vacant
        patience = max(seconds, last.seconds if last else 0.0)
        if vacant or time.monotonic() - since >= patience:
            holder = leases.this_process(seconds)
            if leases.claim(chain, lease, holder):
                turn.taken()
                return lease.number + 1, holder
        if last and not vacant and (hook := _started_by(last)):
            raise LockError(
                f"{hook} cannot change what sifmod is changing: the command that waits for the hook has the lock",
                "run this command after that one, or in a hook of another command",
            )
        who = str(last) if last and not vacant else "another process"
        if who != announced and not (vacant and not announced):
            announced = who
            on_wait(who)
        turn.wait(patience)
