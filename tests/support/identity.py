"""Be somebody else for a while, in this process or in a copy of it."""

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from support.command import User

T = TypeVar("T")


@contextmanager
def effective(user: User) -> Iterator[None]:
    """Act as `user` on files (as root only); nothing may be started meanwhile."""
    os.setegid(user.gid)
    os.seteuid(user.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def call_as(user: User, function: Callable[[], T]) -> T:
    """Call `function` in a copy of this process that belongs to `user` for good, and return what it returns or raises.

    For an ordinary user who runs the tests it is a copy that belongs to the same user.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(user.gid)
                os.setuid(user.uid)
            outcome: tuple[bool, object] = (True, function())
        except BaseException as error:
            outcome = (False, error)
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(pickle.dumps(outcome))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    good, value = pickle.loads(content)
    if not good:
        raise value
    return value  # type: ignore[no-any-return]
