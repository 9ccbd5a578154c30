"""Leases: the holder of a lock, as numbered entries that every node sees.

The symlinks `1.lease`, `2.lease`, … of a lock's directory are a chain. The text of the one with the highest number
names the holder, and a lock changes hands by the creation of the next number: making a symlink is atomic everywhere,
NFS included, and includes its text, so that one of several contenders wins and no entry is half-written. The highest
number stays when the lock is free; numbers are never reused. `N.beat` beside it grows while the holder is alive. On a
full disk or quota neither uses a block: a text of at most 59 bytes fits in the symlink's inode, and a beat is a hole of
changing length, longest when the lock is free. If no inode is free, a new lease reuses the inode of the last beat, and
the holder's directory that of its own first beat. Nothing here requires synchronised clocks.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from sifmod.digest import sha256_bytes
from sifmod.tree.durable import closing, is_full, make_directory, opened, take
from sifmod.tree.layout import Chain
from sifmod.tree.removal import remove_tree

_FREE = b"free"
_SHORT = "~"  # the start of a short text; JSON never starts so
_DIGITS = 18  # digits of a lease's number
_BEAT = 100  # bytes; a beat has twelve
_PIDS = 1 << 31
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # others may have put a link or a pipe there
LONGEST = 3600.0  # seconds of silence that any site allows
_FORGETTING = 10.0  # seconds of silence


class Holder(NamedTuple):
    token: str  # unique per attempt
    host: str
    boot: str  # boot and process namespace, in which `pid` is valid
    pid: int
    start: str  # the process's start time in clock ticks since boot; empty if unknown
    seconds: float  # seconds of silence after which the lease may be taken over

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Lease(NamedTuple):
    """The newest entry of a lock at one look. Two equal looks mean that the holder was silent between them."""

    number: int  # 0: no lease yet
    text: str
    beat: bytes

    @property
    def free(self) -> bool:
        return self.number == 0 or self.beat in (_FREE, bytes(_BEAT))

    @property
    def vacant(self) -> bool:
        """Whether no process holds the lock, or its holder is known to be dead."""
        holder = self.holder
        return self.free or (holder is not None and dead(holder))

    @property
    def holder(self) -> Holder | None:
        """The present or last holder of the lock; None if the text is invalid."""
        with suppress(ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return _from_short(self.text) if self.text.startswith(_SHORT) else _holder(json.loads(self.text))
        return None


class Look(NamedTuple):
    """A lease, and since when this process has seen it unchanged (time.monotonic)."""

    lease: Lease
    since: float


NO_LOOK = Look(Lease(-1, "", b""), 0.0)


def _holder(fields: Mapping[str, object]) -> Holder:
    """Parse the holder from a lease's text; other users may have written it. Raises ValueError, TypeError, KeyError."""
    token, host, boot, start = (fields[name] for name in ("token", "host", "boot", "start"))
    pid, seconds = fields["pid"], fields["seconds"]
    texts = all(isinstance(text, str) and text.isprintable() for text in (token, host, boot, start))
    if not texts or type(pid) is not int or not isinstance(seconds, int | float):
        raise TypeError("a value of another type")
    if not 0 < pid < _PIDS or not 0 < seconds <= LONGEST:
        raise ValueError("an impossible number")
    return Holder(str(token), str(host), str(boot), pid, str(start), float(seconds))


def short(holder: Holder) -> str:
    """A lease's text in at most 59 bytes: numbers in hexadecimal digits, and a digest of the host and its boot."""
    start, seconds = int(holder.start or "0"), math.ceil(holder.seconds * 1000)
    words = (f"{holder.pid:x}", f"{start:x}", f"{seconds:x}", _place(holder.host, holder.boot))
    return _SHORT + ".".join((holder.token, *words))


def _from_short(text: str) -> Holder:
    """The holder in a short text, with host and boot of this node or values that no node has. Raises ValueError."""
    token, pid, start, seconds, place = text.removeprefix(_SHORT).split(".")
    host, boot = os.uname().nodename, _boot()
    if place != _place(host, boot):
        host, boot = "another node", place
    began = str(int(start, 16) or "")
    fields = {"token": token, "host": host, "boot": boot, "pid": int(pid, 16), "start": began}
    return _holder({**fields, "seconds": int(seconds, 16) / 1000})


def _place(host: str, boot: str) -> str:
    return sha256_bytes(f"{host} {boot}".encode())[:12]


def this_process(seconds: float) -> Holder:
    pid = os.getpid()
    return Holder(os.urandom(8).hex(), os.uname().nodename, _boot(), pid, _status(pid)[1], seconds)


def is_here(holder: Holder) -> bool:
    """Whether the holder is a process of this node since its last boot, about which the node can be asked."""
    return (holder.host, holder.boot) == (os.uname().nodename, _boot())


def dead(holder: Holder) -> bool:
    """Whether the holder is known to be dead; False unless it `is_here`."""
    if not is_here(holder):
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    state, start = _status(holder.pid)
    return state in ("Z", "X") or bool(start and holder.start and start != holder.start)


def newest(place: Chain) -> Lease:
    try:
        with _opened(place) as chain:
            while number := max(_numbers(chain), default=0):
                # A later holder may have removed it between listing and reading; then there is a newer one.
                with suppress(FileNotFoundError):
                    text, beat = _text(chain, number), b""
                    # without a readable beat the holder counts as silent: the fence makes a takeover safe
                    with suppress(OSError), closing(os.open(_beat(number), os.O_RDONLY | _FILE, dir_fd=chain)) as file:
                        beat = os.read(file, _BEAT)
                    return Lease(number, text, beat)
    except FileNotFoundError:
        pass
    return Lease(0, "", b"")


def claim(place: Chain, seen: Lease, holder: Holder) -> bool:
    """Try to make `holder` the holder after `seen`, the newest lease of a look; False if another process was faster."""
    texts = (json.dumps(holder._asdict()), short(holder))
    make_directory(*place)  # it may have been forgotten since the look
    if not _is_there(place, seen):
        return False
    try:
        with _opened(place) as chain:
            return _claim(place, chain, seen, texts)
    except FileNotFoundError:  # forgotten just now; the next attempt creates it again
        return False


def _claim(place: Chain, chain: int, seen: Lease, texts: tuple[str, str]) -> bool:
    number = seen.number + 1
    try:
        _make(chain, number, texts)
    except FileExistsError:
        # NFS may repeat a request whose answer was lost, and then calls its own success a conflict.
        with suppress(FileNotFoundError):
            if _text(chain, number) in texts:
                return True
        return False
    # While this process slept, the chain may have grown, or been removed and started again.
    if not holds(place, number) or not _is_there(place, seen):
        _unlink(chain, _lease(number))
        return False
    for old in _numbers(chain):
        if old < number:
            with suppress(OSError):  # it counts no more, and the next holder removes it
                _unlink(chain, _lease(old))
                _unlink(chain, _beat(old))
    return True


def _make(chain: int, number: int, texts: tuple[str, str]) -> None:
    """Create a lease: on a full disk with its short text, without free inodes in place of the beat of the last holder.

    Without a beat the last holder counts as silent, unless it is known to be dead.
    """
    for text, without_beat in ((texts[0], False), (texts[1], False), (texts[1], True)):
        try:
            if without_beat:
                _unlink(chain, _beat(number - 1))
            os.symlink(text, _lease(number), dir_fd=chain)
        except OSError as error:
            if without_beat or not is_full(error):
                raise
        else:
            return


def holds(place: Chain, number: int) -> bool:
    """Whether the claimed lease `number` is still the newest."""
    try:
        with _opened(place) as chain:
            return max(_numbers(chain), default=0) == number
    except FileNotFoundError:
        return number == 0


def beat(place: Chain, number: int, count: int) -> None:
    """Show that the holder is alive. Written in place: other nodes see the change when they open the file."""
    _write_beat(place, number, f"{count:012}".encode(), 1 + count % (_BEAT - 1))


def skip_beat(place: Chain, number: int) -> None:
    """Remove the beat until the next one, to free its block and inode."""
    with _opened(place) as chain:
        _unlink(chain, _beat(number))


def free(place: Chain, number: int) -> None:
    _write_beat(place, number, _FREE, _BEAT)


def forget(place: Chain) -> None:
    """Remove a lock that no process holds, with its directory; keep one that another process holds or takes.

    The lock is held meanwhile and removed in one step: because numbers restart at 1, removing an entry by name might
    remove the live one of the next holder.
    """
    lease, holder = newest(place), this_process(_FORGETTING)
    if lease.vacant and claim(place, lease, holder):
        gone = place.directory.with_name(f"{place.directory.name}.{holder.token}")
        take(place.directory, gone, place.top)
        remove_tree(gone, place.top)


def _is_there(place: Chain, seen: Lease) -> bool:
    """Whether a lease that was read still exists.

    Otherwise the chain was forgotten and may have restarted at 1: the next number would then take the lock from a live
    holder.
    """
    with suppress(FileNotFoundError), _opened(place) as chain:
        return seen.number == 0 or _text(chain, seen.number) == seen.text
    return False


@contextmanager
def _opened(place: Chain) -> Iterator[int]:
    """A descriptor of a lock's directory, which other users may be able to replace by a link."""
    with opened(*place) as chain:
        try:
            yield chain
        except OSError as error:
            error.filename = str(place.directory / (error.filename if isinstance(error.filename, str) else ""))
            raise


def _lease(number: int) -> str:
    return f"{number}.lease"


def _beat(number: int) -> str:
    return f"{number}.beat"


def _text(chain: int, number: int) -> str:
    return os.readlink(_lease(number), dir_fd=chain)


def _unlink(chain: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=chain)


def _numbers(chain: int) -> Iterator[int]:
    for name in os.listdir(chain):
        stem, _, kind = name.partition(".")
        if kind == "lease" and stem.isdecimal() and len(stem) <= _DIGITS:
            yield int(stem)


def _write_beat(place: Chain, number: int, data: bytes, hole: int) -> None:
    """Make `data` the whole content of the beat; on a full disk, make it a hole of `hole` bytes."""
    flags = os.O_WRONLY | os.O_CREAT | _FILE
    with _opened(place) as chain, closing(os.open(_beat(number), flags, 0o666, dir_fd=chain)) as descriptor:
        try:
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
            os.fsync(descriptor)
        except OSError as error:
            if not is_full(error):
                raise
            os.ftruncate(descriptor, 0)
            os.ftruncate(descriptor, hole)
            os.fsync(descriptor)


def _boot() -> str:
    boot = namespace = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 (not a path)
    return f"{boot} {namespace}"


def parents() -> Iterator[int]:
    """The process that started this one, the one that started that, and so on, as far as they live."""
    pid = os.getppid()
    while pid > 1:
        yield pid
        pid = int(_fields(pid)[1])


def _status(pid: int) -> tuple[str, str]:
    """The state letter and the start time of a process; empty texts if unknown."""
    fields = _fields(pid)
    return fields[0], fields[19]


def _fields(pid: int) -> Sequence[str]:
    """The state letter of a process, its parent, and what proc(5) lists behind that; texts like 0 if it is unknown."""
    try:
        # The command, in parentheses, may hold anything; the state is the first field after it (proc(5)).
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ("", "0", *("",) * 18)
