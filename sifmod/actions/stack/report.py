"""A StackReport: a preview of a stack, or its outcome."""

from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from sifmod.actions.layer.places import OutgoingLayer
from sifmod.actions.stack.apply import StackOutcome
from sifmod.actions.stack.fetches import Fetches
from sifmod.actions.stack.lifecycle import LifecycleChanges
from sifmod.actions.stack.stack_plan import StackPlan, Step
from sifmod.actions.stack.watch import StackTest
from sifmod.config.name import ModuleName
from sifmod.errors import Error, as_result
from sifmod.result import Beside, Described, Easyconfig, IfAny, Number, Variant


class StackModule(NamedTuple):
    """A module of a stack; with an error if it cannot be installed, or its install failed."""

    module: Annotated[ModuleName | None, Described("null if the easyconfig cannot be read")]
    easyconfig: Easyconfig
    variant: Variant | None
    mark: Annotated[
        Literal[" ", "x", "R", "L", "H", "E", "!"],
        Described(
            "new; up to date; to reinstall; layers to replace; held after a rollback; retired and removed; failed"
        ),
    ]
    why: Annotated[tuple[str, ...], Described("why the module is reinstalled, held, or skipped")]
    generation: Annotated[Number | None, Described("the live generation; null without one")]
    changed: Annotated[bool, Described("whether this run made the generation")]
    outgoing_layers: Annotated[tuple[OutgoingLayer, ...], Described("layers that do not fit its next image")]
    unlocked_layers: Annotated[tuple[str, ...], Described("layers of the tree that the lock does not name")]
    error: Beside[Error | None]


class StackJob(NamedTuple):
    """A job that installs modules, or tests them, queued or running."""

    job: Annotated[str, Described("number of the job array")]
    what: Literal["apply", "test"]
    names: Annotated[tuple[ModuleName, ...], Described("modules that the job is for")]


class LifeChange(NamedTuple):
    """A change of a module's lifecycle."""

    module: ModuleName
    what: Annotated[
        str, Described("made the default, hidden, deprecated, retired, labelled, or the end of one of these")
    ]


class StackReport(NamedTuple):
    """A stack, planned or applied."""

    stack: Annotated[str, Described("name of the stack")]
    path: Annotated[Path, Described("the prefix")]
    members: tuple[StackModule, ...]
    unnamed: Annotated[tuple[ModuleName, ...], Described("modules that the stack installed and no longer names")]
    decided: Annotated[tuple[LifeChange, ...], Described("changes of the modules' lifecycles")]
    needed: Beside[Fetches | None] = None
    log: Annotated[IfAny[Path], Described("directory with a log for each module")] = None
    jobs: Annotated[IfAny[tuple[StackJob, ...]], Described("with --job: the jobs of the stack")] = None
    tests: Annotated[IfAny[tuple[StackTest, ...]], Described("with --job-test and --wait: the tests")] = None


def report(made: StackPlan, decided: LifecycleChanges | None, outcome: StackOutcome | None = None) -> StackReport:
    """The preview of the stack; with `outcome`, its outcome."""
    submitted = outcome.submitted if outcome else None
    return StackReport(
        made.stack.name,
        made.layout.prefix,
        tuple(_member(step, outcome, number) for number, step in enumerate(made.steps)),
        made.unnamed,
        tuple(LifeChange(*one) for one in (decided.changes if decided else ())),
        log=made.layout.logs / "stacks" / made.stack.name if outcome else None,
        jobs=tuple(StackJob(job.job, job.what, tuple(chain(*job.elements))) for job in submitted.jobs)
        if submitted
        else None,
        tests=outcome.tests if outcome and submitted else None,
    )


def _member(step: Step, outcome: StackOutcome | None, number: int) -> StackModule:
    error = outcome.failed.get(number) if outcome else step.error
    install = outcome.outcomes.get(number) if outcome else None
    return StackModule(
        step.module,
        step.member.easyconfig,
        step.variant,
        step.mark,
        step.why,
        install.generation if install else step.generation,
        bool(install and install.changed),
        step.outgoing,
        tuple(layer.name for layer in step.unlocked),
        as_result(error) if error else None,
    )
