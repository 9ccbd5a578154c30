"""check: validate easyconfigs and render what they would install, without installing anything."""

import os
from dataclasses import dataclass
from pathlib import Path

from sifmod.actions.sources import check_sources
from sifmod.config.lint import lint_binds
from sifmod.config.load import all_variants
from sifmod.config.settings import LoadedSite
from sifmod.errors import ConfigError, Problem
from sifmod.module.decide import Choices, make_plan
from sifmod.module.plan import Plan
from sifmod.module.render import render, render_stub


@dataclass(frozen=True)
class Checked:
    """One variant of one easyconfig that can be installed."""

    path: Path
    variant: str | None
    module: str
    files: int  # rendered
    warnings: tuple[Problem, ...]  # what is odd about its binds


def check(path: Path, site: LoadedSite) -> tuple[Checked, ...]:
    """Every variant of an easyconfig, validated and rendered; raises ConfigError with every problem of the file."""
    loaded = all_variants(path, site, os.environ)
    problems: dict[Problem, None] = {}
    for one in loaded:
        try:
            check_sources(one)
        except ConfigError as error:
            problems |= dict.fromkeys(error.problems)
    if problems:
        raise ConfigError(tuple(problems))
    plans = [make_plan(one.easyconfig, site.site, Choices(path.stem, site.site.link), one.quirks) for one in loaded]
    return tuple(
        Checked(path, one.variant, str(plan.module), _rendered(plan), lint_binds(one.tree))
        for one, plan in zip(loaded, plans, strict=True)
    )


def _rendered(plan: Plan) -> int:
    return len(render(plan, 1)) + len(render_stub(plan))
