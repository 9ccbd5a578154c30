"""`sifmod gc`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, prefix_option

if TYPE_CHECKING:
    from sifmod.actions.garbage import GcPlan
    from sifmod.cli.outputs.tree import Collected, Kind
    from sifmod.config.name import ModuleName


@click.command("gc")
@click.option("-y", "--yes", is_flag=True, help="Remove what is shown.")
@click.option("--days", type=float, default=14.0, show_default=True, help="Keep what was in use within so many days.")
@click.option("--now", is_flag=True, help="The same as --days 0.")
@click.option("--rollbacks", is_flag=True, help="Remove what `rollback` would go back to, too.")
@click.option("--marks", is_flag=True, help="Remove images to which only users' modules in other trees refer, too.")
@click.option("--ignore-jobs", is_flag=True, help="Do not ask Slurm: no job uses what would go.")
@prefix_option
@json_option
def command(
    yes: bool,
    days: float,
    now: bool,
    rollbacks: bool,
    marks: bool,
    ignore_jobs: bool,
    prefix: str | None,
    as_json: bool,
) -> None:
    """Show, and with --yes remove, old generations, unused images, unfinished downloads, and layers that were replaced.

    What is live, what `rollback` would bring back, what a Slurm job may still use and what you added or changed stays.
    A line for each old generation, image and download says why it stays.
    """
    from sifmod.actions.changing_prefix import changing_prefix
    from sifmod.actions.gc import apply_gc, plan_gc
    from sifmod.actions.reporter import Reporter
    from sifmod.cli.context import load_facts, typed
    from sifmod.cli.output import counted, echo, print_json, say
    from sifmod.system import one_line, size_text
    from sifmod.tree.layout import Layout

    if not days >= 0:
        raise click.BadParameter(f"expected 0 or more days, got {days}", param_hint="--days")
    site = load_facts({"prefix": prefix}).site
    layout = Layout(site.prefix)
    mark_days = 0.0 if marks else site.mark_days
    plan = plan_gc(layout, 0.0 if now else days, ask_jobs=not ignore_jobs, rollbacks=rollbacks, mark_days=mark_days)
    rows = collected(plan)
    if not as_json:
        for row in rows:
            keep = row["keep"]
            line = f"{'keep  ' if keep else 'remove'}  {_what(row)}  {row['path']}{f'  ({keep})' if keep else ''}"
            echo(one_line(line))
    kept = [old.keep for old in plan.generations] + [old.keep for old in plan.images]
    kept += [old.keep for old in plan.partials]
    if any(kept) and not (now and rollbacks):
        say("what is kept for its age goes with --now, what is kept for `rollback` with --rollbacks")
    if plan.jobs.unknown:
        say(f"{plan.jobs.unknown}; where you know that no job uses what would go: --ignore-jobs")
    if yes:
        with changing_prefix(site):
            done = apply_gc(layout, plan, site.lock_lease, Reporter(say, command=typed()))
        rows = after(rows)
        for row in rows:
            if not row["keep"] and not row["removed"]:
                say(f"{_what(row)} stays in {row['path']}: it came into use since it was looked at")
        kinds = (
            (done.generations, "generation"),
            (done.images, "image"),
            (done.partials, "download"),
            (done.layers, "layer"),
        )
        say(f"removed {', '.join(counted(len(gone), noun) for gone, noun in kinds)}: {size_text(done.size)}")
    else:
        say(f"{size_text(plan.size)} can be freed: `sifmod gc --yes` does it" if plan.size else "nothing large to free")
    if as_json:
        print_json(rows)


def collected(plan: "GcPlan") -> "list[Collected]":
    """What a gc looked at, as `--json` prints it, before anything is removed."""
    rows = [_row("generation", old.root, old.keep, generation=(old.module, old.number)) for old in plan.generations]
    rows += [_row("image", old.image.path, old.keep, old.image.size) for old in plan.images]
    rows += [_row("download", old.partial.path, old.keep, old.partial.size) for old in plan.partials]
    rows += [_row("layer", old.root, old.keep, old.size) for old in plan.layers]
    rows += [_row("image", image.path, image.keep, image.size) for image in plan.used]
    return rows + [_row("remains of a run", path, "another user's, and closed to you") for path in plan.closed]


def after(rows: "list[Collected]") -> "list[Collected]":
    """The same, and which of it is gone now."""
    return [{**row, "removed": not row["keep"] and not os.path.lexists(row["path"])} for row in rows]


def _row(
    kind: "Kind", path: Path, keep: str, size: int | None = None, generation: "tuple[ModuleName, int] | None" = None
) -> "Collected":
    module, number = generation or (None, None)
    return {
        "kind": kind,
        "module": str(module) if module else None,
        "generation": number,
        "size": size,
        "path": str(path),
        "keep": keep or None,
        "removed": False,
    }


def _what(row: "Collected") -> str:
    from sifmod.system import size_text

    if row["module"]:
        return f"{row['module']} generation {row['generation']}"
    return row["kind"] if row["size"] is None else f"{row['kind']} {size_text(row['size'])}"
