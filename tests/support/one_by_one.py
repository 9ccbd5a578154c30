"""Layers applied one by one to a real directory, the slow and simple way: what merging has to be equal to."""

import os
import shutil
import stat
import tarfile
from collections.abc import Sequence
from pathlib import Path

from support.layers import EPOCH, Entry, Seen

DEFAULT = (0o755, 0, 0, EPOCH)


class NothingThereError(Exception):
    """A hard link leads to nothing, or to a directory."""


class LoopError(Exception):
    """Symlinks lead round in a circle."""


class OneByOne:
    """A root below `base`. Attributes of directories are put on at the end, so that nothing is closed before."""

    def __init__(self, base: Path, *, tolerant: bool = False) -> None:
        self.base = os.fsencode(base)
        self.held = self.base + b".held"
        self.tolerant = tolerant  # of hard links that lead to nothing: they are empty files
        self.directories: dict[bytes, tuple[int, int, int, int]] = {self.base: DEFAULT}
        self.written: set[bytes] = set()  # by this layer
        self.explicit: set[bytes] = set()  # directories of this layer

    def layer(self, entries: Sequence[Entry]) -> None:
        self.written = {self.base}
        self.explicit = set()
        for entry in entries:
            self.entry(entry)

    def entry(self, entry: Entry) -> None:
        path = os.path.normpath("/" + entry.name.lstrip("/")).encode("utf-8", "surrogateescape")
        if path == b"/":
            self.explicit.add(self.base)
            self.directories[self.base] = attributes(entry)
            return
        head, name = os.path.split(path)
        if name.startswith(b".wh."):
            self.whiteout(self.inside(head), name)
            return
        if entry.kind == tarfile.LNKTYPE:
            self.hold(entry)
        place = os.path.join(self.made(self.inside(head)), name)
        if entry.kind == tarfile.DIRTYPE:
            self.made(place)
            self.directories[place] = attributes(entry)
            self.explicit.add(place)
        else:
            self.create(entry, place)
        self.written.add(place)

    def hold(self, entry: Entry) -> None:
        """Keep what a hard link leads to, in case making room for the link removes it."""
        head, name = os.path.split(os.path.normpath("/" + entry.target.lstrip("/")).encode())
        try:
            source = os.path.join(self.inside(head), name)
        except LoopError:
            source = b""
        if os.path.lexists(source) and not self.is_directory(source):
            os.link(source, self.held, follow_symlinks=False)
        elif self.tolerant:
            open(self.held, "wb").close()
        else:
            raise NothingThereError

    def create(self, entry: Entry, place: bytes) -> None:
        self.remove(place)
        match entry.kind:
            case tarfile.LNKTYPE:
                os.rename(self.held, place)
                return
            case tarfile.SYMTYPE:
                os.symlink(entry.target.encode(), place)
            case tarfile.FIFOTYPE:
                os.mkfifo(place)
            case tarfile.CHRTYPE:
                os.mknod(place, stat.S_IFCHR | 0o600, os.makedev(*entry.device))
            case _:
                with open(place, "wb") as file:
                    file.write(entry.content)
        if os.geteuid() == 0:
            os.chown(place, entry.uid, entry.gid, follow_symlinks=False)
        if entry.kind != tarfile.SYMTYPE:
            os.chmod(place, entry.mode)
        os.utime(place, (entry.mtime, entry.mtime), follow_symlinks=False)

    def inside(self, path: bytes) -> bytes:
        """Where a path leads, inside the root, whether it exists or not."""
        parts = [part for part in path.split(b"/") if part]
        done = self.base
        steps = 0
        while parts:
            steps += 1
            if steps > 2000:
                raise LoopError
            part = parts.pop(0)
            if part == b"..":
                done = done if done == self.base else os.path.dirname(done)
            elif part != b".":
                done = os.path.join(done, part)
                if os.path.islink(done):
                    target = os.readlink(done)
                    done = self.base if target.startswith(b"/") else os.path.dirname(done)
                    parts[:0] = [part for part in target.split(b"/") if part]
        return done

    def made(self, path: bytes) -> bytes:
        """The directory itself, made with all above it; what is in its place and none goes."""
        if path != self.base:
            self.made(os.path.dirname(path))
            if not self.is_directory(path):
                self.remove(path)
                os.mkdir(path)
                self.directories[path] = DEFAULT
        self.written.add(path)
        return path

    def whiteout(self, directory: bytes, name: bytes) -> None:
        if name == b".wh..wh..opq":
            if self.is_directory(directory):
                for child in os.listdir(directory):
                    self.hide(os.path.join(directory, child))
        elif not name.startswith(b".wh..wh.") and os.path.lexists(os.path.join(directory, name[4:])):
            self.hide(os.path.join(directory, name[4:]))

    def hide(self, path: bytes) -> None:
        """Remove what lower layers put at a path or below it."""
        if path not in self.written:
            self.remove(path)
        elif self.is_directory(path):
            if path not in self.explicit:
                self.directories[path] = DEFAULT
            for child in os.listdir(path):
                self.hide(os.path.join(path, child))

    def remove(self, path: bytes) -> None:
        below = path + b"/"
        for known in (self.directories, self.written, self.explicit):
            for gone in [each for each in known if each == path or each.startswith(below)]:
                known.pop(gone) if isinstance(known, dict) else known.discard(gone)
        if self.is_directory(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)

    @staticmethod
    def is_directory(path: bytes) -> bool:
        return os.path.isdir(path) and not os.path.islink(path)

    def finish(self) -> dict[bytes, Seen]:
        """What is there, read from the real directory."""
        for path in sorted(self.directories, reverse=True):
            mode, uid, gid, mtime = self.directories[path]
            if os.geteuid() == 0:
                os.chown(path, uid, gid)
            os.chmod(path, mode)
            os.utime(path, (mtime, mtime))
        found: dict[bytes, Seen] = {}
        first: dict[int, bytes] = {}
        self.visit(b".", self.base, found, first)
        return found

    def visit(self, name: bytes, path: bytes, found: dict[bytes, Seen], first: dict[int, bytes]) -> None:
        status = os.lstat(path)
        kind = KINDS[stat.S_IFMT(status.st_mode)]
        mode = stat.S_IMODE(status.st_mode)
        device = (os.major(status.st_rdev), os.minor(status.st_rdev)) if kind in "cb" else (0, 0)
        content = target = b""
        if kind == "file":
            with open(path, "rb") as file:
                content = file.read()
        elif kind == "symlink":
            target = os.readlink(path)
        met = first.setdefault(status.st_ino, name)
        owner = (status.st_uid, status.st_gid)
        found[name] = Seen(kind, mode, owner, int(status.st_mtime), content, target, device, met)
        if kind == "directory":
            for child in sorted(os.listdir(path)):
                self.visit(name + b"/" + child, os.path.join(path, child), found, first)


KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFCHR: "c",
    stat.S_IFBLK: "b",
}


def attributes(entry: Entry) -> tuple[int, int, int, int]:
    return entry.mode, entry.uid, entry.gid, entry.mtime
