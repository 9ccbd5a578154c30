"""check: validate easyconfigs and render what they would install, without installing anything."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sifmod.actions.sources import check_sources
from sifmod.config.bind import lint_binds
from sifmod.config.find import SUFFIXES
from sifmod.config.load_easyconfig import all_variants, load_easyconfig
from sifmod.config.load_site import LoadedSite, load_site
from sifmod.config.stack import Member, load_stack
from sifmod.config.wanted import wanted_easyconfig
from sifmod.config.yaml.node import problem_at
from sifmod.errors import ConfigError, Problem, SifmodError
from sifmod.module.decide import Choices, make_plan
from sifmod.module.render import render, render_stub


@dataclass(frozen=True)
class Checked:
    """One variant of one easyconfig that can be installed."""

    variant: str | None
    module: str
    files: int  # rendered
    warnings: tuple[Problem, ...]  # what is odd about its binds


def files_below(directory: Path) -> tuple[str, ...]:
    """What can be checked in a directory and below it: YAML files but presets, which mean something only where used.

    Hidden files and directories are left out.
    """
    found: list[str] = []
    for place, directories, files in os.walk(directory):
        directories[:] = sorted(name for name in directories if name != "presets" and not name.startswith("."))
        if Path(place).absolute().name != "presets":
            found += [os.path.join(place, name) for name in sorted(files) if name.endswith(SUFFIXES) and name[0] != "."]  # noqa: PTH118
    return tuple(found)


def check(path: Path, site: LoadedSite, variants: tuple[str, ...] = ()) -> tuple[Checked, ...]:
    """Every variant of an easyconfig, or those named (`all`: every one and those), validated and rendered.

    Raises ConfigError with every problem of the file, VariantError for a variant that it does not have.
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
        Checked(one.variant, str(plan.module), len(render(plan, 1)) + len(render_stub(plan)), lint_binds(one.tree))
        for one, plan in zip(loaded, plans, strict=True)
    )


def check_stack(path: Path, site: LoadedSite) -> int:
    """How many easyconfigs a stack names, each of them checked.

    Raises ConfigError with every problem of the stack and of all of them, SifmodError where it is for another sifmod.
    """
    members = load_stack(path).members
    problems: dict[Problem, None] = {}
    given: dict[str, Member] = {}  # the module, or the name of a default, and who gives it
    site_of = cache(lambda name: load_site({"site": name, "prefix": str(site.site.prefix)}, os.environ))
    for member in members:
        wanted = member.entry.variants
        try:
            own = site_of(member.site) if member.site else site
            easyconfig = wanted_easyconfig(member.easyconfig, own.site)
            checked = check(easyconfig, own, ("all",) if wanted == "all" else tuple(wanted))
            problems |= dict.fromkeys(_given_twice(member, checked, given))
        except ConfigError as error:
            problems |= dict.fromkeys(error.problems)
        except SifmodError as error:
            message = error.message.partition("\n")[0].removeprefix("--site: ")
            problems[problem_at(member.mark, "easyconfigs", message)] = None
    if problems:
        raise ConfigError(tuple(problems))
    return len(members)


def _given_twice(member: Member, checked: tuple[Checked, ...], given: dict[str, Member]) -> Iterator[Problem]:
    """What another member of the stack gives too; where the site chooses a variant that cannot be told here."""
    for one in checked if member.entry.variants or checked[0].variant is None else ():
        names = [one.module]
        if member.entry.default and member.entry.default in (True, one.variant):
            names.append(f"the default of {one.module.partition('/')[0]}")
        for name in names:
            if (other := given.setdefault(name, member)) is not member:
                yield problem_at(member.mark, "easyconfigs", f"gives {name}, as {other.easyconfig} does ({other.mark})")
