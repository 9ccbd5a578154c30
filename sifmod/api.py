"""The API for a site's own scripts: twelve functions and the values that they return (docs/api.md).

They print nothing, ask nothing, and end no process: a failure raises a SifmodError, or is in the result if the
rest continues. Settings are those of the command line; `where` stands for its options --prefix and --site.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from sifmod.actions.finding import Finding
from sifmod.actions.gc import Garbage, GcRequest
from sifmod.actions.gc import collect_garbage as collected
from sifmod.actions.install.install_easyconfigs import Installer, InstallOptions, InstallOutcome, InstallPreview, Target
from sifmod.actions.layer.layer_change import LayerChange
from sifmod.actions.layer.layers import LayerOutcome, change_layer
from sifmod.actions.layer.places import found_layers
from sifmod.actions.list import Listed
from sifmod.actions.list import list_trees as listed
from sifmod.actions.reporter import Reporter
from sifmod.actions.rollback import change_live
from sifmod.actions.search import Answer, ask, find_all
from sifmod.actions.stack.apply import Preview, StackOutcome, StackRun, preview_stack
from sifmod.actions.stack.apply import apply_stack as applied
from sifmod.actions.stack.stack_plan import StackOptions
from sifmod.actions.start import installed, layout_at, live_names, resolve, site_in_force
from sifmod.actions.uninstall import Uninstalled, uninstall_module
from sifmod.actions.verify import verify as findings
from sifmod.config.option import in_full
from sifmod.config.site import Site
from sifmod.errors import SifmodError
from sifmod.image.packages.request import words_of
from sifmod.image.packages.requirements import parse_requests
from sifmod.tree.layout import Layout
from sifmod.tree.provenance import CommandLine
from sifmod.tree.receipt import Installation

__all__ = [
    "Answer",
    "Finding",
    "Garbage",
    "InstallOutcome",
    "InstallPreview",
    "Installation",
    "LayerOutcome",
    "Listed",
    "Preview",
    "SifmodError",
    "Site",
    "StackOutcome",
    "Uninstalled",
    "Where",
    "add_packages",
    "apply_stack",
    "collect_garbage",
    "install",
    "list_modules",
    "load_site",
    "plan",
    "plan_stack",
    "rollback",
    "search",
    "uninstall",
    "verify",
]


@dataclass(frozen=True)
class Where:
    """The values of --prefix and --site; None means the same as the command line without the option."""

    prefix: str | Path | None = None
    site: str | None = None
    say: Callable[[str], None] | None = None  # called with each message about the progress

    @property
    def given(self) -> dict[str, str]:
        """The given ones of `prefix` and `site`, as text with absolute paths."""
        texts = {"prefix": str(self.prefix or ""), "site": self.site or ""}
        return in_full({name: text for name, text in texts.items() if text})

    def reporter(self, *words: object) -> Reporter:
        """A reporter that leaves questions unanswered, which is an error; the log records `words` as the call."""
        return Reporter(self.say or _nothing, confirm=_nothing, command=f"sifmod.api.{' '.join(map(str, words))}")


HERE = Where()


def load_site(where: Where = HERE) -> Site:
    """The site that is in force: from the site file, the settings, the environment variables and `where`."""
    return site_in_force(where.given).site


def search(*words: str, where: Where = HERE) -> Answer:
    """The modules that easyconfigs on the easyconfig path can install and that match all `words`; without words all."""
    loaded = site_in_force(where.given)
    return ask(find_all(loaded.site.robot_paths, lambda: loaded, os.environ), words)


def plan(easyconfig: str | Path, *, variant: str | None = None, where: Where = HERE) -> InstallPreview:
    """A preview of `install` for an easyconfig, given by path or name. Changes nothing."""
    return Installer(where.given).preview(Target(str(easyconfig), variant))


def install(
    easyconfig: str | Path,
    *,
    variant: str | None = None,
    rebuild: bool = False,
    locked: bool = False,
    sanity_check: bool = True,
    where: Where = HERE,
) -> InstallOutcome:
    """Install the module of an easyconfig, given by path or name. Idempotent without `rebuild`."""
    options = InstallOptions(rebuild=rebuild, asked=CommandLine(checked=sanity_check))
    installer, target = Installer(where.given, options, locked), Target(str(easyconfig), variant)
    if found := installer.unchanged(target):
        return InstallOutcome(found, "unchanged")
    return installer.install(target, where.reporter("install", easyconfig))


def add_packages(
    module: str, *requirements: str, layer: str = "default", find_links: str | None = None, where: Where = HERE
) -> LayerOutcome:
    """Add Python packages to a module, in a layer over its image; with `find_links`, only from that place."""
    words = words_of((find_links,), no_index=True) if find_links else words_of()
    wanted = parse_requests(requirements)
    change = LayerChange(module, layer, replace(wanted, words=(*words, *wanted.words)))
    return change_layer(change, load_site(where), where.reporter("add_packages", module, *requirements))


def plan_stack(file: str | Path, *, locked: bool = False, where: Where = HERE) -> Preview:
    """A preview of `apply_stack` and its downloads. Changes nothing."""
    return preview_stack(Path(file), StackOptions(where.given, locked=locked))


def apply_stack(
    file: str | Path,
    *,
    locked: bool = False,
    only: tuple[str, ...] = (),
    jobs: int | None = None,
    sanity_check: bool = True,
    where: Where = HERE,
) -> StackOutcome:
    """Make the installed modules match a stack. The failures of modules are in the outcome. Idempotent."""
    install = InstallOptions(asked=CommandLine(checked=sanity_check))
    run = StackRun(Path(file), StackOptions(where.given, install, locked, only, jobs))
    return applied(run, where.reporter("apply_stack", file), _nothing)


def list_modules(pattern: str = "", *, where: Where = HERE) -> tuple[Listed, ...]:
    """The installed modules whose names contain `pattern`, or match it if it has wildcards.

    Without a prefix in `where`, those of the site's other `trees` too.
    """
    site = load_site(where)
    return listed((layout_at(site.prefix), *(() if where.prefix else map(Layout, site.trees))), pattern)


def verify(module: str, *, where: Where = HERE) -> tuple[Finding, ...]:
    """Hash the image, every file and the layers of a module again; returns the differences from the receipts."""
    site = load_site(where)
    layout, others = layout_at(site.prefix), map(Layout, site.trees)
    installation = installed(layout, resolve(module, live_names(layout)))
    return findings(layout, installation, found_layers((layout,), os.environ), others)


def rollback(module: str, *, to: int | None = None, where: Where = HERE) -> Installation:
    """Switch a module to the generation `to`, or to the previous one. The replaced one is held if it is newer."""
    return change_live(module, load_site(where), where.reporter("rollback", module), to=to).installation


def uninstall(module: str, *, where: Where = HERE) -> Uninstalled:
    """Uninstall a module; its files stay for `rollback` and running jobs until `collect_garbage` removes them."""
    return uninstall_module(module, load_site(where), where.reporter("uninstall", module))


def collect_garbage(
    *, remove: bool = False, days: float = 14.0, rollbacks: bool = False, ask_jobs: bool = True, where: Where = HERE
) -> Garbage:
    """Find files unused for `days`, with `rollbacks` also those for a rollback, and with `remove` remove them.

    Slurm is asked which jobs may use them, unless `ask_jobs` is false.
    """
    request = GcRequest(days, rollbacks, ask_jobs=ask_jobs, remove=remove)
    return collected(request, load_site(where), where.reporter("collect_garbage"))


def _nothing(*_: object) -> None:
    pass
