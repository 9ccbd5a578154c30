"""`sifmod config`."""

import click

from sifmod.cli.options import json_option, site_options


@click.group("config")
def command() -> None:
    """Show the configuration and where each value came from."""


@command.command("show")
@site_options
@json_option
def show(as_json: bool, **site: str | None) -> None:
    """Print every setting, its value and its origin.

    Precedence: command line > SIFMOD_* variables > ~/.config/sifmod/config.yaml > /etc/sifmod.d/*.yaml > the site >
    defaults.
    """
    from sifmod.cli.context import load_context
    from sifmod.cli.output import print_json, print_rows

    origins = load_context(site).origins
    if as_json:
        print_json([{"key": key, "value": value, "origin": origin} for key, value, origin in origins])
    else:
        print_rows([(key, "=", value, f"({origin})") for key, value, origin in origins])
