"""Every command of sifmod."""

import click

from sifmod.cli.commands import COMMANDS
from sifmod.cli.main import cli


def commands() -> dict[str, click.Command]:
    """Every command, by its words."""
    found: dict[str, click.Command] = {}
    with click.Context(cli) as context:
        for name in COMMANDS:
            command = cli.get_command(context, name)
            assert command is not None
            inner = command.commands if isinstance(command, click.Group) else None
            found |= {name: command} if inner is None else {f"{name} {word}": one for word, one in inner.items()}
    return found
