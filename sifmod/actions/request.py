"""A Request: an install that has been decided."""

import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from sifmod.actions.sources import check_sources
from sifmod.actions.unchanged import Options
from sifmod.config.load import LoadedEasyconfig, Overrides, load_easyconfig
from sifmod.config.settings import LoadedSite
from sifmod.module.decide import Choices, make_plan
from sifmod.module.plan import Plan, Syntax
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live


@dataclass(frozen=True)
class InstallOptions:
    """What the command line asks of one install."""

    variant: str | None = None
    source: str | None = None
    rebuild: bool = False  # a new generation even where nothing has changed
    force: bool = False  # the same, and the image is fetched again
    module_only: bool = False  # render again, with the image that is there
    offline: bool = False
    sanity: bool = True
    keep_blobs: bool = False
    recorded: Options = ()  # the command line, as the receipt keeps it


@dataclass(frozen=True)
class Request:
    """An install that has been decided: what to do, for what, from what."""

    plan: Plan
    loaded: LoadedEasyconfig
    site: LoadedSite
    options: InstallOptions


def decide(easyconfig: Path, site: LoadedSite, options: InstallOptions) -> Request:
    """Load and plan, without touching the tree; raises ConfigError, VariantError, OptionError."""
    source: Overrides = {"image.sources": (options.source,)} if options.source is not None else {}
    loaded = load_easyconfig(easyconfig, site, options.variant, source, os.environ)
    check_sources(loaded)
    again = _again(loaded, site, options)
    plan = make_plan(loaded.easyconfig, site.site, Choices(again, site.site.link, options.offline))
    layout = Layout(Path(plan.prefix))  # a prefix that cannot be one is refused before anything is done
    return Request(replace(plan, syntaxes=_syntaxes(layout, plan)), loaded, site, options)


def _syntaxes(layout: Layout, plan: Plan) -> tuple[Syntax, ...]:
    """The plan's syntaxes and those installed already, so that a shell can unload after a reinstall what it loaded."""
    before = live(layout, plan.module)
    there = {"lua" if stub.path.endswith(".lua") else "tcl" for stub in before.stubs} if before else set()
    known: tuple[Syntax, ...] = ("lua", "tcl")
    return tuple(syntax for syntax in known if syntax in there or syntax in plan.syntaxes)


def _again(loaded: LoadedEasyconfig, site: LoadedSite, options: InstallOptions) -> str:
    """The words after `sifmod install` that bring this module back: a name where that finds the file, else its path."""
    path = Path(os.path.realpath(loaded.path))
    found = any(path.is_relative_to(os.path.realpath(directory)) for directory in site.site.robot_paths)
    given = {"--variant": loaded.variant, **dict(options.recorded)}
    words = [path.name if found else str(path)]
    for name, value in given.items():
        words += [name, value] if value else []
    return shlex.join(words)
