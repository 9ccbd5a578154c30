"""`sifmod stack`."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sifmod.cli.context import load_context, reporter, typed
from sifmod.cli.output import echo, print_json, say
from sifmod.cli.output import quiet as silent
from sifmod.cli.shared_options import Given, conversion_options, json_option, site_options, yes_option
from sifmod.cli.stack_files import bundle, catalogue, given_site, init, lock, outdated, planned_stack, stack_options
from sifmod.cli.stack_job import asked_of_jobs, chosen, job_options, run_jobs
from sifmod.cli.stack_told import counts, disk_needed, how_it_ended, lines, show_end, summary, tell

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
    from sifmod.actions.lock import lock_beside, read_lock
    from sifmod.actions.stack.fetches import fetches
    from sifmod.actions.stack.lives import lives
    from sifmod.actions.stack.report import report
    from sifmod.actions.stack.stack_plan import plan_stack

    planned, site = planned_stack(file, given)
    if locked:
        planned = planned._replace(lock=read_lock(lock_beside(file.absolute())))
    made = chosen(plan_stack(planned))
    needed, decided = fetches(made, planned.jobs), lives(made)
    if as_json:
        print_json(report(made, decided)._replace(needed=needed))
    else:
        for line in lines(made, decided, all_of_them=True):
            echo(line)
        for line in (*counts(made), *disk_needed(needed, site)):
            say(line)
    failed = (step.error.exit_code for step in made.steps if step.error)
    return max((*failed, fails_for_held(made, given)))


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
def apply(file: Path | None, bundled: Path | None, as_json: bool, quiet: bool, locked: bool, **given: Any) -> int:
    """Make the installed modules those of FILE.

    A module that fails leaves the others to be installed; a summary says at the end what became of them, and where the
    log of each is. Run it again after an interruption: it goes on where it was. What was rolled back from is held: it
    is left out, and told. What the stack does not name any more stays installed, and is told. With --job it is Slurm
    that does all this; submitted again, only what is missing and not in the queue is.
    """
    from sifmod.actions.changing_prefix import site_umask
    from sifmod.actions.lock import lock_beside, read_lock
    from sifmod.actions.spider_cache import refresh_spider_cache
    from sifmod.actions.stack.apply import Applying, clean_up, write_down
    from sifmod.actions.stack.fetches import fetches
    from sifmod.actions.stack.job import is_last
    from sifmod.actions.stack.lives import apply_lives, lives
    from sifmod.actions.stack.report import report
    from sifmod.actions.stack.stack_plan import plan_stack
    from sifmod.cli.progress import progress

    asked = asked_of_jobs()
    differ: tuple[str, ...] = ()
    if given["local_settings"] and not bundled:
        raise click.UsageError("--local-settings is for --bundle")
    if (file is None) == (bundled is None):
        raise click.UsageError("give the FILE of a stack, or --bundle")
    if bundled:
        file, given, differ = _unbundled(bundled, given, quiet=quiet)
        locked = True
    assert file is not None  # noqa: S101 (for mypy: one of them is given)
    planned, site = planned_stack(file, given)
    if bundled:  # its layers lie beside the stack
        planned = planned._replace(options=replace(planned.options, stores=(file.parent,)))
    if locked:
        planned = planned._replace(lock=read_lock(lock_beside(file.absolute())))
    speak = silent if quiet else say
    telling = reporter(speak)
    clean_up(planned.layout, site.site, telling)
    whole = plan_stack(planned)
    made = chosen(whole)
    if locked and (refused := next((step.error for step in made.steps if step.error), None)):
        if differ and given["local_settings"]:
            refused.hint = f"these settings differ: {'; '.join(differ)}. Without --local-settings the bundle's decide"
        raise refused  # exactly that, or nothing
    todo = sum(step.todo is not None for step in made.steps)
    needed = fetches(made, planned.jobs) if todo else None
    decided = None if given["only"] else lives(made)
    for line in (*lines(made, decided), *counts(made), *(disk_needed(needed, site) if needed else ())):
        speak(line.strip())
    applying = Applying(made, needed.shared if needed else {}, typed())
    ran = None
    if asked:

        def ended(number: int) -> None:
            show_end(number, applying, how_it_ended(number, applying), speak)

        asked = asked._replace(together=needed.together) if needed else asked
        ran = run_jobs(asked, applying, site.site, speak, ended)
    else:
        with site_umask(site.site), progress(not quiet) as update:  # others of the group write into the same logs
            for event in applying.run(planned.jobs):
                tell(event, applying, made, telling, update)
    submitted = bool(ran and ran.jobs)
    if decided and (later := apply_lives(made, decided, site.site, telling, waits=submitted and not given["wait"])):
        speak(f"{', '.join(later)}: what the stack decides is applied when the jobs end")
    write_down(made, decided.decided if decided else None, planned.lock, site.site, telling)
    stale = bool(decided and decided.changes)
    installed = any(one.changed for one in applying.became.values())
    last = is_last(made, site.site, telling.waiting(f"the stack {made.stack.name}")) if given["only"] else None
    if last is not None:  # an element of a job
        stale = last
        if last and given["then_decide"]:  # nothing is submitted that would do it later
            decided = lives(whole)
            apply_lives(whole, decided, site.site, telling)
            write_down(whole, decided.decided, planned.lock, site.site, telling)
    elif submitted:  # their last element has done it, unless it died
        stale |= installed and bool(applying.failed)
    else:
        stale |= installed
    if stale:
        refresh_spider_cache(made.layout, site.site, telling)
    if as_json:
        told = report(made, decided, applying)._replace(log=made.layout.logs / "stacks" / made.stack.name)
        print_json(told._replace(jobs=ran.jobs, tests=ran.tests) if ran else told)
    elif applying.failed or (todo and (given["wait"] or not asked)):
        for line in summary(made, applying):
            speak(line)
    failed = (error.exit_code for error in applying.failed.values())
    return max((*failed, ran.exit_code if ran else 0, fails_for_held(made, given, len(applying.held))))


def fails_for_held(made: "StackPlan", given: Given, more: int = 0) -> int:
    """The exit code for modules that are held after a rollback: 1 with --fail-on-held."""
    return int(given["fail_on_held"] and bool(more or any(step.mark == "H" for step in made.steps)))


def _for_this_command(variables: Mapping[str, str]) -> None:
    """Set variables until this command ends; its workers inherit them."""
    before = {name: os.environ.get(name) for name in variables}

    def restore() -> None:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    os.environ.update(variables)
    click.get_current_context().call_on_close(restore)


def _unbundled(bundled: Path, given: Given, *, quiet: bool) -> tuple[Path, dict[str, Any], tuple[str, ...]]:
    """The stack of a bundle, whose images are in the store now, its options, and the settings that differ here."""
    from sifmod.actions.stack.decided import differing
    from sifmod.actions.stack.unbundle import unbundle
    from sifmod.cli.progress import progress
    from sifmod.config.prefix import BUNDLE, bundle_variables

    site = load_context(given_site(given))
    with progress(not quiet) as update:
        found = unbundle(bundled, site.site, reporter(say, update))
    place, local = found.place, given["local_settings"]
    if found.made_by:
        say(f"warning: sifmod {found.made_by} with other files made the bundle; its own is in its wheels/")
    given = {**given, "offline": True}
    if (robot := place / "robot").is_dir():
        given["robot_paths"] = ":".join(filter(None, (str(robot), str(given.get("robot_paths") or ""))))
    _for_this_command(bundle_variables(found.variables, os.environ))
    _for_this_command({BUNDLE: str(place)})
    differ = differing(load_context(given_site(given)), site)
    if local:
        del os.environ[BUNDLE]
    for text in differ:
        say(f"{text}{'' if local else '; the bundle decides'}")
    return place / "stack.yaml", given, differ


for inner in (lock, outdated, bundle, init, catalogue):
    command.add_command(inner)
