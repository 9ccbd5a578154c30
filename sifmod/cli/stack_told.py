"""What the verbs of a stack tell: lines for people, and data."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sifmod.cli.output import counted, show_error
from sifmod.system import one_line, size_text

if TYPE_CHECKING:
    from sifmod.actions.reporter import Reporter
    from sifmod.actions.stack.apply import Applying, NotTried
    from sifmod.actions.stack.fetches import Fetches
    from sifmod.actions.stack.lives import Lives
    from sifmod.actions.stack.stack_plan import StackPlan
    from sifmod.actions.stack.step_log import Line
    from sifmod.actions.workers import Event
    from sifmod.cli.progress import Display
    from sifmod.config.load_site import LoadedSite


def lines(made: "StackPlan", decided: "Lives | None", *, all_of_them: bool = False) -> Iterable[str]:
    """A line for each module, for each layer that it leaves without its image, and for what is no longer named."""
    from sifmod.actions.layer.outgoing import in_words

    for step in made.steps:
        if step.mark != "x" or all_of_them:
            reasons = (step.error.message.partition("; looked in")[0].partition("\n")[0],) if step.error else step.why
            yield one_line(f" [{step.mark}] {step}{': ' if reasons else ''}{'; '.join(reasons)}")
            yield from in_words(step.outgoing)
    for module, what in decided.changes if decided else ():
        yield one_line(f" [D] {module}: {what}")
    for module in made.unnamed:
        yield f" [-] {module}: the stack does not name it any more; `sifmod retire {module}` ends it"


def counts(made: "StackPlan") -> Iterable[str]:
    """How many of each."""
    words = {
        " ": "new",
        "R": "made anew",
        "H": "held",
        "E": "retired and removed",
        "x": "there",
        "!": "cannot be installed",
    }
    counts = {mark: sum(step.mark == mark for step in made.steps) for mark in words}
    told = [f"{counts[mark]} {words[mark]}" for mark in words if counts[mark]]
    gone = [f"{len(made.unnamed)} not named any more"] if made.unnamed else []
    yield f"{made.stack.name}, {counted(len(made.steps), 'module')}: {', '.join((*told, *gone)) or 'none'}"


def disk_needed(needed: "Fetches", site: "LoadedSite") -> Iterable[str]:
    """What is to be fetched, and whether the disk has the space for it."""
    import shutil

    if needed.copies:
        yield f"{counted(needed.copies, 'image')} to copy from another tree: {size_text(needed.copied)}"
    if not needed.images and not needed.copies:
        return
    more = f", and {needed.unknown} of unknown size" if needed.unknown else ""
    if needed.shared_size:
        more += f"; layers that they share ({size_text(needed.shared_size)}) are fetched once"
    images, space = counted(needed.images, "image"), size_text(needed.room)
    if needed.images:
        yield f"{images} to fetch: {size_text(needed.size)}{more}; up to {space} of disk"
    prefix = site.site.prefix
    place = next(path for path in (prefix, *prefix.parents) if path.exists())
    if (free := shutil.disk_usage(place).free) < needed.room:
        yield f"warning: only {size_text(free)} are free in {place}"


def tell(
    event: "Event | NotTried", applying: "Applying", made: "StackPlan", reporter: "Reporter", update: "Display"
) -> None:
    """What a worker says goes into the log of its module; how the module ended is said here too."""
    from sifmod.actions.stack.apply import NotTried
    from sifmod.actions.stack.step_log import Line, write_line
    from sifmod.actions.workers import Progressed, Told

    step = made.steps[event.task]
    if isinstance(event, Progressed):
        update(event.what, event.done, event.total)
        return
    match event:
        case Told(_, text):
            line = Line("said", text)
        case NotTried(task):
            line = how_it_ended(task, applying)
        case _:
            line = how_it_ended(event.task, applying)
            show_end(event.task, applying, line, reporter.say)
    try:
        write_line(made.layout, made.stack, step, line)
    except OSError as error:
        reporter.warn_once("the logs", f"the log of {step} cannot be written: {error.strerror or error}")


def how_it_ended(number: int, applying: "Applying") -> "Line":
    """The line of its log that says so."""
    from sifmod.actions.stack.step_log import Line

    if error := applying.failed.get(number):
        return Line("failed", error.message, exit_code=error.exit_code)
    if held := applying.held.get(number):
        return Line("held", f"{held.message}; {held.hint}")
    became = applying.became[number]
    if became.changed:
        return Line("installed", f"installed, generation {became.generation}", became.generation)
    return Line("unchanged", "there already", became.generation)


def show_end(number: int, applying: "Applying", line: "Line", say: "Callable[[str], None]") -> None:
    """Say how a module ended."""
    step = applying.plan.steps[number]
    if error := applying.failed.get(number):
        show_error(f"{step}: {error.message}", error.hint)
        return
    ended = "" if line.what == "held" else f"[{len(applying.became) + len(applying.failed)}/{applying.all}] "
    say(f"{ended}{step}: {line.text}")


def summary(made: "StackPlan", applying: "Applying") -> Iterable[str]:
    """What became of it all."""
    failed = applying.failed
    code = max((error.exit_code for error in failed.values()), default=0)
    held = {number for number, step in enumerate(made.steps) if step.mark == "H"} | applying.held.keys()
    ended = [step for step in made.steps if step.mark == "E"]
    good = len(made.steps) - len(failed) - len(held) - len(ended)
    yield f"{good} of {len(made.steps)} modules are as {made.stack.path} says{f', exit code {code}' if code else ''}"
    for number in sorted(held):
        yield f"  {made.steps[number]}: held, `sifmod rollback --release {made.steps[number]}` releases it"
    for step in ended:
        yield f"  {step}: left out, {step.why[0].removeprefix('it ')}"
    for number, error in failed.items():
        yield f"  {made.steps[number]}: failed ({error.exit_code}): {error.message.partition(chr(10))[0]}"
    yield f"their logs are in {made.layout.logs / 'stacks' / made.stack.name}"
