"""`sifmod search`."""

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sifmod.actions.start import trees_for
from sifmod.cli.command import argument, command
from sifmod.cli.context import load_facts
from sifmod.cli.later import later
from sifmod.cli.output import echo, print_json, print_rows, say, terminal_width
from sifmod.cli.shared_options import SiteOptions
from sifmod.config.index import NOT_PUBLIC, DriverRuns
from sifmod.config.input import accelerator_found
from sifmod.config.redact import shown
from sifmod.errors import SifmodError
from sifmod.system import one_line

with later():
    from sifmod.actions import search as searching
    from sifmod.actions import start
    from sifmod.config import find, index, load_site

_NAME, _WHAT, _WHERE = 15, 16, 24  # minimum width of these columns
_INSTALLED = 8  # modules of a tree to name


class Row(NamedTuple):
    """A row of the result."""

    name: str
    what: str
    accelerator: str
    where: str
    brief: str = ""  # `where`, if there is little space


class Here(NamedTuple):
    """The accelerator of this machine, and what its driver runs."""

    accelerator: str
    driver: DriverRuns = ()

    def lacks(self, module: "index.IndexEntry") -> bool:
        """Whether the module needs a GPU that is not here."""
        return module.accelerator not in ("none", self.accelerator)


class SearchOptions(SiteOptions):
    words: tuple[str, ...] = argument(default=(), many=True)


@command("search", SearchOptions, lambda: list[searching.Found])
def search(given: SearchOptions) -> None:
    """List the modules that easyconfigs can install and that match all WORDS.

    Words are searched in the name, the description, the image's contents and its source; nvidia, cuda, amd, rocm and
    none (or cpu) are accelerators. A number is a version of the word before it (cuda 12.4, python 3.12), else of the
    module (2.2 matches any 2.2.x). A word with `*` (any characters) or `?` (one character) matches a whole name.
    The value of --accelerator is one more word.

    Easyconfigs ship with sifmod; your site's and your own are found in the directories of --robot-paths, or of
    `robot_paths` in a site or settings file. `sifmod config show` lists these directories.

    Each line has the module, its description, its accelerator and its image's source. "built from" means that the image
    is built here from a definition or a local file, "not public" that it has no source on a network. Lines are cut to
    the width of a terminal; in a pipe nothing is shortened. "not on this driver" marks modules that the site's
    `driver_runs` excludes, "installed" modules in your tree or one of the site's (`trees`). Without WORDS there is a
    line for each name.
    """
    list_found(given)


def list_found(given: SearchOptions) -> None:
    """Print the modules that match. Raises SifmodError if there are none."""

    @cache
    def load() -> "load_site.LoadedSite":
        return load_facts(given.settings)

    words = given.words
    if given.accelerator and given.accelerator != "auto":
        words = (*words, given.accelerator)
    quick = not (given.image_dirs or given.runtime or given.module_syntax)
    known = find.quick_robot_paths(given.site, given.robot_paths, os.environ) if quick else None
    paths = known or load().site.robot_paths
    answer = searching.ask(searching.find_all(paths, load, os.environ), words)
    if answer.note:
        say(answer.note)
    if not answer.found:
        typed = " ".join(map(shown, " ".join(words).split()))
        raise SifmodError(f"no module matches {typed!r}" if words else "there are no easyconfigs", answer.hint)
    found = answer.found
    with suppress(SifmodError):  # a search goes on without trees or settings that cannot be read
        found = searching.with_installed(found, filter(start.is_readable, trees_for(given.prefix)))
    if given.as_json:
        print_json(found)
    else:
        here = Here(accelerator_found(given.accelerator or os.environ.get("SIFMOD_ACCELERATOR")))
        if known is None or given.site or os.environ.get("SIFMOD_SITE") or find.may_limit_driver():
            with suppress(SifmodError):  # a search goes on without settings that cannot be read
                here = Here(load().site.accelerator, load().site.driver_runs)
        options = {"--site": given.site, "--robot-paths": given.robot_paths}
        if words:
            _print(found, paths, options, here)
        else:
            _print_names(found, here.driver)


def _print_names(answers: "Sequence[searching.Found]", driver: DriverRuns) -> None:
    """Print a line for each name: the newest version (that the driver runs, if any), modules, accelerators, text."""
    modules = sorted((each for found in answers for each in found.variants), key=searching.order)
    names = {each.name.casefold(): each.name for each in modules}
    rows: list[tuple[str, ...]] = []
    for key, name in names.items():
        those = [each for each in modules if each.name.casefold() == key]
        runs = [each for each in those if not each.not_run_by(driver)]
        kinds = dict.fromkeys(each.accelerator for each in those)
        newest = (runs or those)[-1]
        rows.append((name, newest.version, str(len(those)), ", ".join(sorted(kinds)), newest.description))
    _print_narrow(rows, ("NAME", "NEWEST", "MODULES", "FOR", "WHAT"), terminal_width())
    _say_installed(answers)
    for found in answers:
        if found.problems:
            say(f"cannot be used: `sifmod check {shlex.quote(str(found.path))}` says why")
    say("`sifmod search NAME` lists the modules of a name; `sifmod install NAME` installs the newest that fits here")


def _print_narrow(rows: list[tuple[str, ...]], header: tuple[str, ...], width: int) -> None:
    """Print the rows, without the last column where only a few letters of it would fit."""
    above = [max(map(len, column)) + 2 for column in zip(header, *rows, strict=True)]
    shown = len(header) if not width or width - sum(above[:-1]) >= min(_WHAT, above[-1] - 2) else -1
    print_rows([row[:shown] for row in rows], header[:shown], width)


def _print(
    answers: "Sequence[searching.Found]",
    robot_paths: tuple[Path, ...],
    given: Mapping[str, str | None],
    here: Here,
) -> None:
    """Print a line for each module, then for each invalid file, then a command to type.

    `given` are the options that an install also needs. Modules that the driver does not run are marked.
    """
    modules = sorted(
        ((each, found.path) for found in answers for each in found.variants), key=lambda one: searching.order(one[0])
    )
    there = {str(one.module) for found in answers for one in found.installed}
    rows = [
        Row(
            each.module,
            _about(each, here.driver, installed=each.module in there),
            each.accelerator,
            each.where,
            each.brief,
        )
        for each, _ in modules
    ]
    broken = [found.path for found in answers if found.problems]
    rows += [Row(path.stem, "cannot be used", "?", f"sifmod check {shlex.quote(str(path))}") for path in broken]
    rows = [Row(*map(one_line, row)) for row in rows]
    lines, cut = fitted(rows, terminal_width())
    echo("\n".join(lines))
    if cut:
        say("names are shortened to the width of this terminal; in a pipe they are whole")
    _say_installed(answers)
    if modules:
        each, path = _example(modules, here)
        words = ["sifmod", "install", find.name_of(path, robot_paths)]
        chosen = each.accelerator == here.accelerator and sum(one == path for _, one in modules) > 1  # by the install
        for option, value in {"--variant": None if chosen else each.variant, **given}.items():
            words += [option, value] if value else []
        where = f", with a GPU for {each.accelerator} (here: {here.accelerator})" if here.lacks(each) else ""
        say(f"for example{where}: {shlex.join(words)}")


def _example(modules: "Sequence[tuple[index.IndexEntry, Path]]", here: Here) -> "tuple[index.IndexEntry, Path]":
    """The last public module, and its path, for this accelerator and driver; else the last of a wider choice."""
    runs = [one for one in modules if not one[0].not_run_by(here.driver)]
    public = [one for one in runs if one[0].public]
    there = [one for one in public if not here.lacks(one[0])]
    fit = [one for one in there if one[0].accelerator == here.accelerator]
    return (fit or there or public or modules)[-1]


def _about(module: "index.IndexEntry", driver: DriverRuns, *, installed: bool) -> str:
    """The module's description; before it, whether it is installed, and whether the driver here does not run it."""
    marks = ("[installed] " if installed else "", "[not on this driver] " if module.not_run_by(driver) else "")
    return f"{''.join(marks)}{module.description}"


def _say_installed(answers: "Sequence[searching.Found]") -> None:
    """Say which of the modules are installed in which tree."""
    places: dict[Path, list[str]] = {}
    for one in sorted({one for found in answers for one in found.installed}):
        places.setdefault(one.prefix, []).append(str(one.module))
    for prefix, modules in places.items():
        more = f" and {len(modules) - _INSTALLED} more" if len(modules) > _INSTALLED else ""
        say(f"installed in {prefix}: {', '.join(modules[:_INSTALLED])}{more}")


def fitted(rows: "Sequence[Row]", width: int) -> tuple[list[str], bool]:
    """Lines of module, description, accelerator and source, at most `width` wide (0: no limit); whether names are cut.

    Shortens the source first; where little of it would be left, only what is not public is marked. Then the
    description, and last the middle of the module's name.
    """
    names, whats, accelerators, wheres, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    middle = names + whats + 2  # a long name takes space from the description
    if width and wheres > len(NOT_PUBLIC) and width - middle - accelerators - 4 < min(wheres, _WHERE):
        rows = [row._replace(where=row.brief) for row in rows]
        wheres = max(len(row.where) for row in rows)
    if width:
        wheres = min(wheres, max(len(NOT_PUBLIC), width - middle - accelerators - 4))
        middle = min(middle, max(width - accelerators - wheres - 4, _NAME))
        names = max((len(row.name) for row in rows if len(row.name) + _WHAT + 2 <= middle), default=0)
    lines = []
    for row in rows:
        name = _cut(row.name, middle)
        room = middle - max(len(name), names) - 2
        what = _short(row.what, room) if room >= min(len(row.what), _WHAT) else ""
        left = f"{name:{names}}  {what}"[:middle]
        lines.append(
            f"{left:{middle}}  {row.accelerator:{accelerators}}  {_short(row.where, wheres, row.brief)}".rstrip()
        )
    return lines, any(len(row.name) > middle for row in rows)


def _cut(name: str, room: int) -> str:
    """The module's name, shortened in the middle so that version and suffix stay distinct."""
    if len(name) <= room:
        return name
    version = name.find("-", name.find("/") + 1)
    head = min(version if version > 0 else room, room // 2)
    return f"{name[:head]}…{name[head + 1 - room :]}"


def _short(text: str, room: int, brief: str = "") -> str:
    """The text, cut to `room` characters, or `brief` where hardly more of it fits."""
    if len(text) <= room:
        return text
    return brief if brief and room < len(brief) + 8 else f"{text[: room - 1].rstrip()}…"
