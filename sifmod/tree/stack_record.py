"""Records of stacks: their installed modules and their jobs."""

import json
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeVar

from sifmod.config.name import ModuleName
from sifmod.result import Described, Internal, Sha256, in_json
from sifmod.tree.change import replace_text
from sifmod.tree.durable import names, parsed
from sifmod.tree.layout import Layout
from sifmod.tree.locking import HeldLock, Tree

_FORMAT = 1
Record = TypeVar("Record")


class Applied(NamedTuple):
    """The state of a stack after the last apply: `<prefix>/stacks/<name>.json`."""

    name: Internal[str]  # of the stack; the record's file has it
    file: str  # absolute path
    modules: tuple[ModuleName, ...]  # installed by it and still managed
    # that it decides: `Name/Version` and the part of its life, such as `App/1 hidden` or `App/1 default` (earlier
    # versions of sifmod wrote the module alone, for all parts, and the name alone for its default)
    decided: tuple[str, ...] = ()
    images: tuple[Sha256, ...] = ()  # that its lock names, the one that was last written or applied here


def stack_lock(name: str, tree: Tree) -> AbstractContextManager[HeldLock]:
    """Hold the lock of a stack's two records: of its modules, and of its jobs."""
    return tree.lock(f"stack-{name}", f"the stack {name}")


class Submission(NamedTuple):
    """A Slurm array, and the modules of each of its elements: `<prefix>/stacks/jobs/<name>.json`."""

    job: Annotated[str, Described("number of the Slurm job", pattern="^[0-9]+$")]
    what: Literal["apply", "test"]
    logs: str  # the directory for the logs of failed elements
    elements: tuple[tuple[ModuleName, ...], ...]
    decides: bool = False  # the last element of all jobs decides about the lives of the stack's modules

    def log(self, stack: str, element: int) -> Path:
        return Path(self.logs, f"sifmod-{stack}-{self.job}_{element}.log")


class Submissions(NamedTuple):
    """The jobs that were last submitted for a stack."""

    jobs: tuple[Submission, ...] = ()


def read_applied(layout: Layout, name: str) -> Applied | None:
    """Read the record of a stack; None if it is missing, closed or invalid. Other users may have written it."""
    return _read(Applied, _path(layout, name), layout.prefix, name=name)


def write_applied(layout: Layout, applied: Applied, held: HeldLock) -> None:
    """Write the record if it has changed. Raises InstallError, PermissionsError or LockError."""
    if read_applied(layout, applied.name) != applied:
        _write(_path(layout, applied.name), applied, held)


def locked_images(layout: Layout) -> dict[str, list[str]]:
    """The stacks whose locks contain an image, by digest. Raises OSError for an unreadable record."""
    found: dict[str, list[str]] = {}
    for file in names(layout.prefix / "stacks", layout.prefix):
        name, ending = os.path.splitext(file)  # noqa: PTH122 (a text)
        if ending != ".json":  # bundle files and job records
            continue
        if (applied := read_applied(layout, name)) is None:
            raise OSError(f"{_path(layout, name)} is not a readable record")
        for sha256 in dict.fromkeys(applied.images):
            found.setdefault(sha256, []).append(name)
    return found


def applied_by_others(layout: Layout, stack: str) -> dict[ModuleName, list[str]]:
    """The other stacks that installed a module too, and may still name it: a record keeps what is installed."""
    found: dict[ModuleName, list[str]] = {}
    with suppress(OSError):  # a closed directory
        others = (os.path.splitext(file) for file in names(layout.prefix / "stacks", layout.prefix))  # noqa: PTH122
        for name in (name for name, ending in others if ending == ".json" and name != stack):
            for module in applied.modules if (applied := read_applied(layout, name)) else ():
                found.setdefault(module, []).append(name)
    return found


def read_submissions(layout: Layout, stack: str) -> tuple[Submission, ...]:
    """The last submissions; none if the record is missing, closed or invalid: other users may have written it."""
    found = _read(Submissions, _path(layout, f"jobs/{stack}"), layout.prefix)
    return found.jobs if found else ()


def write_submissions(layout: Layout, stack: str, submissions: Iterable[Submission], held: HeldLock) -> None:
    """Replace the earlier submissions with these, so that nothing is submitted twice.

    Raises InstallError, PermissionsError or LockError.
    """
    _write(_path(layout, f"jobs/{stack}"), Submissions(tuple(submissions)), held)


def _read(kind: type[Record], path: Path, top: Path, **known: object) -> Record | None:
    def read(data: bytes) -> Record:
        from pydantic import TypeAdapter

        fields = json.loads(data)
        if fields.pop("format") != _FORMAT:
            raise ValueError("another format")
        record = TypeAdapter(kind).validate_python(fields | known)
        if isinstance(record, Submissions) and any("\n" in job.logs for job in record.jobs):
            raise ValueError("a path with a line break")  # messages name it
        return record

    return parsed(path, read, top=top)


def _write(path: Path, record: Applied | Submissions, held: HeldLock) -> None:
    text = json.dumps({"format": _FORMAT, **in_json(record)}, indent=1) + "\n"
    replace_text(held, path, text, f"cannot write the record {path}")


def _path(layout: Layout, name: str) -> Path:
    return layout.prefix / "stacks" / f"{name}.json"
