"""Who may read and write what is installed: the site's umask and group."""

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

    A prefix that is there is left as it is: its owner has decided. Raises PermissionsError for a group that this user
    cannot give.
    """
    before = os.umask(site.umask) if site.umask is not None else None
    try:
        if site.group is not None and not site.prefix.exists():
            _make(site.prefix, site.group)
        yield
    finally:
        if before is not None:
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
