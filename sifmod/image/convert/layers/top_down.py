"""The merge from the uppermost layer to the lowest: each is read once, and only what is seen is written. The usual way.

Names are compared as they are spelled. Where layers applied one after the other would give something else (an entry
whose parent is a symlink in a lower layer, a hard link to a lower layer), it raises Entangled, and `merge_layers`
begins again with `bottom_up`, which is slower. Both ways give the same: test_layers_random.py compares them with
layers applied to a real directory, test_both_ways_give_the_same in test_layers_quick.py with each other.
"""

from collections.abc import Iterator
from dataclasses import InitVar, dataclass, field

from sifmod.image.convert.budget import Watch
from sifmod.image.convert.inode import OWNER, Content, Directory, Entries, File, Node, Plain, Symlink, unpacked
from sifmod.image.convert.layers.stream import Malformed
from sifmod.image.convert.layers.tar import (
    DIRECTORY,
    HARD_LINK,
    NAME,
    OPAQUE,
    REGULAR,
    SYMLINK,
    Attributes,
    Member,
    Parts,
    TarReader,
    cleaned,
    is_whiteout,
    mark,
    marks,
    special_node,
    whited_out,
)
from sifmod.image.convert.squashfs.superblock import BLOCK
from sifmod.image.convert.squashfs.writer import DataWriter

_NONE: set[bytes] = set()  # shared: most directories have nothing of the sort


@dataclass(slots=True, eq=False)
class MergingDirectory:
    """A directory, what the layer being read added to it, and what it hides from lower layers.

    Layers are counted from 1, the topmost. One that is not `real` is known by whiteouts inside it alone: it is
    no directory of the image until some layer has one there.
    """

    implicit: InitVar[Attributes]
    layer: int  # the uppermost that uses it
    node: Directory = field(init=False)
    fresh: Entries = field(default_factory=dict)  # entries of this layer, which join the node's at its end
    directories: "dict[bytes, MergingDirectory]" = field(default_factory=dict)
    # names that lower layers cannot have, and directories that are not real
    hidden: set[bytes] = field(default_factory=lambda: _NONE)
    whiteouts: set[bytes] = field(default_factory=lambda: _NONE)  # of this layer
    opaque: bool = False  # by this layer: closed at its end
    closed: bool = False  # lower layers have nothing in it
    sealed: bool = False  # lower layers have nothing in it, nor its attributes
    real: bool = False
    explicit: int = 0  # the layer that gave its attributes, 0: none yet
    touched: int = field(init=False)  # the lowest layer so far that uses it
    through: bool = True  # that layer put something in it before it had an entry for it, if it has one
    blocked: int = 0  # the lowest layer so far that has a file in its place

    def __post_init__(self, implicit: Attributes) -> None:
        self.node = Directory(*implicit)
        self.touched = self.layer

    def child(self, name: bytes, implicit: Attributes, layer: int, *, real: bool) -> "MergingDirectory":
        """A new directory in it, by this layer."""
        child = self.directories[name] = MergingDirectory(implicit, layer)
        if real:
            self.promote(name, child)
        else:
            self.hide(name)
        return child

    def promote(self, name: bytes, child: "MergingDirectory") -> None:
        """Make a directory of the image of one in it."""
        child.real = True
        self.hidden.discard(name)
        self.fresh[name] = child.node

    def hide(self, name: bytes) -> None:
        """Let lower layers have nothing of this name; most directories hide nothing, and have no set for it."""
        self.hidden = self.hidden or set()
        self.hidden.add(name)

    def white_out(self, name: bytes) -> None:
        """Hide a name of lower layers at the end of this one."""
        self.whiteouts = self.whiteouts or set()
        self.whiteouts.add(name)

    def end_layer(self) -> None:
        """Let this layer's entries join those above, and its whiteouts hide what is below."""
        if self.fresh:
            if self.node.entries:
                self.node.entries.update(self.fresh)
            else:
                self.node.entries = self.fresh
            self.fresh = {}
        for name in self.whiteouts:
            child = self.directories.get(name)
            if child is not None and child.real:
                child.seal()
            elif name not in self.node.entries:
                self.directories.pop(name, None)
                self.hide(name)
        self.whiteouts = _NONE
        self.closed = self.closed or self.opaque

    def seal(self) -> None:
        """Whatever lower layers have in its place is gone, and it is a directory of its own."""
        self.closed = self.sealed = True
        self.through = False


class Entangled(Exception):  # noqa: N818 - not an error: another way has to be taken
    """Layers cannot be merged by names alone."""


class TopDown:
    """The merge. `layer` is called for each layer, then `finish` once."""

    def __init__(self, data: DataWriter, epoch: int, watch: Watch) -> None:
        self._watch = watch
        self._implicit: Attributes = (0o755, 0, 0, epoch, ())
        self._root = MergingDirectory(self._implicit, 0)
        self._root.real = True
        self._data = data
        self._layer = 0
        self._touched: list[MergingDirectory] = []  # by this layer
        self._seals: list[MergingDirectory] = []  # at this layer's end
        # of this layer: a path as it spells it, None where that is hidden
        self._heads: dict[bytes, MergingDirectory | None] = {}
        self._hidden: dict[Parts, Node | tuple[int, Member] | None] = {}  # of this layer: what no other layer shows
        self._hidden_marks: set[int] = set()  # of what is in `_hidden`
        self._suspects: set[int] = set()  # marks of parents of entries not seen: had a symlink been there, it led on
        self.contents: list[list[Content | Plain | None]] = []  # for each layer and each of its files, None: hidden
        self.missing: list[dict[int, File]] = []  # for each layer, files by number whose data was hidden

    def layer(self, reader: TarReader) -> None:
        """Merge the next layer below. Raises Malformed, Entangled."""
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
        """Merge some members. The loop is the hot one, for plain small files."""
        contents = self.contents[-1]
        directory_of, small = self._heads.get, self._data.small
        last, owner = None, b""
        for member in members:
            kind, name, attributes, size, _, _, extents = member
            if kind == REGULAR:
                head, _, tail = name.rpartition(b"/")
                if attributes is not last:
                    last, owner = attributes, b"" if attributes[4] else OWNER.pack(*attributes[:4])
                # "0" comes after ".", so whiteouts, `.` and `..` go the long way
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
                raise Malformed("has an entry for the root that is no directory")
            self._set_attributes(self._root, member.attributes)
        elif is_whiteout(parts[-1]):
            self._whiteout(parts)
        elif member.kind == DIRECTORY:
            self._directory(parts, self._directory_of(member.name, parts), member.attributes)
        else:
            self._entry(reader, parts, self._directory_of(member.name, parts), member)

    def _directory_of(self, spelled: bytes, parts: Parts) -> MergingDirectory | None:
        """Where an entry belongs, None if upper layers hide that."""
        head, _, tail = spelled.rstrip(b"/").rpartition(b"/")
        if tail != parts[-1]:  # it ends in `.` or `..`
            head = b"/".join(parts[:-1])
        if head not in self._heads:
            self._heads[head] = self._walk(parts[:-1], real=True)
        return self._heads[head]

    def _walk(self, parts: Parts, *, real: bool) -> MergingDirectory | None:
        """The directory of this path, made where it is missing; None if it is hidden, or closed to this layer."""
        directory = self._root
        for depth, name in enumerate(parts):
            if directory.closed:
                self._hide(parts, depth)
                return None
            child = directory.directories.get(name)
            if child is None:
                if name in directory.fresh:
                    raise Entangled
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
        """Keep in mind that an entry that is not seen, because of what is at `depth`, has these parents."""
        below = marks(parts)[depth:]
        self._suspects.update(below)
        if not self._hidden_marks.isdisjoint(below):
            raise Entangled

    def _new_directory(self, parent: MergingDirectory, name: bytes, *, real: bool) -> MergingDirectory:
        directory = parent.child(name, self._implicit, self._layer, real=real)
        self._touched.append(directory)
        return directory

    def _touch(self, directory: MergingDirectory, *, explicit: bool) -> None:
        if directory.blocked == self._layer:
            raise Entangled
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
        """Keep in mind where this layer may have put something before what is below was removed."""
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
                raise Entangled
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
            raise Entangled
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
        """What this layer had here, hidden, is replaced."""
        if self._hidden:
            self._hidden.pop(parts, None)
            self._hidden_marks.discard(mark(parts))

    def _free(self, parts: Parts, directory: MergingDirectory, *, leads: bool) -> bool:
        """Whether an entry that is no directory is seen; if so nothing of its own layer is left in its place.

        `leads`: it is a symlink, or may be one.
        """
        name = parts[-1]
        child = directory.directories.get(name)
        if child is None:
            return name in directory.fresh or not (name in directory.node.entries or name in directory.hidden)
        above = child.layer != self._layer
        if leads and (child.through or (above and name in directory.fresh)):
            raise Entangled
        if (
            not child.real or name in directory.fresh
        ):  # it goes, and what lower layers have below it does not matter, but
            self._suspect(parts, child)
            if above:
                self._suspects.add(mark(parts))
        self._heads.clear()
        if child.real and name not in directory.fresh:  # an upper layer's directory
            if child.touched == self._layer:
                raise Entangled
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
        """What a hard link leads to, if that is in its own layer: a node, or a file that is hidden."""
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
        """The node of a hard link that is seen; its data is fetched later if it was hidden."""
        if found is None:
            raise Entangled
        if isinstance(found, Node):
            return found
        number, member = found
        missing = self.missing[-1]
        if number not in missing:
            missing[number] = File(*member.attributes, Content(member.size))
        return missing[number]
