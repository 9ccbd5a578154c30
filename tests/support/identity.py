"""A copy of this process that is somebody else, has a disk of its own, or is sifmod."""

import ctypes
import gc
import os
import pickle
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from sifmod.cli.main import run
from support.command import Result, User
from support.victim import import_all

T = TypeVar("T")

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000  # linux/sched.h
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 1 << 18  # linux/mount.h


def call_as(user: User, function: Callable[[], T]) -> T:
    """What `function` returns, called by `user`; for an ordinary user who runs the tests, by that user."""

    def become() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(user.gid)
            os.setuid(user.uid)

    return _call_in_copy(become, function)


def call_on_small_disk(directory: Path, size: int, function: Callable[[], T]) -> T:
    """What `function` returns, called where the new `directory` is a file system of `size` bytes of its own.

    Nobody else sees that file system, and it is gone at the end, however that comes.
    """
    directory.mkdir()

    def mount() -> None:
        _own_mounts()
        _system("mount", b"none", os.fsencode(directory), b"tmpfs", 0, f"size={size},mode=0755".encode())

    return _call_in_copy(mount, function)


def call_with_etc(directory: Path, function: Callable[[], T]) -> T:
    """What `function` returns, called where `directory`, and what finding localhost needs, is all there is in /etc."""
    for name in ("hosts", "nsswitch.conf", "passwd", "group"):
        if (path := Path("/etc", name)).exists():
            (directory / name).write_bytes(path.read_bytes())

    def mount() -> None:
        _own_mounts()
        _system("mount", os.fsencode(directory), b"/etc", None, _BIND, None)

    return _call_in_copy(mount, function)


def sifmod(words: Sequence[str | Path], env: Mapping[str, str], cwd: Path) -> Result:
    """The command with this environment, without an interpreter's start: what it imports is there already."""
    import_all()
    arguments, given = [str(word) for word in words], dict(env)
    out, errors = (os.memfd_create(name) for name in ("stdout", "stderr"))

    def redirect() -> None:
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(given)
        tempfile.tempdir = None  # the environment may say another
        for stream, number in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (errors, 2)):
            os.dup2(stream, number)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, "w" if number else "r") for number in range(3))

    def command() -> int:
        try:
            return run(arguments)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()

    code = _call_in_copy(redirect, command)
    said = []
    for stream in (out, errors):
        with open(stream, "rb") as file:
            file.seek(0)
            said.append(file.read().decode(errors="surrogateescape"))
    return Result(("sifmod", *arguments), code, *said)


def _own_mounts() -> None:
    """Mounts from here on are for this process and its children alone."""
    ids = {"uid_map": os.geteuid(), "gid_map": os.getegid()}
    own_user = _NEW_USER if os.geteuid() != 0 else 0
    _system("unshare", _NEW_MOUNTS | own_user)
    if own_user:
        Path("/proc/self/setgroups").write_text("deny")
        for name, number in ids.items():
            Path("/proc/self", name).write_text(f"{number} {number} 1")
    _system("mount", b"none", b"/", None, _RECURSIVE | _PRIVATE, None)


def _system(name: str, *arguments: int | bytes | None) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def _call_in_copy(prepare: Callable[[], None], function: Callable[[], T]) -> T:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        gc.freeze()  # else a collection copies every page of what the tests have loaded
        os.close(reader)
        try:
            prepare()
            outcome: tuple[T | None, str] = (function(), "")
        except BaseException:
            outcome = (None, traceback.format_exc())
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(pickle.dumps(outcome))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    value, failure = pickle.loads(content)
    assert not failure, failure
    return value  # type: ignore[no-any-return]
