"""`sifmod sbom` and `diff`: what is in a module or an image, and what changed."""

import os
import re
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from sifmod.cli.context import layout_for, resolve
from sifmod.cli.options import json_option, prefix_option
from sifmod.cli.output import counted, echo, print_json, say
from sifmod.errors import OptionError
from sifmod.system import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sifmod.actions.diff import Change, Difference, PackageChange
    from sifmod.actions.sbom import Format
    from sifmod.actions.subject import Subject
    from sifmod.tree.layout import Layout


def subject(text: str, layout: "Layout") -> "Subject":
    """The module or the image that `text` names; raises ModuleError or FetchError where there is none."""
    from sifmod.actions.layer.places import known, layouts
    from sifmod.actions.subject import is_digest, of_generation, of_image
    from sifmod.cli.show import names_image
    from sifmod.tree.receipt import known_modules

    if names_image(text) or is_digest(text):
        return of_image(layout, text)
    name, at, number = text.partition("@")
    if at and not number.isdecimal():
        name, number = text, ""
    trees = layouts(layout.prefix, os.environ)
    live = known(trees)
    module = resolve(name, live if not number else {*live, *known_modules(layout)})
    return of_generation(live.get(module, layout), module, int(number) if number else None)


@click.command("sbom")
@click.argument("name", metavar="MODULE|FILE|REFERENCE")
@click.option("--format", "form", type=click.Choice(["json", "xml"]), default="json", help="Of CycloneDX (json).")
@click.option("-o", "--output", metavar="FILE", help="Write it here; a file that exists is left as it is.")
@prefix_option
@json_option
def sbom_command(name: str, form: "Format", output: str | None, prefix: str | None, as_json: bool) -> None:
    """Print a software bill of materials (CycloneDX 1.6): the packages of an image, read without starting it.

    NAME@NUMBER is a generation of a module. FILE is a SIF; an image of the store can be named by its digest too, or by
    the reference that gave it. Your layers over a module are in it, each as a component of its own. Of a view the
    modules are that it loads, each with its packages.
    """
    from pathlib import Path

    from sifmod.actions.author.new_file import check_target, write_text
    from sifmod.actions.layer.places import found_layers, known, layouts
    from sifmod.actions.sbom import sbom

    target = Path(output) if output not in (None, "-") else None
    if target:
        check_target(target)
    layout = layout_for(prefix)
    meant = subject(name, layout)
    module = meant.installation.module if meant.installation else None
    trees = layouts(layout.prefix, os.environ)
    layers = [*found_layers(trees, os.environ)] if module else []
    made = sbom(meant, layers, form, os.environ, known(trees))
    if target:
        write_text(made.text, target)
    for note in made.notes:
        say(f"note: {note}")
    if as_json:
        print_json(
            {
                "module": str(module) if module else None,
                "generation": meant.installation.generation if meant.installation else None,
                "sha256": made.sha256 or None,
                "format": form,
                "path": str(target.absolute()) if target else None,
                "package_count": made.packages,
                "layers": made.layers,
                "notes": made.notes,
                "text": made.text,
            }
        )
    elif target:
        say(f"{target}: {counted(made.packages, 'package')}, {counted(len(made.layers), 'layer')}")
    else:
        echo(made.text, nl=False)


_MOST = 20  # of the system's packages: more are counted, and --json has them all
_DIGEST = r"\b([0-9a-f]{12})[0-9a-f]{52}\b"


@click.command("diff")
@click.argument("before", metavar="MODULE|FILE|REFERENCE")
@click.argument("after", metavar="[MODULE|FILE|REFERENCE]", required=False)
@prefix_option
@json_option
def diff_command(before: str, after: str | None, prefix: str | None, as_json: bool) -> None:
    """Show what changed: packages, variables, bind paths, commands, and what it was made from.

    Two modules, generations (NAME@NUMBER), SIFs, or images of the store by digest or reference. Of one module: its live
    generation against the one before. The exit code is 0, whether or not something changed.
    """
    from sifmod.actions.diff import diff
    from sifmod.actions.subject import before as generation_before
    from sifmod.tree.layout import Layout

    layout = layout_for(prefix)
    new = subject(after or before, layout)
    if after is None and (new.installation is None or "@" in before):
        raise OptionError(f"{before} can be compared with another module or image only", "name two of them")
    if after is None and new.installation:
        old = generation_before(Layout(new.installation.prefix), new.installation.module)
    else:
        old = subject(before, layout)
    found = diff(old, new)
    if as_json:
        print_json(asdict(found))
        return
    for note in found.notes:
        say(f"note: {note}")
    echo(f"{found.old} → {found.new}")
    for line in _lines(found):
        echo(line)


def _lines(found: "Difference") -> "Iterator[str]":
    """For each part its name and how much of it changed, then what."""
    parts: tuple[tuple[str, Sequence[Change]], ...] = (
        ("made from", found.origin_changes),
        ("modules", found.loaded_modules),
        ("variables", found.variables),
        ("variables in the container", found.variables_inside),
        ("bind paths", found.binds),
        ("commands", found.commands),
    )
    rows = list(_package_lines(found.packages))
    for title, changes in parts:
        if changes:
            rows.append(f"{title}: {_counted([(one.old is None, one.new is None) for one in changes])}")
            rows += [f"  {one_line(_row(one.name, one.old, one.new))}" for one in changes]
    yield from rows or ["nothing that they hold or set is different"]


def _package_lines(packages: "Sequence[PackageChange]") -> "Iterator[str]":
    for kind in dict.fromkeys(one.kind for one in packages):
        changes = [one for one in packages if one.kind == kind]
        hidden = kind in ("deb", "rpm") and len(changes) > _MOST
        counts = _counted([(not one.old_versions, not one.new_versions) for one in changes])
        yield f"{kind} packages: {counts}{'; --json lists them' if hidden else ''}"
        for one in () if hidden else changes:
            yield f"  {_row(one.name, ', '.join(one.old_versions) or None, ', '.join(one.new_versions) or None)}"


def _row(name: str, before: str | None, after: str | None) -> str:
    old, new = (re.sub(_DIGEST, r"\1…", text or "") for text in (before, after))
    if before is None or after is None:
        value = "" if (new or old) == name else f" {new or old}"
        return f"{'+' if before is None else '-'} {name}{value}"
    return f"~ {name} {old} → {new}"


def _counted(changes: "Sequence[tuple[bool, bool]]") -> str:
    """3 added, 1 removed, 2 changed."""
    added = sum(new for new, _ in changes)
    removed = sum(gone for _, gone in changes)
    numbers = ((added, "added"), (removed, "removed"), (len(changes) - added - removed, "changed"))
    return ", ".join(f"{number} {word}" for number, word in numbers if number)
