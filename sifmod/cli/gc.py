"""`sifmod gc`."""

import os

import click

from sifmod.cli.options import json_option, prefix_option


@click.command("gc")
@click.option("-y", "--yes", is_flag=True, help="Remove what is shown.")
@click.option("--days", type=float, default=14.0, show_default=True, help="Keep what was in use within so many days.")
@click.option("--now", is_flag=True, help="The same as --days 0.")
@click.option("--rollbacks", is_flag=True, help="Remove what `rollback` would go back to, too.")
@click.option("--ignore-jobs", is_flag=True, help="Do not ask Slurm: no job uses what would go.")
@prefix_option
@json_option
def command(
    yes: bool, days: float, now: bool, rollbacks: bool, ignore_jobs: bool, prefix: str | None, as_json: bool
) -> None:
    """Show, and with --yes remove, old generations, the images that nothing uses any more, and unfinished downloads.

    What is live, what `rollback` would bring back, what a Slurm job may still use and what you added or changed stays.
    A line for each old generation, image and download says why it stays.
    """
    from sifmod.actions.changing_prefix import changing_prefix
    from sifmod.actions.gc import apply_gc, plan_gc
    from sifmod.actions.reporter import Reporter
    from sifmod.cli.context import load_facts, typed
    from sifmod.cli.output import counted, echo, print_json, say
    from sifmod.system import size_text
    from sifmod.tree.layout import Layout

    if not days >= 0:
        raise click.BadParameter(f"expected 0 or more days, got {days}", param_hint="--days")
    site = load_facts({"prefix": prefix}).site
    layout = Layout(site.prefix)
    plan = plan_gc(layout, 0.0 if now else days, ask_jobs=not ignore_jobs, rollbacks=rollbacks)
    rows = [
        *((f"{old.module} generation {old.number}", str(old.root), old.keep) for old in plan.generations),
        *((f"image {size_text(old.image.size)}", str(old.image.path), old.keep) for old in plan.images),
        *((f"download {size_text(old.partial.size)}", str(old.partial.path), old.keep) for old in plan.partials),
    ]
    optional = any(keep for _, _, keep in rows) and not (now and rollbacks)
    rows += [(f"image {size_text(image.size)}", str(image.path), image.keep) for image in plan.used]
    rows += [("remains of a run", str(path), "another user's, and closed to you") for path in plan.closed]
    if as_json:
        print_json([{"what": what, "path": path, "keep": keep} for what, path, keep in rows])
    else:
        for what, path, keep in rows:
            echo(f"{'keep  ' if keep else 'remove'}  {what}  {path}{f'  ({keep})' if keep else ''}")
    if optional:
        say("what is kept for its age goes with --now, what is kept for `rollback` with --rollbacks")
    if plan.jobs.unknown:
        say(f"{plan.jobs.unknown}; where you know that no job uses what would go: --ignore-jobs")
    if not yes:
        say(f"{size_text(plan.size)} can be freed: `sifmod gc --yes` does it" if plan.size else "nothing large to free")
        return
    with changing_prefix(site):
        done = apply_gc(layout, plan, site.lock_lease, Reporter(say, command=typed()))
    for what, path, keep in rows:
        if not keep and os.path.lexists(path):
            say(f"{what} stays in {path}: it came into use since it was looked at")
    kinds = ((done.generations, "generation"), (done.images, "image"), (done.partials, "download"))
    say(f"removed {', '.join(counted(len(gone), noun) for gone, noun in kinds)}: {size_text(done.size)}")
