"""Merge the layers of an image to one root file system, passing file data to a writer.

The layers are read first (read_layers.py), then applied to a tree in memory, the lowest first. An entry whose parent is
a symlink follows it inside the root; hard links refer to the file at that time.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from sifmod.image.convert.budget import UNLIMITED, Budget, CpuWatch
from sifmod.image.convert.inode import (
    Content,
    Directory,
    Entries,
    File,
    Node,
    Plain,
    Socket,
    Symlink,
    directories,
    unpacked,
)
from sifmod.image.convert.layers.ahead import Progress, ReadAhead
from sifmod.image.convert.layers.member import (
    DIRECTORY,
    HARD_LINK,
    OPAQUE,
    REGULAR,
    Attributes,
    Member,
    Parts,
    cleaned,
    special_node,
)
from sifmod.image.convert.layers.read_layers import Files, LayersReader, Record, Special, Whiteout
from sifmod.image.convert.layers.stream import Blob, Malformed, Stream, Warnings, naming, printable_name
from sifmod.image.convert.layers.tar import TarReader
from sifmod.image.convert.squashfs.writer import DataWriter

_LINKS = 255  # symlinks on the path to one entry


class Merged(NamedTuple):
    """A root file system, and warnings about dropped and skipped parts of the layers."""

    root: Directory
    warnings: tuple[str, ...]


def merge_layers(
    layers: Sequence[Blob], data: DataWriter, *, epoch: int, progress: Progress, budget: Budget = UNLIMITED
) -> Merged:
    """Merge `layers`, lowest first, with the result of applying them in sequence (OCI image specification).

    The data of each visible file goes to `data`, once. `epoch` is the mtime of directories without an entry in any
    layer (0755, root). Each layer is read once, the uppermost first, and a second time only for data of files that an
    upper layer hides by their path but not by another one. The result does not depend on `budget`. Raises
    ImageError for unreadable data, naming the layer, and for a tree that exceeds the budget's memory, and errors of the
    blobs and `data`.
    """
    warnings, watch = Warnings(), CpuWatch(budget.memory)
    reader, records = LayersReader(data, watch), list[Record]()
    with ReadAhead(layers[::-1], progress, budget.processors) as ahead:
        for blob in layers[::-1]:
            with naming(blob.digest), ahead.layer() as chunks:
                records.append(reader.read(TarReader(Stream(chunks), warnings)))
    del reader
    tree, missing = _LayeredTree(epoch), list[dict[int, File]]()
    for blob in layers:
        with naming(blob.digest):
            missing.insert(0, tree.apply(blob.digest, records.pop(), watch))
    if any(missing) or tree.broken:
        seen = {
            node
            for directory in directories(tree.root)
            for node in directory.entries.values()
            if isinstance(node, File | Socket)
        }
        for node, (digest, error) in tree.broken.items():
            if node in seen:
                with naming(digest):
                    raise error
        visible = [{number: file for number, file in files.items() if file in seen} for files in missing]
        _fetch([(blob, files) for blob, files in zip(layers[::-1], visible, strict=True) if files], data)
    total = sum(blob.size for blob in layers)
    progress(total, total)
    return Merged(tree.root, warnings.texts())


def _fetch(wanted: Sequence[tuple[Blob, dict[int, File]]], data: DataWriter) -> None:
    """Read layers again for the data of files, each layer's by their number among its regular files."""
    with ReadAhead([blob for blob, _ in wanted], lambda _read, _total: None) as ahead:
        for blob, files in wanted:
            with naming(blob.digest), ahead.layer() as chunks:
                number = -1
                reader = TarReader(Stream(chunks), Warnings())
                for member in reader.members():
                    if member.kind == REGULAR:
                        number += 1
                        if number in files:
                            files[number].content = reader.copy(member.size, member.extents, data)


class _LayeredTree:
    """The root directory `root`, to which `apply` adds one layer after the other."""

    def __init__(self, epoch: int) -> None:
        self._implicit: Attributes = (0o755, 0, 0, epoch, ())
        self.root = Directory(*self._implicit)
        self.broken: dict[Node, tuple[str, Malformed]] = {}  # in place of hard links to nothing: layer and error
        self._digest = ""  # of the layer
        self._whiteouts = False  # whether this layer has some
        self._begin()

    def _begin(self) -> None:
        """Forget what the last layer did."""
        self._folders: dict[Parts, Directory] = {}  # by path, symlinks followed
        self._fresh: defaultdict[Directory, set[bytes]] = defaultdict(set)  # names that this layer uses
        self._explicit: set[Directory] = set()  # with attributes of this layer
        self._missing: dict[int, File] = {}

    def apply(self, digest: str, record: Record, watch: CpuWatch) -> dict[int, File]:
        """Apply the next layer; returns its files without data, by number. Raises Malformed, and ImageError."""
        self._digest = digest
        self._whiteouts = any(isinstance(entry, Whiteout) for entry in record)
        for entry in chain.from_iterable(watch.runs(iter(record))):
            if isinstance(entry, Files):
                self._add(self._folder_of(cleaned(entry.head)), entry.files)
            elif isinstance(entry, Whiteout):
                self._remove(entry)
            else:
                self._apply(cleaned(entry.member.name), entry)
        missing = self._missing
        self._begin()
        return missing

    def _apply(self, parts: Parts, entry: Special) -> None:
        member = entry.member
        if not parts:
            if member.kind != DIRECTORY:
                raise Malformed("has an entry for the root that is not a directory")
            self._set_attributes(self.root, member.attributes)
        elif member.kind == DIRECTORY:
            folder = self._folder(self._folder_of(parts[:-1]), parts[-1])
            self._folders[parts] = folder
            self._set_attributes(folder, member.attributes)
        else:
            node = self._node(entry)
            self._add(self._folder_of(parts[:-1]), {parts[-1]: node})

    def _add(self, folder: Directory, new: Entries) -> None:
        """Put entries that are no directories into a folder, which may take over `new` itself."""
        replaced = folder.entries.keys() & new.keys()
        if any(isinstance(folder.entries[name], Directory | Symlink) for name in replaced):
            self._folders.clear()
        if folder.entries:
            folder.entries.update(new)
        else:
            folder.entries = new
        self._use(folder, new)

    def _use(self, folder: Directory, names: Iterable[bytes]) -> None:
        """Note what this layer's whiteouts do not remove; most layers have none, and large ones many names."""
        if self._whiteouts:
            self._fresh[folder].update(names)

    def _node(self, entry: Special) -> Node:
        """The node of a file, link, device or pipe."""
        member = entry.member
        if member.kind == HARD_LINK:
            return self._linked(member)
        if member.kind != REGULAR:
            return special_node(member)
        file = File(*member.attributes, entry.content or Content(member.size))
        if entry.content is None:
            self._missing[entry.number] = file
        return file

    def _set_attributes(self, folder: Directory, attributes: Attributes) -> None:
        folder.mode, folder.uid, folder.gid, folder.mtime, folder.xattrs = attributes
        self._explicit.add(folder)

    def _folder(self, parent: Directory, name: bytes) -> Directory:
        """A directory in `parent`; created if missing, replacing an entry of another kind."""
        child = parent.entries.get(name)
        if not isinstance(child, Directory):
            if child is not None:
                self._folders.clear()
            child = parent.entries[name] = Directory(*self._implicit)
        self._use(parent, (name,))
        return child

    def _folder_of(self, parts: Parts) -> Directory:
        """The directory of this path, with symlinks followed; created if missing."""
        if known := self._folders.get(parts):
            return known
        above = self._folders.get(parts[:-1]) if parts else None
        if above and not isinstance(above.entries.get(parts[-1]), Symlink):
            folder = self._folder(above, parts[-1])
        else:
            folder = self.root
            for name in self._resolved(parts):
                folder = self._folder(folder, name)
        self._folders[parts] = folder
        return folder

    def _resolved(self, parts: Parts) -> list[bytes]:
        """A path with its symlinks followed; `..` stops at the root. Raises Malformed for a loop."""
        todo = list(reversed(parts))
        done: list[bytes] = []
        links = 0
        while todo:
            name = todo.pop()
            if name == b"..":
                del done[-1:]
            elif name not in (b"", b"."):
                link = self._at([*done, name])
                if not isinstance(link, Symlink):
                    done.append(name)
                    continue
                links += 1
                if links > _LINKS:
                    raise Malformed(f"has an entry below a loop of symlinks: {printable_name(b'/'.join(parts))}")
                todo += reversed(link.target.split(b"/"))
                if link.target.startswith(b"/"):
                    done.clear()
        return done

    def _at(self, parts: Sequence[bytes]) -> Node | Plain | None:
        found: Node | Plain | None = self.root
        for name in parts:
            if not isinstance(found, Directory):
                return None
            found = found.entries.get(name)
        return found

    def _linked(self, member: Member) -> Node:
        """The node of a hard link; a Socket in place of one to nothing, since an upper layer may remove it."""
        *above, name = cleaned(member.target) or (b"",)  # the root has no name
        folder = self._folders.get(tuple(above)) or self._at(self._resolved(tuple(above)))
        found: Node | Plain | None = None
        if isinstance(folder, Directory):
            found = folder.entries.get(name) if name else folder
            if isinstance(found, Plain):
                found = folder.entries[name] = unpacked(found)
        if isinstance(found, Node) and not isinstance(found, Directory | Socket):
            return found
        what = "a directory" if isinstance(found, Directory) else "nothing"
        names = f"{printable_name(member.name)} to {printable_name(member.target)}"
        broken = Socket(*member.attributes)
        self.broken[broken] = self._digest, Malformed(f"has a hard link to {what}: {names}")
        return broken

    def _remove(self, whiteout: Whiteout) -> None:
        folder, name = self._at(self._resolved(whiteout.directory)), whiteout.name
        if not isinstance(folder, Directory):
            return
        if name == OPAQUE:
            self._prune(folder)
        elif name in folder.entries and not self._removed(folder, name):
            child = folder.entries[name]
            if isinstance(child, Directory):
                self._reset(child)
                self._prune(child)

    def _removed(self, folder: Directory, name: bytes) -> bool:
        """Remove an entry that was only in lower layers; returns whether it was."""
        if name in self._fresh[folder]:
            return False
        del folder.entries[name]
        self._folders.clear()
        return True

    def _reset(self, folder: Directory) -> None:
        """Reset a directory's attributes to the defaults, unless this layer sets them."""
        if folder not in self._explicit:
            folder.mode, folder.uid, folder.gid, folder.mtime, folder.xattrs = self._implicit

    def _prune(self, folder: Directory) -> None:
        """Remove everything in a directory that comes only from lower layers."""
        todo = [folder]
        while todo:
            folder = todo.pop()
            for name, child in list(folder.entries.items()):
                if not self._removed(folder, name) and isinstance(child, Directory):
                    self._reset(child)
                    todo.append(child)
