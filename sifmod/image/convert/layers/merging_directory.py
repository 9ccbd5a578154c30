"""A MergingDirectory: a directory while layers are merged, topmost first, and names that lower layers cannot add."""

from dataclasses import InitVar, dataclass, field

from sifmod.image.convert.inode import Directory, Entries
from sifmod.image.convert.layers.member import Attributes

_NONE: set[bytes] = set()  # one for all directories without such names, which most are


@dataclass(slots=True, eq=False)
class MergingDirectory:
    """A directory, the entries of the current layer, and names hidden from lower layers.

    Layers are counted from 1, the topmost. A directory that is not `real` is only known from whiteouts in it: it is not
    in the image until a layer has it.
    """

    implicit: InitVar[Attributes]
    layer: int  # the uppermost layer that uses it
    node: Directory = field(init=False)
    fresh: Entries = field(default_factory=dict)  # entries of this layer, merged into the node at its end
    directories: "dict[bytes, MergingDirectory]" = field(default_factory=dict)
    # names that lower layers cannot have, and directories that are not real
    hidden: set[bytes] = field(default_factory=lambda: _NONE)
    whiteouts: set[bytes] = field(default_factory=lambda: _NONE)  # of this layer
    opaque: bool = False  # closed at the end of this layer
    closed: bool = False  # lower layers have nothing in it
    sealed: bool = False  # lower layers have neither entries in it nor its attributes
    real: bool = False
    explicit: int = 0  # the layer of its attributes, 0: none yet
    touched: int = field(init=False)  # the lowest layer so far that uses it
    through: bool = True  # the layer `touched` had entries in the directory before the directory's own entry
    blocked: int = 0  # the lowest layer so far with a file at this path

    def __post_init__(self, implicit: Attributes) -> None:
        self.node = Directory(*implicit)
        self.touched = self.layer

    def child(self, name: bytes, implicit: Attributes, layer: int, *, real: bool) -> "MergingDirectory":
        """A new directory in this one, which `layer` uses first."""
        child = self.directories[name] = MergingDirectory(implicit, layer)
        if real:
            self.promote(name, child)
        else:
            self.hide(name)
        return child

    def promote(self, name: bytes, child: "MergingDirectory") -> None:
        """Make `child`, a directory in this one, part of the image."""
        child.real = True
        self.hidden.discard(name)
        self.fresh[name] = child.node

    def hide(self, name: bytes) -> None:
        """Hide `name` from lower layers; directories that hide nothing, which most are, share one empty set."""
        self.hidden = self.hidden or set()
        self.hidden.add(name)

    def white_out(self, name: bytes) -> None:
        """Hide `name` from lower layers, once the current layer has ended."""
        self.whiteouts = self.whiteouts or set()
        self.whiteouts.add(name)

    def end_layer(self) -> None:
        """Merge this layer's entries with those above, and apply its whiteouts to layers below."""
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
        """Replace what lower layers have at this path: they add neither entries nor attributes."""
        self.closed = self.sealed = True
        self.through = False
