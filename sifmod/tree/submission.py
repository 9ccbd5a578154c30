"""Submissions: the jobs that install a stack's modules, so that none is submitted twice while it is queued or runs."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from sifmod.config.name import ModuleName, is_part
from sifmod.tree.change import Change
from sifmod.tree.disk import is_refused, read
from sifmod.tree.layout import Layout
from sifmod.tree.lock import Held

_FORMAT = 1


class Submission(NamedTuple):
    """An array of Slurm, and which modules each of its elements is for."""

    job: str  # its number
    what: Literal["apply", "test"]
    logs: str  # the directory in which an element that fails leaves what it has said
    elements: tuple[tuple[ModuleName, ...], ...]

    def log(self, stack: str, element: int) -> Path:
        """The file that an element leaves where it fails."""
        return Path(self.logs, f"sifmod-{stack}-{self.job}_{element}.log")


def read_submissions(layout: Layout, stack: str) -> tuple[Submission, ...]:
    """What was last submitted; nothing where the record cannot be read: others may have written it."""
    try:
        fields = json.loads(read(_path(layout, stack), top=layout.prefix))
        return tuple(map(_submission, fields["jobs"])) if fields["format"] == _FORMAT else ()
    except OSError as error:
        if is_refused(error):
            return ()
        raise
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()


def write_submissions(layout: Layout, stack: str, submissions: Iterable[Submission], held: Held) -> None:
    """Keep these in the place of the earlier ones. Raises InstallError, LockError."""
    jobs = [
        {**one._asdict(), "elements": [[str(module) for module in element] for element in one.elements]}
        for one in submissions
    ]
    with held.changing(f"cannot write down the jobs of the stack {stack}"):
        change = Change(held, layout.prefix)
        change.file(_path(layout, stack), json.dumps({"format": _FORMAT, "jobs": jobs}) + "\n")
        change.apply()


def _submission(fields: dict[str, object]) -> Submission:
    job, what, logs, elements = (fields[name] for name in Submission._fields)
    if not (isinstance(job, str) and job.isdigit() and isinstance(logs, str) and isinstance(elements, list)):
        raise TypeError("another type")
    kind: Literal["apply", "test"] = "test" if what == "test" else "apply"
    return Submission(job, kind, logs, tuple(tuple(_module(text) for text in element) for element in elements))


def _module(text: str) -> ModuleName:
    name, version = text.split("/")
    if not (is_part(name) and is_part(version)):
        raise ValueError(f"{text} names no module")
    return ModuleName(name, version)


def _path(layout: Layout, stack: str) -> Path:
    return layout.prefix / "stacks" / "jobs" / f"{stack}.json"
