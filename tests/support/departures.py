"""Where apptainer's SIF departs from the OCI image specification, or sifmod from apptainer where that says nothing.

Written down for people in docs/images.md. The names are those of the stacks.
"""

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from support.conversion import FEWER, NOW
from support.filesystem import Difference, digest_of_data
from support.layer_stacks import HOSTS, RESOLVERS
from support.tar_forms import LONG
from support.ustar import MTIME

CREATED = "1735689600"  # when write_layout says that its images were made
LAST = str(2**32 - 1)


def implied(*paths: str) -> frozenset[Difference]:
    """Directories that no layer names: 0755 and the image's own time here, 0775 and the time of the pull there."""
    modes = (Difference(path, "mode", "0755", "0775") for path in paths)
    times = (Difference(path, "mtime", CREATED, NOW) for path in paths)
    return frozenset((*modes, *times))


def touched(*paths: str) -> frozenset[Difference]:
    """Directories in which apptainer made or removed something after it had given them the layer's time."""
    return frozenset(Difference(path, "mtime", str(MTIME), NOW) for path in paths)


def emptied(path: str, data: bytes) -> frozenset[Difference]:
    """A file of the image that apptainer replaces by an empty one."""
    size = Difference(path, "size", str(len(data)), "0")
    return touched(path) | {size, Difference(path, "content", digest_of_data(data), digest_of_data(b""))}


def _parents(path: str) -> Iterable[str]:
    return (str(parent) for parent in PurePosixPath(path).parents if parent.name)


def _linked(*names: str) -> frozenset[Difference]:
    return frozenset(Difference(name, "names", " ".join(sorted(names)), FEWER) for name in names)


EVERYWHERE = touched(".") | emptied("etc/hosts", HOSTS) | emptied("etc/resolv.conf", RESOLVERS)

_BUILT = frozenset(Difference(path, "mtime", CREATED, NOW) for path in (".", "dev", "etc"))


def unexplained(found: Iterable[Difference]) -> frozenset[Difference]:
    """What should not differ in an image of scripts/build-demo-image; two files of its /etc are its builder's."""
    return frozenset(one for one in found if one.path not in ("etc/hosts", "etc/resolv.conf")) - _BUILT


_IMPLIED_NAMES = {
    *_parents(LONG[:90].rpartition("/")[0]),
    *(parent for parent in _parents(f"pax/{LONG}/file") if parent != "pax"),
    *_parents(f"gnu/{LONG}/file"),
    *_parents(f"ustar/{'d' * 100}/{'e' * 40}/file"),
}

DEPARTURES: Mapping[str, frozenset[Difference]] = {
    "whiteouts": implied(".wh..wh.plnk") | touched("as-directory"),
    "hard-links": _linked("symlink", "same-symlink", "third-symlink"),
    "symlinked-paths": implied("not", "not/there"),
    "missing-parents": implied("implied", "implied/inner", "removed", "removed/new"),
    "forty-layers": implied("n"),
    # apptainer's directory has the attributes of the file that it replaces
    "files-below-files": implied("two", "two/directory")
    | {
        Difference("one", "mode", "0755", "0640"),
        Difference("one", "owner", "0:0", "5:6"),
        Difference("one", "mtime", CREATED, str(MTIME)),
    },
    "names": implied(*_IMPLIED_NAMES) | touched("pax"),
    # seconds that a squashfs cannot hold: the nearest that it can here, the rest of a division by 2**32 there
    "odd-times": frozenset(
        (
            Difference("odd/before-1970", "mtime", "0", LAST),
            Difference("odd/pax-before-1970", "mtime", "0", str(2**32 - 1_000_000_001)),
            Difference("odd/after-2106", "mtime", LAST, str(5_000_000_000 - 2**32)),
            Difference("odd/pax-after-2106", "mtime", LAST, str(9_000_000_000 % 2**32)),
        )
    ),
    "odd-attributes": frozenset((Difference("o/libarchive", "xattrs", "user.name=6c6962617263686976652773", ""),)),
    "empty-attributes": frozenset((Difference("e", "xattrs", "user.empty=", ""),)),
}
