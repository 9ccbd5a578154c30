"""`sifmod diff`."""

import re
from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, prefix_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sifmod.actions.diff import Change, Difference, PackageChange
    from sifmod.cli.outputs.provenance import DiffData

_MOST = 20  # of the system's packages: more are counted, and --json has them all
_DIGEST = r"\b([0-9a-f]{12})[0-9a-f]{52}\b"


@click.command("diff")
@click.argument("before", metavar="MODULE|FILE|REFERENCE")
@click.argument("after", metavar="[MODULE|FILE|REFERENCE]", required=False)
@prefix_option
@json_option
def command(before: str, after: str | None, prefix: str | None, as_json: bool) -> None:
    """Show what changed: packages, variables, bind paths, commands, and what it was made from.

    Two modules, generations (NAME@NUMBER), SIFs, or images of the store by digest or reference. Of one module: its live
    generation against the one before. The exit code is 0, whether or not something changed.
    """
    from sifmod.actions.diff import diff
    from sifmod.actions.subject import before as generation_before
    from sifmod.cli.context import layout_for
    from sifmod.cli.output import echo, print_json, say
    from sifmod.cli.subject import subject
    from sifmod.errors import OptionError
    from sifmod.tree.layout import Layout

    layout = layout_for(prefix)
    new = subject(after or before, layout)
    if after is None and (new.installation is None or "@" in before):
        raise OptionError(f"{before} can be compared with another module or image only", "name two of them")
    if after is None and new.installation:
        old = generation_before(Layout(new.prefix), new.installation.module)
    else:
        old = subject(before, layout)
    found = diff(old, new)
    if as_json:
        print_json(_data(found))
        return
    for note in found.notes:
        say(f"note: {note}")
    echo(f"{found.old} → {found.new}")
    for line in _lines(found):
        echo(line)


def _lines(found: "Difference") -> "Iterator[str]":
    """For each part its name and how much of it changed, then what."""
    from sifmod.system import one_line

    parts: tuple[tuple[str, Sequence[Change]], ...] = (
        ("made from", found.sources),
        ("modules", found.modules),
        ("variables", found.host),
        ("variables in the container", found.inside),
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


def _data(found: "Difference") -> "DiffData":
    return {
        "old": found.old,
        "new": found.new,
        "origin_changes": [one._asdict() for one in found.sources],  # type: ignore[misc]
        "loaded_modules": [one._asdict() for one in found.modules],  # type: ignore[misc]
        "packages": [one._asdict() for one in found.packages],  # type: ignore[misc]
        "variables": [one._asdict() for one in found.host],  # type: ignore[misc]
        "variables_inside": [one._asdict() for one in found.inside],  # type: ignore[misc]
        "binds": [one._asdict() for one in found.binds],  # type: ignore[misc]
        "commands": [one._asdict() for one in found.commands],  # type: ignore[misc]
        "notes": list(found.notes),
    }
