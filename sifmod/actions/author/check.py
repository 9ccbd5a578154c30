"""check: validate easyconfigs, sites, quirks and stacks, and render easyconfigs without installing them."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from sifmod.actions.sources import check_sources
from sifmod.config.bind import lint_binds
from sifmod.config.detect import read_site, site_directories, site_names
from sifmod.config.easyconfig import EasyconfigFile
from sifmod.config.expand import texts
from sifmod.config.find import SUFFIXES
from sifmod.config.limits import bound, limits
from sifmod.config.load_easyconfig import all_variants, load_easyconfig
from sifmod.config.load_site import LoadedSite, load_site
from sifmod.config.mpi_profile import profile_of
from sifmod.config.name import ModuleName
from sifmod.config.quirk import QuirkFile, read_quirk
from sifmod.config.site import SiteFile
from sifmod.config.stack import Member, bounds, load_stack
from sifmod.config.word import resolve_easyconfig
from sifmod.config.yaml.node import Node, problem_at
from sifmod.config.yaml.parse import load_yaml
from sifmod.config.yaml.validate import did_you_mean
from sifmod.errors import ConfigError, Error, OptionError, Problem, SifmodError
from sifmod.module.make_plan import Choices, make_plan
from sifmod.module.render import render, render_stub
from sifmod.result import Beside, Described, Internal, Variant
from sifmod.system import one_line, walk


@dataclass(frozen=True)
class Checked:
    """A variant of an easyconfig that can be installed."""

    module: ModuleName
    variant: Variant | None
    rendered: Annotated[int, Described("number of rendered files")]
    warnings: Internal[tuple[Problem, ...]]  # about questionable binds


@dataclass(frozen=True)
class CheckedFile:
    """A checked file, and its modules; with an error, a file that cannot be used."""

    path: Path
    modules: tuple[Checked, ...] = ()
    warnings: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()
    error: Beside[Error | None] = None


def files_below(directory: Path) -> tuple[str, ...]:
    """The YAML files below a directory, except presets, which are checked where they are used.

    Hidden files and directories are left out.
    """
    there = (path for path in visible_files(directory, "presets") if path.endswith(SUFFIXES))
    return tuple(path for path in there if Path(path).absolute().parent.name != "presets")


def visible_files(directory: Path, *left_out: str) -> Iterator[str]:
    """All files below a directory, sorted, except hidden ones and those in directories with these names.

    Raises OptionError for too many.
    """
    seen = 0
    for place, directories, files in walk(directory):
        seen += 1 + len(files)
        if seen > limits().pattern_files:
            what = f"more files are below {one_line(str(directory))} than {bound('pattern_files')}"
            raise OptionError(what, "name a directory of easyconfigs")
        directories[:] = sorted(name for name in directories if name not in left_out and not name.startswith("."))
        yield from (os.path.join(place, name) for name in sorted(files) if not name.startswith("."))  # noqa: PTH118


def check(path: Path, site: LoadedSite, variants: tuple[str, ...] = ()) -> tuple[Checked, ...]:
    """Validate and render every variant of an easyconfig, or only the named ones (`all` includes every variant).

    Raises ConfigError with every problem of the file, or of the first wrong one of named variants; VariantError for an
    unknown variant.
    """
    named = tuple(load_easyconfig(path, site, variant, {}, os.environ) for variant in variants if variant != "all")
    loaded = all_variants(path, site, os.environ) if "all" in variants or not variants else named
    problems: dict[Problem, None] = {}
    for one in loaded:
        try:
            check_sources(one)
        except ConfigError as error:
            problems |= dict.fromkeys(error.problems)
    if problems:
        raise ConfigError(tuple(problems))
    choices = Choices(path.stem, site.site.link)
    plans = [make_plan(one.easyconfig, site.site, choices, one.quirks, one.bases) for one in loaded]
    return tuple(
        Checked(plan.module, one.variant, len(render(plan, 1)) + len(render_stub(plan)), lint_binds(one.tree))
        for one, plan in zip(loaded, plans, strict=True)
    )


def check_stack(path: Path, site: LoadedSite) -> int:
    """Check each easyconfig of a stack; returns their number.

    Raises ConfigError with every problem of the stack and its easyconfigs, SifmodError for a reserved name or another
    version of sifmod.
    """
    members = load_stack(path).members
    problems: dict[Problem, None] = {}
    given: dict[str, Member] = {}  # the module, or the name of a default, and the member that gives it
    site_of = cache(lambda name: load_site({"site": name, "prefix": str(site.site.prefix)}, os.environ))
    for member in members:
        wanted = member.entry.variants
        try:
            own = site_of(member.site) if member.site else site
            easyconfig = resolve_easyconfig(member.easyconfig, own.site)
            checked = check(easyconfig, own, ("all",) if wanted == "all" else tuple(wanted))
            problems |= dict.fromkeys(_given_twice(member, checked, given))
        except ConfigError as error:
            problems |= dict.fromkeys(error.problems)
        except SifmodError as error:
            problems[problem_at(member.mark, "easyconfigs", error.short)] = None
    if problems:
        raise ConfigError(tuple(problems))
    return len(members)


def _given_twice(member: Member, checked: tuple[Checked, ...], given: dict[str, Member]) -> Iterator[Problem]:
    """Problems of modules or defaults that two members of the stack give; none where the site chooses the variant."""
    for one in checked if member.entry.variants or checked[0].variant is None else ():
        names = [str(one.module)]
        if member.entry.default and member.entry.default in (True, one.variant):
            names.append(f"the default of {one.module.name}")
        for name in names:
            if (other := given.setdefault(name, member)) is not member:
                yield problem_at(member.mark, "easyconfigs", f"gives {name}, as {other.easyconfig} does ({other.mark})")


# every easyconfig has one of these keys
_OF_EASYCONFIGS = frozenset(("version", "image", "extends", "preset", "variants"))

Kind = Literal["site", "quirk", "profile", "stack"]
DIRECTORIES: dict[str, Kind] = {"sites": "site", "quirks": "quirk", "mpi": "profile"}
_OF_SITES = SiteFile.model_fields.keys() - EasyconfigFile.model_fields.keys()
_OF_STACKS = frozenset(("easyconfigs", "include"))
_OF_QUIRKS = QuirkFile.model_fields.keys() - EasyconfigFile.model_fields.keys() - SiteFile.model_fields.keys()


def settings_kind(path: Path) -> Kind | None:
    """The kind of a settings file, by its directory or else by its keys; None for an easyconfig or invalid YAML."""
    if kind := DIRECTORIES.get(path.absolute().parent.name):
        return kind
    try:
        node = load_yaml(path, bounds()).node
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
    """Warnings about a valid site, quirk or profile; raises ConfigError with all problems of an invalid file."""
    if kind == "quirk":
        read_quirk(path)
        return _unknown_sites(load_yaml(path).node, environ)
    if kind == "profile":
        profile_of(path, environ)
        return ()
    return lint_binds(read_site(path, environ)[0])


def _unknown_sites(quirk: Node, environ: Mapping[str, str]) -> tuple[Problem, ...]:
    """Warnings for sites that a quirk names and that have no site file here: other machines, or misspellings."""
    known = site_names(site_directories(environ), environ)
    match = quirk.entries["match"].entries
    wanted = texts(match["site"]) if "site" in match else ()
    return tuple(
        problem_at(node.mark, "match.site", f"no site here is named {node.raw}{did_you_mean(node.raw, known)}")
        for node in wanted
        if node.raw not in known
    )
