"""The `sifmod` command line: find the command, run it, and turn errors into a message and an exit code."""

import importlib
import io
import os
import signal
import sys
from types import FrameType

import click

from sifmod.cli.command_help import Helped
from sifmod.cli.commands import ALIASES, COMMANDS, TOGETHER, TOPICS
from sifmod.cli.output import (
    echo,
    hanging,
    hide_typed,
    json_text,
    lost_output,
    show_error,
    terminal_width,
    without_typed,
    write,
)
from sifmod.errors import BUG, BUG_REPORT, OptionError, SifmodError, as_result, explained, with_code
from sifmod.system import one_line

NOT_RESUMABLE = frozenset({"test"})  # commands that keep nothing of an interrupted run
_MORE = "-V shows the version. `sifmod help` explains a COMMAND, or one of these topics:"


class Terminated(SystemExit):
    """A termination signal: unwinds whatever is in progress."""


class CommandLine:
    """The typed arguments, and whether the result was printed."""

    def __init__(self, words: tuple[str, ...]) -> None:
        """Start without a printed result."""
        self.words = words
        self.answered = False

    @property
    def wants_json(self) -> bool:
        """Whether `--json` is among the arguments, which need not be valid."""
        options = self.words[: self.words.index("--")] if "--" in self.words else self.words
        return "--json" in options

    @property
    def again(self) -> str:
        """The end of the message about an interrupted run; "" if the command keeps nothing of it."""
        return "" if NOT_RESUMABLE.intersection(self.words[:1]) else "; repeat the command to continue where it stopped"


class Commands(Helped, click.Group):
    """A group whose commands are imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names of the commands, in the order of `sifmod --help`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command, with candidates if TAB asks for them; None if there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        there = vars(importlib.import_module(f"sifmod.cli.{COMMANDS[cmd_name].file}")).values()
        command = next(each for each in there if isinstance(each, click.Command) and each.name == cmd_name)
        if ctx.resilient_parsing:
            from sifmod.cli.complete import completing

            return completing(command, cmd_name)
        return command

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write one page, the commands by topic, without importing a command."""
        width = terminal_width()
        text = "\n".join(hanging("  ", self.help or "", width))
        formatter.write(f"Usage: sifmod COMMAND [ARGUMENTS]...\n\n{text}\n")
        beside = {other for other, _ in TOGETHER.values()}
        for topic, title in TOPICS.items():
            formatter.write(f"\n{title}:\n")
            for name, one in COMMANDS.items():
                if one.topic == topic and name not in beside:
                    other, text = TOGETHER.get(name, ("", one.text))
                    names = f"{name}, {other}" if other else name
                    formatter.write("\n".join(hanging(f"  {names:17}  ", text, width)) + "\n")
        topics = ", ".join((*TOPICS, "exit-codes"))
        formatter.write("\n".join(("", *hanging("", _MORE, width), *hanging("", topics, width), "")))
        tutorial = os.path.join(sys.prefix, "share", "doc", "sifmod", "tutorial.md")  # noqa: PTH118
        if os.path.exists(tutorial):  # noqa: PTH110 (pathlib would be imported for it)
            formatter.write(f"Ten minutes: {tutorial}\n")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click, but also for earlier names; raises OptionError with a hint for an unknown command."""
        if args[:1] and args[0] in ALIASES:
            args = [*ALIASES[args[0]].split(), *args[1:]]
        if args and not ctx.resilient_parsing and not args[0].startswith("-") and args[0] not in COMMANDS:
            from sifmod.cli.suggestion import meaning_of

            hint = meaning_of(args[0], (*COMMANDS, *ALIASES)) or "`sifmod help` lists the commands"
            raise OptionError(f"there is no command `{one_line(args[0])}`", hint)
        return super().resolve_command(ctx, args)


def _version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from sifmod import __version__

        echo(f"sifmod {__version__}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-V", "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="The version."
)
def cli() -> None:
    """Install container images as environment modules, from one YAML file each."""


def run(arguments: list[str]) -> int:
    """Run one command line; returns its exit code (130 for ^C, 70 for a bug, else the command's or the error's).

    1 if only the output could not be written. A closed pipe (`| head`) is not an error. Raises Terminated on a signal.
    """
    _open_standard_streams()
    os.umask(os.umask(0o077) & ~0o700)  # a umask of 0777 would close each new file to this very run
    hide_typed(arguments)
    if "_SIFMOD_COMPLETE" in os.environ:  # TAB: click repeats a word, which need not be text
        for name in ("COMP_WORDS", "COMP_CWORD"):
            os.environ[name] = os.environ.get(name, "0").encode(errors="replace").decode()
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _terminated)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
        signal.signal(signal.SIGHUP, _terminated)
    code = _run(arguments, CommandLine(tuple(arguments)))
    if lost := lost_output():
        show_error(lost.text, lost.hint)
        return code or lost.exit_code
    return code


def _run(arguments: list[str], typed: CommandLine) -> int:
    try:
        result = cli.main(args=arguments, prog_name="sifmod", standalone_mode=False, obj=typed)
    except (click.exceptions.Abort, KeyboardInterrupt):  # click turns KeyboardInterrupt into Abort
        return _failed(with_code(f"interrupted{typed.again}", "", 130), typed)
    except Terminated as end:
        _failed(with_code(f"terminated{typed.again}", "", int(str(end.code))), typed)
        raise
    except click.ClickException as problem:
        if hint := _of_another_tool(problem):
            return _failed(with_code(problem.format_message(), hint, problem.exit_code), typed)
        error = _likely(problem)
        usage = io.StringIO()
        error.show(usage)
        echo(usage.getvalue(), nl=False, err=True)
        context = error.ctx if isinstance(error, click.UsageError) else None
        help_of = f"`{context.command_path} --help` explains it" if context else ""
        return _answer(with_code(error.format_message(), help_of, error.exit_code), typed)
    except SifmodError as error:
        return _failed(error, typed)
    except Exception as error:
        import traceback

        if known := explained(error):
            return _failed(known, typed, file=getattr(error, "filename", None))
        echo(traceback.format_exc(), nl=False, err=True)
        show_error(BUG_REPORT)
        return _answer(with_code(f"{type(error).__name__}: {error}", BUG_REPORT, BUG), typed)
    return result if isinstance(result, int) else 0


def _failed(error: SifmodError, typed: CommandLine, file: object = None) -> int:
    """Report the error to people and programs; returns its exit code."""
    show_error(error.text, error.hint)
    return _answer(error, typed, file)


def _of_another_tool(error: click.ClickException) -> str:
    """What to type for an option before any command, as `eb` has it; "" for other errors."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None or error.ctx.command is not cli:
        return ""
    from sifmod.cli.suggestion import OTHER_OPTIONS

    return OTHER_OPTIONS.get(error.option_name, "options follow a command: `sifmod install FILE|NAME [OPTIONS]`")


def _likely(error: click.ClickException) -> click.ClickException:
    """The error, with click's similar options limited to likely typing errors (not --force for --source)."""
    if not isinstance(error, click.NoSuchOption):
        return error
    import difflib

    typed, known = error.option_name.lstrip("-"), [name.lstrip("-") for name in error.possibilities or ()]
    close = [f"--{name}" for name in difflib.get_close_matches(typed, known, cutoff=0.8)]
    return click.NoSuchOption(error.option_name, possibilities=close, ctx=error.ctx)


def _answer(error: SifmodError, typed: CommandLine, file: object = None) -> int:
    """With `--json`, print the error on standard output unless the command has printed data; returns its exit code."""
    if typed.wants_json and not typed.answered:
        answer = as_result(error)
        write(without_typed(json_text(answer if file is None else answer._replace(file=str(file)))))
    return error.exit_code


def _open_standard_streams() -> None:
    """Reopen closed standard streams (`2>&-`), before another file gets their number."""
    for number, stream in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, stream) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest free number
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, stream, os.fdopen(number, "r" if number == 0 else "w", encoding="utf-8"))


def _terminated(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise Terminated(128 + number)
