"""Whether the modules that a view loads are there."""

import os
from collections.abc import Iterator, Mapping

from sifmod.actions.search import find_all
from sifmod.config.find import name_of
from sifmod.config.load_site import LoadedSite
from sifmod.errors import ModuleError
from sifmod.module.plan import Plan
from sifmod.module.quote import shell
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live_modules, meant

_SHOWN = 3  # commands


def check_modules(layout: Layout, plan: Plan, site: LoadedSite, environ: Mapping[str, str]) -> tuple[str, ...]:
    """A warning for each module of a view that is neither in the prefix nor on MODULEPATH, and may be elsewhere.

    Raises ModuleError for those that are in the prefix in another version, or that an easyconfig here can install.
    """
    here = [str(module) for module, _ in live_modules(layout)]
    problems: list[str] = []
    hints: list[str] = []
    doubts: list[str] = []
    for wanted in plan.modules:
        if any(meant(wanted, module) for module in here) or _is_on_path(wanted, environ):
            continue
        name = wanted.partition("/")[0]
        others = [module for module in here if module.startswith(f"{name}/")]
        commands = list(_commands(wanted, site, environ))
        if commands or others:
            problems.append(f"{wanted} is not installed" + (f" ({', '.join(others)} is)" if others else ""))
            hints += commands[:_SHOWN]
        else:
            doubts.append(f"warning: {wanted}, which {plan.module} loads, is not in {layout.prefix} or on MODULEPATH")
    if problems:
        hint = "; ".join(hints) or "correct `modules`; `sifmod list` shows what is installed"
        raise ModuleError(f"{plan.module} cannot be installed: {'; '.join(problems)}", hint)
    return tuple(doubts)


def _is_on_path(wanted: str, environ: Mapping[str, str]) -> bool:
    """Whether a directory of MODULEPATH has it, in this version or in one that begins so."""
    name, _, version = wanted.rpartition("/")
    for directory in filter(None, environ.get("MODULEPATH", "").split(":")):
        try:
            names = os.listdir(f"{directory}/{name}")  # noqa: PTH208 (plain names)
        except OSError:
            continue
        if any(meant(f"/{version}", f"/{file.removesuffix('.lua')}") for file in names):
            return True
    return False


def _commands(wanted: str, site: LoadedSite, environ: Mapping[str, str]) -> Iterator[str]:
    for found in find_all(site.site.robot_paths, lambda: site, environ):
        for offered in found.variants:
            if meant(wanted, offered.module) and offered.fits(site.site.accelerator, site.site.arch):
                variant = f" --variant {shell(offered.variant)}" if offered.variant else ""
                yield f"sifmod install {shell(name_of(found.path, site.site.robot_paths))}{variant}"
