"""Write a new file for an author, completely or not at all, and quote texts for YAML."""

import os
import re
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sifmod.errors import OptionError, PermissionsError
from sifmod.image.disk import writing
from sifmod.module.quote import shell
from sifmod.system import user_name
from sifmod.tree.durable import move, opened, read, sync_directory, write
from sifmod.tree.explain import foreign_owner
from sifmod.tree.target_store import check_outside_trees
from sifmod.tree.umask import decided_umask

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9/._+-]*")
_ELSEWHERE = "name a file in a directory that you can write to"
_NOT_TEXT = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")


def write_text(text: str, target: Path, *, force: bool = False, first: Callable[[], None] = lambda: None) -> None:
    """Write a text to `target`, completely or not at all: `first` is called once the text is on the disk.

    Raises what `check_target` does, or with `force` `check_outside_trees`, and what `first` does; PermissionsError or
    FetchError if it cannot be written.
    """
    if force:
        check_outside_trees(target)
    else:
        check_target(target)
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    with writing(target, f"{foreign_owner(str(target.absolute()))}{_ELSEWHERE}"):
        try:
            with unfinished.open("xb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            first()
            if force:
                unfinished.rename(target)
            else:
                _publish(unfinished, target)
        finally:
            unfinished.unlink(missing_ok=True)
        sync_directory(target.parent)


def write_below(text: str, target: Path, top: Path) -> bool:
    """Give `target`, in or below the directory `top`, this text; returns whether the file was written.

    Missing directories are made; all is as open as `top`, if that exists. Others may be able to write below `top`: no
    link there is followed, and a pipe or another user's file is replaced. Raises PermissionsError, NoSpaceError,
    FetchError.
    """
    data = text.encode()
    with writing(target, _ELSEWHERE), decided_umask(top), opened(target.parent, top, make=True):
        check_below(target.parent, top)
        with suppress(OSError):
            if read(target, len(data), top=top) == data:
                return False
        unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            write(unfinished, data, top)
            move(unfinished, target, top)
        except BaseException:
            with suppress(OSError), opened(target.parent, top) as directory:
                os.unlink(unfinished.name, dir_fd=directory)
            raise
    return True


def check_below(directory: Path, top: Path) -> None:
    """Raise PermissionsError for another user's link below `top`, and for their directory where all may write."""
    for place in (directory, *directory.parents):
        if place == top:
            return
        check_not_of_others(place)


def check_not_of_others(directory: Path) -> None:
    """Raise PermissionsError for another user's link, and for another user's directory in one like /tmp.

    In a sticky directory of a group, only members have made it, who can write to shared directories anyway.
    """
    with suppress(OSError):
        status, above = directory.lstat(), directory.parent.stat().st_mode
        if status.st_uid in (0, os.geteuid()):
            return
        if stat.S_ISLNK(status.st_mode):
            hint = "name the directory itself, or another one"
            raise PermissionsError(f"{directory} is a link of {user_name(status.st_uid)}", hint)
        if above & stat.S_ISVTX and above & stat.S_IWOTH:
            owner = user_name(status.st_uid)
            raise PermissionsError(
                f"{directory} belongs to {owner}, and everyone can create files in {directory.parent}",
                f"choose another directory or, if you trust {owner}, one below it",
            )


def _publish(unfinished: Path, target: Path) -> None:
    try:
        os.link(unfinished, target)  # fails if another run was faster; rename would not
    except FileExistsError:
        check_target(target)
    except OSError:  # a file system without hard links
        check_target(target)
        unfinished.rename(target)


def check_target(target: Path) -> None:
    """Raise OptionError if `target` exists or its directory does not."""
    check_directory(target)
    if os.path.lexists(target):
        raise OptionError(f"{target} exists already and was not changed", "give another name, or - for standard output")


def check_replaceable(target: Path) -> None:
    """Raise OptionError or PermissionsError if no file can be written to `target`, whether or not it exists."""
    check_directory(target)
    if target.is_dir():
        raise OptionError(f"{target} is a directory", "give a file name")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionsError(f"cannot write {target}: no permission to write to its directory", _ELSEWHERE)


def check_directory(target: Path) -> None:
    """Raise OptionError if the directory of `target` does not exist, or sifmod manages it in a tree."""
    check_outside_trees(target)
    if not target.parent.is_dir():
        raise OptionError(
            f"there is no directory {target.parent} to write {target.name} in",
            f"create it: mkdir -p {shell(str(target.parent))}",
        )


def quoted(text: str, *, always: bool = False) -> str:
    """A one-line text as YAML: in quotes, unless it is a plain word or path and not `always`."""
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT and not always:
        return text
    return "'{}'".format(text.replace("'", "''"))
