"""Whether a live installation is complete and unchanged: cheap enough to ask of every module on every run.

Paths are plain texts here: with three hundred modules, making Path objects would take most of the time.
"""
# ruff: noqa: PTH110, PTH113, PTH208

import os
from contextlib import suppress

from sifmod.config.name import ModuleName
from sifmod.digest import sha256_bytes
from sifmod.tree.disk import read
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import FileRecord, Installation, live_number


def missing(layout: Layout, installation: Installation) -> tuple[str, ...]:
    """What a live installation lacks to be usable, a few words each; () when it is complete. Looks at names only."""
    root = installation.root
    stubs = [f"{layout.prefix}/modules/{stub.path}" for stub in installation.stubs]
    links = [f"{root}/{link.path}" for link in installation.links]
    lacks = [f"the modulefile {path} is missing" for path in stubs if not os.path.isfile(path)]
    lacks += [f"the link {path} is missing" for path in links if not os.path.lexists(path)]
    image = installation.image
    if image and not os.path.exists(f"{root}/{image.filename}") and not os.path.exists(image.path):
        lacks.append(f"the image {image.path} is missing")
    if live_number(layout, installation.module) != installation.generation:
        lacks.append(f"generation {installation.generation} is not the live one")
    if _died(layout, installation.module):
        lacks.append("an earlier run died and left something behind")
    return tuple(lacks)


def edited(installation: Installation) -> tuple[str, ...]:
    """Files and links of the generation that are not as sifmod made them, and an image of another size: their paths.

    () when all are as they were. A link that is missing is not among them: see `missing`.
    """
    root, image = installation.root, installation.image
    found = [path for file in installation.files if not _is(path := f"{root}/{file.path}", file)]
    for link in installation.links:
        path = f"{root}/{link.path}"
        if os.path.lexists(path) and not (os.path.islink(path) and os.readlink(path) == link.target):  # noqa: PTH114, PTH115
            found.append(path)
    with suppress(OSError):
        if image and os.stat(image.path).st_size != image.size:  # noqa: PTH116 (texts)
            found.append(image.path)
    return tuple(found)


def edited_stubs(layout: Layout, installation: Installation) -> tuple[str, ...]:
    """A few words for each modulefile of the module tree that is there, and not as sifmod wrote it."""
    stubs = ((f"{layout.prefix}/modules/{stub.path}", stub) for stub in installation.stubs)
    there = ((path, stub) for path, stub in stubs if os.path.lexists(path))
    return tuple(f"the modulefile {path} was changed" for path, stub in there if not _is(path, stub))


def _is(path: str, record: FileRecord) -> bool:
    """The file's content is what the receipt says, and a program can be run."""
    try:
        return sha256_bytes(read(path)) == record.sha256 and (not record.mode & 0o111 or os.access(path, os.X_OK))
    except OSError:
        return False


def _died(layout: Layout, module: ModuleName) -> bool:
    """A run for this module, or for an image, died on this node and its remains are still there."""
    try:
        if not os.listdir(layout.staging) or not os.access(layout.staging, os.W_OK):  # a reader cannot
            return False
    except FileNotFoundError:
        return False
    from sifmod.tree.lock import left_over

    return any(name == str(module) or "/" not in name for name in left_over(layout))
