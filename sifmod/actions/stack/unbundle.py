"""Read a bundle without network: copy its files into the tree and its images into the store."""

import json
import os
import stat
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from pydantic import TypeAdapter

from sifmod.actions.changing_prefix import changing_prefix
from sifmod.actions.lock import read_lock
from sifmod.actions.log import record_fetched
from sifmod.actions.reporter import Reporter
from sifmod.actions.stack.bundle import copy_checked
from sifmod.actions.stack.bundle_items import HEAD, IMAGE, IMAGES, LOCK, NAME, Head, Item, differing, is_taken
from sifmod.actions.stack.own_wheels import own_digest
from sifmod.actions.stack.stack_plan import StackOptions
from sifmod.actions.start import site_in_force
from sifmod.config.find import SUFFIXES
from sifmod.config.limits import NotReadError, bound, check_json, limits
from sifmod.config.prefix import BUNDLE, DECIDED, bundle_variables
from sifmod.config.site import Site
from sifmod.config.stack import is_reserved
from sifmod.errors import OptionError, SifmodError
from sifmod.image.artifact import Progress
from sifmod.image.bounded_tar import RefusedMemberError, open_tar
from sifmod.image.disk import check_space, writing
from sifmod.secret import cut
from sifmod.system import one_line, reason, variables_set, walk
from sifmod.tree.change import Change
from sifmod.tree.durable import content, move, read, sync_file
from sifmod.tree.layer import IMAGE as LAYER
from sifmod.tree.layer import LIVE, RECEIPT
from sifmod.tree.layout import Layout
from sifmod.tree.locking import HeldLock
from sifmod.tree.store import Store

_NAME = 1000  # longest name in messages
_MAKE = "create one with `sifmod stack bundle`"


class OpenBundle(NamedTuple):
    """The stack of a bundle whose images are in the store."""

    file: Path
    options: StackOptions  # with these the stack installs exactly what the bundle holds
    # the version of the sifmod that wrote it, if its files differ from this one's; "" if they are the same
    made_by: str
    differing: tuple[str, ...]  # settings that differ on this machine
    local: bool  # this machine's settings apply, not those of the bundle
    undo: Callable[[], None]  # put back the files of the stack that were there before


@contextmanager
def opened_bundle(bundle: Path, options: StackOptions, reporter: Reporter, *, local: bool) -> Iterator[OpenBundle]:
    """Open a bundle; inside the block its variables apply, and its settings too unless `local` ones take precedence.

    Raises the errors of `unbundle` and `site_in_force`.
    """
    site = site_in_force(options.site)
    place, head, undo = unbundle(bundle, site.site, reporter)
    given = dict(options.site)
    if (robot := place / "robot").is_dir():
        given["robot_paths"] = ":".join(filter(None, (str(robot), given.get("robot_paths"))))
    variables = bundle_variables(head.variables, os.environ)
    with variables_set(variables | {BUNDLE: str(place)}):
        with or_undone(undo):
            differ = differing(site_in_force(given), site)
        if local:
            del os.environ[BUNDLE]
        install = replace(options.install, offline=True, stores=(place,))  # its layers lie beside the stack
        opened = replace(options, site=given, install=install, locked=True, whole=True)
        made_by = "" if head.sifmod.sha256 == own_digest() else head.sifmod.version
        yield OpenBundle(place / "stack.yaml", opened, made_by, differ, local, undo)


def unbundle(bundle: Path, site: Site, reporter: Reporter) -> tuple[Path, Head, Callable[[], None]]:
    """Copy the missing files and images of a bundle into the tree, and remove what an earlier one of its stack left.

    Returns the directory of its stack, its head, and what puts the earlier files back, if the bundle is refused.

    Raises OptionError, ImageError for a damaged image, InstallError, NoSpaceError, PermissionsError.
    """
    head, files = _read(bundle)
    name = head.stack
    files = {HEAD: files[HEAD], **files, DECIDED: json.dumps(head.settings)}  # the head first: it says whose they are
    layout = Layout(site.prefix)
    place = layout.prefix / "stacks" / name
    with (
        changing_prefix(site),
        reporter.tree(site).lock(f"stack-{name}", f"the stack {name}") as held,
    ):
        if not (place / HEAD).is_file() and any(not path.startswith("layers/") for path in _files(place)):
            raise OptionError(
                f"{place}, the place of the bundle's stack, has files that no bundle brought; nothing was changed",
                "move them to another directory",
            )
        change, before = Change(held), dict[Path, bytes | str | None]()
        for path in _stale(place, files):
            before[place / path] = content(place / path, top=layout.prefix)
            change.remove(place / path)
        for path, text in files.items():
            if not _has(place / path, text, layout.prefix):
                before[place / path] = content(place / path, top=layout.prefix)
                change.file(place / path, text)
            root = (place / path).parent  # a generation, for a layer
            live = root.parent / LIVE
            if path.startswith("layers/") and path.endswith(f"/{RECEIPT}") and not _leads(live, root.name):
                before[live] = os.readlink(live) if live.is_symlink() else None  # noqa: PTH115 (the exact text)
                change.link(live, root.name)
        with held.changing(f"cannot write {place}"):
            change.apply()
        store = Store(layout, held, reporter.waiting("the store"))
        with or_undone(partial(_restore, before, place, held)), _readable(bundle):
            _take_in(bundle, place, store, reporter.progress)
        record_fetched(reporter.tree(site), store, reporter)
    return place, head, partial(_put_back, before, place, site, reporter)


@contextmanager
def or_undone(undo: Callable[[], None]) -> Iterator[None]:
    """Call `undo` after an error in the block: a refused bundle leaves no file to render what is installed from."""
    try:
        yield
    except BaseException:
        with suppress(SifmodError, OSError):  # the error of the block says more
            undo()
        raise


def _put_back(before: Mapping[Path, bytes | str | None], place: Path, site: Site, reporter: Reporter) -> None:
    """Give the files and links of a stack the contents and texts from `before`; None: it was not there."""
    name = place.name
    with changing_prefix(site), reporter.tree(site).lock(f"stack-{name}", f"the stack {name}") as held:
        _restore(before, place, held)


def _restore(before: Mapping[Path, bytes | str | None], place: Path, held: HeldLock) -> None:
    change = Change(held)
    for path, was in reversed(tuple(before.items())):  # the head last: without it the other files would be the user's
        match was:
            case None:
                change.remove(path)
            case bytes():
                change.file(path, was.decode(errors="surrogateescape"))
            case str():
                change.link(path, was)
    with held.changing(f"cannot write {place}"):
        change.apply()


def _stale(place: Path, files: Mapping[str, str]) -> tuple[str, ...]:
    """What an earlier bundle brought and this one lacks, which a pattern or a name would find; layers stay."""
    kept = (path for path in _files(place) if path not in files)
    return tuple(sorted(path for path in kept if not path.startswith("layers/") or path.endswith(SUFFIXES)))


def _files(place: Path) -> Iterator[str]:
    """The files below a directory, by their paths there."""
    return (str(Path(top, name).relative_to(place)) for top, _, names in walk(place) for name in names)


def _has(path: Path, text: str, top: Path) -> bool:
    try:
        return read(path, top=top) == text.encode()
    except OSError:
        return False


def _is_there(path: Path, size: int) -> bool:
    """Whether a regular file of this size exists; a truncated one has another size."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == size


def _leads(link: Path, text: str) -> bool:
    try:
        return os.readlink(link) == text  # noqa: PTH115 (the exact text)
    except OSError:
        return False


def _read(path: Path) -> tuple[Head, Mapping[str, str]]:
    """The head of a bundle, and its files but for images, layers and wheels. Raises OptionError if it is none."""
    content: dict[str, bytes] = {}
    room = limits().bundle_size
    for name, size, opened in _members(path):
        if name.startswith(("images/", "wheels/")) or name.endswith(f"/{LAYER}"):
            if name.startswith("images/"):
                break  # they come last
            continue
        room -= size
        if size > limits().bundle_file_size:
            raise OptionError(f"{path} is not a bundle: {name} has more bytes than {bound('bundle_file_size')}", _MAKE)
        if room < 0:
            what = "its files other than images have more bytes than"
            raise OptionError(f"{path} is not a bundle: {what} {bound('bundle_size')}", _MAKE)
        with _readable(path), opened() as file:
            content[name] = file.read()
    try:
        check_json(content.get(HEAD, b""), HEAD)
        files = {name: data.decode() for name, data in content.items()}
        head = TypeAdapter(Head).validate_json(files.get(HEAD, ""))
    except NotReadError as error:
        raise OptionError(f"{path} is not a bundle: {error}", _MAKE) from error
    except ValueError as error:
        raise OptionError(f"{path} is not a bundle that this sifmod can read", _MAKE) from error
    if refused := [each for each in head.variables if not is_taken(each)]:
        raise OptionError(f"{path} is not a bundle: it sets the variable {one_line(refused[0])}", _MAKE)
    if not NAME.fullmatch(head.stack) or is_reserved(head.stack):
        raise OptionError(f"{path} is not a bundle: {head.stack!r} is not a valid stack name", _MAKE)
    return head, files


def _take_in(bundle: Path, place: Path, store: Store, progress: Progress) -> None:
    """Copy the missing images of the lock into the store, and missing layers beside the stack.

    Images are checked against their digests here, layers when an install copies them to their final place. Raises
    ImageError for a damaged image or a layer of another size, NoSpaceError.
    """
    wanted = {one.image.sha256: one.image for one in read_lock(place / LOCK).modules.values() if one.image}
    for name, size, opened in _members(bundle):
        found = IMAGE.fullmatch(name)
        image = wanted.get(found[1]) if found else None
        lacks_layer = name.endswith(f"/{LAYER}") and not _is_there(place / name, size)
        if not lacks_layer and (image is None or store.find(image.sha256)):
            continue
        with store.incoming() as incoming, writing(incoming), opened() as source:
            check_space(incoming.parent, size)  # a file with holes can claim any size
            with incoming.open("wb") as file:
                copy_checked(source, file, Item(name, bundle, size, image.sha256 if image else ""), progress)
            if image:
                store.add(incoming, image.sha256, image.origin, image.source)
            else:
                sync_file(incoming)
                move(incoming, place / name, place.parents[1])


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise OptionError for an archive that cannot be read, such as a truncated one."""
    try:
        yield
    except tarfile.TarError as error:
        raise OptionError(f"{path} cannot be read: {error}", "copy it here again") from error


def _extracted(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    file = archive.extractfile(member)
    assert file is not None  # noqa: S101 (for mypy: it is a file)
    return file


def _members(path: Path) -> Iterator[tuple[str, int, Callable[[], IO[bytes]]]]:
    """The name, size and content of each file of a bundle, in order. Raises OptionError for a wrong or repeated one."""
    seen: set[str] = set()
    for name, size, opened in _found(path):
        parts = PurePosixPath(name).parts
        if name.startswith("/") or ".." in parts or not name.isprintable() or not parts or len(name) > _NAME:
            raise OptionError(f"{path} is not a bundle: unexpected file {cut(name, _NAME)!r}", _MAKE)
        name = str(PurePosixPath(name))
        if name in seen:
            raise OptionError(f"{path} is not a bundle: it has {name} twice", _MAKE)
        seen.add(name)
        if len(seen) > limits().bundle_files:
            raise OptionError(f"{path} has more files than {bound('bundle_files')}", _MAKE)
        yield name, size, opened


def _found(path: Path) -> Iterator[tuple[str, int, Callable[[], IO[bytes]]]]:
    try:
        if path.is_dir():
            there = (Path(place, name) for place, _, names in walk(path) for name in names)
            files = sorted(each for each in there if not each.is_symlink() and each.is_file())
            for file in sorted(files, key=lambda file: file.parent == path / IMAGES):
                item = Item(str(file.relative_to(path)), file, file.stat().st_size)
                yield item.name, item.size, item.open
            return
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise RefusedMemberError("it is not a regular file")
        with open_tar(path) as archive:
            for member in archive:
                if not member.isreg():
                    raise RefusedMemberError(f"{member.name!r} is not a plain file")
                yield member.name, member.size, partial(_extracted, archive, member)
    except RefusedMemberError as error:
        raise OptionError(f"{path} is not a bundle: {error}", _MAKE) from error
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {reason(error)}", _MAKE) from error
    except tarfile.TarError as error:
        raise OptionError(f"{path} is not a readable bundle: {error}", _MAKE) from error
