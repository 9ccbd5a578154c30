"""`sifmod stack`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sifmod.cli.context import reporter
from sifmod.cli.output import echo, print_json, say
from sifmod.cli.output import quiet as silent
from sifmod.cli.shared_options import Given, conversion_options, json_option, site_options, yes_option
from sifmod.cli.stack_files import bundle, catalogue, init, lock, outdated, stack_given, stack_options
from sifmod.cli.stack_job import asked_of_jobs, job_options
from sifmod.cli.stack_told import counts, disk_needed, jobs_data, lines, of_jobs, stack_data, summary, tell

if TYPE_CHECKING:
    from sifmod.actions.stack.stack_plan import StackPlan


def lock_options(command: Callable[..., int]) -> Callable[..., int]:
    """--locked, and where the images and the layers of the lock may be taken from."""
    locked = click.option("--locked", is_flag=True, help="Exactly what FILE's lock says, or nothing.")
    return locked(
        click.option(
            "--from",
            "stores",
            metavar="PREFIX",
            multiple=True,
            type=click.Path(path_type=Path),
            help="With --locked: take images from the tree there, such as one where they were tested. May be repeated.",
        )(command)
    )


held_option = click.option(
    "--fail-on-held", is_flag=True, help="End with 1 where a module is left out that is held after a rollback."
)


@click.group("stack")
def command() -> None:
    """Publish many modules from one file."""


@command.command("plan")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@lock_options
@stack_options
@held_option
@site_options
@json_option
def plan(file: Path, as_json: bool, locked: bool, **given: Any) -> int:
    """Print what `apply` would do, and why: a line for each module, then what it would fetch or copy.

    [ ] new; [x] there; [R] made anew, and why; [D] another default, hidden, deprecated or retired; [H] held since
    it was rolled back, and left as it is; [!] cannot be installed; [-] installed by this stack, which does not name
    it any more. Nothing is changed.
    """
    from sifmod.actions.stack.apply import preview_stack

    found = preview_stack(file, stack_given(given, locked=locked))
    plan = found.plan
    if as_json:
        sizes = found.fetches._asdict() if found.fetches else {}
        sizes = {key: value for key, value in sizes.items() if key not in ("shared", "together")}
        print_json({**stack_data(plan, found.lives), **sizes})
    else:
        for line in lines(plan, found.lives, all_of_them=True):
            echo(line)
        for line in (*counts(plan), *disk_needed(found)):
            say(line)
    failed = (step.error.exit_code for step in plan.steps if step.error)
    return max((*failed, fails_for_held(plan, given)))


@command.command("apply")
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--bundle",
    "bundled",
    metavar="FILE.tar|DIR",
    type=click.Path(path_type=Path),
    help="Without FILE: exactly what this bundle holds; no network is used.",
)
@click.option("--local-settings", is_flag=True, help="With --bundle: by the settings here, not by those of the bundle.")
@lock_options
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@stack_options
@held_option
@conversion_options
@yes_option
@site_options
@click.option("--then-decide", is_flag=True, hidden=True)  # of the elements of a job for a whole stack
@job_options
@json_option
@click.pass_context
def apply(
    context: click.Context,
    /,
    file: Path | None,
    bundled: Path | None,
    as_json: bool,
    quiet: bool,
    locked: bool,
    **given: Any,
) -> int:
    """Make the installed modules those of FILE.

    A module that fails leaves the others to be installed; a summary says at the end what became of them, and where the
    log of each is. Run it again after an interruption: it goes on where it was. What was rolled back from is held: it
    is left out, and told. What the stack does not name any more stays installed, and is told. With --job it is Slurm
    that does all this; submitted again, only what is missing and not in the queue is.
    """
    from sifmod.actions.stack.apply import StackRun, apply_stack
    from sifmod.cli.progress import progress

    jobs, wait = asked_of_jobs(context), given["wait"]
    if given["local_settings"] and not bundled:
        raise click.UsageError("--local-settings is for --bundle")
    if (file is None) == (bundled is None):
        raise click.UsageError("give the FILE of a stack, or --bundle")
    options = stack_given(given, locked=locked)
    asked = StackRun(file, options, bundled, given["local_settings"], jobs, wait, given["then_decide"])
    speak = silent if quiet else say
    with progress(not quiet) as update:
        outcome = apply_stack(asked, reporter(speak, update), partial(tell, speak))
    failed, plan = outcome.failed, outcome.plan
    for line in of_jobs(outcome):
        speak(line)
    if as_json:
        log = str(plan.layout.logs / "stacks" / plan.stack.name)
        print_json({**stack_data(plan, outcome.lives, outcome), "log": log, **jobs_data(outcome)})
    elif failed or (any(step.todo for step in plan.steps) and (wait or not jobs)):
        for line in summary(outcome):
            speak(line)
    tests = (22 for one in outcome.tests if not one.passed)
    codes = (error.exit_code for error in failed.values())
    return max((*codes, *tests, fails_for_held(plan, given, len(outcome.held))))


def fails_for_held(made: "StackPlan", given: Given, more: int = 0) -> int:
    """The exit code for modules that are held after a rollback: 1 with --fail-on-held."""
    return int(given["fail_on_held"] and bool(more or any(step.mark == "H" for step in made.steps)))


for inner in (lock, outdated, bundle, init, catalogue):
    command.add_command(inner)
