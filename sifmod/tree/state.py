"""The state of a live installation: missing and edited files, and the user's additions, which are always kept.

Missing files are cheap enough to check for every module on every run. Paths are plain texts here, because Path objects
would take most of the time.
"""
# ruff: noqa: PTH110, PTH113, PTH208

import errno
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from sifmod.digest import sha256_bytes, sha256_file
from sifmod.tree.durable import DIRECTORY, closing, naming, opened, read, regular, sync_directory
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import FileRecord, Installation, live_number

_DEEP = 100  # nested directories of users, each of which needs a descriptor
_SPARSE = 1 << 30  # bytes from which a file with holes is not read
_ACCESS, _DEFAULT = "system.posix_acl_access", "system.posix_acl_default"  # acl(5)


def missing(layout: Layout, installation: Installation, left: Collection[str] | None = None) -> tuple[str, ...]:
    """The problems of an incomplete live installation, as short texts; () if it is complete. Checks names only.

    `left`: the tree's leftovers, if they are known.
    """
    root = installation.root
    stubs = [f"{layout.prefix}/modules/{stub.path}" for stub in installation.stubs]
    links = [f"{root}/{link.path}" for link in installation.links]
    lacks = [f"the modulefile {path} is missing" for path in stubs if not os.path.isfile(path)]
    lacks += [f"the link {path} is missing" for path in links if not os.path.lexists(path)]
    image = installation.image
    if image and not os.path.exists(f"{root}/{image.filename}") and not os.path.exists(image.path):
        lacks.append(f"the image {image.path} is missing")
    if live_number(layout, installation.module) != installation.generation:
        lacks.append(f"generation {installation.generation} is not the live one")
    if str(installation.module) in (leftovers(layout) if left is None else left):
        lacks.append(f"an earlier run for {installation.module} died and left files; `sifmod gc --yes` removes them")
    return tuple(lacks)


def edited(installation: Installation) -> tuple[str, ...]:
    """The paths of changed or missing files, programs that cannot run, changed links, and an image with another size.

    () if nothing was changed. Missing links are not included: see `missing`.
    """
    root, image = installation.root, installation.image
    found = [path for file in installation.files if not _is(path := f"{root}/{file.path}", file)]
    for link in installation.links:
        path = f"{root}/{link.path}"
        if os.path.lexists(path) and not (os.path.islink(path) and os.readlink(path) == link.target):  # noqa: PTH114, PTH115
            found.append(path)
    with suppress(OSError):
        if image and os.stat(image.path).st_size != image.size:  # noqa: PTH116 (texts)
            found.append(image.path)
    return tuple(found)


def edited_stubs(layout: Layout, installation: Installation) -> tuple[str, ...]:
    """A short text for each existing modulefile in the module tree that was changed."""
    stubs = ((f"{layout.prefix}/modules/{stub.path}", stub) for stub in installation.stubs)
    there = ((path, stub) for path, stub in stubs if os.path.lexists(path))
    return tuple(f"the modulefile {path} was changed" for path, stub in there if not _is(path, stub))


def _is(path: str, record: FileRecord) -> bool:
    """Whether the file's content matches the receipt, and a program is executable."""
    try:
        return sha256_bytes(read(path)) == record.sha256 and (not record.mode & 0o111 or os.access(path, os.X_OK))
    except OSError:
        return False


def leftovers(layout: Layout) -> tuple[str, ...]:
    """The names of locks, such as modules, with leftovers of runs that died on this node; () if none can be removed."""
    try:
        if not os.listdir(layout.staging) or not os.access(layout.staging, os.W_OK):  # a reader can remove none
            return ()
    except FileNotFoundError:
        return ()
    from sifmod.tree.locking import left_over

    return left_over(layout)


class Carried(NamedTuple):
    """The user's additions that were carried over to a new generation or not; paths relative to the generation."""

    carried: tuple[str, ...]  # now in the new generation too
    left: tuple[str, ...]  # only in the old one: a name that is taken, a special file, or what this user cannot read


def additions(installation: Installation) -> tuple[str, ...]:
    """Files, links and special files in the generation that its receipt does not name, sorted; raises OSError.

    A directory that is closed to this user, or too deep, is one path.
    """
    ours = installation.paths
    with opened(Path(installation.root), installation.prefix) as root:
        return tuple(sorted(path for path in _walk(root, installation.root, "") if path not in ours))


def changes(installation: Installation) -> tuple[str, ...]:
    """Files and links in the receipt that exist and were changed, relative and sorted."""
    root = f"{installation.root}/"
    there = (path for path in edited(installation) if path.startswith(root) and os.path.lexists(path))
    return tuple(sorted(path.removeprefix(root) for path in there))


def carry_over(installation: Installation, target: Path) -> Carried:
    """Give the generation at `target`, not yet in use, the additions of `installation`, durably; raises OSError.

    What its user removes meanwhile is neither carried nor left.
    """
    carried: list[str] = []
    left: list[str] = []
    for path in additions(installation):
        try:
            done = _copy(installation, path, target)
        except FileNotFoundError:
            if os.path.lexists(f"{installation.root}/{path}"):
                raise
            continue
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            done = False
        (carried if done else left).append(path)
    for directory in {parent for path in carried for parent in PurePosixPath(path).parents}:
        sync_directory(target / directory)
    return Carried(tuple(carried), tuple(left))


def only_in(installation: Installation, other: Installation | None) -> tuple[str, ...]:
    """The additions of `installation` without the same content in `other`; without another, all. Raises OSError."""
    if other is None or other.root == installation.root:
        return additions(installation)
    return tuple(
        path
        for path in additions(installation)
        if not _same_content(Path(installation.root, path), Path(other.root, path))
    )


def _walk(directory: int, place: str, inside: str, deeper: int = _DEEP) -> Iterator[str]:
    """The paths below an open directory; one that is too deep or closed to this user is a path itself."""
    with naming(f"{place}/{inside}"), os.scandir(directory) as entries:
        for entry in entries:
            path = inside + entry.name
            if not deeper or not entry.is_dir(follow_symlinks=False):
                yield path
                continue
            try:
                below = os.open(entry.name, DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
            except FileNotFoundError:
                continue
            except PermissionError:
                yield path
                continue
            with closing(below):
                yield from _walk(below, place, f"{path}/", deeper - 1)


def _copy(installation: Installation, path: str, generation: Path) -> bool:
    source, target = Path(installation.root, path), generation / path
    with opened(source.parent, installation.prefix) as directory:
        status = os.stat(source.name, dir_fd=directory, follow_symlinks=False)
        regular_file = stat.S_ISREG(status.st_mode)
        if os.path.lexists(target) or not (regular_file or stat.S_ISLNK(status.st_mode)):
            return False
        depth = path.count("/")  # the generation itself stays away after a fence
        for its, new in zip(reversed(source.parents[:depth]), reversed(target.parents[:depth]), strict=True):
            _make_directory(its, new)
        if not regular_file:
            target.symlink_to(os.readlink(source.name, dir_fd=directory))  # the exact text
            return True
        try:
            os.link(source.name, target, src_dir_fd=directory, follow_symlinks=False)
        except OSError:  # hard links are unsupported, too many, or not permitted for another user's file
            return _copied(source, installation.prefix, target)
    return True


def _make_directory(source: Path, target: Path) -> None:
    """Create a user's directory, if it is missing, closed to those to whom `source` is closed; root keeps its owner."""
    try:
        target.mkdir()
    except FileExistsError:
        return
    status = source.lstat()
    closed = ~status.st_mode & 0o057  # the tree's umask decides about the group's right to write
    closed |= sum(bits for bits in (stat.S_IRWXG, stat.S_IRWXO) if not status.st_mode & bits)
    kept = status.st_mode & (stat.S_ISVTX | stat.S_IWOTH) if status.st_mode & stat.S_ISVTX else 0
    with closing(os.open(target, DIRECTORY | os.O_NOFOLLOW)) as descriptor:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode) & ~closed | kept
        _give(descriptor, mode, status, _lists(source))


def _lists(place: int | Path) -> dict[str, bytes]:
    """The access control lists of an open file or of a path, by attribute, both empty without one."""
    found = dict.fromkeys((_ACCESS, _DEFAULT), b"")
    for name in found:
        with suppress(OSError):  # without one, or not supported
            found[name] = os.getxattr(place, name, follow_symlinks=isinstance(place, int))
    return found


def _give(descriptor: int, mode: int, status: os.stat_result, lists: dict[str, bytes]) -> None:
    """Give what was copied its mode, the group in `status` and its access control lists.

    A group that is not this user's cannot be given: the tree's group gets what others have then, and nobody but the
    owner what had a list. Root gives it to the owner too. With a list, the group's bits of a mode are a mask.
    """
    try:
        os.fchown(descriptor, status.st_uid if os.geteuid() == 0 else -1, status.st_gid)
    except PermissionError:
        mode &= stat.S_IRWXU if lists.get(_ACCESS) else 0o707 | mode << 3  # the tree's group gets what others have
        lists = {}
    for name in (_ACCESS, _DEFAULT):
        with suppress(OSError):  # none was inherited, or not supported
            os.removexattr(descriptor, name)
    os.fchmod(descriptor, mode & ~stat.S_IRWXG if lists.get(_ACCESS) else mode)
    for name, value in lists.items():
        if value:
            with suppress(OSError):  # then it stays closed
                os.setxattr(descriptor, name, value)


def _copied(source: Path, top: Path, target: Path) -> bool:
    """Copy what others may replace meanwhile, as a file of this user and so without setuid and setgid.

    False for a file that is closed to this user, or has holes and is larger than what is free.
    """
    import shutil

    with suppress(PermissionError), regular(source, top) as descriptor:
        status = os.fstat(descriptor)
        if status.st_size > max(2 * 512 * status.st_blocks, shutil.disk_usage(target.parent).free):
            return False
        with target.open("xb") as copy, open(descriptor, "rb", closefd=False) as file:
            shutil.copyfileobj(file, copy, 1 << 20)
            copy.flush()
            os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
            _give(copy.fileno(), status.st_mode & 0o777, status, _lists(descriptor))
            os.fsync(copy.fileno())
        return True
    return False


def _same_content(one: Path, other: Path) -> bool:
    if not os.path.lexists(other):
        return False
    first, second = one.lstat(), other.lstat()
    if (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino):
        return True
    if stat.S_IFMT(first.st_mode) != stat.S_IFMT(second.st_mode):
        return False
    if stat.S_ISLNK(first.st_mode):
        return os.readlink(one) == os.readlink(other)  # noqa: PTH115 (compared as text)
    if not stat.S_ISREG(first.st_mode) or first.st_size != second.st_size:
        return False
    if first.st_size > max(_SPARSE, 2 * 512 * first.st_blocks):  # holes cost their owner nothing, and a reader hours
        return False
    with suppress(PermissionError):  # what this user cannot read may differ
        return sha256_file(one) == sha256_file(other)
    return False
