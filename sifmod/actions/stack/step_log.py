"""The log of a stack's module: one line of JSON per message of an apply, with the time."""

import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from sifmod.actions.slurm import this_element
from sifmod.actions.stack.stack_plan import Step
from sifmod.config.stack import Stack
from sifmod.tree.durable import read
from sifmod.tree.layout import Layout
from sifmod.tree.log import to_append

What = Literal["said", "installed", "unchanged", "held", "failed"]


class Line(NamedTuple):
    """A log entry of a module; every kind but `said` ends its apply."""

    what: What
    text: str = ""  # for people
    generation: int = 0
    exit_code: int = 0
    job: str = ""  # the element that wrote it, such as 12_3; "" outside of jobs


def log_of(layout: Layout, stack: Stack, step: Step) -> Path:
    """The log file of a module in a stack."""
    return layout.logs / "stacks" / stack.name / f"{str(step).strip('/').replace('/', '@')}.log"


def write_line(layout: Layout, stack: Stack, step: Step, line: Line) -> None:
    """Append a line to a module's log of this stack, with the element that this process is. Raises OSError."""
    path = log_of(layout, stack, step)
    fields = line._replace(job=this_element())._asdict()
    data = json.dumps({"time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", **fields}, ensure_ascii=False)
    with (
        to_append(path, layout.prefix) as (descriptor, _, _),
        open(descriptor, "a", encoding="utf-8", errors="replace", closefd=False) as file,
    ):
        file.write(f"{data}\n")


def last_end(layout: Layout, stack: Stack, step: Step, job: str) -> Line | None:
    """How the last apply of a module by this element ended; None if its log does not say so or cannot be read."""
    try:
        text = read(log_of(layout, stack, step), top=layout.prefix).decode(errors="replace")
    except OSError:
        return None
    found = None
    for row in text.splitlines():
        with suppress(ValueError, TypeError, RecursionError):  # other users may write to the log
            line = Line(**{name: value for name, value in json.loads(row).items() if name in Line._fields})
            typed = type(line.text) is str and type(line.generation) is int and type(line.exit_code) is int
            if typed and line.job == job and line.what in get_args(What) and line.what != "said":
                found = line
    return found
