"""The installed views that load a module."""

import re
from contextlib import suppress

from sifmod.config.name import ModuleName
from sifmod.tree.disk import read
from sifmod.tree.layout import RECEIPT, Layout
from sifmod.tree.receipt import live_modules, read_receipt

_NO_VIEW = b'"modules":[]'  # in a receipt; most are not parsed


def views_of(layout: Layout, module: ModuleName) -> tuple[ModuleName, ...]:
    """The installed views that load this module, and have no other one of the prefix to load in its place."""
    here = [str(one) for one, _ in live_modules(layout) if one != module]
    found = []
    for view, number in live_modules(layout):
        root = layout.generation(view, number)
        with suppress(OSError):
            if _NO_VIEW in read(root / RECEIPT):
                continue
        installation = read_receipt(root)
        wanted = [one for one in (installation.modules if installation else ()) if meant(one, str(module))]
        if any(not any(meant(one, other) for other in here) for one in wanted):
            found.append(view)
    return tuple(found)


def meant(wanted: str, module: str) -> bool:
    """Whether a module system may load `module` where `wanted` is typed: its name, all of it, or a beginning."""
    end = "[-_.+]" if "/" in wanted else "/"
    return module == wanted or re.match(re.escape(wanted) + end, module) is not None
