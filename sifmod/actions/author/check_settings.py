"""check, of a site file, a quirk or an MPI profile: what is wrong with it, and what is odd."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from sifmod.config.bind import lint_binds
from sifmod.config.detect import read_site_file, site_directories, site_names
from sifmod.config.easyconfig import EasyconfigFile
from sifmod.config.mpi import profile_of
from sifmod.config.quirk import QuirkFile, read_quirk
from sifmod.config.site import SiteFile
from sifmod.config.stack import MAX_NODES
from sifmod.config.variables import texts
from sifmod.config.yaml.check import did_you_mean
from sifmod.config.yaml.node import Node, problem_at
from sifmod.config.yaml.parse import load_yaml
from sifmod.errors import ConfigError, Problem

# without these keys nothing is an easyconfig
_OF_EASYCONFIGS = frozenset(("version", "image", "extends", "preset", "variants"))

Kind = Literal["site", "quirk", "profile", "stack"]
DIRECTORIES: dict[str, Kind] = {"sites": "site", "quirks": "quirk", "mpi": "profile"}
_OF_SITES = SiteFile.model_fields.keys() - EasyconfigFile.model_fields.keys()
_OF_STACKS = frozenset(("easyconfigs", "include"))
_OF_QUIRKS = QuirkFile.model_fields.keys() - EasyconfigFile.model_fields.keys() - SiteFile.model_fields.keys()


def settings_kind(path: Path) -> Kind | None:
    """What a file is by its directory, else by what only such a file has; None for an easyconfig."""
    if kind := DIRECTORIES.get(path.absolute().parent.name):
        return kind
    try:
        node = load_yaml(path, MAX_NODES).node
    except ConfigError:
        return None
    keys = {key.removesuffix("+") for key in node.entries}
    if keys & _OF_STACKS:
        return "stack"
    if "version" in keys:
        return None
    groups = "binds" in node.entries and isinstance(node.entries["binds"].value, dict) and not keys & _OF_EASYCONFIGS
    return "quirk" if keys & _OF_QUIRKS else "site" if keys & _OF_SITES or groups else None


def check_settings(path: Path, kind: Kind, environ: Mapping[str, str]) -> tuple[Problem, ...]:
    """What is odd about a file that can be used; raises ConfigError with all problems of one that cannot."""
    if kind == "quirk":
        read_quirk(path)
        return _unknown_sites(load_yaml(path).node, environ)
    if kind == "profile":
        profile_of(path, environ)
        return ()
    return lint_binds(read_site_file(path, environ)[0])


def _unknown_sites(quirk: Node, environ: Mapping[str, str]) -> tuple[Problem, ...]:
    """The sites of a quirk that no site file here is for: it may be for another machine, or misspelled."""
    known = site_names(site_directories(environ), environ)
    match = quirk.entries["match"].entries
    wanted = texts(match["site"]) if "site" in match else ()
    return tuple(
        problem_at(node.mark, "match.site", f"no site here is called {node.raw}{did_you_mean(node.raw, known)}")
        for node in wanted
        if node.raw not in known
    )
