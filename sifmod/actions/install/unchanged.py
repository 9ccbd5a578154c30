"""Recognise an up-to-date installation by comparing its receipt with the disk, without parsing YAML or planning."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from sifmod import __version__
from sifmod.actions.install.options import InstallOptions
from sifmod.config.find import is_path, own_path
from sifmod.config.input import HostFacts
from sifmod.config.name import ModuleName
from sifmod.config.redact import without_query
from sifmod.tree.durable import read
from sifmod.tree.layout import RECEIPT, Layout
from sifmod.tree.provenance import file_state
from sifmod.tree.receipt import Installation, live, live_modules
from sifmod.tree.state import edited, edited_stubs, missing

# finds the path without parsing thousands of receipts
_EASYCONFIG = re.compile(rb'"easyconfig":("(?:[^"\\]|\\.)*")')


def find_unchanged(
    layout: Layout, easyconfig: str, options: InstallOptions, surroundings: HostFacts
) -> Installation | None:
    """The live installation of this easyconfig if it is complete and none of its inputs has changed.

    None with `options.rebuild`, which --force and --module-only set too, and for a source with a query: no receipt says
    which query it was.
    """
    if options.rebuild or without_query(options.source or "") != (options.source or ""):
        return None
    for installation in installed_by(layout, easyconfig):
        made = installation.provenance
        if made.asked.options != options.asked.options or made.image.kept:
            continue
        if (
            made.sifmod == __version__
            and made.facts == surroundings.facts
            and surroundings.unchanged(made.inputs)
            and all(file_state(known.path) == known for known in made.image.states)
            and not missing(layout, installation)
            and not edited(installation)
            and not edited_stubs(layout, installation)
        ):
            return installation
    return None


def installed_by(layout: Layout, easyconfig: str) -> Iterator[Installation]:
    """The live installations made from this easyconfig, even if it has changed since.

    For a bare name, those that were found by that name: their inputs include the places searched first.
    """
    for one in _candidates(layout, easyconfig):
        made = one.provenance
        if made.easyconfig == own_path(easyconfig) if is_path(easyconfig) else made.asked.name == easyconfig:
            yield one


def _candidates(layout: Layout, easyconfig: str) -> Iterator[Installation]:
    """The live installations that this easyconfig may have made, those with similar names first."""
    file_name, seen = Path(easyconfig).name.removesuffix(".yaml"), set()
    try:
        for name in os.listdir(layout.software):  # noqa: PTH208 (plain names)
            if not file_name.startswith(f"{name}-"):
                continue
            versions = os.listdir(f"{layout.software}/{name}")  # noqa: PTH208 (plain names)
            for version in sorted(versions, key=lambda version: version != file_name[len(name) + 1 :]):
                module = ModuleName(name, version)
                if not version.startswith(".") and (found := live(layout, module)):
                    seen.add(module)
                    yield found
    except OSError:
        return
    file_name = Path(easyconfig).name
    for module in {name: None for end in ("", ".yaml") for name in _by_file_name(layout).get(f"{file_name}{end}", ())}:
        if module not in seen and (found := live(layout, module)):
            yield found


@cache
def _by_file_name(layout: Layout) -> Mapping[str, list[ModuleName]]:
    """The modules by their easyconfigs' file names, cached for this process; no receipt is parsed."""
    found: dict[str, list[ModuleName]] = {}
    for module, number in live_modules(layout):
        with suppress(OSError, ValueError):
            if path := _EASYCONFIG.search(read(f"{layout.generation(module, number)}/{RECEIPT}")):
                found.setdefault(json.loads(path[1]).rpartition("/")[2], []).append(module)
    return found
