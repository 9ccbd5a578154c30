"""A directory of the merged root while lower layers may still add to it."""

from collections.abc import Set
from dataclasses import InitVar, dataclass, field

from sifmod.image.convert.inode import Directory, Entries
from sifmod.image.convert.layers.member import Attributes

_NONE: Set[bytes] = frozenset()


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
    hidden: Set[bytes] = _NONE  # names that lower layers cannot have, and directories that are not real
    whiteouts: Set[bytes] = _NONE  # of this layer
    opaque: bool = False  # by this layer: closed at its end
    closed: bool = False  # lower layers have nothing in it
    sealed: bool = False  # lower layers have nothing in it, nor its attributes
    real: bool = False
    explicit: int = 0  # the layer that gave its attributes, 0: none yet
    touched: int = field(init=False)  # the lowest layer so far that uses it
    through: bool = True  # that layer put something in it before it had an entry for it, if it has one
    blocked: int = 0  # the lowest layer so far that has a file in its place

    def __post_init__(self, implicit: Attributes) -> None:
        self.node = Directory(implicit)
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
        self.show(name)
        self.fresh[name] = child.node

    def hide(self, name: bytes) -> None:
        """Let lower layers have nothing of this name; most directories hide nothing, and have no set for it."""
        if isinstance(self.hidden, set):
            self.hidden.add(name)
        else:
            self.hidden = {name}

    def show(self, name: bytes) -> None:
        """The opposite."""
        if isinstance(self.hidden, set):
            self.hidden.discard(name)

    def white_out(self, name: bytes) -> None:
        """Hide a name of lower layers at the end of this one."""
        if isinstance(self.whiteouts, set):
            self.whiteouts.add(name)
        else:
            self.whiteouts = {name}

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
