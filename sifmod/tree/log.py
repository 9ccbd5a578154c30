"""The log: one line for each change of a tree: what, when, by whom, on which host and by which command.

Each module has a file, written under the module's lock, and the store has one, written under the lock STORE: O_APPEND
alone loses lines if two nodes write over NFS. Files are append-only, and outside of the generations, so that
`uninstall` and `gc` keep them. Nothing is decided by a log; the history serves that purpose.
"""

import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from sifmod import __version__
from sifmod.config.name import ModuleName, is_part
from sifmod.result import Beside, Described, Number, Sha256, Size, Time
from sifmod.system import login_name
from sifmod.tree.durable import closing, names, opened, regular, sync_directory
from sifmod.tree.layout import LOG, Layout

STORE = "log"  # the lock for the store's file
TEST_PASSED, TEST_FAILED = "test passed", "test failed"  # results for the live generation
LONGEST = 4096  # bytes in a line, including its end
LARGEST = 1 << 22  # bytes to read from the end of a file
_COMMAND = 1000  # characters
_NAME = 100  # characters in a user or host name
_HUGE = 1 << 62
_TIME = re.compile(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")
_SHA256 = re.compile("[0-9a-f]{64}")
_NO_LOGIN = (1 << 32) - 1  # audit(7): the process has no login
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Done(NamedTuple):
    """The action of a command: on a module, or on the store if there is no `module`."""

    what: Annotated[
        str,
        Described(
            "installed, rendered, restored, rolled back, held, released, uninstalled, removed, fetched, test passed,"
            " test failed, made the default, hidden, shown, deprecated, retired, labelled, or that one of these ended;"
            " of a layer made, removed"
        ),
    ]
    module: Annotated[ModuleName | None, Described("null for an image or a download without a module")] = None
    before: Annotated[Number | None, Described("the generation that was live, or was removed")] = None
    generation: Annotated[Number | None, Described("the generation that is live now")] = None
    sha256: Annotated[Sha256 | None, Described("SHA-256 of the image")] = None
    size: Annotated[Size | None, Described("bytes that came or went")] = None
    layer: Annotated[str | None, Described("layer of packages; then the generations are its own")] = None


class Entry(NamedTuple):
    """One change of the tree."""

    time: Time
    user: str
    uid: int
    login: Annotated[str | None, Described("the user who logged in, if another than `user`")]
    host: str
    sifmod: Annotated[str, Described("version of sifmod")]
    command: str  # as typed, without passwords and signatures
    done: Beside[Done]


class Log(NamedTuple):
    entries: tuple[Entry, ...]
    problems: tuple[str, ...]


def entry(done: Done, command: str) -> Entry:
    """The entry for an action of this process."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    uid, login = os.geteuid(), _login()
    by = _user(login) if login not in (None, uid) else None
    host = _printable(os.uname().nodename)[:_NAME]
    shown = _printable(command if len(command) <= _COMMAND else f"{command[: _COMMAND - 1]}…")
    return Entry(now, _user(uid), uid, by, host, __version__, shown, done)


def append(layout: Layout, made: Entry) -> None:
    """Append a line durably in one call; the caller holds the lock of its file.

    A truncated line of an earlier run is ended first. Raises OSError.
    """
    path = layout.log(made.done.module)
    while len(line := json.dumps(as_data(made)).encode() + b"\n") > LONGEST:
        made = made._replace(command=f"{made.command[: len(made.command) // 2]}…")  # can be this long when escaped
    with to_append(path, layout.prefix) as (descriptor, size, directory):
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        if os.write(descriptor, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.fsync(descriptor)
        if not size:
            sync_directory(directory)


@contextmanager
def to_append(path: Path, top: Path) -> Iterator[tuple[int, int, int]]:
    """Descriptors of a log below `top`, for appending, and of its directory, with the log's size in between.

    A missing log is created. Other users may have replaced it: links are not followed, and only a regular file with one
    name is written. Raises OSError.
    """
    with (
        opened(path.parent, top, make=True) as directory,
        closing(os.open(path.name, _APPEND, 0o666, dir_fd=directory)) as descriptor,
    ):
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise OSError(f"{path} is not a regular file with a single name")
        yield descriptor, status.st_size, directory


def read_log(layout: Layout, module: ModuleName | None) -> Log:
    """The log of a module or of the store; only the end of a large one.

    Other users may have written it: invalid lines are skipped and reported.
    """
    path = layout.log(module)
    try:
        with regular(path, layout.prefix) as descriptor:
            start = max(0, os.fstat(descriptor).st_size - LARGEST)
            lines = os.pread(descriptor, LARGEST, start).split(b"\n")
    except FileNotFoundError:
        return Log((), ())
    except OSError as error:
        return Log((), (_unread(path, error),))
    lines = [line for line in (lines[1:] if start else lines) if line]
    entries = []
    for line in lines:
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            entries.append(_checked(line, module))
    damaged = len(lines) - len(entries)
    problems = [f"the log {path} is large: only its end was read"] if start else []
    if damaged:
        problems.append(f"{damaged} line{'s' if damaged > 1 else ''} of the log {path} cannot be read")
    return Log(tuple(entries), tuple(problems))


def logged_modules(layout: Layout) -> tuple[tuple[ModuleName, ...], tuple[str, ...]]:
    """Every module with a log, sorted by name, including uninstalled ones; and what could not be read."""
    found: list[ModuleName] = []
    problems: list[str] = []
    directory = layout.logs / "modules"
    for name in filter(is_part, _names(directory, layout.prefix, problems)):
        for file in _names(directory / name, layout.prefix, problems):
            version = file.removesuffix(LOG)
            if file != version and is_part(version):
                found.append(ModuleName(name, version))
    return tuple(sorted(found)), tuple(problems)


def as_data(made: Entry) -> dict[str, object]:
    """The data that the log's line for an entry has."""
    done = made.done
    changed = {"module": str(done.module) if done.module else None, "from": done.before, "to": done.generation}
    fields: dict[str, object] = made._asdict()
    del fields["done"]
    return {**fields, "what": done.what, **changed, "image": done.sha256, "size": done.size, "layer": done.layer}


def _checked(line: bytes, module: ModuleName | None) -> Entry:
    """Parse the entry of a line in `module`'s file. Raises ValueError, KeyError, TypeError or RecursionError."""
    if len(line) >= LONGEST:
        raise ValueError("a line that is too long")
    fields: dict[str, Any] = json.loads(line)
    texts = [fields[key] for key in ("time", "user", "host", "sifmod", "command", "what")]
    login, image, layer = fields["login"], fields["image"], fields["layer"]
    texts += [text for text in (login, image, layer) if text is not None]
    numbers = [fields[key] for key in ("from", "to", "size") if fields[key] is not None]
    if not all(isinstance(text, str) and text.isprintable() for text in texts):
        raise TypeError("a value that is not a text")
    if not all(type(number) is int and 0 <= number < _HUGE for number in (fields["uid"], *numbers)):
        raise TypeError("a value that is not a number")
    if not _TIME.fullmatch(fields["time"]) or (image is not None and not _SHA256.fullmatch(image)):
        raise ValueError("no time or no digest")
    if fields["module"] != (str(module) if module else None):
        raise ValueError("it is about another module")
    done = Done(fields["what"], module, fields["from"], fields["to"], image, fields["size"], layer)
    return Entry(**{name: fields[name] for name in Entry._fields[:-1]}, done=done)


def _names(directory: Path, top: Path, problems: list[str]) -> list[str]:
    try:
        return names(directory, top)
    except OSError as error:
        problems.append(_unread(directory, error))
        return []


def _unread(path: Path, error: OSError) -> str:
    return f"the log {path} cannot be read: {error.strerror or error}"


def _user(uid: int) -> str:
    return _printable(login_name(uid))[:_NAME]


def _login() -> int | None:
    """The id of the user who logged in, from the kernel's audit; None if unknown."""
    with suppress(OSError, ValueError):
        uid = int(Path("/proc/self/loginuid").read_text())
        return uid if uid != _NO_LOGIN else None
    return None


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
