"""Stacks of layers that meet each rule about how layers are merged (OCI image specification, layer.md), bottom first.

Names say what should become of them: `kept…` is there in the end, `gone…` is not.
"""

from collections.abc import Callable, Mapping
from itertools import chain

from support.ustar import Member, device, directory, file, hardlink, opaque, symlink, tar, whiteout

Stack = tuple[bytes, ...]

HOSTS, RESOLVERS = b"127.0.0.1 localhost\n", b"nameserver 127.0.0.1\n"
# what apptainer makes or touches in every image when it is not there; so it is there
BASE: tuple[Member, ...] = (
    directory(".", mode=0o755),
    *(directory(path) for path in ("bin", "dev", "etc", "home", "proc", "root", "sys", "var")),
    *(directory(path, mode=0o1777) for path in ("tmp", "var/tmp")),
    file("etc/hosts", HOSTS),
    file("etc/resolv.conf", RESOLVERS),
    file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
    file("etc/group", "root:x:0:\n"),
)


def whiteouts() -> Stack:
    """Whiteouts of files, directories and links, of what is not there, and beside what comes again."""
    lower = (
        *BASE,
        *(file(name, "lower") for name in ("gone-file", "kept-again-after", "kept-again-before", "kept-as-file")),
        symlink("gone-link", "kept-target"),
        file("kept-target", "lower"),
        *(directory(name) for name in ("gone-tree", "gone-tree/inner", "again", "kept-tree", "as-directory")),
        file("gone-tree/inner/file", "lower"),
        file("again/gone", "lower"),
        file("kept-tree/gone", "lower"),
        file("kept-tree/kept", "lower"),
        file("as-directory/gone", "lower"),
        directory("kept-as-file.d"),
        file("in-between", "lower"),
        *(file(f"gone-by-{kind}", "lower") for kind in ("hard-link", "directory", "symlink")),
    )
    middle = (
        whiteout("gone-file"),
        whiteout("gone-link"),
        whiteout("gone-tree"),
        whiteout("never-there"),
        whiteout("kept-tree/gone"),
        whiteout("nowhere/never-there"),
        whiteout("kept-again-after"),
        file("kept-again-after", "upper"),
        file("kept-again-before", "upper"),
        whiteout("kept-again-before"),
        whiteout("again"),
        directory("again", mode=0o700),
        file("again/kept", "upper"),
        whiteout("kept-as-file.d"),
        file("kept-as-file.d", "upper"),
        directory("as-directory", mode=0o711),
        file("as-directory/kept", "upper"),
        whiteout("as-directory"),
        whiteout("in-between"),
        file("gone-in-the-end", "middle"),
        file(".wh..wh.aufs"),
        directory(".wh..wh.plnk"),
        file(".wh..wh.plnk/10.20"),
        hardlink(".wh.gone-by-hard-link", ".wh..wh.aufs"),
        directory(".wh.gone-by-directory"),
        symlink(".wh.gone-by-symlink", "x"),
    )
    upper = (file("in-between", "upper"), whiteout("gone-in-the-end"), whiteout("gone-file"))
    return tar(lower), tar(middle), tar(upper)


def opaque_directories() -> Stack:
    """Opaque markers before, after and without the directory's own entry, and over two layers."""
    trees = (_tree(name) for name in ("first", "last", "bare", "deep", "twice", "only", "replaced"))
    middle = (
        (directory("first", mode=0o750), opaque("first"), file("first/kept", "upper")),
        (directory("last", mode=0o750), file("last/kept", "upper"), opaque("last")),
        (file("bare/kept", "upper"), opaque("bare")),
        (opaque("deep/inner"), file("deep/inner/kept", "upper"), whiteout("deep/inner/never-there")),
        (opaque("twice"), file("twice/gone", "middle"), file("twice/kept", "middle")),
        (opaque("only"),),
        (opaque("replaced"), file("replaced/inner", "now a file")),
    )
    upper = (file("twice/also-kept", "upper"), whiteout("twice/gone"), opaque("not/there"))
    return tar((*BASE, *chain.from_iterable(trees))), tar(chain.from_iterable(middle)), tar(upper)


def replacements() -> Stack:
    """Every type takes the place of every other."""
    kinds: dict[str, Callable[[str], tuple[Member, ...]]] = {
        "file": lambda path: (file(path, f"file {path}"),),
        "directory": lambda path: (directory(path, mode=0o711), file(f"{path}/inside", path)),
        "symlink": lambda path: (symlink(path, "../etc/passwd"),),
        "hardlink": lambda path: (hardlink(path, "etc/group"),),
        "device": lambda path: (device(path, "c", 1, 3),),
        "fifo": lambda path: (device(path, "p"),),
    }
    pairs = [(below, above) for below in kinds for above in kinds]
    lower = chain.from_iterable(kinds[below](f"x/{below}-{above}") for below, above in pairs)
    upper = chain.from_iterable(kinds[above](f"x/{below}-{above}") for below, above in pairs)
    third = (directory("x/directory-file"), file("x/directory-file/new", "third"), file("x/file-directory", "third"))
    return tar((*BASE, directory("x"), *lower)), tar(upper), tar(third)


def hard_links() -> Stack:
    """Links to targets of the same layer and of lower ones that upper layers keep, replace, hide or remove."""
    lower = (
        *BASE,
        directory("t"),
        *(
            file(f"t/{name}", f"lower {name}", mode=0o600)
            for name in ("same", "replaced", "removed", "hidden", "below")
        ),
        *(hardlink(f"kept-{name}", f"t/{name}") for name in ("same", "replaced", "removed", "hidden")),
        file("t/changed", "lower changed"),
        symlink("t/symlink", "same"),
        hardlink("kept-symlink", "t/symlink"),
        device("t/fifo", "p"),
        hardlink("kept-fifo", "t/fifo"),
        *(symlink("symlink", "etc/passwd"), hardlink("same-symlink", "symlink")),
        *(device("fifo", "p"), hardlink("same-fifo", "fifo")),
        *(device("null", "c", 1, 3), hardlink("same-null", "null")),
        directory("h"),
        file("h/target", "lower, in a directory that is hidden"),
        file("large", bytes(range(256)) * 2048),
    )
    middle = (
        hardlink("kept-below", "t/below"),
        hardlink("also-kept-below", "t/below"),
        hardlink("second", "kept-below"),
        hardlink("kept-out-of-h", "h/target"),
        hardlink("kept-large", "large"),
        file("t/replaced", "middle"),
        whiteout("t/removed"),
        hardlink("kept-before-changed", "t/changed"),
        file("t/changed", "middle changed"),
        hardlink("kept-changed", "t/changed"),
        hardlink("third-symlink", "same-symlink"),
        hardlink("kept-passwd", "./etc/passwd"),
    )
    upper = (
        whiteout("h"),
        whiteout("t/below"),
        whiteout("large"),
        opaque("t"),
        file("t/same", "upper, another file now"),
        file("t/hidden", "upper"),
    )
    return tar(lower), tar(middle), tar(upper)


def symlinked_paths() -> Stack:
    """Entries whose parent is, in a lower layer, a symlink: written into its target, inside the root."""
    lower = (
        *BASE,
        *(directory(path) for path in ("usr", "usr/lib", "usr/bin", "opt", "deep", "deep/er", "taken")),
        symlink("lib", "usr/lib"),
        symlink("absolute", "/usr/bin"),
        symlink("chain", "lib"),
        symlink("deep/up", "../opt"),
        symlink("outside", "../../../../opt"),
        symlink("replaced", "taken"),
        symlink("dangling", "not/there"),
        file("usr/lib/old", "lower"),
        file("opt/gone", "lower"),
        file("usr/lib/gone", "lower"),
        file("taken/stays", "lower"),
    )
    upper = (
        file("lib/through-relative", "upper"),
        file("absolute/through-absolute", "upper"),
        file("chain/through-chain", "upper"),
        file("deep/up/through-up", "upper"),
        file("outside/stays-inside", "upper"),
        file("lib/old", "upper"),
        directory("lib/new", mode=0o700),
        file("lib/new/file", "upper"),
        whiteout("deep/up/gone"),
        whiteout("lib/gone"),
        file("dangling/made", "upper"),
        directory("replaced"),
        file("replaced/own", "upper"),
        hardlink("hard", "lib/old"),
    )
    return tar(lower), tar(upper)


def missing_parents() -> Stack:
    """Directories that no layer names, that only a lower or an upper one names, and that come after their files."""
    lower = (
        *BASE,
        file("implied/inner/file", "lower"),
        file("later/file", "lower"),
        directory("later", mode=0o700, owner=(7, 8), mtime=1_500_000_000),
        directory("lower", mode=0o2750, owner=(3, 4), mtime=1_500_000_001),
        directory("both", mode=0o700, owner=(1, 1)),
        directory("removed", mode=0o700, owner=(1, 1)),
        file("removed/file", "lower"),
        file("named-above/file", "lower"),
    )
    upper = (
        file("lower/file", "upper"),
        directory("both", mode=0o1770, owner=(2, 2), mtime=1_500_000_002),
        directory("named-above", mode=0o705, owner=(9, 9), mtime=1_500_000_003),
        whiteout("removed"),
        file("removed/new/file", "upper"),
    )
    return tar(lower), tar(upper)


def files_below_files() -> Stack:
    """Entries below what is no directory in a lower layer: it becomes one."""
    lower = (*BASE, *(file(name, "lower", mode=0o640, owner=(5, 6)) for name in ("one", "two")))
    return tar(lower), tar((file("one/file", "upper"), file("two/directory/file", "upper")))


def duplicates() -> Stack:
    """Entries that come twice in one layer: the last one counts."""
    layer = (
        *BASE,
        *(file("file", "first"), file("file", "second", mode=0o600, owner=(5, 5))),
        *(directory("directory", mode=0o700), file("directory/kept", "x"), directory("directory", mode=0o711)),
        *(symlink("link", "etc"), symlink("link", "var")),
        *(file("file-then-link", "x"), symlink("file-then-link", "etc/group")),
        *(symlink("link-then-file", "etc/group"), file("link-then-file", "own data")),
        *(file("file-then-directory", "x"), directory("file-then-directory")),
        *(directory("directory-then-file"), file("directory-then-file", "x")),
        *(file("target", "first"), hardlink("name", "target"), file("target", "second")),
        *(file("a", "a"), file("b", "b"), hardlink("b", "a")),
        *(symlink("d", "tmp"), directory("d"), file("d/inside", "x")),
    )
    return (tar(layer),)


def forty_layers() -> Stack:
    """Forty layers, each of which adds, replaces, removes and links."""
    layers = [tar(BASE)]
    for number in range(39):
        changes = [file(f"n/{number}", f"{number}\n"), file("n/last", f"{number}\n"), directory(f"n/d{number % 7}")]
        changes.append(file(f"n/d{number % 7}/{number}", "x" * number))
        if number % 5 == 4:
            changes.append(whiteout(f"n/{number - 3}"))
        if number % 11 == 10:
            changes.append(opaque(f"n/d{number % 7}"))
        if number % 6 == 5:
            changes.append(hardlink(f"n/link{number}", f"n/{number - 1}"))
        layers.append(tar(changes))
    return tuple(layers)


MERGED: Mapping[str, Callable[[], Stack]] = {
    "whiteouts": whiteouts,
    "opaque-directories": opaque_directories,
    "replacements": replacements,
    "hard-links": hard_links,
    "symlinked-paths": symlinked_paths,
    "missing-parents": missing_parents,
    "files-below-files": files_below_files,
    "duplicates": duplicates,
    "forty-layers": forty_layers,
}

# stacks that apptainer refuses, and others with the same result that it takes
REFUSED_STACKS: Mapping[str, tuple[Stack, Stack]] = {
    "hidden-link-to-nothing": (
        (tar((*BASE, directory("h"), hardlink("h/link", "not/there"))), tar((whiteout("h"),))),
        (tar(BASE),),
    ),
}


def _tree(name: str) -> tuple[Member, ...]:
    return (
        directory(name, mode=0o755),
        file(f"{name}/gone", "lower"),
        directory(f"{name}/inner"),
        file(f"{name}/inner/gone", "lower"),
    )
