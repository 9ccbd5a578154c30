"""`sifmod check`."""

from pathlib import Path

import click

from sifmod.cli.options import json_option, site_options


@click.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@site_options
@json_option
def command(files: tuple[str, ...], as_json: bool, **site: str | None) -> int:
    """Validate easyconfigs and render what they would install; every problem as file:line:column: key: message."""
    from sifmod.actions.check import check
    from sifmod.cli.context import load_context
    from sifmod.cli.output import print_json
    from sifmod.config.find import find_easyconfig
    from sifmod.errors import ConfigError, SifmodError

    context = load_context(site)
    results: list[dict[str, object]] = []
    worst = 0
    for file in files:
        path = Path(file)
        try:
            path = find_easyconfig(file, context.site.robot_paths)
            checked = check(path, context)
        except SifmodError as error:
            worst = max(worst, error.exit_code)
            problems = [str(problem) for problem in error.problems] if isinstance(error, ConfigError) else [str(error)]
            results.append({"path": str(path), "problems": problems, "modules": []})
            if not as_json:
                click.echo("\n".join(problems))
            continue
        modules = [{"module": one.module, "variant": one.variant, "files": one.files} for one in checked]
        results.append({"path": str(path), "problems": [], "modules": modules})
        if not as_json:
            for one in checked:
                click.echo(f"{path}: ok: {one.module}{f' (variant {one.variant})' if one.variant else ''}")
    if as_json:
        print_json(results)
    return worst
