"""`sifmod schema`."""

import click


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of an easyconfig, for editors and validators."""
    import json

    from sifmod.config.schema import easyconfig_schema

    click.echo(json.dumps(easyconfig_schema(), indent=2))
