"""Hooks: programs of a site that sifmod runs before and after its actions, and which files may define them."""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

from sifmod.config.text import expecting, whole_number
from sifmod.config.yaml.node import Node
from sifmod.config.yaml.validate import Model
from sifmod.system import open_to_others, user_name

Moment = Literal[
    "before_fetch", "after_fetch", "before_install", "after_install",
    "before_publish", "after_publish", "before_retire", "after_retire",
]  # fmt: skip
SECONDS = 300
_LINKS = 40  # that the kernel follows
_SCRIPTS = 6  # a script's interpreter may be a script; the kernel refuses deeper ones


@dataclass(frozen=True)
class Hook:
    """A program to run at one moment, with a time limit in seconds; `said_in` is the file that defines it."""

    moment: str
    program: str  # absolute
    said_in: str
    seconds: int = SECONDS


Programs = tuple[Annotated[str, expecting(r"/[^\0]*", "the absolute path of a program")], ...]


class HookKeys(Model):
    """Absolute paths of programs, in the order in which they run."""

    before_fetch: Programs = ()
    after_fetch: Programs = ()
    before_install: Programs = ()
    after_install: Programs = ()
    before_publish: Programs = ()
    after_publish: Programs = ()
    before_retire: Programs = ()
    after_retire: Programs = ()
    seconds: Annotated[int, Field(ge=1, le=86400), BeforeValidator(whole_number)] = SECONDS
    """Time limit in seconds; a hook that exceeds it is ended and has failed."""


def hooks_of(keys: HookKeys, site: Node) -> tuple[Hook, ...]:
    """The hooks in merged settings, each with the file that names it."""
    return tuple(
        Hook(moment, item.text, item.mark.file, keys.seconds)
        for moment in get_args(Moment)
        for item in site.at("hooks", moment).items
    )


def distrusted(hook: Hook) -> str:
    """Why this user does not run a hook: a file that decides what runs is missing or open to others; "" if none is.

    These are the file that names it, the program and its interpreters. Root or this user must own them and all
    directories above them; others may write to sticky directories only.
    """
    return next((why for path in _deciding(hook) for why in _writers(path)), "")


def _deciding(hook: Hook) -> Iterator[str]:
    """The file that names the hook, the program, and the interpreters of scripts."""
    yield hook.said_in
    left = [hook.program]
    for _ in range(_SCRIPTS):
        yield from left
        left = list(dict.fromkeys(path for script in left for path in _interpreters(script)))


def _interpreters(script: str) -> tuple[str, ...]:
    """The path of a script's interpreter, and those in its arguments, as behind `env`; () for another file."""
    try:
        if not Path(script).is_file():
            return ()
        with Path(script).open("rb") as file:
            found = re.match(rb"#![ \t]*([^\s\0]+)([^\n\0]*)", file.readline(256))
    except OSError:
        return ()
    if found is None:
        return ()
    rest = os.fsdecode(found[2])
    # `-S/a`, `--split-string=/a` and `PATH=/a:/b` name paths too, and `env` searches PATH for a name
    others = re.findall(r"""(?:\s-\w)?([^\s=:"']*/[^\s=:"']*)""", rest)
    names = re.findall(r"""(?:^|[\s"'])(?:-\w*S|--split-string=)?([^\s=/"'-][^\s=/"']*)(?=$|[\s"'])""", rest)
    paths = tuple(str(Path("/", word)) for word in (os.fsdecode(found[1]), *others))  # hooks run in /
    return (*paths, *(path for name in names for path in _on_path(name)))


def _on_path(name: str) -> Iterator[str]:
    """The program `name` on PATH, and each directory before it to which others can add one."""
    for directory in map(Path, os.environ.get("PATH", os.defpath).split(":")):
        place = Path("/", directory)
        if os.access(place / name, os.X_OK) and (place / name).is_file():
            yield str(place / name)
            return
        if place.is_dir() and open_to_others(place):
            yield str(place)


def _writers(path: str) -> Iterator[str]:
    for place in _way(path):
        try:
            status = os.lstat(place)
        except OSError as error:
            yield f"{place}: {error.strerror}"
            return
        if place.parts[1:2] == ("proc",):
            yield f"{place} is not the same for each process"
        if status.st_uid not in (0, os.geteuid()):
            yield f"{place} belongs to {user_name(status.st_uid)}"
        # sticky: nobody can replace another user's files
        sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & 0o1000
        if status.st_mode & 0o022 and not sticky and not stat.S_ISLNK(status.st_mode):
            yield f"other users can write {place}"


def _way(path: str) -> Iterator[Path]:
    """Every directory and link on the way to the target of a path, and the target."""
    here, left, links = Path("/"), [*reversed((Path.cwd() / path).parts)], 0
    while left:
        name = left.pop()
        here = here.parent if name == ".." else here / name
        yield here
        if here.is_symlink() and (links := links + 1) <= _LINKS:
            left += reversed(here.readlink().parts)
            here = here.parent
