"""Output of the stack commands for people."""

from collections.abc import Callable, Iterable

from sifmod.cli.later import later
from sifmod.cli.output import counted, say, show_error
from sifmod.module.quote import shell
from sifmod.system import one_line, size_text

with later():
    from sifmod.actions.layer import places
    from sifmod.actions.stack import apply as applying
    from sifmod.actions.stack import applying as steps
    from sifmod.actions.stack import lifecycle, stack_plan, unbundle, watch
    from sifmod.tree import stack_record


def lines(
    made: "stack_plan.StackPlan", decided: "lifecycle.LifecycleChanges | None", *, all_of_them: bool = False
) -> Iterable[str]:
    """Lines for modules (unchanged ones with `all_of_them`), outgoing layers, life changes, and unnamed modules."""
    for step in made.steps:
        if step.mark != "x" or all_of_them:
            reasons = (step.error.short,) if step.error else step.why
            yield one_line(f" [{step.mark}] {step}{': ' if reasons else ''}{'; '.join(reasons)}")
            yield from places.layer_warnings(step.outgoing)
        for layer in step.unlocked:
            words = f"{layer.module} --all --layer {layer.name} --dir {shell(str(layer.top))}"
            text = f"{layer.module} has the layer {layer.name}, which the lock does not name"
            yield one_line(
                f"warning: {text}; `sifmod layer remove {words} --prefix {shell(str(made.layout.prefix))}` removes it"
            )
    for module, what in decided.changes if decided else ():
        yield one_line(f" [D] {module}: {what}")
    for module in made.unnamed:
        others = made.others.get(module)
        may = f", but the stack {' or '.join(others)} may" if others else ""
        yield one_line(f" [-] {module}: the stack no longer names it{may}; `sifmod retire {module}` retires it")


def counts(made: "stack_plan.StackPlan") -> Iterable[str]:
    """One line: the number of modules per mark, and of those that the stack no longer names."""
    words = {
        " ": "new",
        "R": "to reinstall",
        "L": "with other layers",
        "H": "held",
        "E": "retired and removed",
        "x": "installed",
        "!": "cannot be installed",
    }
    counts = {mark: sum(step.mark == mark for step in made.steps) for mark in words}
    counts_by_mark = [f"{counts[mark]} {words[mark]}" for mark in words if counts[mark]]
    gone = [f"{len(made.unnamed)} no longer named"] if made.unnamed else []
    yield f"{made.stack.name}, {counted(len(made.steps), 'module')}: {', '.join((*counts_by_mark, *gone)) or 'none'}"


def disk_needed(found: "applying.Preview") -> Iterable[str]:
    """What will be fetched, and whether the disk has enough space."""
    import shutil

    if (needed := found.fetches) is None:
        return
    if needed.copies:
        yield f"{counted(needed.copies, 'image')} to copy from another tree: {size_text(needed.copied)}"
    if not needed.images and not needed.copies:
        return
    more = f", and {needed.unknown} of unknown size" if needed.unknown else ""
    if needed.shared_size:
        more += f"; shared layers ({size_text(needed.shared_size)}) are fetched once"
    images, space = counted(needed.images, "image"), size_text(needed.room)
    if needed.images:
        yield f"{images} to fetch: {size_text(needed.size)}{more}; up to {space} of disk"
    if needed.despite:
        some = counted(needed.despite, "image")
        yield f"warning: {some} to fetch despite --from: without --locked it gives only what has a known digest"
    place = next(path for path in (found.prefix, *found.prefix.parents) if path.exists())
    if (free := shutil.disk_usage(place).free) < needed.room:
        yield f"warning: only {size_text(free)} free in {place}"


def tell(speak: Callable[[str], None], event: "applying.Event") -> None:
    """Report the progress while a stack is applied."""
    match event:
        case steps.ModuleEnded(step, line, error, number, all_of_them):
            if error:
                show_error(f"{step}: {error.message}", error.hint)
            else:
                speak(f"{'' if line.what == 'held' else f'[{number}/{all_of_them}] '}{step}: {line.text}")
        case unbundle.OpenBundle():
            if event.made_by:
                own = "unless it was made with --no-wheels, that one is in its wheels/"
                say(f"warning: sifmod {one_line(event.made_by)}, not this one, made the bundle; {own}")
            for text in event.differing:
                say(f"{one_line(text)}{'' if event.local else '; the bundle decides'}")
        case _:
            for text in _lines(event):
                speak(text.strip())


def _lines(event: "applying.Event") -> Iterable[str]:
    match event:
        case applying.Preview(plan, decided):
            yield from (*lines(plan, decided), *counts(plan), *disk_needed(event))
        case applying.Submitted(earlier, new, waits):
            yield from (f"{_about(job)}: submitted earlier, and not finished" for job in earlier)
            yield from (f"{_about(job)}: submitted" for job in new)
            if not event.jobs:
                yield "there is nothing to submit"
            elif not waits:
                numbers = ",".join(job.job for job in event.jobs)
                yield f"`squeue --jobs={numbers}` shows the jobs; the same command with --wait waits for them"
        case watch.JobsStand(_, None):
            yield "squeue does not answer"
        case watch.JobsStand(jobs, states):
            words = ", ".join(f"{count} {state}" for state, count in states or ())
            yield f"job{'s' * (len(jobs) != 1)} {', '.join(jobs)}: {words}"
        case applying.JobsGoOn(jobs):
            numbers = " ".join(job.job for job in jobs)
            yield f"the jobs go on: the same command waits for them again, `scancel {numbers}` cancels them"


def _about(job: "stack_record.Submission") -> str:
    verb = "install" if job.what == "apply" else "test"
    elements = counted(sum(map(bool, job.elements)), "element")
    return f"job {job.job}, {elements} to {verb} {counted(sum(map(len, job.elements)), 'module')}"


def of_jobs(outcome: "applying.StackOutcome") -> Iterable[str]:
    """Lines about the tests of jobs, and about lifecycle settings that are applied later."""
    tests = outcome.tests
    for test in (one for one in tests if not one.passed):
        yield f"test of {', '.join(map(str, test.modules))}: failed; {test.log} is its log"
    if tests:
        yield f"{sum(one.passed for one in tests)} of {counted(len(tests), 'test')} passed"
    if outcome.later:
        yield f"{', '.join(outcome.later)}: the stack's lifecycle settings are applied when the jobs end"


def of_views(outcome: "applying.StackOutcome") -> Iterable[str]:
    """A warning for each module that a view loads and that does not load."""
    for view, name, found in outcome.lost:
        yield one_line(f"warning: {view} cannot be loaded: it loads {name}, but finds {found}")


def summary(outcome: "applying.StackOutcome") -> Iterable[str]:
    """The lines at the end of an apply: how many modules match the stack, and why the others do not."""
    made, failed = outcome.plan, outcome.failed
    code = max((error.exit_code for error in failed.values()), default=0)
    held = {number for number, step in enumerate(made.steps) if step.mark == "H"} | outcome.held.keys()
    ended = [step for step in made.steps if step.mark == "E"]
    good = len(made.steps) - len(failed) - len(held) - len(ended)
    jobs = outcome.submitted if outcome.submitted and outcome.submitted.jobs else None
    match = "match, or are left to jobs for," if jobs and not jobs.waits else "match"
    yield f"{good} of {len(made.steps)} modules {match} {made.stack.path}{f', exit code {code}' if code else ''}"
    for number in sorted(held):
        yield f"  {made.steps[number]}: held; release it with `sifmod rollback --release {made.steps[number]}`"
    for step in ended:
        yield f"  {step}: left out: {step.why[0]}"
    for number, error in failed.items():
        yield f"  {made.steps[number]}: failed ({error.exit_code}): {error.short}"
    yield f"the modules' logs are in {made.layout.logs / 'stacks' / made.stack.name}"
