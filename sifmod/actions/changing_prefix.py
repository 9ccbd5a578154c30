"""How a prefix is changed: as open as it is, or as the site says, and with nothing left of a run that failed."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sifmod.config.site import Site
from sifmod.errors import PermissionsError
from sifmod.tree.layout import Layout


@contextmanager
def changing_prefix(site: Site) -> Iterator[None]:
    """Work under the site's umask in a prefix that is made, with the site's group and setgid, unless it is there.

    A prefix that is there is left as it is: its owner has decided. Where the block fails, the directories of a tree
    that it made are removed, if they are empty. Raises PermissionsError for a group that this user cannot give.
    """
    layout = Layout(site.prefix)
    made_here = tuple(place for place in (site.prefix, *site.prefix.parents) if not place.exists())
    try:
        if site.group is not None and not site.prefix.exists():
            with _umask(site.umask):
                _make(site.prefix, site.group)
        with site_umask(site):
            yield
    except BaseException:
        if made_here:
            for place in (layout.staging, layout.locks, layout.images, layout.images.parent, *made_here):
                with suppress(OSError):
                    place.rmdir()
        raise


@contextmanager
def site_umask(site: Site) -> Iterator[None]:
    """Work under the site's umask; without one all that is made is as open as the prefix, whatever the user's umask.

    So the members of a group do not shut each other out.
    """
    as_open = 0o777 & ~site.prefix.stat().st_mode if site.prefix.is_dir() else None
    with _umask(as_open if site.umask is None else site.umask):
        yield


@contextmanager
def _umask(mask: int | None) -> Iterator[None]:
    before = os.umask(0o077)
    os.umask(before if mask is None else mask)
    try:
        yield
    finally:
        os.umask(before)


def _make(prefix: Path, group: str) -> None:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    prefix.mkdir()
    try:
        shutil.chown(prefix, group=group)
        prefix.chmod(prefix.stat().st_mode | 0o2000)
    except (LookupError, PermissionError) as error:
        prefix.rmdir()
        raise PermissionsError(
            f"{prefix} cannot be given to the group {group}: {error}", "correct `group` in the site file"
        ) from error
