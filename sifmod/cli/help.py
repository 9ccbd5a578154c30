"""`sifmod help`."""

from collections.abc import Iterator

import click

from sifmod.cli.command import Options, argument, command
from sifmod.cli.commands import COMMANDS, EXIT_CODES, TOPICS
from sifmod.cli.examples import EXAMPLES
from sifmod.cli.output import echo


class HelpOptions(Options):
    words: tuple[str, ...] = argument("[COMMAND|TOPIC]...", default=(), many=True)


@command("help", HelpOptions)
def help_command(given: HelpOptions) -> int | None:
    """Explain a command as its --help does, or a topic: start, use, change, recipes, admin, exit-codes."""
    from sifmod.cli.main import cli

    if given.words == ("exit-codes",):
        echo("\n".join(f"{code:4}  {text}" for code, text in EXIT_CODES))
        return None
    if len(given.words) == 1 and given.words[0] in TOPICS:
        echo("\n".join(_topic(given.words[0])))
        return None
    words = [*given.words, "--help"]
    obj = click.get_current_context().obj
    ended: int | None = cli.main(args=words, prog_name="sifmod", standalone_mode=False, obj=obj)
    return ended


def _topic(name: str) -> Iterator[str]:
    """The lines about a topic: each of its commands, with up to three examples."""
    yield TOPICS[name]
    for verb in (verb for verb, one in COMMANDS.items() if one.topic == name):
        yield f"\n  {verb}: {COMMANDS[verb].text}"
        for example, purpose in EXAMPLES[verb][:3]:
            yield f"    {example}{f'  # {purpose}' if purpose else ''}"
    yield "\n`sifmod help COMMAND` has every option."
