"""How a prefix is changed: as open as it is, or as the site says, and with nothing left of a run that failed."""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

from sifmod.config.site import Site
from sifmod.errors import PermissionsError
from sifmod.tree.durable import opened
from sifmod.tree.layout import Layout
from sifmod.tree.umask import as_open, umask

_PARENTS = 0o022  # umask of what is made above a shared prefix, which its readers have to pass


@contextmanager
def changing_prefix(site: Site) -> Iterator[None]:
    """Work under the site's umask in a prefix that is made, with the site's group and setgid, unless it is there.

    A prefix that is there is left as it is: its owner has decided. One that the site shares gets a place for the marks
    of its readers. Where the block fails, the directories of a tree that it made are removed, if they are empty.
    Raises PermissionsError for a group that this user cannot give.
    """
    layout = Layout(site.prefix)
    made_here = tuple(place for place in (site.prefix, *site.prefix.parents) if not place.exists())
    try:
        if (site.group is not None or site.sharing) and not site.prefix.exists():
            _make(site)
        with site_umask(site):
            make_marks(site)
            yield
    except BaseException:
        if made_here:
            places = (layout.marks, layout.staging, layout.locks, layout.images, layout.images.parent)
            for place in (*places, *made_here):
                with suppress(OSError):
                    place.rmdir()
        raise


@contextmanager
def site_umask(site: Site) -> Iterator[None]:
    """Work under the site's umask; without one all that is made is as open as the prefix, whatever the user's umask.

    So the members of a group do not shut each other out.
    """
    with umask(site.prefix, as_open(site.prefix) if site.umask is None else site.umask):
        yield


def for_layers(site: Site, directory: Path) -> Site:
    """The site for work in a directory of layers: in the prefix as open as that, elsewhere as open as `directory`."""
    within = site.prefix in directory.parents
    mask = site.umask if within or not site.sharing else None
    if within and mask is None:
        mask = as_open(site.prefix)
    return replace(site, prefix=directory, sharing=None, group=None if site.sharing else site.group, umask=mask)


def _make(site: Site) -> None:
    """Make the prefix with its group and mode in one step, for another run may work in it at once."""
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
        if not prefix.is_dir():  # else another run has made it, and put something there
            raise
    finally:
        with suppress(FileNotFoundError):
            made.rmdir()


def _give(made: Path, group: str, prefix: Path) -> None:
    try:
        shutil.chown(made, group=group)
        made.chmod(made.stat().st_mode | 0o2000)
    except (LookupError, PermissionError) as error:
        raise PermissionsError(
            f"{prefix} cannot be given to the group {group}: {error}", "correct `group` in the site file"
        ) from error


def make_marks(site: Site) -> None:
    """Make the place where readers of a shared prefix leave marks, as open as that takes.

    Not set-gid: a mark counts as its user's and for the user's quota. What cannot be made now another makes who may.
    """
    if not site.sharing:
        return
    layout, mode = Layout(site.prefix), 0o1770 if site.sharing == "group" else 0o1777
    with suppress(OSError), opened(layout.marks, layout.prefix, make=True) as marks:
        if stat.S_IMODE(os.fstat(marks).st_mode) != mode:
            os.fchmod(marks, mode)
