"""Explain errors of the disk to the user, as SifmodErrors."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sifmod.errors import LINKED, FullError, InstallError, LinkInPrefixError, PermissionsError, SifmodError
from sifmod.system import group_name, limit_hint, meaning, reason, user_name

_WRITABLE = "choose a writable directory with --prefix or SIFMOD_PREFIX"


def explain(error: OSError, doing: str) -> SifmodError:
    """The SifmodError for an OSError while `doing`: FullError, PermissionsError, or InstallError for the rest."""
    paths = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    place = f" ({paths[-1]})" if paths else ""
    message = f"{doing}: {reason(error)}{place}"
    match meaning(error):
        case "full":
            return FullError(
                f"{message}; what was installed before is unchanged",
                "free some space or quota there (`sifmod gc` shows what it can remove in a prefix), then repeat it",
                short=message,
            )
        case "denied":
            owner = next(filter(None, map(foreign_owner, paths)), "")
            return PermissionsError(message, f"{owner}{_WRITABLE}")
        case "limited":
            return InstallError(message, limit_hint(error))
        case "other":
            return InstallError(message, LINKED if isinstance(error, LinkInPrefixError) else "")


def foreign_owner(path: str) -> str:
    """A hint about the other user who owns an absolute path, or a closed directory on the way to it; "" without one."""
    if not path.startswith("/"):
        return ""
    with suppress(OSError):
        directory, owner = Path(path).parent, os.lstat(path).st_uid
        above = directory.stat()
        if above.st_mode & stat.S_ISVTX and os.geteuid() not in (0, above.st_uid, owner):
            return f"{directory} is sticky, and {path} belongs to {user_name(owner)}: ask for a change there, or "
    while path != "/":
        path = os.path.dirname(path)  # noqa: PTH120 (a text)
        with suppress(OSError):
            status = os.stat(path)  # noqa: PTH116
            if os.access(path, os.W_OK | os.X_OK) or status.st_uid == os.geteuid():
                return ""
            who, group = user_name(status.st_uid), group_name(status.st_gid)
            members = f", and the group {group} may change it" if status.st_mode & 0o020 and group != who else ""
            return f"{path} belongs to {who}{members}: ask for a change there, or "
    return ""


def check_readable(prefix: Path) -> None:
    """Raise PermissionsError if the tree at `prefix` exists and this user cannot read it.

    Raises another SifmodError if the disk fails.
    """
    for place in (prefix, prefix / "software", prefix / "modules"):
        if not os.path.isdir(place) or os.access(place, os.R_OK | os.X_OK):  # noqa: PTH112 (False behind a closed one)
            continue
        try:  # `access` does not say whether the disk failed
            os.scandir(place).close()
            os.stat(f"{place}/.")  # noqa: PTH116
        except PermissionError:
            hint = (
                "ask its owner, or use another tree with --prefix; `sharing` in the site file opens a tree to other "
                "users"
            )
            raise PermissionsError(f"the tree {prefix} cannot be read: {place} is closed to this user", hint) from None
        except OSError as error:
            raise explain(error, f"cannot read the tree {prefix}") from error


@contextmanager
def reported(doing: str) -> Iterator[None]:
    """Convert an OSError of the block to a SifmodError that explains it."""
    try:
        yield
    except OSError as error:
        raise explain(error, doing) from error
