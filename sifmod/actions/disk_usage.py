"""The disk space of this user's caches and temporary files, and the commands that free it. Removes nothing."""

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sifmod.actions.garbage import DAYS
from sifmod.config.site import Site
from sifmod.image.packages.uv import bytecode_place, uv_cache
from sifmod.module.quote import shell
from sifmod.system import size_text

LARGE = 10**6  # bytes; smaller directories are not listed
SECONDS = 2.0  # time limit for counting, in total
_DAY = 86400.0
_TEMPORARY = ("sifmod-{uid}-*", "sifmod-scratch-*", "sifmod-test-*", "sifmod-gpgv-*", "sifmod-image-*")


@dataclass(frozen=True)
class DiskUsage:
    """Files that take disk space. `why` describes them, `command` frees the space."""

    kind: Literal["cache", "temporary files"]
    name: str
    path: Path
    size: int  # bytes on the disk
    whole: bool  # False: counting took too long, the size is a minimum
    why: str
    command: str

    @property
    def way_out(self) -> str:
        """Why gc leaves the files, and which command frees their space."""
        less = "" if self.whole else "more than that: counting took too long; "
        return f"{less}{self.why}; `{self.command}` frees it"

    @property
    def text(self) -> str:
        """The size for people, with `more than` if counting took too long."""
        return f"{'' if self.whole else 'more than '}{size_text(self.size)}"


def disk_usage(site: Site, seconds: float = SECONDS) -> tuple[DiskUsage, ...]:
    """The caches and temporary files of this user on this node that are `LARGE`, or not counted within `seconds`."""
    end = time.monotonic() + seconds
    return tuple(room for room in (*_caches(end), *_temporary(site, end)) if room.size >= LARGE or not room.whole)


def _caches(end: float) -> Iterator[DiskUsage]:
    from uv import find_uv_bin

    if os.path.isdir(uv := uv_cache()):  # noqa: PTH112 (False in a closed directory)
        program = "uv" if shutil.which("uv") else shell(find_uv_bin())
        why = "downloads of uv (also for `sifmod add`), which it would repeat"
        yield _cache("uv's cache", uv, end, why, f"{program} cache clean --cache-dir {shell(str(uv))}")
    if _is_own(own := bytecode_place()):
        why = "files that `sifmod add` has compiled, and would compile again"
        yield _cache("bytecode", own, end, why, f"rm -r {shell(str(own))}")


def _temporary(site: Site, end: float) -> Iterator[DiskUsage]:
    places = (tempfile.gettempdir(), "/tmp", site.cache_directory)  # noqa: S108 (whose directories are this user's)
    names = [name.format(uid=os.geteuid()) for name in _TEMPORARY]
    for place in dict.fromkeys(os.path.realpath(one) for one in places if one):
        for path in sorted({path for name in names for path in Path(place).glob(name)}):
            if _is_own(path):
                size, newest, whole = _counted(path, end)
                why = f"not changed for {DAYS:g} days"
                if not whole or time.time() - newest < DAYS * _DAY:
                    age = f"changed within {DAYS:g} days" if whole else "perhaps still in use"
                    why = f"{age}; remove it when no job or command of yours uses it"
                yield DiskUsage("temporary files", path.name, path, size, whole, why, f"rm -r {shell(str(path))}")


def _cache(name: str, path: Path, end: float, why: str, command: str) -> DiskUsage:
    size, _, whole = _counted(path, end)
    return DiskUsage("cache", name, path, size, whole, why, command)


def _is_own(path: Path) -> bool:
    """Whether `path` is a directory that this user owns, and not a link."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _counted(top: Path, end: float) -> tuple[int, float, bool]:
    """A directory's size in bytes, its last change (seconds since 1970), and whether all was counted in time."""
    size, newest, several, left = 0, 0.0, set[tuple[int, int]](), [str(top)]
    while left:
        try:
            with os.scandir(left.pop()) as found:
                for entry in found:
                    status = entry.stat(follow_symlinks=False)
                    newest = max(newest, status.st_mtime)
                    if status.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                        if (status.st_dev, status.st_ino) in several:
                            continue
                        several.add((status.st_dev, status.st_ino))
                    size += status.st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    if time.monotonic() > end:
                        return size, newest, False
        except OSError:  # files that vanish or cannot be read are not counted
            continue
    return size, max(newest, top.lstat().st_mtime if top.exists() else 0.0), True
