"""`sifmod check`."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, site_options
from sifmod.errors import ConfigError, EasyconfigNotFoundError, Problem, SifmodError
from sifmod.system import one_line

if TYPE_CHECKING:
    from sifmod.config.load_site import LoadedSite

Words = tuple[str, ...]


@click.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE|DIRECTORY...")
@click.option(
    "--variant",
    "variants",
    metavar="NAME|all",
    multiple=True,
    help="Check only this one; may be repeated (default: all).",
)
@site_options
@json_option
def command(files: Words, variants: Words, as_json: bool, **site: str | None) -> int:
    """Validate easyconfigs and render what they would install; every problem as file:line:column: key: message.

    Site files and quirks are checked too; binds that are allowed and odd are a warning. Of a DIRECTORY everything below
    it is checked but presets, which are checked where they are used. What is wrong with a file that several easyconfigs
    use is told once, at the end.
    """
    from sifmod.actions.author.check import files_below
    from sifmod.cli.context import load_context
    from sifmod.cli.output import counted, echo, print_json, say

    context = load_context(site)
    only = tuple(dict.fromkeys(variants))
    results: list[dict[str, object]] = []
    codes: list[int] = []
    shared: dict[str, int] = {}  # how many files each problem of another one is about
    for file in files:
        for path in files_below(Path(file)) or (file,):
            found = _checked(path, context, only)
            codes.append(found.exit_code)
            results.append(found.data)
            for line in found.elsewhere:
                shared[line] = shared.get(line, 0) + 1
            if found.lines and not as_json:
                echo("\n".join(found.lines))
    if as_json:
        print_json(results)
    else:
        for line, number in shared.items():
            echo(f"{line} ({counted(number, 'file')})" if number > 1 else line)
    if len(codes) > 1:
        say(f"{codes.count(0)} of {counted(len(codes), 'file')} ok")
    return max(codes)


@dataclass(frozen=True)
class Found:
    """What `check` says of a file: as data, in lines about it, and in lines about the files that it uses."""

    data: dict[str, object]
    lines: Words
    elsewhere: Words = ()
    exit_code: int = 0


def _checked(word: str, context: "LoadedSite", variants: Words) -> Found:
    from sifmod.actions.author.check import check, check_stack
    from sifmod.actions.author.check_settings import check_settings, settings_kind
    from sifmod.cli.output import counted, error_data
    from sifmod.config.wanted import wanted_easyconfig

    path = Path(word)
    try:
        if os.path.isdir(word):  # noqa: PTH112 (a name may be of any length)
            hint = "presets are checked where they are used: check an easyconfig that names one"
            raise EasyconfigNotFoundError(f"there is no easyconfig, site or quirk in {word}", hint)
        path = wanted_easyconfig(word, context.site)
        if (kind := settings_kind(path)) == "stack":
            number = check_stack(path, context)
            return _fine(path, (), [], [f"{one_line(str(path))}: ok: a stack of {counted(number, 'easyconfig')}"])
        if kind:
            warnings = check_settings(path, kind, os.environ).warnings
            return _fine(path, warnings, [], [f"{one_line(str(path))}: ok: a {kind}"])
        checked = check(path, context, variants)
    except SifmodError as error:
        data = {"path": str(path.absolute()), "modules": [], "warnings": [], **error_data(error)}
        if isinstance(error, ConfigError):
            return Found(data, *_places(path, error.problems), error.exit_code)
        return Found(data, (str(error), *([f"hint: {error.hint}"] if error.hint else [])), (), error.exit_code)
    name = one_line(str(path))
    modules: list[dict[str, object]] = [
        {"module": one.module, "variant": one.variant, "rendered": one.files} for one in checked
    ]
    fine = [f"{name}: ok: {one.module}{f' (variant {one.variant})' if one.variant else ''}" for one in checked]
    return _fine(path, dict.fromkeys(problem for one in checked for problem in one.warnings), modules, fine)


def _fine(path: Path, warnings: Iterable[Problem], modules: list[dict[str, object]], lines: list[str]) -> Found:
    from sifmod.cli.output import problems_data

    own, elsewhere = _places(path, warnings, " (warning)")
    told = {"modules": modules, "problems": [], "warnings": problems_data(warnings)}
    data: dict[str, object] = {"path": str(path.absolute()), **told}
    return Found(data, (*own, *lines), elsewhere)


def _places(path: Path, problems: Iterable[Problem], end: str = "") -> tuple[Words, Words]:
    """The lines about the file itself, and those about files that it uses."""
    lines = [(problem.file == str(path), f"{problem}{end}") for problem in problems]
    return tuple(line for own, line in lines if own), tuple(line for own, line in lines if not own)
