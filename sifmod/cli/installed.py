"""`sifmod list`, `log`, `rollback`, `uninstall` and `gc`: what is installed, and what becomes of it."""

from typing import TYPE_CHECKING

import click

from sifmod.cli.context import layout_for, load_facts, reporter, resolve
from sifmod.cli.output import counted, echo, print_json, print_rows, say, show_error
from sifmod.cli.shared_options import json_option, prefix_option
from sifmod.errors import SifmodError, as_result
from sifmod.system import one_line, size_text
from sifmod.tree.layout import Layout

if TYPE_CHECKING:
    from sifmod.actions.uninstall import Uninstalled
    from sifmod.tree.log import Done, Entry
    from sifmod.tree.receipt import Installation


@click.command("list")
@click.argument("pattern", default="")
@prefix_option
@json_option
def list_command(pattern: str, prefix: str | None, as_json: bool) -> None:
    """List the installed modules whose name holds PATTERN."""
    from sifmod.actions.list import list_modules
    from sifmod.tree.history import in_words as held
    from sifmod.tree.life import in_words, today
    from sifmod.tree.state import remains

    def _size(installation: "Installation | None") -> str:
        if installation is None:
            return "?"
        return size_text(installation.image.size) if installation.image else "view"

    layout = layout_for(prefix)
    found = list_modules(layout, pattern)
    if as_json:
        print_json(found)
        return
    day = today()
    print_rows(
        [
            (
                str(listed.module),
                _size(listed.found),
                f"generation {listed.generation}",
                "; ".join(
                    filter(
                        None,
                        (in_words(listed.module.version, listed.of_name, day), held(listed.held_since), *listed.lacks),
                    )
                ),
            )
            for listed in found
        ]
    )
    if not found:
        echo("no module is installed here" if not pattern else f"no installed module matches {pattern!r}", err=True)
    if others := set(remains(layout)) - {str(listed.module) for listed in found}:
        told = f"earlier runs died and left something behind of {', '.join(sorted(others)[:3])}"
        say(f"{told}: the next install removes it, or `sifmod gc --yes`")


@click.command("log")
@click.argument("modules", nargs=-1, metavar="[MODULE]...")
@prefix_option
@json_option
def log_command(modules: tuple[str, ...], prefix: str | None, as_json: bool) -> None:
    """Show what was changed in the tree: when (UTC), by whom, on which host and by which command, the newest last.

    MODULE is a name with a version, or without one, or with the beginning of some; an uninstalled one has its log
    still. Without MODULE the images and downloads that were fetched by themselves or removed are shown too.
    """
    from sifmod.actions.log import changes

    log = changes(layout_for(prefix), modules)
    for problem in log.problems:
        say(f"warning: {problem}")
    if as_json:
        print_json(log.entries)
        return
    print_rows([_log_row(entry) for entry in log.entries])
    if not log.entries and not modules:
        echo("no change is recorded here", err=True)


def _log_row(entry: "Entry") -> tuple[str, ...]:
    who = f"{entry.login} as {entry.user}" if entry.login else entry.user
    return (entry.time[:16].replace("T", " "), who, entry.host, _told(entry.done), entry.command)


def _told(done: "Done") -> str:

    if done.module is None:
        size = size_text(done.size or 0)
        return f"{done.what} image {done.sha256[:12]}…, {size}" if done.sha256 else f"{done.what} download, {size}"
    now = done.generation
    number = done.before if now is None else now
    was = f" (was {done.before})" if now is not None and done.before not in (None, now) else ""
    of = f"layer {done.layer} of " if done.layer else ""
    return f"{done.what} {of}{done.module}{f', generation {number}' if number else ''}{was}"


@click.command("rollback")
@click.argument("name", metavar="NAME")
@click.option("--to", type=int, metavar="NUMBER", help="This generation rather than the previous one.")
@click.option("--release", is_flag=True, help="Switch nothing; let what was rolled back from be installed again.")
@prefix_option
@json_option
def rollback_command(name: str, to: int | None, release: bool, prefix: str | None, as_json: bool) -> None:
    """Switch a module back to the generation that was live before; also brings an uninstalled module back.

    What was live is held from then on: `stack apply` leaves it out and `install` asks, until --release, a rollback
    forward to it, an install of other content or `uninstall` ends that.
    """
    from sifmod.actions.changing_prefix import changing_prefix
    from sifmod.actions.installed import installed_from
    from sifmod.actions.rollback import release_held, rollback
    from sifmod.tree.history import held_since, in_words, read_history
    from sifmod.tree.receipt import known_modules

    if release and to is not None:
        raise click.UsageError("--release switches nothing: leave --to out")

    site = load_facts({"prefix": prefix}).site
    layout = Layout(site.prefix)
    module = resolve(name, known_modules(layout))
    if release:
        with changing_prefix(site):
            numbers = release_held(layout, module, site.lock_lease, reporter())
        from sifmod.actions.verify import installed

        if as_json:
            print_json(installed_from(installed(layout, module)))
        else:
            say(f"{module}: generation {', '.join(map(str, numbers))} is no longer held")
        return
    with changing_prefix(site):
        installation = rollback(layout, module, to, site.lock_lease, reporter())
    if as_json:
        print_json(installed_from(installation))
    else:
        say(f"{module}: generation {installation.generation} is live")
        if held := held_since(read_history(layout, module)):
            say(f"{module}: {in_words(held)}; `sifmod rollback --release {module}` releases it")


@click.command("uninstall")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--purge", is_flag=True, help="Free the space at once; there is no rollback then.")
@click.option("--ignore-jobs", is_flag=True, help="With --purge: do not ask Slurm, no job uses the modules.")
@prefix_option
@json_option
def uninstall_command(names: tuple[str, ...], purge: bool, ignore_jobs: bool, prefix: str | None, as_json: bool) -> int:
    """Take modules out of sight; files stay for `rollback` and running jobs until `gc`, what you added for ever."""
    from sifmod.actions.changing_prefix import changing_prefix
    from sifmod.actions.gc import after, candidates
    from sifmod.actions.uninstall import NotUninstalled, Uninstalled, Uninstalls, uninstall
    from sifmod.actions.uninstall import purge as free
    from sifmod.tree.receipt import known_modules

    site = load_facts({"prefix": prefix}).site
    layout = Layout(site.prefix)
    known = known_modules(layout)
    modules = [resolve(name, known) for name in names]
    telling = reporter()
    rows: list[Uninstalled | NotUninstalled] = []
    worst, gone = 0, []
    for module in modules:
        try:
            with changing_prefix(site):
                done = uninstall(layout, module, site.lock_lease, telling)
        except SifmodError as error:  # the others have their turn
            worst = max(worst, error.exit_code)
            show_error(error.message, error.hint)
            rows.append(NotUninstalled(module, as_result(error)))
            continue
        gone.append(module)
        rows.append(done)
        _report(done, purge=purge)
    purged = []
    if purge and gone:
        with changing_prefix(site):
            plan, freed = free(layout, gone, site, telling, ask_jobs=not ignore_jobs)
        purged = after(candidates(plan))
        for old in plan.generations:
            if old.keep:
                say(f"{old.module}: generation {old.number} stays in {old.root}: {old.keep}")
        for row in purged:
            if row.keep and row.kind == "image":
                say(f"{row.path} stays: {row.keep}")
        kinds = f"{counted(len(freed.generations), 'generation')}, {counted(len(freed.images), 'image')}"
        say(f"removed {kinds}: {size_text(freed.size)}")
    if as_json:
        print_json(Uninstalls(tuple(rows), tuple(purged)))
    return worst


def _report(done: "Uninstalled", *, purge: bool) -> None:

    module = done.module
    later = "" if purge else f"; `sifmod rollback {module}` brings it back, `sifmod gc` frees its space"
    if done.generation is None:
        say(f"{module}: not installed, it was uninstalled before{later}")
        return
    go_on = "lose it" if purge else "keep using it, but cannot unload it"
    say(f"{module}: shells that have it loaded {go_on}: start a new one")
    say(f"{module}: uninstalled{later}")
    if done.default:
        say(f"{module}: it was the default; `sifmod default` makes another module of {module.name} so")
    for view in done.views:
        say(f"{module}: {view} loads it, and can be loaded no more")
    if done.user_software:
        say(f"{module}: what you added stays in {done.user_software}")
    if done.user_layers:
        say(f"{module}: its layers stay in {done.user_layers}; `sifmod remove {module} --stale` removes them")
    for removal in done.kernels:
        say(f"{module}: Jupyter still lists a kernel of it; `{removal}` removes it")


@click.command("gc")
@click.option("-y", "--yes", is_flag=True, help="Remove what is shown.")
@click.option("--days", type=float, default=14.0, show_default=True, help="Keep what was in use within so many days.")
@click.option("--now", is_flag=True, help="The same as --days 0.")
@click.option("--rollbacks", is_flag=True, help="Remove what `rollback` would go back to, too.")
@click.option("--marks", is_flag=True, help="Remove images to which only users' modules in other trees refer, too.")
@click.option("--ignore-jobs", is_flag=True, help="Do not ask Slurm: no job uses what would go.")
@prefix_option
@json_option
def gc_command(
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

    What is live, what `rollback` would bring back, what a Slurm job may still use, the images that the lock of a stack
    names, and what you added or changed stays. Caches and temporary files of yours outside the prefix stay too, each
    with the command that frees it. A line for each old generation, image and download says why it stays.
    """
    from sifmod.actions.changing_prefix import changing_prefix
    from sifmod.actions.garbage import plan_gc
    from sifmod.actions.gc import after, apply_gc, candidates
    from sifmod.actions.room import rooms

    if not days >= 0:
        raise click.BadParameter(f"expected 0 or more days, got {days}", param_hint="--days")
    site = load_facts({"prefix": prefix}).site
    layout = Layout(site.prefix)
    mark_days = 0.0 if marks else site.mark_days
    plan = plan_gc(layout, 0.0 if now else days, ask_jobs=not ignore_jobs, rollbacks=rollbacks, mark_days=mark_days)
    rows = candidates(plan, rooms(site))
    if not as_json:
        for row in rows:
            why = f"  ({row.keep})" if row.keep else ""
            echo(one_line(f"{'keep  ' if row.keep else 'remove'}  {row.text}  {row.path}{why}"))
    kept = [old.keep for old in plan.generations] + [old.keep for old in plan.images]
    kept += [old.keep for old in plan.partials]
    if any(kept) and not (now and rollbacks):
        say("what is kept for its age goes with --now, what is kept for `rollback` with --rollbacks")
    if plan.jobs.unknown:
        say(f"{plan.jobs.unknown}; where you know that no job uses what would go: --ignore-jobs")
    if yes:
        with changing_prefix(site):
            done = apply_gc(layout, plan, site.lock_lease, reporter())
        rows = after(rows)
        for row in rows:
            if not row.keep and not row.removed:
                say(f"{row.text} stays in {row.path}: it came into use since it was looked at")
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
