"""The output of a batch: each error when it occurs, and a line for each item at the end."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from sifmod.actions.batch import Ended, Failed, Skipped, Succeeded, run_batch, worst
from sifmod.cli.output import echo, show_error
from sifmod.errors import as_result

Thing = TypeVar("Thing")


class Reported(NamedTuple):
    """The outcome of one item: its text in the summary, and its result."""

    state: str
    result: Any = None
    missing: bool = False  # in a preview: the module is not installed yet


class FailureReporter:
    """Reports failures as they occur; of several with the same message only the first."""

    def __init__(self) -> None:
        """Start without reported failures."""
        self._reported: set[str] = set()

    def __call__(self, ended: Ended[Any]) -> None:
        """Report a failure, but not a skipped item or a message that was reported before."""
        if isinstance(ended, Failed) and not isinstance(ended, Skipped) and ended.error.message not in self._reported:
            self._reported.add(ended.error.message)
            echo(ended.bug, nl=False, err=True)
            show_error(ended.error.text, ended.error.hint)


def reported_batch(
    things: Sequence[Thing], do: Callable[[Thing], Reported], *, fail_fast: bool = False
) -> list[tuple[Thing, Ended[Reported]]]:
    """Process each item with `run_batch`, and report failures, each message once; returns the items with outcomes."""
    tell, found = FailureReporter(), []
    for thing, ended in run_batch(things, do, fail_fast=fail_fast):
        tell(ended)
        found.append((thing, ended))
    return found


def result_of(ended: Ended[Reported]) -> Any:
    """The result of an item for JSON: its own, or the error."""
    return as_result(ended.error) if isinstance(ended, Failed) else ended.result.result


def summary(ended: Sequence[tuple[object, Ended[Reported]]]) -> Iterator[str]:
    """The number of successes and, after a failure, the exit code; then a line for each item."""
    code = worst([one for _, one in ended])
    good = sum(isinstance(one, Succeeded) for _, one in ended)
    yield f"{good} of {len(ended)} done{f', exit code {code}' if code else ''}"
    for thing, one in ended:
        yield f"  {thing}: {_state(one)}"


def _state(ended: Ended[Reported]) -> str:
    if isinstance(ended, Succeeded):
        return ended.result.state
    if isinstance(ended, Skipped):
        return "not tried"
    return f"failed ({ended.error.exit_code}): {ended.error.short}"
