"""`sifmod schema`."""

import click


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of an easyconfig, for editors and validators."""
    from sifmod.cli.output import print_json
    from sifmod.config.schema import easyconfig_schema

    print_json(easyconfig_schema())
