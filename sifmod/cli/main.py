"""The `sifmod` command line: find the command, run it, and turn errors into a message and an exit code."""

import importlib
import io
import os
import signal
import sys
from dataclasses import replace
from types import FrameType

import click

from sifmod.cli.output import echo, json_text, lost_output, show_error, write
from sifmod.cli.verb import Helped, write_examples
from sifmod.errors import BUG, BUG_REPORT, SifmodError, as_result, explained, with_code

# command → (its file, first line of its help), so that `sifmod --help` imports none of them
VERBS = {
    "install": ("install", "Install the modules of one or more easyconfigs."),
    "fetch": ("fetch", "Fetch an image by its reference into the store or a file, and verify it."),
    "push": ("subject", "Push an image to a registry, as a SIF or as an OCI image."),
    "export": ("subject", "Write an image for other tools: enroot, podman, docker; or its files."),
    "new": ("author", "Draft an easyconfig for an image."),
    "import": ("author", "Convert EasyBuild, singularity-hpc and NGC files into easyconfigs."),
    "add": ("layers", "Add Python packages to a module, in a layer over its image."),
    "remove": ("layers", "Remove packages from a module's layer."),
    "layers": ("layers", "List the layers of packages."),
    "sync": ("layers", "Create a layer from a lock, with the same bytes everywhere."),
    "stack": ("stack", "Publish many modules from one file."),
    "lock": ("author", "Lock what is installed, to reproduce it exactly elsewhere."),
    "jobscript": ("use", "Print a Slurm job script for a module on this site."),
    "jupyter": ("use", "Make a module a kernel of Jupyter, or start JupyterLab in it."),
    "list": ("installed", "List the installed modules."),
    "show": ("show", "Show an installed module, an easyconfig as it would be installed, or an image."),
    "search": ("search", "Search the easyconfigs on the easyconfig path."),
    "verify": ("verify", "Compare installed images and files with their receipts, or check signatures."),
    "sbom": ("subject", "Print the packages of a module or an image as a CycloneDX document."),
    "diff": ("subject", "Show the differences between two modules, generations or images."),
    "test": ("use", "Show whether an installed module works here."),
    "uninstall": ("installed", "Uninstall modules; users' own files stay."),
    "rollback": ("installed", "Switch a module back to its previous generation."),
    "default": ("life", "Make a module the default for its name."),
    "hide": ("life", "Hide modules from `module avail`."),
    "deprecate": ("life", "Deprecate modules: each load prints a notice, until a date."),
    "retire": ("life", "Retire modules: hide them and refuse to load them."),
    "log": ("installed", "Show the changes: time, user, host and command."),
    "gc": ("installed", "Show old generations and unused images; with --yes, remove them."),
    "check": ("author", "Validate easyconfigs and render what they would install."),
    "schema": ("author", "Print the JSON Schema of an easyconfig."),
    "config": ("machine", "Show the configuration and the origin of each value."),
    "site": ("machine", "Detect, show or draft the site of this machine."),
    "doctor": ("machine", "Check this machine: runtime, module tool, GPUs, Slurm, disk space."),
    "init": ("machine", "Print shell code that enables modules and completion."),
}
ANEW = frozenset({"test"})  # commands that keep nothing of an interrupted run


class Terminated(SystemExit):
    """A termination signal: unwinds whatever is in progress."""


class CommandLine:
    """The typed arguments, and whether the result was printed."""

    def __init__(self, words: tuple[str, ...]) -> None:
        """Nothing was printed yet."""
        self.words = words
        self.answered = False

    @property
    def wants_json(self) -> bool:
        """Whether a program reads the output; the arguments need not be valid."""
        options = self.words[: self.words.index("--")] if "--" in self.words else self.words
        return "--json" in options

    @property
    def again(self) -> str:
        """The hint after an interrupted run whose progress was kept."""
        return "" if ANEW.intersection(self.words[:1]) else "; repeat the command to continue where it stopped"


class Verbs(Helped, click.Group):
    """A group whose commands are imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The commands in the order of their use."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; None if there is no such command."""
        if cmd_name not in VERBS:
            return None
        there = vars(importlib.import_module(f"sifmod.cli.{VERBS[cmd_name][0]}")).values()
        command = next(each for each in there if isinstance(each, click.Command) and each.name == cmd_name)
        if ctx.resilient_parsing:
            from sifmod.cli.complete import completing

            return completing(command, cmd_name)
        return command

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A short description of sifmod, and the first steps."""
        super().format_help_text(ctx, formatter)
        write_examples("", formatter, "First steps")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Where to read more, including the installed tutorial."""
        super().format_epilog(ctx, formatter)
        tutorial = os.path.join(sys.prefix, "share", "doc", "sifmod", "tutorial.md")  # noqa: PTH118
        if os.path.exists(tutorial):  # noqa: PTH110 (pathlib would be imported for it)
            formatter.write(f"\n  `man sifmod`, and a tutorial of ten minutes:\n  {tutorial}\n")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click, with a suggestion for a misspelt command."""
        if args and not ctx.resilient_parsing and not args[0].startswith("-") and args[0] not in VERBS:
            import difflib

            close = difflib.get_close_matches(args[0], VERBS, n=1)
            suggestion = f", did you mean `{close[0]}`?" if close else ""
            raise click.UsageError(f"there is no command `{args[0]}`{suggestion}", ctx)
        return super().resolve_command(ctx, args)


def _version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from sifmod import __version__

        echo(f"sifmod {__version__}")
        ctx.exit()


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`sifmod COMMAND --help` explains a command. Exit codes are EasyBuild 5's: 0 ok, 1 failure, 2 bad option, "
    "5 bad easyconfig, 10 no image, 18 the tree could not be changed, 24 no such module, 25 permissions.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version and exit."
)
def cli() -> None:
    """Install container images as environment modules, from one YAML file each."""


def run(arguments: list[str]) -> int:
    """Run one command line; returns its exit code (0 ok, 130 for ^C, 70 for a bug, else the error's own).

    1 if only the output could not be written. A closed pipe (`| head`) is not an error.
    """
    _open_standard_streams()
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
    except (click.exceptions.Abort, KeyboardInterrupt):  # click turns one into the other
        return _failed(with_code(f"interrupted{typed.again}", "", 130), typed)
    except Terminated as end:
        _failed(with_code(f"terminated{typed.again}", "", int(str(end.code))), typed)
        raise
    except click.ClickException as problem:
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

        if isinstance(error, OSError) and (known := explained(error)):
            return _failed(known, typed, file=error.filename)
        echo(traceback.format_exc(), nl=False, err=True)
        show_error(BUG_REPORT)
        return _answer(with_code(f"{type(error).__name__}: {error}", BUG_REPORT, BUG), typed)
    return result if isinstance(result, int) else 0


def _failed(error: SifmodError, typed: CommandLine, file: object = None) -> int:
    """Report the error to people and programs; returns its exit code."""
    show_error(error.text, error.hint)
    return _answer(error, typed, file)


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
        write(json_text(answer if file is None else replace(answer, file=str(file))))
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
