"""The `--help` of a command: its examples first, then its description, and its options by subject."""

from collections.abc import Callable

import click

from sifmod.cli.output import echo, hanging, terminal_width
from sifmod.config.option import option_of
from sifmod.errors import OptionError
from sifmod.system import one_line

ORDER = ("What", "Where", "How", "Slurm", "Output")
_IN_FULL = ("install", "config show")  # whose help explains the options of a site


def words(ctx: click.Context) -> str:
    """The words of the command: `install`, `site show`; "" for sifmod itself."""
    return ctx.command_path.partition(" ")[2]


class Helped(click.Command):
    """A command whose `--help` goes through sifmod's output functions."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Click's help option, or None; it prints with sifmod's output functions."""
        if option := super().get_help_option(ctx):
            option.callback = _print_help
        return option


def _print_help(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        echo(ctx.get_help())
        ctx.exit()


class Command(Helped):
    """A command whose help has examples, and options by subject."""

    prints: Callable[[], object] | None = None  # the type of its result in JSON

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write usage, examples, description, options and epilog."""
        self.format_usage(ctx, formatter)
        write_examples(words(ctx), formatter)
        self.format_help_text(ctx, formatter)
        self.format_options(ctx, formatter)
        self.format_epilog(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by subject."""
        for title, rows in option_groups(self, ctx):
            with formatter.section(title):
                most = formatter.width - formatter.current_indent
                formatter.write_dl([("\n  ".join(hanging("", option, most)), text) for option, text in rows])


class CommandGroup(Command, click.Group):
    """A group of commands: `site show`, `site new`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click, but raises OptionError with a hint for an unknown command."""
        if args and not ctx.resilient_parsing and not args[0].startswith("-") and args[0] not in self.commands:
            from sifmod.cli.suggestion import meaning_of

            hint = meaning_of(args[0], self.commands, words(ctx)) or f"`{ctx.command_path} --help` lists the commands"
            raise OptionError(f"there is no command `{words(ctx)} {one_line(args[0])}`", hint)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the options."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(200)) for name, each in self.commands.items()])
        super().format_options(ctx, formatter)


def write_examples(verb: str, formatter: click.HelpFormatter) -> None:
    """Write the examples of a command, if it has any, with their purposes."""
    from sifmod.cli.examples import EXAMPLES

    if examples := EXAMPLES.get(verb):
        with formatter.section("Examples"):
            width, most = max(len(command) for command, text in examples if text), terminal_width()
            for command, text in examples:
                line = f"  {command.ljust(width)}  {text}".rstrip()
                fits = not (most and text) or len(line) <= most
                lines = [line] if fits else [f"  {command}", *hanging(" " * 6, text, most)]
                formatter.write("\n".join(lines) + "\n")


def option_groups(command: click.Command, ctx: click.Context) -> list[tuple[str, list[tuple[str, str]]]]:
    """Titles with the rows of their options: spelling and text. `brief` options share one row, except in _IN_FULL."""
    found: dict[str, list[tuple[str, str]]] = {title: [] for title in ORDER}
    short = []
    for parameter in command.get_params(ctx):
        if not isinstance(parameter, click.Option):
            continue
        option = None if "--help" in parameter.opts else option_of(words(ctx), str(parameter.name))
        if option and option.brief and words(ctx) not in _IN_FULL:
            short.append(parameter.opts[0])
        elif row := parameter.get_help_record(ctx):
            found[option.title if option else "Output"].append(row)
    if short:
        found["Where"].append((", ".join(short), "See `sifmod config show --help`."))
    return [(title, rows) for title, rows in found.items() if rows]
