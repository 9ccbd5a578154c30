"""Start uv, here or in a container, and choose its cache."""

import errno
import os
import re
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sifmod.config.limits import bound, limits
from sifmod.errors import FetchError, ImageError, InstallError
from sifmod.image.child import HEAVY, LARGE, Ended, Most, run_child
from sifmod.image.packages.uv_settings import config_words, uv_environment, without_own_logins, write_config
from sifmod.system import cache_home, limit_hint, not_own, remove_directory

_UNSAFE = re.compile("Skipping unsafe file name: (.*)")
_LEFT_OUT_FILES = "left-out.txt"
_LINKED = "sifmod-linked"
_DAY = 86400  # seconds


@dataclass(frozen=True)
class Uv:
    """Starts uv with arguments; it reads and writes files in `directory`, which it sees as `place`."""

    run: Callable[..., Ended]
    directory: Path
    place: str


def uv_here(directory: Path) -> Uv:
    """The uv that is installed with sifmod, for files in `directory`. Raises OptionError for an invalid uv.toml."""
    from uv import find_uv_bin

    environment = {**uv_environment(), "UV_CACHE_DIR": str(uv_cache())}
    write_config(directory)

    def run(*words: str) -> Ended:
        wanted = "uv_resolver=debug" if "--verbose" in words else "uv_extract=warn"
        words = (find_uv_bin(), *words, *config_words(str(directory)), "--color", "never", "--no-progress")
        env = {**environment, "RUST_LOG": wanted}
        ended = checked(run_child(words, cwd=directory, env=env, most=most_of_uv()))
        with (directory / _LEFT_OUT_FILES).open("a") as file:
            file.writelines(f"{found[1]}\n" for found in map(_UNSAFE.search, ended.lines) if found)
        return ended

    return Uv(run, directory, str(directory))


def host_words() -> tuple[str, ...]:
    """The arguments for `uv pip` here: a Python of this machine, which it needs for anything, and UV_NO_INDEX."""
    return ("--python", sys.executable, *(("--no-index",) if os.environ.get("UV_NO_INDEX") else ()))


def most_of_uv() -> Most:
    """The limits of uv's processes."""
    return Most(limits().uv_memory, limits().package_size)


def checked(ended: Ended) -> Ended:
    """How uv ended, without logins in its output. Raises FetchError if it exceeded `most_of_uv`, or a limit here."""
    if ended.code == HEAVY:
        hint = "does a package index send a page without an end?"
        raise FetchError(f"uv took more bytes of memory than {bound('uv_memory')}", hint)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    if ended.code == LARGE and 0 <= hard < limits().package_size:
        raise FetchError(f"uv cannot write a file of more bytes than {hard} here", limit_hint(OSError(errno.EFBIG, "")))
    if ended.code == LARGE:
        hint = "does a server send a package without an end?"
        raise FetchError(f"uv wrote a file of more bytes than {bound('package_size')}", hint)
    return replace(ended, said=without_own_logins(ended.said))


def refuse_unsafe(uv: Uv, names: Collection[str]) -> None:
    """Raise ImageError if a wheel that `uv` has unpacked has a path outside of its directory.

    uv skips such a file, and reports it once, when it unpacks. So its cache of these packages is removed: the next run
    unpacks them again.
    """
    if left_out := (uv.directory / _LEFT_OUT_FILES).read_text("utf-8", "replace").splitlines():
        uv.run("cache", "clean", *names)
        hint = f"leave out the one that has it, of {', '.join(names)}"
        raise ImageError(f"a package has a path outside of its directory: {left_out[0]!r}", hint)


def uv_cache() -> Path:
    """The directory of uv's cache."""
    return Path(os.environ.get("UV_CACHE_DIR") or cache_home() / "uv").absolute()


def bytecode_place() -> Path:
    """The directory of the bytecode cache, which may be missing."""
    return cache_home() / f"sifmod-bytecode-{os.geteuid()}"


def bytecode_cache() -> Path:
    """The directory of the bytecode cache.

    Only this user may write there, since bytecode is not compared with its source.

    Raises InstallError if another user owns it or can write there, or if it is not a directory.
    """
    place = bytecode_place()
    place.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        place.mkdir(0o700)
    if why := not_own(place):
        raise InstallError(f"compiled packages cannot be cached: {why}", f"remove it: rm -r {place}")
    return place


@contextmanager
def linked_directory() -> Iterator[Path]:
    """A new temporary directory where uv can link its files instead of copying them.

    Hard links work only within a mount, so it is in uv's cache. Files of a killed run are removed after a day.
    """
    top = uv_cache() / _LINKED
    top.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):  # another run may remove it too
        for old in top.iterdir():
            if time.time() - old.stat().st_mtime > _DAY:
                remove_directory(old)
    made = Path(tempfile.mkdtemp(dir=top))
    try:
        yield made
    finally:
        remove_directory(made)
