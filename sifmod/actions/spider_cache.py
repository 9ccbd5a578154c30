"""Refresh Lmod's spider cache with Lmod's own program."""

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from sifmod.actions.reporter import Reporter
from sifmod.config.site import SPIDER_PATH, Site
from sifmod.errors import SifmodError
from sifmod.image.child import run_child
from sifmod.system import user_name
from sifmod.tree.durable import names
from sifmod.tree.layout import Layout

PROGRAM = "update_lmod_system_cache_files"
_PLACE = "/usr/share/lmod/lmod"  # where distribution packages install it
_LIMIT = 600.0  # seconds
_LOCK = "spider-cache"


def refresh_spider_cache(layout: Layout, site: Site, reporter: Reporter) -> bool:
    """Refresh the site's spider cache after changes; returns whether that was done.

    Without `spider_cache` in the site nothing is done. Failures are only warnings: then the timestamp is renewed, if
    possible, because Lmod reads the tree itself if its cache is older.
    """
    cache = site.spider_cache
    if cache is None:
        return False
    modulepath = ":".join(cache.modulepath or (str(layout.modules),))
    directory, stamp = Path(cache.directory), Path(cache.timestamp)
    try:
        if not re.fullmatch(SPIDER_PATH, f"{modulepath}{directory}{stamp}"):
            raise SifmodError(f"{PROGRAM} takes no blank, *, ? and [ in a path")
        if os.geteuid() == 0 and site.umask is not None and site.umask & 0o004:
            raise SifmodError(
                "run by root, Lmod leaves out what others may not read; a change by a member refreshes it"
            )
        program = _program()
        with reporter.tree(site).lock(_LOCK, "the spider cache"):
            for place in (directory, stamp.parent):
                _check_link(place, layout.prefix)
                _make(place, site.group)
            # the program overwrites files, which fails for other members' files; a new file can replace them
            with (
                TemporaryDirectory(prefix=".sifmod-", dir=directory) as new,
                TemporaryDirectory(prefix=".sifmod-", dir=stamp.parent) as begun,
            ):
                command = (str(program), "-d", new, "-t", f"{begun}/stamp", modulepath)
                ended = run_child(command, cwd=layout.prefix, env=os.environ, limit=_LIMIT)
                if ended.code == 0:
                    for file in Path(new).iterdir():
                        if site.umask is not None and layout.prefix in directory.parents:
                            file.chmod(0o666 & ~site.umask)  # the program gives 0644
                        file.replace(directory / file.name)
                    Path(begun, "stamp").replace(stamp)
                else:
                    raise SifmodError(" ".join(ended.lines[-3:]) or str(ended.code))
    except (OSError, LookupError, SifmodError) as error:
        reporter.say(f"warning: the spider cache was not refreshed: {error}")
        with suppress(OSError, SifmodError):
            _check_link(stamp.parent, layout.prefix)
            os.utime(stamp, follow_symlinks=False)
        return False
    return True


def cache_files(site: Site) -> tuple[Path, ...]:
    """The files of the site's spider cache; of a closed directory one, whose directories are then known."""
    if site.spider_cache is None:
        return ()
    directory, stamp = Path(site.spider_cache.directory), Path(site.spider_cache.timestamp)
    return (stamp, directory / "spiderT.lua", *directory.glob("spiderT.luac*"))


def is_stale(layout: Layout, site: Site) -> bool:
    """Whether a module or a decision has changed since the site's cache was made, such as by a run that died."""
    made = _changed(Path(site.spider_cache.timestamp)) if site.spider_cache else 0
    if not site.spider_cache or not made:  # no cache: Lmod reads the tree
        return False
    return 0 < _changed(Path(site.spider_cache.directory, "spiderT.lua")) < made or any(
        _changed(top / name) > made for top in (layout.modules, layout.software) for name in names(top)
    )


def _changed(path: Path) -> int:
    """When a file, or the names in a directory, changed last, in nanoseconds since 1970; 0 if there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _check_link(place: Path, prefix: Path) -> None:
    """Raise SifmodError for a link that another member of the group may have put there; its target may be anything."""
    if place.is_symlink() and (owner := place.lstat().st_uid) not in (0, os.geteuid(), prefix.stat().st_uid):
        raise SifmodError(f"{place} is a link of {user_name(owner)}")


def _make(place: Path, group: str | None) -> None:
    """Create a cache directory if it is missing, and those above it; a `group` gets them, with setgid."""
    if not place.is_dir():
        _make(place.parent, group)
        place.mkdir()
        if group is not None:
            shutil.chown(place, group=group)
            place.chmod(place.stat().st_mode | 0o2000)


def _program() -> Path:
    """The program that refreshes a cache, preferably of the Lmod in this shell. Raises LookupError without one."""
    loaded, package = os.environ.get("LMOD_DIR"), os.environ.get("LMOD_PKG", _PLACE)
    found = (Path(place) / PROGRAM for place in (loaded, f"{package}/libexec", f"{_PLACE}/libexec") if place)
    if program := next((path for path in found if os.access(path, os.X_OK)), None):
        return program
    raise LookupError(f"Lmod's {PROGRAM} was not found through LMOD_DIR or LMOD_PKG")
