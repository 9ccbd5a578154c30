"""What a directory was at certain moments, and the way back: only what has changed since is replaced.

A file is known to have a content while its inode and the time of its last change are those of when it was put there.
So a large image is copied once for all moments that have it. Directories, files and symbolic links come back with
owner, mode and time.
"""

import hashlib
import os
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

Identity = tuple[int, int]
UNKNOWN = "unknown"


class Entry(NamedTuple):
    """One path; `content` is the digest of a file, the target of a link, and empty for anything else."""

    mode: int
    uid: int
    gid: int
    modified: int
    content: str


@dataclass(frozen=True)
class Starts:
    """`top` as it was at moments that have names; the contents of its files are kept in `store`, outside it."""

    top: Path
    store: Path
    kept: dict[str, dict[Path, Entry]] = field(default_factory=dict)
    known: dict[Identity, str] = field(default_factory=dict)  # the content of each file that is unchanged

    def keep(self, name: str) -> None:
        """Keep what there is."""
        self.store.mkdir(exist_ok=True)
        entries = self._entries()
        for path, entry in entries.items():
            if entry.content == UNKNOWN:
                assert path.lstat().st_nlink == 1, f"{path} has another name, which would be lost"
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                if not (self.store / digest).exists():
                    shutil.copyfile(path, self.store / digest)
                self.known[_identity(path.lstat())] = digest
                entries[path] = entry._replace(content=digest)
        self.kept[name] = entries

    def put_back(self, name: str) -> None:
        """Make it what it was."""
        wanted, present = self.kept[name], self._entries()
        same = {path for path, entry in present.items() if path in wanted and _alike(entry, wanted[path])}
        for path in sorted(present.keys() - same, reverse=True):  # what is in a directory before the directory
            if stat.S_ISDIR(present[path].mode):
                path.rmdir()
            else:
                path.unlink()
        for path in (path for path in wanted if path not in same):
            self._make(path, wanted[path])
        self.known.clear()
        for path, entry in wanted.items():  # now that what is in a directory is there
            status = _dress(path, entry)
            if stat.S_ISREG(entry.mode):
                self.known[_identity(status)] = entry.content

    def _entries(self) -> dict[Path, Entry]:
        """Each path, a directory before what is in it."""
        found = {self.top: self._entry(self.top)} if self.top.exists() else {}
        for directory, directories, files in os.walk(self.top):
            paths = [Path(directory, name) for name in (*directories, *files)]
            found.update({path: self._entry(path) for path in paths})
        return found

    def _entry(self, path: Path) -> Entry:
        status = path.lstat()
        content = ""
        if stat.S_ISREG(status.st_mode):
            content = self.known.get(_identity(status), UNKNOWN)
        elif stat.S_ISLNK(status.st_mode):
            content = os.readlink(path)
        return Entry(status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, content)

    def _make(self, path: Path, entry: Entry) -> None:
        if stat.S_ISDIR(entry.mode):
            path.mkdir()
        elif stat.S_ISLNK(entry.mode):
            path.symlink_to(entry.content)
        else:
            shutil.copyfile(self.store / entry.content, path)


def _identity(status: os.stat_result) -> Identity:
    return status.st_ino, status.st_ctime_ns


def _alike(one: Entry, other: Entry) -> bool:
    return stat.S_IFMT(one.mode) == stat.S_IFMT(other.mode) and one.content == other.content


def _dress(path: Path, entry: Entry) -> os.stat_result:
    """Give it the owner, the mode and the time of the entry; its status then."""
    status = path.lstat()
    if (status.st_uid, status.st_gid) != (entry.uid, entry.gid):
        os.chown(path, entry.uid, entry.gid, follow_symlinks=False)
    if path.lstat().st_mode != entry.mode:  # which a change of the owner may change
        path.chmod(stat.S_IMODE(entry.mode))
    if status.st_mtime_ns != entry.modified:
        os.utime(path, ns=(entry.modified, entry.modified), follow_symlinks=False)
    return path.lstat()
