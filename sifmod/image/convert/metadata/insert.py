"""Metadata's entries, put into the merged root file system."""

from collections.abc import Callable, Sequence

from sifmod.image.convert.inode import Content, Directory, File, Node, Plain, Symlink
from sifmod.image.convert.metadata.make import Entry

_MOST_LINKS = 40  # as Linux
_DEFINITION, _HISTORY = b"Singularity", b"bootstrap_history"


def insert_metadata(
    root: Directory, entries: Sequence[Entry], add: Callable[[bytes], Content], epoch: int
) -> tuple[str, ...]:
    """Put `entries` into `root`; the data of files goes through `add`. Returns warnings.

    What the image has at a place stays, unless the entry replaces it. Links are followed inside `root` only; where one
    leads to nothing, or a file stands in the way, an entry that replaces nothing is left out. New entries belong to
    root and have `epoch` as their time; no attribute of the image's own directories changes. A definition of an
    earlier build goes to `bootstrap_history`, as with Apptainer.
    """
    return tuple(
        f"/{entry.path} is not made: what the image has on the way to it is no directory"
        for entry in entries
        if not _put(root, entry, add, epoch)
    )


def _put(root: Directory, entry: Entry, add: Callable[[bytes], Content], epoch: int) -> bool:
    *parents, name = entry.path.encode().split(b"/")
    if entry.content is None and not entry.link:
        return directory_at(root, (*parents, name), entry.replaces, epoch) is not None
    directory = directory_at(root, parents, entry.replaces, epoch)
    if directory is None:
        return False
    if name in directory.entries and not entry.replaces:
        return True
    kept = name == _DEFINITION and name in directory.entries
    if kept and (history := directory_at(directory, (_HISTORY,), True, epoch)):
        history.entries[b"Apptainer%d" % len(history.entries)] = directory.entries.pop(_DEFINITION)
    attributes = (entry.mode, 0, 0, epoch, ())
    made = Symlink(attributes, entry.link.encode()) if entry.content is None else File(attributes, add(entry.content))
    directory.entries[name] = made
    return True


def directory_at(root: Directory, parts: Sequence[bytes], replaces: bool, epoch: int) -> Directory | None:
    """The directory of this path, made where it is missing; None where something else is in the way and may stay."""
    trail = [root]
    for name in parts:
        node = trail[-1].entries.get(name)
        way = way_to(trail, node) if isinstance(node, Symlink) else None
        if way is not None:
            trail = way
            continue
        if not isinstance(node, Directory):
            if node is not None and not replaces:
                return None
            node = Directory((0o755, 0, 0, epoch, ()))
            trail[-1].entries[name] = node
        trail.append(node)
    return trail[-1]


def way_to(trail: list[Directory], link: Symlink) -> list[Directory] | None:
    """The way from the root to the directory that `link`, an entry of the last of `trail`, leads to; None for none."""
    here, names, links = list(trail), list[bytes](), 0
    node: Node | Plain | None = link
    while True:
        if isinstance(node, Symlink):
            links += 1
            if links > _MOST_LINKS:
                return None
            names.extend(reversed(node.target.split(b"/")))
            del here[1 if node.target.startswith(b"/") else len(here) :]
        elif isinstance(node, Directory):
            here.append(node)
        else:
            return None
        while names and names[-1] in (b"", b".", b".."):
            if names.pop() == b"..":
                del here[max(1, len(here) - 1) :]
        if not names:
            return here
        node = here[-1].entries.get(names.pop())
