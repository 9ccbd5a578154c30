"""`sifmod search`."""

import click

from sifmod.cli.options import json_option, site_options


@click.command("search")
@click.argument("pattern", default="")
@site_options
@json_option
def command(pattern: str, as_json: bool, **site: str | None) -> int:
    """List the easyconfigs whose file name holds PATTERN (any case; a regular expression or plain text)."""
    from sifmod.cli.context import load_context
    from sifmod.cli.output import print_json
    from sifmod.config.find import search_easyconfigs

    found = search_easyconfigs(pattern, load_context(site).site.robot_paths)
    if as_json:
        print_json([{"path": str(path)} for path in found])
    else:
        for path in found:
            click.echo(path)
    if not found and not as_json:
        click.echo(f"no easyconfig matches {pattern!r}", err=True)
    return 0 if found else 1
