"""Change a prefix with the right umask and group, and leave no empty directories behind after a failure."""

import grp
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from glob import escape
from pathlib import Path
from secrets import token_hex

from sifmod.config.site import Site
from sifmod.errors import PermissionsError
from sifmod.module.quote import shell
from sifmod.tree.durable import opened
from sifmod.tree.layout import Layout
from sifmod.tree.umask import as_open, umask

_PARENTS = 0o022  # umask for directories above a shared prefix, which its readers traverse


@contextmanager
def changing_prefix(site: Site) -> Iterator[Callable[[], None]]:
    """Work under the site's umask; creates a missing prefix that has a group, with setgid, or is shared.

    An existing prefix keeps its mode. A shared one gets a directory for the marks of its readers. If the block fails,
    or calls the yielded function because it had nothing to do, the empty directories of a new prefix are removed.
    Raises PermissionsError for a group that is unknown or that this process is not in.
    """
    check_group(site)
    layout = Layout(site.prefix)
    made_here = tuple(place for place in (site.prefix, *site.prefix.parents) if not place.exists())

    def take_back() -> None:
        places = (layout.marks, layout.staging, layout.locks, layout.images, layout.images.parent)
        for place in (*places, *made_here) if made_here else ():
            with suppress(OSError):
                place.rmdir()

    try:
        if (site.group is not None or site.sharing) and not site.prefix.exists():
            _make(site)
        with site_umask(site):
            make_marks(site)
            yield take_back
    except BaseException:
        take_back()
        raise


def check_group(site: Site) -> None:
    """Raise PermissionsError if this process may change a shared or new prefix, but lacks its group.

    Without the group, a chmod clears a directory's setgid bit, and nobody says so.
    """
    changes = not site.prefix.exists() or (site.sharing is not None and os.access(site.prefix, os.W_OK))
    if site.group is None or os.geteuid() == 0 or not changes:
        return
    try:
        gid = grp.getgrnam(site.group).gr_gid
    except KeyError:  # the command reports it when it uses the group
        return
    if gid not in (os.getegid(), *os.getgroups()):
        raise PermissionsError(
            f"this process is not in the group {site.group} of {site.prefix}",
            f"as a member, log in again or run `newgrp {shell(site.group)}`; else choose --prefix or SIFMOD_PREFIX",
        )


@contextmanager
def site_umask(site: Site) -> Iterator[None]:
    """Work under the site's umask; without one, new files are as open as the prefix, whatever the user's umask.

    So the members of a group do not lock each other out.
    """
    with umask(site.prefix, as_open(site.prefix) if site.umask is None else site.umask):
        yield


def for_layers(site: Site, directory: Path) -> Site:
    """The site for a directory of layers, unshared.

    Its umask is inside the prefix the site's, or without one as open as the prefix; outside the site's, or none of a
    shared site: then a new directory is as open as one above that passes on its group, such as a project's, and where
    all may write, as in /tmp, the user's umask closes what it would close. Raises PermissionsError
    inside the prefix as `check_group` does.
    """
    within = site.prefix in directory.parents
    if within:
        check_group(site)
    mask = site.umask if within or not site.sharing else None
    if mask is None:
        mask = as_open(site.prefix if within else directory)
        above = next(place for place in directory.parents if os.path.exists(place))  # noqa: PTH110 (False if closed)
        if mask is None and above.stat().st_mode & stat.S_ISGID:
            mask = as_open(above)
        if mask is not None and not within and directory.is_dir():
            mode = directory.stat().st_mode
            with umask(directory, None) as own:
                mask |= own if mode & stat.S_IWOTH and not mode & stat.S_ISGID else 0
    return replace(site, prefix=directory, sharing=None, group=None if site.sharing else site.group, umask=mask)


def _make(site: Site) -> None:
    """Create the prefix with its group and mode in one step, because another run may use it at once."""
    prefix, group = site.prefix, site.group
    with umask(prefix, _PARENTS if site.sharing else site.umask):
        prefix.parent.mkdir(parents=True, exist_ok=True)
    made = prefix.with_name(f".{prefix.name}.{token_hex(4)}")
    with umask(prefix, site.umask):
        made.mkdir()
    try:
        if group is not None:
            _give(made, group, prefix)
        if not prefix.exists():
            made.rename(prefix)
    except OSError:
        if not prefix.is_dir():  # else another run created it and wrote to it
            raise
    finally:
        # also those of killed runs; another run needs its own no longer once the prefix exists
        others = prefix.parent.glob(f".{escape(prefix.name)}.{'[0-9a-f]' * 8}") if prefix.is_dir() else ()
        for left in (made, *others):
            with suppress(OSError):
                left.rmdir()


def _give(made: Path, group: str, prefix: Path) -> None:
    try:
        shutil.chown(made, group=group)
        made.chmod(made.stat().st_mode | 0o2000)
    except (LookupError, PermissionError) as error:
        raise PermissionsError(
            f"{prefix} cannot be given to the group {group}: {error}",
            "correct `group` in the settings, or be a member of it",
        ) from error


def make_marks(site: Site) -> None:
    """Create the directory where readers of a shared prefix leave marks.

    If this run cannot create it, a later one does.
    """
    if not site.sharing:
        return
    layout, mode, group = Layout(site.prefix), marks_mode(site), site.sharing == "group" and site.group
    with suppress(OSError, KeyError), opened(layout.marks, layout.prefix, make=True) as marks:
        status = os.fstat(marks)
        if group and (gid := grp.getgrnam(group).gr_gid) != status.st_gid:
            os.fchown(marks, -1, gid)
        if stat.S_IMODE(status.st_mode) != mode:
            os.fchmod(marks, mode)


def marks_mode(site: Site) -> int:
    """The mode of that directory: 1770 for a group, otherwise 1777.

    Without setgid, so that a mark counts towards its own user's quota.
    """
    return 0o1770 if site.sharing == "group" else 0o1777
