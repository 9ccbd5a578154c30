"""Files that are closed to the author of another file, which names them."""

import os
import stat
from pathlib import Path

from sifmod.system import groups_of, user_name

_OTHERS = 0o044  # of the group, or all, may read it


def closed_to_author(path: str | Path, by: str | Path) -> str:
    """Why the file or directory `path` is not read for the file `by`, which names it; "" if it may be.

    Another user who writes `by` must not learn, by what is made from it, what only this user can read. Owners, groups
    and modes decide, not access lists. A file of root or of this user may name anything.
    """
    try:
        author = os.stat(by).st_uid  # noqa: PTH116 (a text)
        if author in (0, os.geteuid()):
            return ""
        real = Path(os.path.realpath(path))
        wanted = ((real, 4), *((above, 1) for above in real.parents))
        if all(_may(os.stat(place), author, need) for place, need in wanted):  # noqa: PTH116 (a text)
            return ""
    except (OSError, ValueError):  # a missing file, a NUL in its name: its reader reports it
        return ""
    return f"{path} is closed to {user_name(author)}, who owns {by}"


def closed_elsewhere(path: str | Path, by: str | Path) -> str:
    """Why the text file `path` is not read for the file `by`, which names it; "" if it may be.

    A repository that this user has cloned must not name `~/.netrc`: messages and logs quote lines. A file beside `by`,
    below its directory, may be as closed as it is, and a user whose files are all closed may name any.
    """
    try:
        real, modes = os.path.realpath(path), [os.stat(one).st_mode for one in (path, by)]  # noqa: PTH116 (texts)
        beside = Path(real).is_relative_to(os.path.realpath(os.path.dirname(by)))  # noqa: PTH120 (a text)
    except (OSError, ValueError):
        return ""
    if beside or not stat.S_ISREG(modes[0]) or modes[0] & _OTHERS or not modes[1] & _OTHERS:
        return ""
    return f"{path} is closed to all others, and is not in the directory of {by}"


def _may(status: os.stat_result, user: int, need: int) -> bool:
    if status.st_uid == user:
        return bool(status.st_mode >> 6 & need)
    return bool(status.st_mode >> (3 if status.st_gid in groups_of(user) else 0) & need)
