"""Merge from the lowest layer to the uppermost, each applied to a tree in memory: for layers that depend on each other.

An entry whose parent is a symlink follows it inside the root; hard links refer to the file at that time. `merge_layers`
tries `top_down` first, which reads each layer once: this merge reads them all again, and those with unwritten data a
third time. Both give the same result; top_down.py names the tests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from sifmod.image.convert.budget import CpuWatch
from sifmod.image.convert.inode import OWNER, Content, Directory, File, Node, Plain, Symlink, content_of
from sifmod.image.convert.layers.ahead import ReadAhead
from sifmod.image.convert.layers.member import (
    DIRECTORY,
    HARD_LINK,
    OPAQUE,
    REGULAR,
    Attributes,
    Member,
    Parts,
    cleaned,
    is_whiteout,
    special_node,
    whited_out,
)
from sifmod.image.convert.layers.stream import Blob, Malformed, Stream, Warnings, naming, printable_name
from sifmod.image.convert.layers.tar import TarReader

_LINKS = 255  # symlinks on the path to one entry


@dataclass(slots=True, eq=False)
class _Folder(Directory):
    """A directory, the layer of its attributes, and the last layer of each entry."""

    explicit: int = 0
    layers: dict[bytes, int] = field(default_factory=dict)


def merge_bottom_up(
    layers: Sequence[Blob],
    contents: Sequence[Sequence[Content | Plain | None]],
    epoch: int,
    warnings: Warnings,
    watch: CpuWatch,
) -> tuple[Directory, list[dict[int, File]]]:
    """Apply `layers`, lowest first; returns the root, and for each layer its visible files without data, by number.

    `contents` are the files already written, for each layer and file; they and the returned list start with the
    uppermost layer. Raises like `merge_layers`.
    """
    tree = _Tree(epoch)
    missing: list[dict[int, File]] = []
    with ReadAhead(layers, lambda _read, _total: None) as ahead:
        for index, blob in enumerate(layers):
            above = len(layers) - 1 - index
            known = contents[above] if above < len(contents) else ()
            with naming(blob.digest), ahead.layer() as chunks:
                missing.insert(0, tree.layer(TarReader(Stream(chunks), warnings), known, watch))
    seen = _nodes(tree.root)
    return tree.root, [{number: file for number, file in files.items() if id(file) in seen} for files in missing]


class _Tree:
    def __init__(self, epoch: int) -> None:
        self._implicit: Attributes = (0o755, 0, 0, epoch, ())
        self.root = _Folder(*self._implicit)
        self._layer = 0

    def layer(self, reader: TarReader, known: Sequence[Content | Plain | None], watch: CpuWatch) -> dict[int, File]:
        """Apply the next layer above; returns its files without data."""
        self._layer += 1
        missing: dict[int, File] = {}
        number = -1
        for member in chain.from_iterable(watch.runs(reader.members())):
            parts = cleaned(member.name)
            if member.kind == REGULAR:
                number += 1
                content = known[number] if number < len(known) else None
                if isinstance(content, Plain):
                    content = content_of(content[OWNER.size :])
                file = File(*member.attributes, content or Content(member.size))
                if content is None:
                    missing[number] = file
                self._apply(parts, member, file)
            else:
                self._apply(parts, member, None)
        return missing

    def _apply(self, parts: Parts, member: Member, file: File | None) -> None:
        if not parts:
            if member.kind != DIRECTORY:
                raise Malformed("has an entry for the root that is not a directory")
            self._set_attributes(self.root, member.attributes)
        elif is_whiteout(parts[-1]):
            self._whiteout(parts)
        elif member.kind == DIRECTORY:
            self._set_attributes(self._folder(self._parent(parts), parts[-1]), member.attributes)
        else:
            node = file or (self._linked(member) if member.kind == HARD_LINK else special_node(member))
            folder = self._parent(parts)
            folder.entries[parts[-1]], folder.layers[parts[-1]] = node, self._layer

    def _set_attributes(self, folder: _Folder, attributes: Attributes) -> None:
        folder.mode, folder.uid, folder.gid, folder.mtime, folder.xattrs = attributes
        folder.explicit = self._layer

    def _folder(self, parent: _Folder, name: bytes) -> _Folder:
        """A directory in `parent`; created if missing, replacing an entry of another kind."""
        child = parent.entries.get(name)
        if not isinstance(child, _Folder):
            child = parent.entries[name] = _Folder(*self._implicit)
        parent.layers[name] = self._layer
        return child

    def _parent(self, parts: Parts) -> _Folder:
        """The directory of an entry, with symlinks followed; created if missing."""
        folder = self.root
        for name in self._resolved(parts[:-1]):
            folder = self._folder(folder, name)
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
            if not isinstance(found, _Folder):
                return None
            found = found.entries.get(name)
        return found

    def _linked(self, member: Member) -> Node:
        target = cleaned(member.target)
        found = self._at([*self._resolved(target[:-1]), *target[-1:]])
        if isinstance(found, Node) and not isinstance(found, _Folder):
            return found
        what = "a directory" if found else "nothing"
        raise Malformed(f"has a hard link to {what}: {printable_name(member.name)} to {printable_name(member.target)}")

    def _whiteout(self, parts: Parts) -> None:
        target = whited_out(parts[-1])
        folder = self._at(self._resolved(parts[:-1]))
        if target is None or not isinstance(folder, _Folder):
            return
        if target == OPAQUE:
            self._prune(folder)
        elif target in folder.entries and not self._removed(folder, target):
            child = folder.entries[target]
            if isinstance(child, _Folder):
                self._reset(child)
                self._prune(child)

    def _removed(self, folder: _Folder, name: bytes) -> bool:
        """Remove an entry that was only in lower layers; returns whether it was."""
        if folder.layers[name] == self._layer:
            return False
        del folder.entries[name], folder.layers[name]
        return True

    def _reset(self, folder: _Folder) -> None:
        """Reset a directory's attributes to the defaults, unless this layer sets them."""
        if folder.explicit != self._layer:
            folder.mode, folder.uid, folder.gid, folder.mtime, folder.xattrs = self._implicit
            folder.explicit = 0

    def _prune(self, folder: _Folder) -> None:
        """Remove everything in a directory that comes only from lower layers."""
        todo = [folder]
        while todo:
            folder = todo.pop()
            for name, child in list(folder.entries.items()):
                if not self._removed(folder, name) and isinstance(child, _Folder):
                    self._reset(child)
                    todo.append(child)


def _nodes(root: Directory) -> set[int]:
    """The ids of all nodes in a tree that are not directories."""
    seen: set[int] = set()
    todo = [root]
    while todo:
        for node in todo.pop().entries.values():
            if isinstance(node, Directory):
                todo.append(node)
            else:
                seen.add(id(node))
    return seen
