"""Remove directory trees, also files of the user's subordinate ids; symlinks are not followed."""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from sifmod.system import subordinate_ids
from sifmod.tree.durable import DIRECTORY, closing, is_directory, is_refused, opened

_DEEP = 50  # nested directories, each of which needs a descriptor


def removable(path: Path) -> bool:
    """Whether this user can remove a directory tree; raises OSError if it cannot be read."""
    waiting = [] if os.geteuid() == 0 else [path]
    while waiting:
        if not is_directory(place := waiting.pop()):  # nor one that is too deep for a path
            continue
        if os.access(place, os.R_OK | os.W_OK | os.X_OK):
            inside = [*place.iterdir()]
            if not all(map(detachable, inside)):
                return False
            waiting += inside
            continue
        owner = place.lstat().st_uid
        if owner != os.geteuid() and not (_builder() and any(owner in ids for ids in subordinate_ids())):
            return False
    return True


def detachable(path: Path) -> bool:
    """Whether this user can rename or remove this name, apart from what is below it. Raises OSError."""
    above = path.parent.lstat()
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return False
    return not above.st_mode & stat.S_ISVTX or os.geteuid() in (0, above.st_uid, path.lstat().st_uid)


def states_below(path: Path) -> Iterator[os.stat_result]:
    """The status of all that is below a directory; links are not followed.

    Others may have made it: what is closed, too deep for a path or removed meanwhile is omitted. Raises other OSErrors.
    """
    waiting = [str(path)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    yield entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError as error:
            if not is_refused(error):
                raise


def remove_tree(path: Path, top: Path) -> None:
    """Remove a directory tree below `top`, including read-only directories; idempotent.

    Symlinks are not followed, even if one replaces a directory meanwhile. Files of the user's subordinate ids
    (subuid(5)) are removed if buildah or podman is available. Raises OSError.
    """
    try:
        with opened(path.parent, top) as directory:
            names = [path.name]
            try:
                while names:
                    _remove(directory, names[0], _DEEP, directory, names)
                    del names[0]
            except PermissionError:
                if not _remove_in_namespace(directory, names):
                    raise
    except FileNotFoundError:
        if os.path.lexists(path):
            raise


def _builder() -> str:
    import shutil  # no other command needs it

    return shutil.which("buildah") or shutil.which("podman") or ""


def _remove_in_namespace(directory: int, names: Sequence[str]) -> bool:
    """Remove files that a killed builder left with ids that this user has only in a user namespace; False on errors."""
    if os.geteuid() == 0 or not (program := _builder()) or not subordinate_ids():
        return False
    import subprocess

    command = (program, "unshare", "rm", "-rf", "--", *names)
    place, nothing = f"/proc/self/fd/{directory}", subprocess.DEVNULL
    return subprocess.run(command, cwd=place, stdin=nothing, capture_output=True, check=False).returncode == 0


def _remove(directory: int, name: str, depth: int, first: int, later: list[str]) -> None:
    """Remove `name` from an open directory; subtrees that are too deep move to `first`, their names to `later`."""
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=directory)
            return
        if not depth:
            later.append(f".{os.urandom(8).hex()}")
            os.rename(name, later[-1], src_dir_fd=directory, dst_dir_fd=first)
            return
        with closing(_open_to_empty(directory, name)) as inside:
            for child in os.listdir(inside):  # noqa: PTH208 (a descriptor)
                _remove(inside, child, depth - 1, first, later)
        os.rmdir(name, dir_fd=directory)
    except FileNotFoundError:
        pass


def _open_to_empty(directory: int, name: str) -> int:
    """A descriptor of a directory in an open one, after giving its owner all permissions."""
    with closing(os.open(name, os.O_PATH | DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)) as place:
        itself = f"/proc/self/fd/{place}"
        if not os.access(itself, os.R_OK | os.W_OK | os.X_OK):
            # another user's cannot be changed, and may need no change
            Path(itself).chmod(stat.S_IMODE(os.fstat(place).st_mode) | 0o700)
        return os.open(itself, DIRECTORY)


def prune(path: Path, top: Path) -> None:
    """Remove `path` and its parents below `top` while they are empty."""
    while path != top and top in path.parents:
        try:
            with opened(path.parent, top) as directory:
                os.rmdir(path.name, dir_fd=directory)
        except FileNotFoundError:
            pass
        except OSError:
            return
        path = path.parent
