"""What stacks have been applied to a tree: their modules, so that one that is no longer named can be told."""

import json
from pathlib import Path
from typing import NamedTuple

from sifmod.config.name import ModuleName, is_part
from sifmod.tree.change import Change
from sifmod.tree.disk import is_refused, read
from sifmod.tree.layout import Layout
from sifmod.tree.lock import Held

_FORMAT = 1


class Applied(NamedTuple):
    """A stack as it was last applied: `<prefix>/stacks/<name>.json`."""

    name: str
    file: str  # absolute path
    modules: tuple[ModuleName, ...]  # those that it has installed and has not let go
    decided: tuple[str, ...] = ()  # the modules, and names for a default, about whose life it says something


def read_applied(layout: Layout, name: str) -> Applied | None:
    """None where no such stack was applied, or its record cannot be read: others may have written it."""
    try:
        fields = json.loads(read(_path(layout, name)))
        parts = [tuple(str(module).split("/")) for module in fields["modules"]]
        if fields["format"] != _FORMAT or not all(len(pair) == 2 and all(map(is_part, pair)) for pair in parts):
            return None
        decided = tuple(str(one) for one in fields["decided"])
        return Applied(name, str(fields["file"]), tuple(ModuleName(*pair) for pair in parts), decided)
    except OSError as error:
        if is_refused(error):
            return None
        raise
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def write_applied(layout: Layout, applied: Applied, held: Held) -> None:
    """Keep it, where it has changed. Raises InstallError, LockError."""
    if read_applied(layout, applied.name) == applied:
        return
    modules = [str(module) for module in applied.modules]
    fields = {"format": _FORMAT, "file": applied.file, "modules": modules, "decided": applied.decided}
    with held.changing(f"cannot write down what the stack {applied.name} has installed"):
        change = Change(held, layout.prefix)
        change.file(_path(layout, applied.name), json.dumps(fields, indent=1) + "\n")
        change.apply()


def _path(layout: Layout, name: str) -> Path:
    return layout.prefix / "stacks" / f"{name}.json"
