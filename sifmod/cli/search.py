"""`sifmod search`."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sifmod.cli.command import argument, command
from sifmod.cli.context import load_facts
from sifmod.cli.output import echo, print_json, say
from sifmod.cli.shared_options import SiteOptions
from sifmod.config.shown import shown
from sifmod.errors import SifmodError
from sifmod.system import one_line

if TYPE_CHECKING:
    from sifmod.actions.search import Found
    from sifmod.config.load_site import LoadedSite

_WHERE, _WHAT = 15, 16  # columns that are left for them, if names allow
_ACCELERATORS = {"none": "cpu"}


class Row(NamedTuple):
    """A line of the answer."""

    name: str
    what: str
    accelerator: str
    where: str


class SearchOptions(SiteOptions):
    words: tuple[str, ...] = argument(default=(), many=True)


@command("search", SearchOptions)
def search(given: SearchOptions) -> None:
    """List the modules that easyconfigs can install: those that match all WORDS.

    A word is looked for in the name, the description, what is in the image and where the image comes from; nvidia,
    cuda, amd, rocm and cpu are accelerators. A number is a version: of the word before it (cuda 12.4, python 3.12),
    else of the module (2.2 is any 2.2.x). A word with `*` (any letters) or `?` (one) is a whole name.
    --accelerator is one word more.

    Easyconfigs ship with sifmod; those of your site and your own are found in the directories that --robot-paths, or
    `robot_paths` in a site or settings file, names. `sifmod config show` has them all.

    A line is the module, what it is, its accelerator, and where its image comes from. "built from" is one that is built
    here of a definition or of a file of this machine, "not public" one without a source on a network. On a terminal the
    lines fit its width; in a pipe nothing is shortened.
    """
    from sifmod.actions.search import ask, find_all
    from sifmod.config.find import quick_robot_paths

    @cache
    def load() -> "LoadedSite":

        return load_facts(given.settings)

    words = given.words
    if given.accelerator and given.accelerator != "auto":
        words = (*words, _ACCELERATORS.get(given.accelerator, given.accelerator))
    quick = not (given.image_dirs or given.runtime or given.module_syntax)
    known = quick_robot_paths(given.site, given.robot_paths, os.environ) if quick else None
    paths = known or load().site.robot_paths
    answer = ask(find_all(paths, load, os.environ), words)
    if answer.note:
        say(answer.note)
    if not answer.found:
        typed = " ".join(map(shown, " ".join(words).split()))
        raise SifmodError(f"no module matches {typed!r}" if words else "there are no easyconfigs", answer.hint)
    if given.as_json:
        print_json(answer.found)
    else:
        _print(answer.found, paths, {"--site": given.site, "--robot-paths": given.robot_paths})


def _print(answers: "Sequence[Found]", robot_paths: tuple[Path, ...], given: Mapping[str, str | None]) -> None:
    """A line for each module, in their order; and for each file that cannot be used, at the end. Then what to type.

    `given` are the options that an install needs too, to find the same.
    """
    from sifmod.actions.search import order
    from sifmod.config.find import name_of

    modules = sorted(
        ((each, found.path) for found in answers for each in found.variants), key=lambda one: order(one[0])
    )
    rows = [
        Row(each.module, each.description, _ACCELERATORS.get(each.accelerator, each.accelerator), each.where)
        for each, _ in modules
    ]
    broken = [found.path for found in answers if found.problems]
    rows += [Row(path.stem, "cannot be used", "?", f"sifmod check {shlex.quote(str(path))}") for path in broken]
    rows = [Row(*map(one_line, row)) for row in rows]
    lines = fitted(rows, _width())
    echo("\n".join(lines))
    if not all(line.startswith(row.name) for line, row in zip(lines, rows, strict=True)):
        say("names are shortened to the width of this terminal; in a pipe they are whole")
    if modules:
        each, path = next((one for one in reversed(modules) if one[0].public), modules[-1])
        words = ["sifmod", "install", name_of(path, robot_paths)]
        alone = sum(one == path for _, one in modules) == 1  # of several variants the machine takes its own
        for option, value in {"--variant": each.variant if alone else None, **given}.items():
            words += [option, value] if value else []
        say(f"for example: {shlex.join(words)}")


def _width() -> int:
    """Of the terminal that standard output is; 0 for anything else."""
    if not sys.stdout.isatty():
        return 0
    import shutil  # with three compressors

    return shutil.get_terminal_size().columns


def fitted(rows: "Sequence[Row]", width: int) -> list[str]:
    """Lines of module, what it is, accelerator and where the image comes from, at most `width` wide; 0 is no limit.

    What is too much is taken from where, then from what it is, and last from the middle of the module's name.
    """
    names, whats, accelerators, wheres = (max(map(len, column)) for column in zip(*rows, strict=True))
    middle = names + whats + 2  # name and what share it: a long name takes the room of what
    if width:
        least = max(len(_short(row.where, _WHERE)) for row in rows)
        wheres = min(wheres, max(least, width - middle - accelerators - 4))
        middle = min(middle, max(width - accelerators - wheres - 4, _WHERE))
        names = max((len(row.name) for row in rows if len(row.name) + _WHAT + 2 <= middle), default=0)
    lines = []
    for row in rows:
        name = _cut(row.name, middle)
        room = middle - max(len(name), names) - 2
        what = _short(row.what, room) if room >= min(len(row.what), _WHAT) else ""
        left = f"{name:{names}}  {what}"[:middle]
        lines.append(f"{left:{middle}}  {row.accelerator:{accelerators}}  {_short(row.where, wheres)}".rstrip())
    return lines


def _cut(name: str, room: int) -> str:
    """The module's name, or its version and the end of its versionsuffix, which tells it from its neighbours."""
    if len(name) <= room:
        return name
    version = name.find("-", name.find("/") + 1)
    head = min(version if version > 0 else room, room // 2)
    return f"{name[:head]}…{name[head + 1 - room :]}"


def _short(text: str, room: int) -> str:
    """The text, or as much of its beginning as there is room for."""
    if len(text) <= room:
        return text
    first, colon, _ = text.partition(": ")
    return first if colon and room < len(first) + 8 else f"{text[: room - 1].rstrip()}…"
