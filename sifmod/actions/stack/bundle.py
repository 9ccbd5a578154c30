"""stack bundle: everything that a stack needs without a network, in one directory or tar file.

A bundle holds, in this order, `bundle.json` (a `Head`), the files that the stack includes, `stack.yaml`, its lock, the
files that its modules were made from (of other easyconfig directories below `robot/`, of settings below `settings/`),
sifmod's own wheels below `wheels/`, layers below `layers/`, and the images as `images/sha256/<digest>.sif`. The same
stack gives the same bytes, so that an interrupted tar file can be continued.
"""

import errno
import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import IO, Annotated, NamedTuple

from sifmod import __version__
from sifmod.actions.author.new_file import check_not_of_others
from sifmod.actions.lock import lock_beside, read_lock
from sifmod.actions.stack.bundle_items import HEAD, NAME, Head, Item, Own, deciding_settings, items
from sifmod.actions.stack.own_wheels import own_digest, write_own_wheels
from sifmod.actions.stack.stack_plan import Planned, plan_stack
from sifmod.config.find import SUFFIXES
from sifmod.errors import ImageError, OptionError
from sifmod.image.artifact import Progress
from sifmod.image.disk import writing
from sifmod.result import Described, Size
from sifmod.system import abbreviated, scratch_directory, user_name, walk
from sifmod.tree.durable import is_refused, new_file, opened, regular, sync_directory
from sifmod.tree.target_store import check_outside_trees

_CHUNK = 1 << 20
_SHOWN = 3  # files in a message
_OWN_DIRECTORIES = ("layers", "robot", "settings", "wheels")  # of images only those in the lock are used


class WrittenBundle(NamedTuple):
    """A bundle that was written."""

    path: Path
    size: Annotated[Size, Described("bytes of the bundle's content")]


def bundle_stack(planned: Planned, output: Path, without: str, progress: Progress, *, wheels: bool) -> int:
    """Write the bundle of an installed and locked stack; returns its bytes. Continues an interrupted run.

    The images whose digests are in the text `without` stay out. Raises OptionError for a name that no bundle's stack
    has, the error of a module that `apply --locked` would refuse, and what `items`, `deciding_settings`,
    `write_own_wheels` and `write_bundle` raise.
    """
    stack, site = planned.stack, planned.site
    if not NAME.fullmatch(stack.name):
        hint = "give it a `name:` of letters, digits and . _ + -, beginning with a letter or digit"
        raise OptionError(f"{stack.name!r} cannot be the name of a bundle's stack", hint)
    lock = read_lock(lock_beside(stack.path))
    decided = deciding_settings(site, lock, stack, os.environ)
    head = Head(stack.name, Own(__version__, own_digest()), *decided)
    if wrong := next((step.error for step in plan_stack(planned._replace(lock=lock)).steps if step.error), None):
        raise wrong
    with scratch_directory() if wheels else nullcontext() as built:
        if built:
            write_own_wheels(built)
        found = tuple(items(head, stack, site.site, built, without))
        write_bundle(output, iter(found), progress)
        return sum(item.size for item in found)


def write_bundle(bundle: Path, files: Iterator[Item], progress: Progress) -> None:
    """Write a directory, or a tar file if `bundle` ends in .tar; continues the output of an interrupted run.

    Raises OptionError in a tree or if something else is there, such as a file of another bundle, ImageError for a
    damaged source, FetchError, PermissionsError.
    """
    check_outside_trees(bundle)
    with writing(bundle, after="what was written stays, and the next run continues it"):
        if bundle.suffix == ".tar":
            _write_tar(bundle, files, progress)
            return
        if bundle.is_file() or (bundle.is_dir() and any(bundle.iterdir()) and not (bundle / HEAD).is_file()):
            raise OptionError(f"{bundle} exists and is not a bundle", "give another name with -o")
        check_not_of_others(bundle)
        own = tuple(files)
        if left := _left(bundle, {item.name for item in own}):
            raise OptionError(
                f"{bundle} has files of another bundle, which this one has not: {abbreviated(left, _SHOWN)}",
                "remove them, or give another name with -o",
            )
        for item in own:
            _write_file(bundle, item, progress)


def _left(bundle: Path, own: set[str]) -> list[str]:
    """The files that an earlier bundle may have left in this directory, where an apply or pip would find them."""
    there = [Path(top, name).relative_to(bundle) for top, _, names in walk(bundle) for name in names]
    found = (path for path in there if path.suffix in SUFFIXES or path.parts[0] in _OWN_DIRECTORIES)
    return sorted(str(path) for path in found if str(path) not in own and path.suffix != ".part")


def _write_file(bundle: Path, item: Item, progress: Progress) -> None:
    """Write one file below `bundle`, where others may be able to write: no link there is followed."""
    target = bundle / item.name
    with opened(target.parent, bundle, make=True) as directory:
        if _has(target, bundle, item):
            return
        unfinished = target.with_name(f".{target.name}.part")
        with suppress(FileNotFoundError):
            os.unlink(unfinished.name, dir_fd=directory)
        with open(new_file(directory, unfinished, b"", 0o666), "wb") as file, item.open() as source:  # noqa: PTH123
            copy_checked(source, file, item, progress)
            file.flush()
            os.fsync(file.fileno())
        os.rename(unfinished.name, target.name, src_dir_fd=directory, dst_dir_fd=directory)
        sync_directory(directory)


def _has(target: Path, bundle: Path, item: Item) -> bool:
    """Whether `target` is a file with the content of `item`."""
    try:
        with regular(target, bundle) as descriptor, open(os.dup(descriptor), "rb") as file:  # noqa: PTH123
            if os.fstat(descriptor).st_size != item.size:
                return False
            if item.sha256:
                return hashlib.file_digest(file, "sha256").hexdigest() == item.sha256
            with item.open() as source:
                return _agrees(file, source)
    except FileNotFoundError:
        return False
    except OSError as error:
        if not is_refused(error):
            raise
        return False


def _write_tar(bundle: Path, files: Iterator[Item], progress: Progress) -> None:
    """Write a tar file, named when complete, continuing a partial one.

    Raises OptionError if the file exists, or the partial one is not this user's.
    """
    if bundle.exists():
        raise OptionError(f"{bundle} exists already and was not changed", "give another name with -o")
    unfinished = bundle.with_name(f".{bundle.name}.part")
    with _begun(unfinished) as file:
        for item in files:
            header = tarfile.TarInfo(item.name)
            header.size, header.mode = item.size, 0o644
            start, block = file.tell(), header.tobuf(tarfile.PAX_FORMAT)
            end = start + len(block) + -(-item.size // 512) * 512
            with item.open() as source:
                if file.read(len(block)) == block and os.fstat(file.fileno()).st_size >= end and _agrees(file, source):
                    file.seek(end)
                    continue
                source.seek(0)
                file.seek(start)
                file.truncate()
                file.write(block)
                copy_checked(source, file, item, progress)
                file.write(b"\0" * (end - file.tell()))
        file.truncate()
        file.write(b"\0" * 1024)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(bundle)
    sync_directory(bundle.parent)


def _begun(path: Path) -> IO[bytes]:
    """Open this user's partial file, or a new one. Raises OptionError for a file that others may have put there."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = open(os.open(path, flags, 0o666), "r+b")  # noqa: PTH123, SIM115 (a descriptor, which the caller closes)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EACCES, errno.EPERM) or not os.path.lexists(path):
            raise
    else:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid == os.geteuid():
            return file
        file.close()
    owner = user_name(path.lstat().st_uid)
    raise OptionError(f"{path} of {owner} is no plain file of yours alone", "remove it, or give another name with -o")


def _agrees(file: IO[bytes], source: IO[bytes]) -> bool:
    while chunk := source.read(_CHUNK):
        if file.read(len(chunk)) != chunk:
            return False
    return True


def copy_checked(source: IO[bytes], target: IO[bytes], item: Item, progress: Progress) -> None:
    """Copy a file of a bundle. Raises ImageError if its size or digest is not that of `item`."""
    digest, done = hashlib.sha256(), 0
    while chunk := source.read(min(_CHUNK, item.size - done)):
        target.write(chunk)
        done += len(chunk)
        if item.sha256:
            digest.update(chunk)
            progress(f"{item.name[:5]} {item.sha256[:12]}", done, item.size)
    if item.sha256 and digest.hexdigest() != item.sha256:
        raise ImageError(
            f"{item.name} is damaged: its SHA-256 is {digest.hexdigest()}",
            "create or copy the bundle again; where it is created, `sifmod verify` finds what is damaged",
        )
    if done != item.size or source.read(1):
        raise ImageError(f"{item.name} has changed while it was read", "repeat the command")
