"""Whether a live installation is complete: cheap enough to ask of every module on every run."""

import os
from pathlib import Path

from sifmod.tree.layout import Layout
from sifmod.tree.receipt import Installation, live_number


def missing(layout: Layout, installation: Installation) -> tuple[str, ...]:
    """What a live installation lacks to be usable, a few words each; () when it is complete. Looks at names only."""
    root = Path(installation.root)
    stubs = (layout.modules / stub.path for stub in installation.stubs)
    links = (root / link.path for link in installation.links)
    lacks = [f"the modulefile {path} is missing" for path in stubs if not path.is_file()]
    lacks += [f"the link {path} is missing" for path in links if not os.path.lexists(path)]
    if not (root / installation.image.filename).exists():
        lacks.append(f"the image {installation.image.path} is missing")
    if live_number(layout, installation.module) != installation.generation:
        lacks.append(f"generation {installation.generation} is not the live one")
    return tuple(lacks)
