"""A batch: the same for several things, one after the other, whatever becomes of one of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from sifmod.cli.output import echo, explained, show_error, with_code
from sifmod.errors import Error, SifmodError, as_result

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Done:
    """What became of one of them: in the words of the summary, and as a result."""

    state: str
    result: Any = None


@dataclass(frozen=True)
class Failed:
    """What went wrong with one of them, and whether the others are to be left."""

    error: SifmodError
    ends: bool = False

    @property
    def result(self) -> Error:
        """As `--json` prints it."""
        return as_result(self.error)

    @property
    def state(self) -> str:
        """In the words of the summary."""
        return (
            f"failed ({self.error.exit_code}): {self.error.message.partition(chr(10))[0].removesuffix('; looked in')}"
        )


class NotTried(Failed):
    """One that came after the failure of `error`."""

    @property
    def state(self) -> str:
        """In the words of the summary."""
        return "not tried"


Ended = Done | Failed


def run_batch(
    things: Sequence[Thing], do: Callable[[Thing], Done], *, fail_fast: bool = False
) -> Iterator[tuple[Thing, Ended]]:
    """Do it with each, and give what became of it. An error is told when it comes, the same one once.

    The first error ends the batch with `fail_fast`, an interruption always; the others are then given as not tried.
    """
    told: set[str] = set()
    last: Failed | None = None
    for thing in things:
        if last and (last.ends or fail_fast):
            yield thing, NotTried(with_code(f"not tried: {last.error.message}", last.error.hint, last.error.exit_code))
            continue
        try:
            ended: Ended = do(thing)
        except click.ClickException:
            raise
        except (Exception, KeyboardInterrupt, SystemExit) as problem:
            ended = last = _failed(problem)
            if last.error.message not in told:
                told.add(last.error.message)
                show_error(last.error.text, last.error.hint)
        yield thing, ended


def worst(ended: Sequence[Ended]) -> int:
    """The exit code of a batch: the highest of those of its failures."""
    return max((one.error.exit_code for one in ended if isinstance(one, Failed)), default=0)


def summary(ended: Sequence[tuple[object, Ended]]) -> Iterator[str]:
    """How many were done, then a line for each."""
    code = worst([one for _, one in ended])
    good = sum(isinstance(one, Done) for _, one in ended)
    yield f"{good} of {len(ended)} done{f', exit code {code}' if code else ''}"
    for thing, one in ended:
        yield f"  {thing}: {one.state}"


def _failed(problem: BaseException) -> Failed:
    import traceback

    from sifmod.cli.main import BUG, BUG_REPORT

    again = "; repeat the command to go on where it stopped"
    if isinstance(problem, SifmodError):
        return Failed(problem)
    if isinstance(problem, KeyboardInterrupt | click.Abort):
        return Failed(with_code(f"interrupted{again}", "", 130), ends=True)
    if isinstance(problem, SystemExit):
        return Failed(with_code(f"terminated{again}", "", int(str(problem.code))), ends=True)
    if isinstance(problem, OSError) and (known := explained(problem)):
        return Failed(known)
    echo("".join(traceback.format_exception(problem)), nl=False, err=True)
    return Failed(with_code(BUG_REPORT, "", BUG))
