"""Packages for an image as files: resolved against its own packages, and installed into a local directory by uv."""

import base64
import csv
import hashlib
import io
import os
import re
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from posixpath import basename, dirname, join, normpath, relpath
from zipfile import BadZipFile, ZipFile

from sifmod.errors import ImageError, OptionError
from sifmod.image.inspect.rootfs import Rootfs
from sifmod.image.packages.base_python import BasePython, files_in, files_of, recorded
from sifmod.image.packages.image_python import ImagePython
from sifmod.image.packages.package_lock import one_digest_each, pinned
from sifmod.image.packages.request import PackageRequest
from sifmod.image.packages.resolve import Resolved, followed, resolve
from sifmod.image.packages.torch_index import torch_index
from sifmod.image.packages.uv import Uv, host_words, refuse_unsafe
from sifmod.image.packages.uv_settings import write_private

LEFT_BY_UV = (".lock", ".gitignore", "CACHEDIR.TAG", "*.dist-info/uv_cache.json", "*.dist-info/uv_build.json")
_LARGEST = 1 << 26  # bytes of a file that is compared
_LOCAL = re.compile(r'\b(?:path = "|url = "file:)[^"]*/|\bpath = "')
_INSTALL = "pylock.install.toml"
_MODULES = (".py", ".pyc", ".so")
_NOT_IMPORTED = frozenset({"docs", "examples", "scripts", "test", "tests"})  # that packages have by mistake
_REQUIRES = re.compile(r"^requires-python = .*\n", re.MULTILINE)


@dataclass(frozen=True)
class Added:
    """The lock of added packages, and the files that they add and remove. Paths in the image start with a slash."""

    lock: str
    files: tuple[tuple[str, Path], ...]
    removed: tuple[str, ...]
    notes: tuple[str, ...]


def add_packages(
    base: BasePython,
    wanted: PackageRequest,
    given: str,
    uv: Uv,
    uv_prefix: Path,
    indexes: Iterable[tuple[str, str]] = (),
) -> Added:
    """The `wanted` packages, or those of the lock `given` unless it is "", as files of the image, below `uv_prefix`.

    Other versions in the image are removed as by `files_of`. Raises OptionError for packages that conflict with the
    image, NoWheelError for those that would have to be compiled, FetchError if an index is unavailable, ImageError for
    one that cannot be installed, would replace a part of a protected one, or has paths outside of its directory.
    """
    python = base.python
    words = (*wanted.words, *host_words(), *base.words)
    wanted, index = replace(wanted, words=words), torch_index(python, indexes)

    def resolve_with(more: tuple[str, ...]) -> Resolved:
        return resolve(python, replace(wanted, words=(*wanted.words, *more)), "", uv)

    resolved = followed(python, given) if given else index.resolved(python, wanted, resolve_with)
    for name, _ in resolved.repositories:  # it must be built, but nothing of a base is started
        raise OptionError(
            f"the lock has {name} in a git repository", "a recipe takes packages from an index; build it with `post`"
        )
    lock = _LOCAL.sub('path = "', resolved.lock)  # the same lock wherever the files are
    linked = ", ".join(sorted(index.names & resolved.added.keys()))
    of = (f"{linked}: from {index.url}, for the image's torch +{index.local}",) if linked else ()
    notes = (f"packages go to the Python in {python.prefix}", *of, *format_added(python, resolved))
    if not resolved.added:
        return Added(lock, (), (), notes)
    library = _library(uv_prefix)
    _install(uv, resolved, wanted, uv_prefix, library)
    refuse_unsafe(uv, resolved.added)
    check_hides_nothing(library, python)
    files = dict(_files(uv_prefix, library, base))
    kept = {path for one in python.protected.values() for path in recorded(base.rootfs, one)}
    replaced = [one for key, one in python.distributions.items() if key in resolved.added]
    removed = files_of(base, replaced)
    over = _over(base.rootfs, files, set(removed), kept)
    return Added(lock, tuple(sorted(files.items())), removed, (*notes, *over))


def _library(uv_prefix: Path) -> Path:
    """The directory below `uv_prefix` for all packages, also if this machine's Python has compiled ones in `lib64`."""
    if sys.platlibdir != "lib":
        (uv_prefix / sys.platlibdir).symlink_to("lib")  # as in a virtual environment
    own = dict.fromkeys(("base", "installed_base"), str(uv_prefix))
    return Path(sysconfig.get_path("purelib", "venv", own))


def _install(uv: Uv, resolved: Resolved, wanted: PackageRequest, uv_prefix: Path, library: Path) -> None:
    # a lock names the path or URL of each file; of local files, here or on another machine, only the digests count
    lock = resolved.fetched
    words = ["--prefix", str(uv_prefix), "--no-deps", "--quiet", "--link-mode", "hardlink", "--no-compile-bytecode"]
    for text in one_digest_each(lock):
        name, text = ("pinned.txt", pinned(text)) if _LOCAL.search(lock) else (_INSTALL, text)
        # requires-python is about the image's Python; uv would apply it to this one, which runs no package
        write_private(uv.directory / name, _REQUIRES.sub("", text))
        ended = uv.run("pip", "install", *words, *wanted.words, "--requirements", f"{uv.place}/{name}")
        if ended.code != 0:
            raise ImageError("cannot install the packages:\n" + "\n".join(ended.lines[-12:]))
        words.append("--reinstall")
    for pattern in LEFT_BY_UV:
        for left in (*uv_prefix.glob(pattern), *library.glob(pattern)):
            left.unlink()


def _files(uv_prefix: Path, library: Path, base: BasePython) -> Iterator[tuple[str, Path]]:
    """Each file and its path in the image, with adapted commands and RECORDs. Raises ImageError for a special file."""
    short = base.python.short

    def inside(path: Path) -> str:
        if path.is_relative_to(library):
            return join(base.library, path.relative_to(library))
        own = re.sub("^include/(site/)?python[0-9.]+/", rf"include/\1python{short}/", str(path.relative_to(uv_prefix)))
        return join(base.prefix, own)

    found = [Path(top, name) for top, _, names in os.walk(uv_prefix) for name in names]
    for path in found:
        if path.is_symlink() or not path.is_file():
            raise ImageError(f"a package has {path.relative_to(uv_prefix)}, which is not a regular file")
        if path.parent == uv_prefix / "bin":
            _start(path, base.python.executable)
    for record in library.glob("*.dist-info/RECORD"):
        made = io.StringIO()
        writer = csv.writer(made, lineterminator="\n")
        for name, *about in _rows(record):
            path = Path(normpath(join(library, name)))
            if path.is_relative_to(uv_prefix) and path.is_file():
                command = path.parent == uv_prefix / "bin"
                writer.writerow((relpath(inside(path), base.library), *(_about(path) if command else about)))
        _replace(record, made.getvalue().encode())
    return ((inside(path), path) for path in found)


def _rows(record: Path) -> list[list[str]]:
    """The sorted rows of a RECORD. Raises ImageError if it cannot be read: a wheel may bring one beside its own."""
    try:
        return sorted(filter(None, csv.reader(record.read_text("utf-8").splitlines())))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ImageError(f"{record.parent.name}/{record.name} of a package cannot be read: {error}") from error


def _start(path: Path, python: str) -> None:
    """Replace the Python that uv used by the image's Python in a command."""
    content = path.read_bytes()
    long = b"#!/bin/sh\n'''exec' "
    here = os.fsencode(sys.executable)
    head, end, rest = content.partition(b"\n' '''\n" if content.startswith(long) else b"\n")
    if end and here in head and head.startswith((b"#!" + here, long)):
        _replace(path, b"#!" + os.fsencode(python) + b"\n" + rest)


def _replace(path: Path, content: bytes) -> None:
    """Replace a file instead of writing to it, because it may be a link to uv's own."""
    mode = path.stat().st_mode
    path.unlink()
    path.write_bytes(content)
    path.chmod(mode)


def _about(path: Path) -> tuple[str, str]:
    """The digest and the size of a file, in the format of a RECORD."""
    content = path.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"sha256={digest}", str(len(content))


def check_hides_nothing(lib: Path, python: ImagePython) -> None:
    """Raise OptionError for a package, whatever its name, that provides an import name of a protected one."""
    for place, name in _modules(lib):
        if held := python.kept_modules.get(name):
            raise OptionError(
                f"{_owner(lib, place)} brings its own {name}; the image has {held.name} {held.version}, which stays",
                f"look for a variant of it that uses the existing {name}",
            )


def format_hidden(lib: Path, python: ImagePython, added: Collection[str]) -> Iterator[str]:
    """Warnings about modules of the image that packages of another name hide; `added`: the normalized names."""
    for place, name in _modules(lib):
        held = python.own_modules.get(name)
        if held and held.key not in added and name not in _NOT_IMPORTED:
            yield f"warning: {_owner(lib, place)} brings its own {name}, which hides that of the image's {held.name}"


def _modules(lib: Path) -> Iterator[tuple[Path, str]]:
    """What Python finds by a top-level name, in `lib` and what its `.pth` files name: its file or archive, its name."""
    files = (one for one in sorted(lib.glob("*.pth")) if one.is_file())
    lines = (line for one in files for line in one.read_text("utf-8", "replace").splitlines())
    named = (Path(normpath(join(lib, line.rstrip()))) for line in lines)
    for place in (lib, *(one for one in named if lib in one.parents)):
        if place.is_file():
            yield from ((place, name) for name in _names_in_archive(place))
        for one in sorted(place.iterdir()) if place.is_dir() else ():
            is_module = one.suffix in _MODULES or any(each.suffix in _MODULES for each in one.glob("__init__.*"))
            if is_module and not one.name.endswith("-info"):
                yield one, one.name.partition(".")[0]


def _names_in_archive(path: Path) -> Iterator[str]:
    """The top-level modules of a zip, which Python imports from too."""
    try:
        with ZipFile(path) as archive:
            found = {name for name in archive.namelist() if re.fullmatch(r"[^/]+(/__init__)?\.pyc?", name)}
    except (BadZipFile, OSError, NotImplementedError):
        return
    yield from sorted({re.split("[/.]", name)[0] for name in found})


def _owner(lib: Path, place: Path) -> str:
    """The name and version of the package that has a module."""
    begin = re.compile(rf"^{re.escape(str(place.relative_to(lib)))}[/,]", re.MULTILINE)
    records = ((one.parent.name, one.read_text("utf-8", "replace")) for one in lib.glob("*.dist-info/RECORD"))
    found = (info for info, text in records if begin.search(text))
    return " ".join(next(found, "one of them").removesuffix(".dist-info").split("-")[:2])


def _over(rootfs: Rootfs, files: dict[str, Path], removed: set[str], kept: set[str]) -> tuple[str, ...]:
    """A note about files of the image that are replaced but belong to no removed package.

    Raises ImageError for a protected one.
    """
    over = []
    by_directory = groupby(sorted(set(files) - removed, key=lambda path: (dirname(path), path)), dirname)
    for directory, paths in by_directory:
        there = files_in(rootfs, directory)
        for path in (each for each in paths if basename(each) in there):
            if rootfs.data(path, _LARGEST) == files[path].read_bytes():
                continue
            if path in kept:
                raise ImageError(f"a package brings its own {path}; the image has one, which stays")
            over.append(path)
    if not over:
        return ()
    more = f" and {len(over) - 3} more" if len(over) > 3 else ""
    return (f"packages replace {', '.join(over[:3])}{more} of the base",)


def format_added(python: ImagePython, resolved: Resolved) -> Iterator[str]:
    """Notes and warnings about the added and the protected packages."""
    kept, first = python.protected, python.first
    others = f" and {len(kept) - 1} more that go with it" if len(kept) > 1 else ""
    stays = f"the image keeps {first.name} {first.version}{others}; " if first else ""
    count = len(resolved.added)
    yield f"{stays}{count} package{' is' if count == 1 else 's are'} added"
    strangers: dict[str, str] = {}
    for key, version in resolved.added.items():
        if held := python.distributions.get(key):
            yield f"{key} {version}".rstrip() + f" is used instead of the image's {held.version}"
        elif python.is_protected_name(key):
            strangers[key] = f"{key} {version}"
    if strangers:
        of = strangers.get("torch") or next(iter(strangers.values()))
        more = f" and {len(strangers) - 1} more of its kind" if len(strangers) > 1 else ""
        fits = f"the image's {first.name} {first.version}" if first else "the drivers and libraries of this machine"
        are = "are" if len(strangers) > 1 else "is"
        yield f"warning: {of}{more} {are} not in the image, and may not be built for {fits}"
    yield from (f"warning: {line}" for line in python.broken_by(dict(resolved.added)))
