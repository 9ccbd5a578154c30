"""`sifmod stack`."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sifmod.cli.options import SITE_KEYS, Decorated, conversion_options, json_option, site_options, yes_option
from sifmod.cli.stack_job import asked_of_jobs, chosen, job_options, run_jobs

if TYPE_CHECKING:
    from sifmod.actions.reporter import Reporter
    from sifmod.actions.stack.apply import Applying
    from sifmod.actions.stack.plan import Fetches, Planned, StackPlan, Step
    from sifmod.actions.stack.workers import Event
    from sifmod.cli.progress import Display
    from sifmod.config.load_site import LoadedSite

Given = dict[str, str | bool | int | None]


@click.group("stack")
def command() -> None:
    """Publish many modules from one file."""


def stack_options(function: Decorated) -> Decorated:
    """What decides which modules a stack comes to."""
    for option in (
        click.option("--only", metavar="MODULE", multiple=True, help="This module and no other; may be repeated."),
        click.option("--offline", is_flag=True, help="Use only what is on this machine."),
        click.option("--rebuild", is_flag=True, help="Install again even where nothing has changed."),
        click.option("--skip-sanity-check", is_flag=True, help="Do not look for commands in the images."),
        click.option(
            "-j",
            "--jobs",
            metavar="N",
            type=click.IntRange(1, 64),
            help="Modules at the same time (default: processors).",
        ),
    ):
        function = option(function)
    return function


@command.command("plan")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@stack_options
@site_options
@json_option
def plan(file: Path, as_json: bool, **given: str | bool | int | None) -> int:
    """Print what `apply` would do, and why: a line for each module, then what it would fetch.

    [ ] new; [x] there; [R] made anew, and why; [!] cannot be installed; [-] installed by this stack, which does not
    name it any more. Nothing is changed.
    """
    from sifmod.actions.stack.plan import fetches, plan_stack
    from sifmod.cli.output import echo, print_json, say

    planned, site = _planned(file, given)
    made = chosen(plan_stack(planned))
    needed = fetches(made, planned.jobs)
    if as_json:
        print_json({**_data(made), **needed._asdict()})
    else:
        for line in _lines(made, all_of_them=True):
            echo(line)
        for line in (*_counts(made), *_room(needed, site)):
            say(line)
    return _worst(step.error.exit_code for step in made.steps if step.error)


@command.command("apply")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@stack_options
@conversion_options
@yes_option
@site_options
@job_options
@json_option
def apply(file: Path, as_json: bool, quiet: bool, **given: str | bool | int | None) -> int:
    """Make the installed modules those of FILE.

    A module that fails leaves the others to be installed; a summary says at the end what became of them, and where the
    log of each is. Run it again after an interruption: it goes on where it was. What the stack does not name any more
    stays installed, and is told.
    """
    from sifmod.actions.reporter import Reporter
    from sifmod.actions.stack.apply import Applying, write_down
    from sifmod.actions.stack.plan import fetches, plan_stack
    from sifmod.cli.context import typed
    from sifmod.cli.output import print_json, say
    from sifmod.cli.output import quiet as silent
    from sifmod.cli.progress import progress

    asked = asked_of_jobs()
    planned, site = _planned(file, given)
    made = chosen(plan_stack(planned))
    speak = silent if quiet else say
    reporter = Reporter(speak, command=typed())
    todo = sum(step.request is not None for step in made.steps)
    for line in (*_lines(made), *_counts(made), *(_room(fetches(made, planned.jobs), site) if todo else ())):
        speak(line)
    applying = Applying(made, typed())
    ran = None
    if asked:
        ran = run_jobs(asked, applying, site.site, speak, lambda number: _end(number, applying, speak))
    else:
        with progress(not quiet) as update:
            for event in applying.run(planned.jobs):
                _tell(event, applying, made, reporter, update)
        write_down(made, site.site, reporter)
    if as_json:
        log = str(made.layout.logs / "stacks" / made.stack.name)
        print_json({**_data(made, applying), "log": log, **(ran.data if ran else {})})
    elif applying.failed or (todo and (given["wait"] or not asked)):
        for line in _summary(made, applying):
            speak(line)
    return _worst((*(error.exit_code for error in applying.failed.values()), ran.exit_code if ran else 0))


def _planned(file: Path, given: Given) -> "tuple[Planned, LoadedSite]":
    from sifmod.actions.fetch_settings import fetch_settings
    from sifmod.actions.install.options import InstallOptions
    from sifmod.actions.stack.plan import Planned
    from sifmod.cli.context import load_context, tree
    from sifmod.config.prefix import in_full
    from sifmod.config.stack import load_stack
    from sifmod.tree.provenance import Asked

    texts = {
        name: in_full(name, value) for name, value in given.items() if isinstance(value, str) and name in SITE_KEYS
    }
    site = load_context(texts)
    options = InstallOptions(
        rebuild=bool(given["rebuild"]),
        offline=bool(given["offline"]),
        into_home=bool(given.get("yes")),
        asked=Asked(checked=not given["skip_sanity_check"]),
    )
    jobs = given["jobs"] if isinstance(given["jobs"], int) else fetch_settings(site.site).processors
    return Planned(load_stack(file), tree(site.site.prefix), texts, options, jobs), site


def _lines(made: "StackPlan", *, all_of_them: bool = False) -> Iterable[str]:
    from sifmod.system import one_line

    for step in made.steps:
        if step.mark != "x" or all_of_them:
            reasons = (step.error.message.partition("\n")[0],) if step.error else step.why
            yield one_line(f" [{step.mark}] {step}{': ' if reasons else ''}{'; '.join(reasons)}")
    for module in made.unnamed:
        yield f" [-] {module}: the stack does not name it any more; `sifmod uninstall {module}` removes it"


def _counts(made: "StackPlan") -> Iterable[str]:
    words = {" ": "new", "R": "made anew", "x": "there", "!": "cannot be installed"}
    counts = {mark: sum(step.mark == mark for step in made.steps) for mark in words}
    told = [f"{counts[mark]} {words[mark]}" for mark in words if counts[mark]]
    gone = [f"{len(made.unnamed)} not named any more"] if made.unnamed else []
    yield f"{made.stack.name}, {len(made.steps)} modules: {', '.join((*told, *gone)) or 'none'}"


def _room(needed: "Fetches", site: "LoadedSite") -> Iterable[str]:
    import shutil

    from sifmod.system import size_text

    if not needed.images:
        return
    more = f", and {needed.unknown} of unknown size" if needed.unknown else ""
    yield f"{needed.images} images to fetch: {size_text(needed.size)}{more}; up to {size_text(needed.room)} of room"
    prefix = site.site.prefix
    place = next(path for path in (prefix, *prefix.parents) if path.exists())
    if (free := shutil.disk_usage(place).free) < needed.room:
        yield f"warning: only {size_text(free)} are free in {place}"


def _tell(event: "Event", applying: "Applying", made: "StackPlan", reporter: "Reporter", update: "Display") -> None:
    """What a worker says goes into the log of its module; what became of it is said here too."""
    from sifmod.actions.stack.apply import note
    from sifmod.actions.stack.workers import Progressed, Told

    step = made.steps[event.task]
    if isinstance(event, Progressed):
        update(event.what, event.done, event.total)
        return
    text = event.text if isinstance(event, Told) else _end(event.task, applying, reporter.say)
    try:
        note(made.layout, made.stack, step, text)
    except OSError as error:
        reporter.warn_once("the logs", f"the log of {step} cannot be written: {error.strerror or error}")


def _end(number: int, applying: "Applying", say: "Callable[[str], None]") -> str:
    """Say what became of a module; gives it as its log has it."""
    from sifmod.actions.stack.apply import told
    from sifmod.cli.main import show_error

    step = applying.plan.steps[number]
    if error := applying.failed.get(number):
        show_error(f"{step}: {error.message}", error.hint)
        return told(error)
    became = applying.became[number]
    text = f"installed, generation {became.generation}" if became.changed else "there already"
    say(f"[{len(applying.became) + len(applying.failed)}/{applying.all}] {step}: {text}")
    return text


def _summary(made: "StackPlan", applying: "Applying") -> Iterable[str]:
    failed = applying.failed
    code = _worst(error.exit_code for error in failed.values())
    good = len(made.steps) - len(failed)
    yield f"{good} of {len(made.steps)} modules are as {made.stack.path} says{f', exit code {code}' if code else ''}"
    for number, error in failed.items():
        yield f"  {made.steps[number]}: failed ({error.exit_code}): {error.message.partition(chr(10))[0]}"
    yield f"their logs are in {made.layout.logs / 'stacks' / made.stack.name}"


def _data(made: "StackPlan", applying: "Applying | None" = None) -> dict[str, object]:
    return {
        "name": made.stack.name,
        "prefix": str(made.layout.prefix),
        "modules": [_row(step, applying, number) for number, step in enumerate(made.steps)],
        "unnamed": [str(module) for module in made.unnamed],
    }


def _row(step: "Step", applying: "Applying | None", number: int) -> dict[str, object]:
    from sifmod.cli.output import error_data

    error = applying.failed.get(number) if applying else step.error
    became = applying.became.get(number) if applying else None
    generation = became.generation if became else step.installation.generation if step.installation else None
    return {
        "module": str(step.module) if step.module else None,
        "easyconfig": step.member.easyconfig,
        "variant": step.variant,
        "mark": step.mark,
        "why": list(step.why),
        "generation": generation,
        "changed": bool(became and became.changed),
        **(error_data(error) if error else {}),
    }


def _worst(codes: Iterable[int]) -> int:
    return max(codes, default=0)
