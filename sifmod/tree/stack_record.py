"""The records of stacks: what they have installed, and the jobs that install their modules."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sifmod.config.name import ModuleName, is_part
from sifmod.tree.change import change
from sifmod.tree.durable import names, parsed
from sifmod.tree.layout import Layout
from sifmod.tree.locking import Held

_FORMAT = 1
_SHA256 = re.compile("[0-9a-f]{64}")


class Applied(NamedTuple):
    """A stack as it was last applied: `<prefix>/stacks/<name>.json`."""

    name: str
    file: str  # absolute path
    modules: tuple[ModuleName, ...]  # those that it has installed and has not let go
    decided: tuple[str, ...] = ()  # the modules, and names for a default, about whose life it says something
    images: tuple[str, ...] = ()  # digests of those that its lock names, the one that was last written or applied here


class Submission(NamedTuple):
    """An array of Slurm, and which modules each of its elements is for: `<prefix>/stacks/jobs/<name>.json`."""

    job: str  # its number
    what: Literal["apply", "test"]
    logs: str  # the directory in which an element that fails leaves what it has said
    elements: tuple[tuple[ModuleName, ...], ...]

    def log(self, stack: str, element: int) -> Path:
        return Path(self.logs, f"sifmod-{stack}-{self.job}_{element}.log")


def read_applied(layout: Layout, name: str) -> Applied | None:
    """None where no such stack was applied, or its record cannot be read: others may have written it."""

    def applied(data: bytes) -> Applied:
        fields = _checked(data)
        modules, decided, images = map(_module, fields["modules"]), map(str, fields["decided"]), fields["images"]
        if not all(map(_SHA256.fullmatch, images)):
            raise ValueError("no SHA-256")
        return Applied(name, str(fields["file"]), tuple(modules), tuple(decided), tuple(images))

    return parsed(_path(layout, name), applied, top=layout.prefix)


def write_applied(layout: Layout, applied: Applied, held: Held) -> None:
    """Keep it, where it has changed. Raises InstallError, LockError."""
    if read_applied(layout, applied.name) != applied:
        fields = {"file": applied.file, "modules": [*map(str, applied.modules)], "decided": applied.decided}
        _write(_path(layout, applied.name), {**fields, "images": applied.images}, held)


def locked_images(layout: Layout) -> dict[str, list[str]]:
    """The stacks whose locks name an image, by its digest. Raises OSError where a record cannot be read."""
    found: dict[str, list[str]] = {}
    for name in (file.removesuffix(".json") for file in names(layout.prefix / "stacks", layout.prefix)):
        path = _path(layout, name)
        if not path.is_file():  # the files of a bundle, and what is of jobs
            continue
        if (applied := read_applied(layout, name)) is None:
            raise OSError(f"{path} is no record that can be read")
        for sha256 in applied.images:
            found.setdefault(sha256, []).append(name)
    return found


def read_submissions(layout: Layout, stack: str) -> tuple[Submission, ...]:
    """What was last submitted; nothing where the record cannot be read: others may have written it."""

    def submissions(data: bytes) -> tuple[Submission, ...]:
        return tuple(map(_submission, _checked(data)["jobs"]))

    return parsed(_path(layout, f"jobs/{stack}"), submissions, top=layout.prefix) or ()


def write_submissions(layout: Layout, stack: str, submissions: Iterable[Submission], held: Held) -> None:
    """Keep these in the place of the earlier ones, so that none is submitted twice. Raises InstallError, LockError."""
    jobs = [
        {**one._asdict(), "elements": [[str(module) for module in element] for element in one.elements]}
        for one in submissions
    ]
    _write(_path(layout, f"jobs/{stack}"), {"jobs": jobs}, held)


def _checked(data: bytes) -> Any:
    fields = json.loads(data)
    if fields["format"] != _FORMAT:
        raise ValueError("another format")
    return fields


def _write(path: Path, fields: Mapping[str, object], held: Held) -> None:
    with change(held, f"cannot write the record {path}") as steps:
        steps.file(path, json.dumps({"format": _FORMAT, **fields}, indent=1) + "\n")


def _submission(fields: dict[str, object]) -> Submission:
    job, what, logs, elements = (fields[name] for name in Submission._fields)
    if not (isinstance(job, str) and job.isdigit() and isinstance(logs, str) and isinstance(elements, list)):
        raise TypeError("another type")
    kind: Literal["apply", "test"] = "test" if what == "test" else "apply"
    return Submission(job, kind, logs, tuple(tuple(map(_module, element)) for element in elements))


def _module(text: str) -> ModuleName:
    name, version = text.split("/")
    if not (is_part(name) and is_part(version)):
        raise ValueError(f"{text} names no module")
    return ModuleName(name, version)


def _path(layout: Layout, name: str) -> Path:
    return layout.prefix / "stacks" / f"{name}.json"
