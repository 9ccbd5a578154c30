"""The commands of sifmod and their options, asked of the command line itself."""

from collections.abc import Iterator

import click

from sifmod.cli.main import cli


def options_of_commands(
    group: click.Group = cli, context: click.Context | None = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The words of a command and the spellings of one of its options, for each; a hidden option is not there."""
    context = context or click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from options_of_commands(command, click.Context(command, context, name), (*path, name))
        elif command:
            for option in command.params:
                if isinstance(option, click.Option) and not option.hidden:
                    spellings = (tuple(option.opts), tuple(option.secondary_opts))
                    yield from (((*path, name), flags) for flags in spellings if flags)
