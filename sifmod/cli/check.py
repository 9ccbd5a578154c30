"""`sifmod check`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, site_options

if TYPE_CHECKING:
    from sifmod.config.settings import LoadedSite


@click.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@site_options
@json_option
def command(files: tuple[str, ...], as_json: bool, **site: str | None) -> int:
    """Validate easyconfigs and render what they would install; every problem as file:line:column: key: message.

    Site files and quirks are checked too; binds that are allowed and odd are a warning.
    """
    from sifmod.cli.context import load_context
    from sifmod.cli.output import echo, error_data, print_json
    from sifmod.config.find import find_easyconfig
    from sifmod.errors import ConfigError, SifmodError

    context = load_context(site)
    results: list[dict[str, object]] = []
    worst = 0
    for file in files:
        path = Path(file)
        try:
            path = find_easyconfig(file, context.site.robot_paths)
            result, lines = _checked(path, context)
        except SifmodError as error:
            worst = max(worst, error.exit_code)
            lines = [str(problem) for problem in error.problems] if isinstance(error, ConfigError) else [str(error)]
            result = {"path": str(path.absolute()), "modules": [], "warnings": [], **error_data(error)}
        results.append(result)
        if not as_json:
            echo("\n".join(lines))
    if as_json:
        print_json(results)
    return worst


def _checked(path: Path, context: "LoadedSite") -> tuple[dict[str, object], list[str]]:
    """What `--json` says of a file that can be used, and the lines for people."""
    from sifmod.actions.author.check import check
    from sifmod.actions.author.check_settings import check_settings, settings_kind
    from sifmod.cli.output import problems_data

    modules: list[dict[str, object]] = []
    if kind := settings_kind(path):
        warnings = check_settings(path, kind, os.environ).warnings
        fine = [f"{path}: ok: a {kind}"]
    else:
        checked = check(path, context)
        modules = [{"module": one.module, "variant": one.variant, "rendered": one.files} for one in checked]
        warnings = tuple(dict.fromkeys(problem for one in checked for problem in one.warnings))
        fine = [f"{path}: ok: {one.module}{f' (variant {one.variant})' if one.variant else ''}" for one in checked]
    told = {"modules": modules, "problems": [], "warnings": problems_data(warnings)}
    return {"path": str(path.absolute()), **told}, [*(f"{warning} (warning)" for warning in warnings), *fine]
