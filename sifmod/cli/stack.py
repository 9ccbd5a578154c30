"""`sifmod stack`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sifmod.cli.catalogue import command as catalogue
from sifmod.cli.options import (
    SITE_KEYS,
    Decorated,
    conversion_options,
    json_option,
    prefix_option,
    site_options,
    yes_option,
)

if TYPE_CHECKING:
    from sifmod.actions.reporter import Reporter
    from sifmod.actions.stack.apply import Applying
    from sifmod.actions.stack.fetches import Fetches
    from sifmod.actions.stack.plan import Planned, StackPlan, Step
    from sifmod.actions.stack.workers import Event
    from sifmod.cli.progress import Display
    from sifmod.config.load_site import LoadedSite
    from sifmod.config.stack import Stack

Value = str | bool | int | None | tuple[Path, ...]


@click.group("stack")
def command() -> None:
    """Publish many modules from one file."""


command.add_command(catalogue)


def stack_options(function: Decorated) -> Decorated:
    """What decides which modules a stack comes to."""
    for option in (
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
def plan(file: Path, as_json: bool, **given: Value) -> int:
    """Print what `apply` would do, and why: a line for each module, then what it would fetch.

    [ ] new; [x] there; [R] made anew, and why; [!] cannot be installed; [-] installed by this stack, which does not
    name it any more. Nothing is changed.
    """
    from sifmod.actions.stack.fetches import fetches
    from sifmod.actions.stack.plan import plan_stack
    from sifmod.cli.output import echo, print_json, say
    from sifmod.config.stack import load_stack

    planned, site = planned_stack(load_stack(file), given)
    made = plan_stack(planned)
    needed = fetches(made, planned.jobs)
    if as_json:
        sizes = {key: value for key, value in needed._asdict().items() if key != "shared"}
        print_json({**_data(made), **sizes})
    else:
        for line in _lines(made, all_of_them=True):
            echo(line)
        for line in (*_counts(made), *_room(needed, site)):
            say(line)
    return _worst(step.error.exit_code for step in made.steps if step.error)


@command.command("init")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@prefix_option
@json_option
def init(file: Path, as_json: bool, prefix: str | None) -> None:
    """Write a stack's FILE with all that is installed.

    It names each module's easyconfig and the options it was installed with; `-` prints it.
    """
    from sifmod.actions.author.new_file import check_target, write_text
    from sifmod.actions.stack.init import stack_text
    from sifmod.cli.context import layout_for
    from sifmod.cli.output import echo, print_json, say

    to_screen = str(file) == "-"
    target = Path.cwd() / file
    if not to_screen:
        check_target(target)
    text, notes = stack_text(layout_for(prefix), "stack" if to_screen else target.stem, target.parent)
    for note in notes:
        say(note)
    if not to_screen:
        write_text(text, target)
    if as_json:
        print_json({"path": None if to_screen else str(target), "text": text, "notes": notes})
    elif to_screen:
        echo(text, nl=False)
    else:
        say(f"{target} is written; `sifmod stack plan {file}` shows what it comes to")


@command.command("outdated")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@site_options
@json_option
def outdated(file: Path, as_json: bool, **given: Value) -> None:
    """Print what is newer than what is installed: tags that name another image by now, easyconfigs of later versions.

    Nothing is changed. `sifmod install --force` fetches the image that a tag names now.
    """
    from sifmod.actions.stack.outdated import outdated as find
    from sifmod.actions.stack.plan import plan_stack
    from sifmod.cli.output import echo, print_json, say
    from sifmod.config.stack import load_stack

    planned, site = planned_stack(load_stack(file), {**given, "skip_sanity_check": True})
    found = find(plan_stack(planned).steps, site)
    if as_json:
        rows = [{**one._asdict(), "module": str(one.module)} for one in found.newer]
        print_json({"newer": rows, "notes": list(found.problems)})
    else:
        for one in found.newer:
            echo(f"{one.module}: {one.note}")
        if not found.newer:
            say("nothing newer was found")
    for problem in found.problems:
        say(f"warning: {problem}")


@command.command("lock")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="LOCK", type=click.Path(path_type=Path), help="Write it here, not beside FILE.")
@site_options
@json_option
def lock(file: Path, output: Path | None, as_json: bool, **given: Value) -> None:
    """Write down what is installed: `apply --locked` gives exactly that elsewhere, or fails.

    A lock has the digests of each module's easyconfig, of all that it was made from, of its image and where that came
    from, and of every file that was generated.
    """
    from sifmod.cli.output import print_json
    from sifmod.config.stack import load_stack

    data = write_lock(load_stack(file), output or file.with_suffix(".lock"), given, as_json=as_json)
    if as_json:
        print_json(data)


def write_lock(stack: "Stack", path: Path, given: Mapping[str, Value], *, as_json: bool) -> dict[str, object]:
    """Write the lock of a stack that is installed, and say where; gives it as data."""
    from sifmod.actions.author.new_file import write_text
    from sifmod.actions.lock import to_json
    from sifmod.actions.stack.lock import locked_modules
    from sifmod.cli.output import counted, say

    path = path.absolute()
    planned, _ = planned_stack(stack, {**given, "skip_sanity_check": True})
    modules = locked_modules(planned._replace(anew=True), path)
    write_text(to_json(modules), path, force=True)
    if not as_json:
        say(f"{path}: {counted(len(modules), 'module')}; `--locked` installs exactly that")
    return {"path": str(path), "locked": [str(one.module) for one in modules]}


@command.command("bundle")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", metavar="FILE.tar|DIR", required=True, type=click.Path(path_type=Path), help="Where it goes."
)
@click.option(
    "--without",
    metavar="LIST",
    type=click.Path(path_type=Path),
    help="Leave out the images whose digests are in this file, such as `ls PREFIX/images/sha256` of the other side.",
)
@click.option("--no-wheels", is_flag=True, help="Leave out sifmod itself.")
@site_options
@json_option
def bundle(file: Path, output: Path, without: Path | None, no_wheels: bool, as_json: bool, **given: Value) -> None:
    """Put a stack that is installed and locked into one file or directory, for `apply --bundle` without a network.

    It holds the images, the easyconfigs with what they were made from, the lock, and sifmod's own wheels. Run it again
    after an interruption: it goes on where it was.
    """
    from sifmod.actions.stack.bundle import items, own_wheels, write_bundle
    from sifmod.cli.output import print_json, say
    from sifmod.cli.progress import progress
    from sifmod.config.stack import load_stack

    stack = load_stack(file)
    _, site = planned_stack(stack, {**given, "skip_sanity_check": True})
    with own_wheels(wanted=not no_wheels) as (wheels, note), progress(not as_json) as update:
        if note:
            say(f"warning: {note}")
        found = tuple(items(stack, site.site, wheels, without.read_text("utf-8", "replace") if without else ""))
        write_bundle(output, iter(found), update)
    if as_json:
        print_json({"path": str(output.absolute()), "size": sum(item.size for item in found)})
    else:
        say(f"{output} is complete; on the other side: sifmod stack apply --bundle {output.name}")


@command.command("apply")
@click.argument("file", metavar="FILE", required=False, type=click.Path(path_type=Path))
@click.option(
    "--bundle",
    "bundled",
    metavar="FILE.tar|DIR",
    type=click.Path(path_type=Path),
    help="Without FILE: exactly what this bundle holds; no network is used.",
)
@click.option("--locked", is_flag=True, help="Exactly what FILE's lock says, or nothing.")
@click.option(
    "--from",
    "stores",
    metavar="PREFIX",
    multiple=True,
    type=click.Path(path_type=Path),
    help="With --locked: take images from the tree there, such as one where they were tested. May be repeated.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@stack_options
@conversion_options
@yes_option
@site_options
@json_option
def apply(file: Path | None, bundled: Path | None, as_json: bool, quiet: bool, locked: bool, **given: Value) -> int:
    """Make the installed modules those of FILE.

    A module that fails leaves the others to be installed; a summary says at the end what became of them, and where the
    log of each is. Run it again after an interruption: it goes on where it was. What the stack does not name any more
    stays installed, and is told.
    """
    from sifmod.actions.lock import read_lock
    from sifmod.actions.reporter import Reporter
    from sifmod.actions.stack.apply import Applying, write_down
    from sifmod.actions.stack.fetches import fetches
    from sifmod.actions.stack.plan import plan_stack
    from sifmod.cli.context import typed
    from sifmod.cli.output import print_json, say
    from sifmod.cli.output import quiet as silent
    from sifmod.cli.progress import progress
    from sifmod.config.stack import load_stack

    if (file is None) == (bundled is None):
        raise click.UsageError("give the FILE of a stack, or --bundle")
    if bundled:
        file, given, locked = *_unbundled(bundled, given, quiet=quiet), True
    assert file is not None  # noqa: S101 (for mypy: one of them is given)
    planned, site = planned_stack(load_stack(file), given)
    if locked:
        planned = planned._replace(lock=read_lock(file.absolute().with_suffix(".lock")))
    made = plan_stack(planned)
    if locked and (refused := next((step.error for step in made.steps if step.error), None)):
        raise refused  # exactly that, or nothing
    speak = silent if quiet else say
    reporter = Reporter(speak, command=typed())
    todo = sum(step.request is not None for step in made.steps)
    needed = fetches(made, planned.jobs) if todo else None
    for line in (*_lines(made), *_counts(made), *(_room(needed, site) if needed else ())):
        speak(line)
    applying = Applying(made, needed.shared if needed else {}, typed())
    with progress(not quiet) as update:
        for event in applying.run(planned.jobs):
            _tell(event, applying, made, reporter, update)
    write_down(made, site.site, reporter)
    if as_json:
        print_json({**_data(made, applying), "log": str(made.layout.logs / "stacks" / made.stack.name)})
    elif todo or applying.failed:
        for line in _summary(made, applying):
            speak(line)
    return _worst(error.exit_code for error in applying.failed.values())


def _unbundled(bundled: Path, given: dict[str, Value], *, quiet: bool) -> tuple[Path, dict[str, Value]]:
    """The stack of a bundle, whose images are in the store now, and the options with which it is applied."""
    from sifmod.actions.reporter import Reporter
    from sifmod.actions.stack.unbundle import read_bundle, unbundle
    from sifmod.cli.context import load_context, typed
    from sifmod.cli.output import say
    from sifmod.cli.progress import progress

    site = load_context(_site_options(given))
    with progress(not quiet) as update:
        place = unbundle(read_bundle(bundled), site.site, Reporter(say, update, command=typed()))
    given = {**given, "offline": True}
    if (robot := place / "robot").is_dir():
        given["robot_paths"] = ":".join(filter(None, (str(robot), str(given.get("robot_paths") or ""))))
    return place / "stack.yaml", given


def _site_options(given: Mapping[str, Value]) -> dict[str, str]:
    from sifmod.config.prefix import in_full

    words = {name: value for name, value in given.items() if isinstance(value, str) and name in SITE_KEYS}
    return {name: in_full(name, value) for name, value in words.items()}


def planned_stack(stack: "Stack", given: Mapping[str, Value]) -> "tuple[Planned, LoadedSite]":
    """The stack with what the command line says, and the site."""
    from sifmod.actions.fetch_settings import fetch_settings
    from sifmod.actions.install.options import InstallOptions
    from sifmod.actions.stack.plan import Planned
    from sifmod.cli.context import load_context, tree
    from sifmod.errors import OptionError
    from sifmod.tree.layout import Layout
    from sifmod.tree.provenance import Asked

    texts = _site_options(given)
    site = load_context(texts)
    stores = given.get("stores")
    for store in stores if isinstance(stores, tuple) else ():
        if not Layout(store.absolute()).images.is_dir():
            raise OptionError(f"--from: {store} is no tree of sifmod with images in it")
    options = InstallOptions(
        rebuild=bool(given.get("rebuild")),
        offline=bool(given.get("offline")),
        into_home=bool(given.get("yes")),
        stores=tuple(store.absolute() for store in stores) if isinstance(stores, tuple) else (),
        asked=Asked(checked=not given["skip_sanity_check"]),
    )
    jobs = jobs if isinstance(jobs := given.get("jobs"), int) else fetch_settings(site.site).processors
    return Planned(stack, tree(site.site.prefix), texts, options, jobs=jobs), site


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

    from sifmod.cli.output import counted
    from sifmod.system import size_text

    if not needed.images:
        return
    more = f", and {needed.unknown} of unknown size" if needed.unknown else ""
    if needed.shared_size:
        more += f"; layers that they share ({size_text(needed.shared_size)}) are fetched once"
    images, room = counted(needed.images, "image"), size_text(needed.room)
    yield f"{images} to fetch: {size_text(needed.size)}{more}; up to {room} of room"
    prefix = site.site.prefix
    place = next(path for path in (prefix, *prefix.parents) if path.exists())
    if (free := shutil.disk_usage(place).free) < needed.room:
        yield f"warning: only {size_text(free)} are free in {place}"


def _tell(event: "Event", applying: "Applying", made: "StackPlan", reporter: "Reporter", update: "Display") -> None:
    """What a worker says goes into the log of its module; what became of it is said here too."""
    from sifmod.actions.stack.apply import note
    from sifmod.actions.stack.workers import Progressed, Told
    from sifmod.cli.main import show_error

    step = made.steps[event.task]
    if isinstance(event, Progressed):
        update(event.what, event.done, event.total)
        return
    if isinstance(event, Told):
        text = event.text
    elif error := applying.failed.get(event.task):
        text = f"error: {error.message}"
        show_error(f"{step}: {error.message}", error.hint)
    else:
        became = applying.became[event.task]
        text = f"installed, generation {became.generation}" if became.changed else "there already"
        reporter.say(f"[{len(applying.became) + len(applying.failed)}/{applying.all}] {step}: {text}")
    try:
        note(made.layout, made.stack, step, text)
    except OSError as error:
        reporter.warn_once("the logs", f"the log of {step} cannot be written: {error.strerror or error}")


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
        "stack": made.stack.name,
        "path": str(made.layout.prefix),
        "members": [_row(step, applying, number) for number, step in enumerate(made.steps)],
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
