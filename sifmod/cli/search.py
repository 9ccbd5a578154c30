"""`sifmod search`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, site_options

if TYPE_CHECKING:
    from sifmod.config.settings import LoadedSite


@click.command("search")
@click.argument("pattern", default="")
@site_options
@json_option
def command(pattern: str, as_json: bool, **site: str | None) -> int:
    """List the easyconfigs whose file name holds PATTERN (any case; a regular expression or plain text).

    With --json also the modules that each can install.
    """
    from sifmod.cli.context import load_facts
    from sifmod.cli.output import echo, print_json
    from sifmod.config.find import search_easyconfigs
    from sifmod.config.shown import shown

    context = load_facts(site)
    found = search_easyconfigs(pattern, context.site.robot_paths)
    if as_json:
        print_json([_as_json(path, context) for path in found])
    else:
        for path in found:
            echo(path)
    if not found and not as_json:
        echo(f"no easyconfig matches {shown(pattern)!r}", err=True)
    return 0 if found else 1


def _as_json(path: Path, context: "LoadedSite") -> dict[str, object]:
    """A file's path and variants; `problems` only where it has some."""
    from sifmod.actions.search import describe
    from sifmod.cli.output import problems_data

    found = describe(path, context, os.environ)
    variants = [
        {"variant": each.variant, "module": each.module, "accelerator": each.accelerator} for each in found.variants
    ]
    problems = {"problems": problems_data(found.problems)} if found.problems else {}
    return {"path": str(path), "variants": variants, **problems}
