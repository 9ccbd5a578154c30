"""Who may read and write what is installed: the site's umask and group, else as the prefix itself is."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sifmod.config.site import Site
from sifmod.errors import PermissionsError


@contextmanager
def ownership(site: Site) -> Iterator[None]:
    """Work under the site's umask, and give a prefix that does not exist yet to the site's group (with setgid).

    A prefix that is there is left as it is: its owner has decided. Without a umask of the site's all that is made is as
    open as the prefix, whatever the user's umask, so that its members do not shut each other out. Raises
    PermissionsError for a group that this user cannot give.
    """
    before = os.umask(0o077)
    os.umask(before if site.umask is None else site.umask)
    try:
        if site.group is not None and not site.prefix.exists():
            _make(site.prefix, site.group)
        if site.umask is None and site.prefix.is_dir():
            os.umask(0o777 & ~site.prefix.stat().st_mode)
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
