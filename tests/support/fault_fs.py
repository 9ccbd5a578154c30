"""A file system whose calls fail as asked: a directory as it is, seen through FUSE by processes that enter a namespace.

Every call is done as the user who made it; with `squash` root is nobody, as on NFS. Run as a program, `fault_fs.py
DIRECTORY`, it mounts itself over the directory, prints `mounted` and then obeys the rules that it reads, a line of JSON
each; the answer is what was called since the last line. Only calls below UNDER count and fail. It goes with its input.
"""

import ctypes
import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

UNDER = "/tree"
NOBODY = 65534
# what can run out of space
WRITING = ("mkdir", "symlink", "link", "rename", "create", "write", "truncate", "flush", "fsync", "fsyncdir", "chmod")


@dataclass(frozen=True)
class Rules:
    """What fails, and how. No rule: all is well."""

    at: int = 0  # the number of the call that fails, from 1; 0: none
    error: int = 0  # its errno
    kinds: tuple[str, ...] = ()  # the calls that count, all of them when empty
    lasting: bool = False  # every later call of these kinds fails too
    always: Mapping[str, int] = field(default_factory=dict)  # kind → the errno with which each one fails
    slow: Mapping[str, float] = field(default_factory=dict)  # kind → seconds that each one takes longer
    squash: bool = False


WELL = Rules()


class FaultFs:
    """The file system, seen from the test, which itself sees the directory as it is; a context manager.

    `command` in front of a program has it see the directory through the file system, at the same path.
    """

    def __init__(self, directory: Path) -> None:
        is_root = os.geteuid() == 0
        alone = ("unshare", "--mount", *(() if is_root else ("--user", "--map-root-user")))
        self._process = subprocess.Popen(
            (*alone, sys.executable, __file__, directory),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "FUSE_LIBRARY_NAME": "fuse3"},
            text=True,
        )
        assert self._heard() == "mounted"
        enter = ("--mount", *(() if is_root else ("--user", "--preserve-credentials")))
        self.command = ("/usr/bin/nsenter", f"--target={self._process.pid}", *enter)

    def __enter__(self) -> "FaultFs":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()

    def obey(self, rules: Rules) -> list[str]:
        """Have these rules from now on: the calls that counted since the last ones, `kind path` each."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(rules)) + "\n")
        self._process.stdin.flush()
        calls = json.loads(self._heard())
        assert isinstance(calls, list)
        return calls

    @contextmanager
    def under(self, rules: Rules) -> Iterator[list[str]]:
        """Inside, the rules hold; afterwards the list has the calls that counted."""
        calls: list[str] = []
        self.obey(rules)
        try:
            yield calls
        finally:
            calls += self.obey(WELL)

    def _heard(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")


Call = TypeVar("Call", bound=Callable[..., Any])


def call(function: Call) -> Call:
    """A call of the file system: counted, failing where the rules say so, done as the user who asks.

    Of an open file that was removed there is no path: it counts like one below UNDER.
    """

    @wraps(function)
    def done(self: "Passthrough", path: str, *args: Any, **kwargs: Any) -> Any:
        self.enter(function.__name__, path)
        return function(self, path, *args, **kwargs)

    return done  # type: ignore[return-value]


class Passthrough:
    """The calls, with the names and arguments that mfusepy wants; paths begin with `/`."""

    use_ns = True

    def __init__(self, top: str, told: Callable[[], None], identity: Callable[[], tuple[int, int, int]]) -> None:
        self.rules, self.calls = WELL, list[str]()
        self._top, self._told, self._identity = top, told, identity
        self._library = ctypes.CDLL(None)

    def enter(self, kind: str, path: str | None) -> None:
        """Before each call: count, fail, and become the user."""
        uid, gid, _ = self._identity()
        if self.rules.squash and uid == 0:
            uid, gid = NOBODY, NOBODY
        self._library.setfsgid(gid)
        self._library.setfsuid(uid)
        if path is not None and path != UNDER and not path.startswith(f"{UNDER}/"):
            return
        time.sleep(self.rules.slow.get(kind, 0))
        if kind in self.rules.always:
            raise OSError(self.rules.always[kind], os.strerror(self.rules.always[kind]))
        if self.rules.kinds and kind not in self.rules.kinds:
            return
        self.calls.append(f"{kind} {path}")
        here = len(self.calls)
        if self.rules.at and (here == self.rules.at or (self.rules.lasting and here > self.rules.at)):
            raise OSError(self.rules.error, os.strerror(self.rules.error))

    def init_with_config(self, connection: object, config: Any) -> None:
        """Nothing is cached, so that every look is a call."""
        for name in ("entry_timeout", "attr_timeout", "negative_timeout"):
            setattr(config, name, 0.0)
        for name in ("hard_remove", "use_ino"):
            setattr(config, name, 1)
        self._told()

    def _at(self, path: str) -> str:
        return self._top + path

    @call
    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        status = os.lstat(self._at(path)) if fh is None else os.fstat(fh)
        names = ("mode", "ino", "nlink", "uid", "gid", "size", "blocks")
        times = {f"st_{name}time": getattr(status, f"st_{name}time_ns") for name in "amc"}
        return {f"st_{name}": getattr(status, f"st_{name}") for name in names} | times

    @call
    def access(self, path: str, mode: int) -> None:
        if not os.access(self._at(path), mode, effective_ids=True):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    @call
    def readlink(self, path: str) -> str:
        return os.readlink(self._at(path))

    @call
    def mknod(self, path: str, mode: int, device: int) -> None:
        os.mknod(self._at(path), mode, device)

    @call
    def mkdir(self, path: str, mode: int) -> None:
        os.mkdir(self._at(path), mode)

    @call
    def unlink(self, path: str) -> None:
        os.unlink(self._at(path))

    @call
    def rmdir(self, path: str) -> None:
        os.rmdir(self._at(path))

    @call
    def symlink(self, path: str, text: str) -> None:
        os.symlink(text, self._at(path))

    @call
    def rename(self, path: str, new: str) -> None:
        os.rename(self._at(path), self._at(new))

    @call
    def link(self, path: str, source: str) -> None:
        os.link(self._at(source), self._at(path), follow_symlinks=False)

    @call
    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self._at(path), mode)

    @call
    def chown(self, path: str, uid: int, gid: int) -> None:
        os.chown(self._at(path), uid, gid, follow_symlinks=False)

    @call
    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        os.truncate(self._at(path) if fh is None else fh, length)

    @call
    def utimens(self, path: str, times: tuple[int, int] | None = None) -> None:
        os.utime(self._at(path), ns=times or (time.time_ns(), time.time_ns()), follow_symlinks=False)

    @call
    def open(self, path: str, flags: int) -> int:
        return os.open(self._at(path), flags & ~os.O_NOFOLLOW)

    @call
    def create(self, path: str, mode: int, flags: int) -> int:
        return os.open(self._at(path), flags | os.O_CREAT, mode)

    @call
    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    @call
    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)

    @call
    def flush(self, path: str, fh: int) -> None:
        """What `close` gives back: quota and a lost server are told here."""

    def release(self, path: str, fh: int) -> None:
        os.close(fh)

    @call
    def fsync(self, path: str, datasync: int, fh: int) -> None:
        os.fsync(fh)

    @call
    def opendir(self, path: str) -> int:
        return os.open(self._at(path), os.O_RDONLY | os.O_DIRECTORY)

    @call
    def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
        with os.scandir(fh) as entries:
            names = {entry.name: entry.inode() for entry in entries}
        return [(name, {"st_ino": inode}, 0) for name, inode in ({".": 1, "..": 1} | names).items()]

    def releasedir(self, path: str, fh: int) -> None:
        os.close(fh)

    @call
    def fsyncdir(self, path: str, datasync: int, fh: int) -> None:
        os.fsync(fh)

    @call
    def statfs(self, path: str) -> dict[str, int]:
        status = os.statvfs(self._at(path))
        names = ("bsize", "frsize", "blocks", "bfree", "bavail", "files", "ffree", "favail", "namemax")
        return {f"f_{name}": getattr(status, f"f_{name}") for name in names}

    @call
    def flock(self, path: str, fh: int, operation: int) -> None:
        fcntl.flock(fh, operation | fcntl.LOCK_NB)  # this process has but one thread for all calls


def _serve(directory: Path) -> None:
    import mfusepy

    os.umask(0)
    top = os.open(directory, os.O_PATH | os.O_DIRECTORY)  # which goes on being the directory itself
    calls = Passthrough(f"/proc/self/fd/{top}", lambda: print("mounted", flush=True), mfusepy.fuse_get_context)

    class Fuse(mfusepy.FUSE):  # type: ignore[misc]
        def rename_fuse_3(self, old: bytes, new: bytes, flags: int) -> Any:
            """No exchange and no refusal to replace, as on NFS; mfusepy itself forgets the flags."""
            return -errno.EINVAL if flags else super().rename_fuse_3(old, new, flags)

    def obey() -> None:
        for line in sys.stdin:
            calls.rules = Rules(**json.loads(line))
            made, calls.calls = calls.calls, []
            print(json.dumps(made), flush=True)
        os._exit(0)

    threading.Thread(target=obey, daemon=True).start()
    Fuse(calls, str(directory), foreground=True, nothreads=True, allow_other=True)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
