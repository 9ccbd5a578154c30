"""Merge from the uppermost layer to the lowest, the usual way: read each once, skip files that upper layers hide.

Paths are compared as text, after `.` and `..` are resolved; symlinks in them are not followed. If applying layers in
sequence may give another result (an entry whose parent is a symlink in a lower layer, a hard link to a lower layer),
NeedsFullMerge is raised, and `merge_layers` starts again with `bottom_up`, which is slower. Both merges give the same
result: test_layers_random.py compares them with layers applied to a real directory, test_both_ways_give_the_same in
test_layers_quick.py with each other.
"""

from collections.abc import Iterator

from sifmod.image.convert.budget import CpuWatch
from sifmod.image.convert.inode import OWNER, Content, Directory, File, Node, Plain, Symlink, unpacked
from sifmod.image.convert.layers.member import (
    DIRECTORY,
    HARD_LINK,
    NAME,
    OPAQUE,
    REGULAR,
    SYMLINK,
    Attributes,
    Member,
    Parts,
    cleaned,
    is_whiteout,
    mark,
    marks,
    special_node,
    whited_out,
)
from sifmod.image.convert.layers.merging_directory import MergingDirectory
from sifmod.image.convert.layers.stream import Malformed
from sifmod.image.convert.layers.tar import TarReader
from sifmod.image.convert.squashfs.superblock import BLOCK
from sifmod.image.convert.squashfs.writer import DataWriter


class NeedsFullMerge(Exception):  # noqa: N818 - not an error: another way has to be taken
    """Layers cannot be merged by names alone."""


class TopDown:
    """The merge: call `layer` for each layer, the uppermost first, then `finish` once."""

    def __init__(self, data: DataWriter, epoch: int, watch: CpuWatch) -> None:
        self._watch = watch
        self._implicit: Attributes = (0o755, 0, 0, epoch, ())
        self._root = MergingDirectory(self._implicit, 0)
        self._root.real = True
        self._data = data
        self._layer = 0
        self._touched: list[MergingDirectory] = []  # by this layer
        self._seals: list[MergingDirectory] = []  # at this layer's end
        # directories by their path as this layer writes it; None if hidden
        self._heads: dict[bytes, MergingDirectory | None] = {}
        self._hidden: dict[Parts, Node | tuple[int, Member] | None] = {}  # of this layer: hidden files
        self._hidden_marks: set[int] = set()  # hashes of the paths in `_hidden`
        # hashes of parents of hidden entries, in case one is a symlink in a lower layer
        self._suspects: set[int] = set()
        self.contents: list[list[Content | Plain | None]] = []  # for each layer and each of its files, None: hidden
        self.missing: list[dict[int, File]] = []  # for each layer, files by number whose data was hidden

    def layer(self, reader: TarReader) -> None:
        """Merge the next layer below. Raises Malformed, NeedsFullMerge."""
        self._begin()
        for members in self._watch.runs(reader.members()):
            self._merge(reader, members)
        for directory in self._touched:
            directory.end_layer()
        for directory in self._seals:
            directory.seal()

    def finish(self) -> Directory:
        return self._root.node

    def _merge(self, reader: TarReader, members: Iterator[Member]) -> None:
        """Merge some members. This is the hot loop, for plain small files."""
        contents = self.contents[-1]
        directory_of, small = self._heads.get, self._data.small
        last, owner = None, b""
        for member in members:
            kind, name, attributes, size, _, _, extents = member
            if kind == REGULAR:
                head, _, tail = name.rpartition(b"/")
                if attributes is not last:
                    last, owner = attributes, b"" if attributes[4] else OWNER.pack(*attributes[:4])
                # "0" comes after ".", so whiteouts, `.` and `..` take the slow path
                if (
                    tail >= b"0"
                    and size < BLOCK
                    and (directory := directory_of(head))
                    and not (tail in directory.node.entries or tail in directory.fresh or tail in directory.hidden)
                    and len(tail) <= NAME
                    and extents is None
                    and owner
                ):
                    directory.fresh[tail] = plain = owner + small(reader.read(size))
                    contents.append(plain)
                    continue
                contents.append(None)
            self._slow(reader, member)

    def _begin(self) -> None:
        self._layer += 1
        self._touched = [self._root]
        self._root.touched = self._layer
        self._seals = []
        self._heads.clear()
        self._hidden.clear()
        self._hidden_marks.clear()
        self.contents.append([])
        self.missing.append({})

    def _slow(self, reader: TarReader, member: Member) -> None:
        parts = cleaned(member.name)
        if not parts:
            if member.kind != DIRECTORY:
                raise Malformed("has an entry for the root that is not a directory")
            self._set_attributes(self._root, member.attributes)
        elif is_whiteout(parts[-1]):
            self._whiteout(parts)
        elif member.kind == DIRECTORY:
            self._directory(parts, self._directory_of(member.name, parts), member.attributes)
        else:
            self._entry(reader, parts, self._directory_of(member.name, parts), member)

    def _directory_of(self, spelled: bytes, parts: Parts) -> MergingDirectory | None:
        """The directory of an entry, None if upper layers hide it."""
        head, _, tail = spelled.rstrip(b"/").rpartition(b"/")
        if tail != parts[-1]:  # it ends in `.` or `..`
            head = b"/".join(parts[:-1])
        if head not in self._heads:
            self._heads[head] = self._walk(parts[:-1], real=True)
        return self._heads[head]

    def _walk(self, parts: Parts, *, real: bool) -> MergingDirectory | None:
        """The directory of this path, created if missing; None if hidden or closed here. Raises NeedsFullMerge."""
        directory = self._root
        for depth, name in enumerate(parts):
            if directory.closed:
                self._hide(parts, depth)
                return None
            child = directory.directories.get(name)
            if child is None:
                if name in directory.fresh:
                    raise NeedsFullMerge
                if name in directory.node.entries or name in directory.hidden:
                    self._hide(parts, depth)
                    return None
                child = self._new_directory(directory, name, real=real)
            else:
                self._touch(child, explicit=False)
                if real and not child.real:
                    directory.promote(name, child)
            directory = child
        return None if directory.closed else directory

    def _hide(self, parts: Parts, depth: int) -> None:
        """Record the directories `parts` of a hidden entry, from the one at `depth` on. Raises NeedsFullMerge."""
        below = marks(parts)[depth:]
        self._suspects.update(below)
        if not self._hidden_marks.isdisjoint(below):
            raise NeedsFullMerge

    def _new_directory(self, parent: MergingDirectory, name: bytes, *, real: bool) -> MergingDirectory:
        directory = parent.child(name, self._implicit, self._layer, real=real)
        self._touched.append(directory)
        return directory

    def _touch(self, directory: MergingDirectory, *, explicit: bool) -> None:
        if directory.blocked == self._layer:
            raise NeedsFullMerge
        if directory.touched != self._layer:
            directory.touched = self._layer
            directory.through = not explicit
            self._touched.append(directory)

    def _set_attributes(self, directory: MergingDirectory, attributes: Attributes) -> None:
        if not directory.sealed and directory.explicit in (0, self._layer):
            directory.explicit = self._layer
            node = directory.node
            node.mode, node.uid, node.gid, node.mtime, node.xattrs = attributes

    def _whiteout(self, parts: Parts) -> None:
        target = whited_out(parts[-1])
        if target is None:
            return
        directory = self._walk(parts[:-1], real=False)
        if directory is None:
            return
        if target == OPAQUE:
            directory.opaque = True
            for name, child in directory.directories.items():
                self._suspect((*parts[:-1], name), child)
            return
        directory.white_out(target)
        if target in directory.directories:
            self._suspect((*parts[:-1], target), directory.directories[target])

    def _suspect(self, parts: Parts, directory: MergingDirectory) -> None:
        """Record paths where this layer may have added entries before it removed those of lower layers."""
        todo = [(mark(parts), directory)]
        while todo:
            above, directory = todo.pop()
            if directory.touched == self._layer:
                if directory.through:
                    self._suspects.add(above)
                todo += [(hash((above, name)), child) for name, child in directory.directories.items()]

    def _directory(self, parts: Parts, directory: MergingDirectory | None, attributes: Attributes) -> None:
        self._forget(parts)
        if directory is None:
            return
        name = parts[-1]
        child = directory.directories.get(name)
        if child is not None:
            self._touch(child, explicit=True)
            if not child.real:
                directory.promote(name, child)
        else:
            replaced = name in directory.fresh
            if replaced and mark(parts) in self._suspects:
                raise NeedsFullMerge
            if not replaced and (name in directory.node.entries or name in directory.hidden):
                return
            child = self._new_directory(directory, name, real=True)
            child.through = False
            if replaced:
                self._seals.append(child)
        self._set_attributes(child, attributes)

    def _entry(self, reader: TarReader, parts: Parts, directory: MergingDirectory | None, member: Member) -> None:
        found = self._target(member) if member.kind == HARD_LINK else None
        leads = member.kind == SYMLINK or (member.kind == HARD_LINK and (found is None or isinstance(found, Symlink)))
        if leads and mark(parts) in self._suspects:
            raise NeedsFullMerge
        self._forget(parts)
        if directory is not None and self._free(parts, directory, leads=leads):
            directory.fresh[parts[-1]] = self._seen(found) if member.kind == HARD_LINK else self._node(reader, member)
            return
        if member.kind == REGULAR:
            found = len(self.contents[-1]) - 1, member
        elif member.kind != HARD_LINK:
            found = special_node(member)
        self._hidden[parts] = found
        self._hidden_marks.add(mark(parts))

    def _forget(self, parts: Parts) -> None:
        """Drop the hidden entry of this layer at a path, which has another entry now."""
        if self._hidden:
            self._hidden.pop(parts, None)
            self._hidden_marks.discard(mark(parts))

    def _free(self, parts: Parts, directory: MergingDirectory, *, leads: bool) -> bool:
        """Whether an entry that is not a directory is visible; if so, earlier entries of its layer are removed.

        `leads`: it is a symlink, or may be one. Raises NeedsFullMerge.
        """
        name = parts[-1]
        child = directory.directories.get(name)
        if child is None:
            return name in directory.fresh or not (name in directory.node.entries or name in directory.hidden)
        above = child.layer != self._layer
        if leads and (child.through or (above and name in directory.fresh)):
            raise NeedsFullMerge
        if not child.real or name in directory.fresh:
            # the directory is removed, but this layer's entries went elsewhere if a lower layer has links there
            self._suspect(parts, child)
            if above:
                self._suspects.add(mark(parts))
        self._heads.clear()
        if child.real and name not in directory.fresh:  # an upper layer's directory
            if child.touched == self._layer:
                raise NeedsFullMerge
            child.blocked = self._layer
            self._seals.append(child)
            return False
        del directory.directories[name]
        directory.hidden.discard(name)
        return True

    def _node(self, reader: TarReader, member: Member) -> Node:
        if member.kind != REGULAR:
            return special_node(member)
        content = reader.copy(member.size, member.extents, self._data)
        self.contents[-1][-1] = content
        return File(*member.attributes, content)

    def _target(self, member: Member) -> Node | tuple[int, Member] | None:
        """The target of a hard link in the same layer: a node, or a hidden file; None if it is not in this layer."""
        target = cleaned(member.target)
        directory: MergingDirectory | None = self._root
        for name in target[:-1]:
            directory = directory and directory.directories.get(name)
        node = directory.fresh.get(target[-1]) if directory and target else None
        if directory and isinstance(node, Plain):
            node = directory.fresh[target[-1]] = unpacked(node)
        if node is None or isinstance(node, Directory | Plain):
            return self._hidden.get(target)
        return node

    def _seen(self, found: Node | tuple[int, Member] | None) -> Node:
        """The node of a visible hard link; its data is read later if it was hidden. Raises NeedsFullMerge for None."""
        if found is None:
            raise NeedsFullMerge
        if isinstance(found, Node):
            return found
        number, member = found
        missing = self.missing[-1]
        if number not in missing:
            missing[number] = File(*member.attributes, Content(member.size))
        return missing[number]
