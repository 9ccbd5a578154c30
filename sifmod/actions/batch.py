"""A batch: one function for several things, one after the other, even if it fails for some of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sifmod.errors import BUG, BUG_REPORT, SifmodError, explained, with_code

Thing = TypeVar("Thing")
Result = TypeVar("Result")
_AGAIN = "; repeat the command to continue where it stopped"


@dataclass(frozen=True)
class Succeeded(Generic[Result]):
    """The result of one item that succeeded."""

    result: Result


@dataclass(frozen=True)
class Failed:
    """The failure of one item, and whether to skip the others."""

    error: SifmodError
    ends: bool = False
    bug: str = ""  # the traceback of an error that sifmod did not expect


class Skipped(Failed):
    """An item that was not tried after an earlier failure; `error` quotes its message and has its exit code."""


Ended = Succeeded[Result] | Failed


def run_batch(
    things: Sequence[Thing], do: Callable[[Thing], Result], *, fail_fast: bool = False
) -> Iterator[tuple[Thing, Ended[Result]]]:
    """Call `do` for each thing, and yield the thing with its outcome.

    With `fail_fast` the first error ends the batch, an interruption always does: the rest are then `Skipped`.
    """
    last: Failed | None = None
    for thing in things:
        if last and (last.ends or fail_fast):
            yield thing, Skipped(with_code(f"not tried: {last.error.message}", last.error.hint, last.error.exit_code))
            continue
        try:
            ended: Ended[Result] = Succeeded(do(thing))
        except (Exception, KeyboardInterrupt, SystemExit) as problem:
            ended = last = _failed(problem)
        yield thing, ended


def worst(ended: Sequence[Ended[Result]]) -> int:
    """The exit code of a batch: the highest of its failures, 0 without any."""
    return max((one.error.exit_code for one in ended if isinstance(one, Failed)), default=0)


def _failed(problem: BaseException) -> Failed:
    if isinstance(problem, SifmodError):
        return Failed(problem)
    if isinstance(problem, KeyboardInterrupt):
        return Failed(with_code(f"interrupted{_AGAIN}", "", 130), ends=True)
    if isinstance(problem, SystemExit):
        return Failed(with_code(f"terminated{_AGAIN}", "", int(str(problem.code))), ends=True)
    if known := explained(problem):
        return Failed(known)
    import traceback  # rarely needed

    return Failed(with_code(BUG_REPORT, "", BUG), bug="".join(traceback.format_exception(problem)))
