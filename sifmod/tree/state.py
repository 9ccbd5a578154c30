"""Whether a live installation is complete: cheap enough to ask of every module on every run.

Paths are plain texts here: with three hundred modules, making Path objects would take most of the time.
"""
# ruff: noqa: PTH110, PTH113, PTH208

import os

from sifmod.config.name import ModuleName
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import Installation, live_number


def missing(layout: Layout, installation: Installation) -> tuple[str, ...]:
    """What a live installation lacks to be usable, a few words each; () when it is complete. Looks at names only."""
    root = installation.root
    stubs = [f"{layout.prefix}/modules/{stub.path}" for stub in installation.stubs]
    links = [f"{root}/{link.path}" for link in installation.links]
    lacks = [f"the modulefile {path} is missing" for path in stubs if not os.path.isfile(path)]
    lacks += [f"the link {path} is missing" for path in links if not os.path.lexists(path)]
    if not os.path.exists(f"{root}/{installation.image.filename}") and not os.path.exists(installation.image.path):
        lacks.append(f"the image {installation.image.path} is missing")
    if live_number(layout, installation.module) != installation.generation:
        lacks.append(f"generation {installation.generation} is not the live one")
    if _died(layout, installation.module):
        lacks.append("an earlier run died and left something behind")
    return tuple(lacks)


def _died(layout: Layout, module: ModuleName) -> bool:
    """A run for this module, or for an image, died on this node and its remains are still there."""
    try:
        if not os.listdir(layout.staging) or not os.access(layout.staging, os.W_OK):  # a reader cannot
            return False
    except FileNotFoundError:
        return False
    from sifmod.tree.lock import left_over

    return any(name == str(module) or "/" not in name for name in left_over(layout))
