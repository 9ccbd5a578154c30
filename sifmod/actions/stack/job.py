"""stack apply --job: a Slurm array that installs a stack, where each element runs an ordinary `stack apply`.

An element fetches one image, or several that share layers or exceed the number of elements, and installs all their
modules, so that none waits for another. If an element dies, its finished modules stay, and the next apply submits the
rest. Modules that keep their image are grouped, so that an element takes minutes.
"""

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple

from sifmod.actions.changing_prefix import changing_prefix
from sifmod.actions.slurm import SIFMOD, Resources, at_site, states, submit
from sifmod.actions.stack.stack_plan import StackPlan, Step, to_do
from sifmod.config.name import ModuleName
from sifmod.config.partition import SlurmKeys
from sifmod.config.site import Site
from sifmod.errors import OptionError
from sifmod.secret import cut
from sifmod.tree.locking import Tree
from sifmod.tree.stack_record import Submission, read_submissions, stack_lock, write_submissions

_MODULES = 200  # most modules per element without a fetch
_COMMENT = 1000  # characters; Slurm refuses more than 1024

_SCRIPT = """#!/bin/sh
worst=0
sifmod() {{
  {program} "$@"
  code=$?
  [ "$code" -le "$worst" ] || worst=$code
}}
case $SLURM_ARRAY_TASK_ID in
{cases}
esac
[ "$worst" -ne 0 ] || rm -f -- {log}
exit "$worst"
"""


class JobOptions(NamedTuple):
    """The options of a stack's jobs."""

    resources: Resources  # of an element
    words: tuple[str, ...]  # arguments of each element besides the stack file and its modules
    directory: Path  # where failed elements leave their output
    elements: int  # most elements of an array
    decides: bool  # the last element decides about the lives of all modules
    tests: Resources | None = None  # for test jobs; None: no tests
    together: tuple[frozenset[str], ...] = ()  # image requests that one element should fetch together


class ElementEnd(NamedTuple):
    """What is left to the element that ends: whether it is the last one, and then decides about the modules' lives."""

    last: bool
    decides: bool


class Element(NamedTuple):
    """The modules of one array element."""

    steps: tuple[Step, ...]
    fetches: bool

    @property
    def modules(self) -> tuple[ModuleName, ...]:
        """The names of the modules."""
        return tuple(step.module for step in self.steps if step.module)


def submit_stack(
    plan: StackPlan, options: JobOptions, site: Site, tree: Tree
) -> tuple[tuple[Submission, ...], tuple[Submission, ...]]:
    """Submit pending modules that no job covers yet; returns the unfinished earlier jobs and the new ones.

    Raises OptionError if Slurm rejects them or does not answer, LockError, InstallError, PermissionsError.
    """
    name = plan.stack.name
    if "\\" in f"{options.directory}{name}":
        why = f"Slurm cannot write logs of the stack {name} in {options.directory}: there is a backslash in the path"
        raise OptionError(why, "choose another --job-output-dir, or name")
    options = options._replace(resources=at_site(options.resources, site.slurm))
    with changing_prefix(site), stack_lock(name, tree) as held:
        before = read_submissions(plan.layout, name)
        earlier, new = _queued(before), list[Submission]()
        if options.decides:  # whichever is the last
            earlier = [one._replace(decides=True) for one in earlier]
        taken = {module for job in earlier if job.what == "apply" for element in job.elements for module in element}
        todo = [step for step in plan.steps if to_do(step) and step.module not in taken]
        running = [job.job for job in earlier if job.what == "apply"]
        try:
            for job in _submitted(plan, options, site.slurm, todo, running):
                new.append(job)
        finally:
            if (jobs := (*earlier, *new)) != before:
                write_submissions(plan.layout, name, jobs, held)
    return tuple(earlier), tuple(new)


def end_of_element(plan: StackPlan, site: Site, tree: Tree) -> ElementEnd | None:
    """What is left to this process, if it is an element of the stack's install jobs; None if it is none.

    Removes its modules from the record, so that of two elements that end together one sees the other. If Slurm does not
    answer, each may be the last. Raises LockError, InstallError, PermissionsError.
    """
    if (mine := os.environ.get("SLURM_ARRAY_JOB_ID")) is None:
        return None
    name, number = plan.stack.name, os.environ.get("SLURM_ARRAY_TASK_ID")
    with changing_prefix(site), stack_lock(name, tree) as held:
        before = read_submissions(plan.layout, name)  # submissions write under the same lock
        if mine not in [one.job for one in before]:
            return None
        left = [one._replace(elements=_others(one, number)) if one.job == mine else one for one in before]
        write_submissions(plan.layout, name, left, held)
        try:
            last = not any(one.what == "apply" for one in _queued([one for one in left if any(one.elements)]))
        except OptionError:
            last = True
        return ElementEnd(last, last and any(one.decides for one in before))


def _others(job: Submission, number: str | None) -> tuple[tuple[ModuleName, ...], ...]:
    return tuple(() if str(each) == number else modules for each, modules in enumerate(job.elements))


def elements_of(steps: Iterable[Step], most: int, together: Iterable[frozenset[str]] = ()) -> tuple[Element, ...]:
    """Distribute the steps over at most `most` elements: one for each missing image if they suffice, few for the rest.

    Images to fetch together share an element.
    """
    first_of = {image: min(group) for group in together for image in group}
    by_image: dict[str, list[Step]] = {}
    kept: list[Step] = []
    for step in steps:
        image = step.todo.image if step.todo else ""
        image = first_of.get(image, image)
        (by_image.setdefault(image, []) if image else kept).append(step)
    images = list(by_image.values())
    groups = [*images, *(kept[start : start + _MODULES] for start in range(0, len(kept), _MODULES))]
    shares = [range(first, len(groups), most) for first in range(min(most, len(groups)))]
    return tuple(
        Element(tuple(step for number in share for step in groups[number]), share[0] < len(images)) for share in shares
    )


def _queued(submissions: Sequence[Submission]) -> list[Submission]:
    """The submissions with unfinished elements, and only their modules. Raises OptionError without an answer."""
    if not submissions:
        return []
    if (known := states([one.job for one in submissions])) is None:
        raise OptionError("squeue does not answer, so earlier submissions are unknown", "try again later")
    left = []
    for one in submissions:
        states_of = [known.get(f"{one.job}_{number}") for number in range(len(one.elements))]
        elements = tuple(
            modules if state and not state.over else () for modules, state in zip(one.elements, states_of, strict=True)
        )
        if any(elements):
            left.append(one._replace(elements=elements))
    return left


def _submitted(
    plan: StackPlan, options: JobOptions, slurm: SlurmKeys, steps: Sequence[Step], earlier: Sequence[str]
) -> Iterator[Submission]:
    """Submit modules with images, then views, which need the modules that they load, then tests."""
    views = tuple(step for step in steps if _is_view(step))
    jobs = list(earlier)
    elements = elements_of((step for step in steps if not _is_view(step)), options.elements, options.together)
    if elements:
        yield (job := _install(plan, options, elements))
        jobs.append(job.job)
    if views:
        after = (f"--dependency=afterany:{':'.join(jobs)}",) if jobs else ()
        yield _install(plan, options, (Element(views, fetches=False),), *after)
    if options.tests and elements:
        tested = [one for each in elements for one in each.steps]
        for gpus, steps in _by_gpus(tested).items():
            resources = at_site(replace(options.tests, gpus_per_node=gpus), slurm)
            yield _test(plan, options, resources, jobs[-1], steps)


def _is_view(step: Step) -> bool:
    return step.todo is not None and step.todo.view


def _install(plan: StackPlan, options: JobOptions, elements: Sequence[Element], *more: str) -> Submission:
    commands = [[_apply(plan, options, element)] for element in elements]
    job = _array(plan, options, options.resources, commands, *more)
    modules = tuple(element.modules for element in elements)
    return Submission(job, "apply", str(options.directory), modules, options.decides)


def _by_gpus(steps: Iterable[Step]) -> dict[int, list[Step]]:
    """The steps by the GPUs per node of their tests."""
    found: dict[int, list[Step]] = {}
    for step in steps:
        found.setdefault(step.todo.gpus if step.todo else 0, []).append(step)
    return found


def _test(plan: StackPlan, options: JobOptions, resources: Resources, job: str, steps: Sequence[Step]) -> Submission:
    """Submit one array of tests, which start when `job` has ended."""
    shares = [steps[first :: options.elements] for first in range(min(options.elements, len(steps)))]
    tests = [[("test", str(step.module), f"--prefix={plan.layout.prefix}") for step in share] for share in shares]
    asked = replace(resources, usual_minutes=resources.usual_minutes * len(shares[0]))
    number = _array(plan, options, asked, tests, f"--dependency=afterany:{job}")
    modules = tuple(tuple(step.module for step in share if step.module) for share in shares)
    return Submission(number, "test", str(options.directory), modules)


def _apply(plan: StackPlan, options: JobOptions, element: Element) -> tuple[str, ...]:
    one_by_one = ("--jobs=1",) if element.fetches else ()  # so that a conversion gets all processors
    only = (f"--only={module}" for module in element.modules)
    return ("stack", "apply", str(plan.stack.path), *one_by_one, *options.words, *only)


def _array(
    plan: StackPlan,
    options: JobOptions,
    resources: Resources,
    commands: Sequence[Sequence[Sequence[str]]],
    *more: str,
) -> str:
    name = f"sifmod-{plan.stack.name}"
    log = options.directory / f"{name}-"
    script = _SCRIPT.format(
        program=shlex.join(SIFMOD),
        cases="\n".join(
            f"{number})\n" + "\n".join(f"  sifmod {shlex.join(words)}" for words in element) + "\n  ;;"
            for number, element in enumerate(commands)
        ),
        log=shlex.quote(str(log)) + '"$SLURM_ARRAY_JOB_ID"_"$SLURM_ARRAY_TASK_ID".log',
    )
    words = (
        f"--job-name={name}",
        f"--comment={cut(f'{plan.stack.path} in {plan.layout.prefix}', _COMMENT)}",
        f"--array=0-{len(commands) - 1}",
        f"--output={str(log).replace('%', '%%')}%A_%a.log",
        "--export=ALL",  # the same settings must apply there
        *(() if "SBATCH_NO_REQUEUE" in os.environ else ("--requeue",)),  # the element resumes
        *resources.words,
        *more,
    )
    with NamedTemporaryFile("w", prefix="sifmod-", suffix=".sh") as file:
        file.write(script)
        file.flush()
        return submit(*words, file.name)
