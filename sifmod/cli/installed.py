"""`sifmod list`, `log`, `rollback`, `uninstall` and `gc`: commands for installed modules."""

import click

from sifmod.actions.start import layout_for, trees_for
from sifmod.cli.command import argument, command
from sifmod.cli.context import load_facts, reporter, typed
from sifmod.cli.later import later
from sifmod.cli.output import counted, echo, print_json, print_rows, say, show_error, terminal_width
from sifmod.cli.shared_options import TreeOptions
from sifmod.system import one_line, size_text

with later():
    from sifmod.actions import garbage, gc, log, rollback, start, uninstall
    from sifmod.actions import list as listing
    from sifmod.tree import history, receipt, state
    from sifmod.tree import life as lives
    from sifmod.tree import log as tree_log


class ListOptions(TreeOptions):
    pattern: str = argument(default="")


@command("list", ListOptions, lambda: list[listing.Listed])
def list_command(given: ListOptions) -> None:
    """List installed modules whose name contains PATTERN or matches its wildcards: yours, then those in `trees`.

    With --prefix, only those of that tree.
    """

    def _size(installation: "receipt.Installation | None") -> str:
        if installation is None:
            return "?"
        return size_text(installation.image.size) if installation.image else "view"

    layout, *others = (layout_for(given.prefix),) if given.prefix else trees_for(None)
    closed = start.unreadable(others)
    for what in closed.values():
        say(f"warning: {what}")
    found = listing.list_trees((layout, *(one for one in others if one not in closed)), given.pattern)
    if given.as_json:
        print_json(found)
        return
    day = lives.today()

    def _state(listed: "listing.Listed") -> str:
        shadowed = f"the module of {listed.shadowed_by} is used" if listed.shadowed_by else ""
        life = lives.format_life(listed.module.version, listed.life, day)
        return "; ".join(filter(None, (shadowed, life, history.format_held(listed.held), *listed.problems)))

    tree = ("TREE",) if others else ()
    print_rows(
        [
            (
                str(listed.module),
                _size(listed.installation),
                str(listed.generation),
                *(str(listed.prefix) for _ in tree),
                _state(listed),
            )
            for listed in found
        ],
        ("MODULE", "SIZE", "GENERATION", *tree, "STATE"),
        width=terminal_width(),
    )
    if not found:
        pattern, missing = given.pattern, "" if layout.prefix.exists() else ", which does not exist yet"
        nothing = f"no modules are installed in {layout.prefix}{missing}"
        echo(f"no installed module matches {pattern!r}" if pattern else nothing, err=True)
    mine = {str(listed.module) for listed in found if listed.prefix == layout.prefix}
    if left := set(state.leftovers(layout)) - mine:
        what = f"earlier runs were killed and left files of {', '.join(sorted(left)[:3])}"
        say(f"{what}: the next install or `sifmod gc --yes` removes them")


class LogOptions(TreeOptions):
    modules: tuple[str, ...] = argument("[MODULE]...", default=(), many=True)


@command("log", LogOptions, lambda: list[tree_log.Entry])
def log_command(given: LogOptions) -> None:
    """Show the changes of the tree, newest last: time (UTC), user, host, change and command.

    MODULE is a name with a version, without one, or with the start of one; uninstalled modules keep their log. Without
    MODULE, the log also has images fetched without an install or taken from a bundle, and what was removed.
    """
    found = log.changes(layout_for(given.prefix), given.modules)
    for problem in found.problems:
        say(f"warning: {problem}")
    if given.as_json:
        print_json(found.entries)
        return
    print_rows([_log_row(entry) for entry in found.entries])
    if not found.entries and not given.modules:
        echo("no changes are recorded here", err=True)


def _log_row(entry: "tree_log.Entry") -> tuple[str, ...]:
    who = f"{entry.login} as {entry.user}" if entry.login else entry.user
    return (entry.time[:16].replace("T", " "), who, entry.host, _format_entry(entry.done), entry.command)


def _format_entry(done: "tree_log.Done") -> str:
    if done.module is None:
        size = size_text(done.size or 0)
        return f"{done.what} image {done.sha256[:12]}…, {size}" if done.sha256 else f"{done.what} download, {size}"
    now = done.generation
    number = done.before if now is None else now
    was = f" (was {done.before})" if now is not None and done.before not in (None, now) else ""
    of = f"layer {done.layer} of " if done.layer else ""
    return f"{done.what} {of}{done.module}{f', generation {number}' if number else ''}{was}"


class RollbackOptions(TreeOptions):
    name: str = argument("NAME")
    to: int | None = None
    release: bool = False


@command("rollback", RollbackOptions, lambda: listing.Installed)
def rollback_command(given: RollbackOptions) -> None:
    """Switch a module back to its previous generation; also restores an uninstalled module.

    If the generation that was live is the newer one, its content is held from then on: `stack apply` skips it and
    `install` asks, until --release, `--to` it, or an install of different content; an uninstall ends it only if
    --purge, or a later `gc`, removes its files.
    """
    if given.release and given.to is not None:
        raise click.UsageError("--release does not switch generations: leave --to out")
    site = load_facts(given.settings).site
    done = rollback.change_live(given.name, site, reporter(), to=given.to, release=given.release)
    module = done.installation.module
    if given.as_json:
        print_json(listing.installed_data(done.installation))
    elif given.release:
        say(f"{module}: generation {', '.join(map(str, done.released))} is no longer held")
    else:
        say(f"{module}: generation {done.installation.generation} is live")
        if done.held:
            say(f"{module}: {history.format_held(done.held)}; `sifmod rollback --release {module}` releases it")


class UninstallOptions(TreeOptions):
    names: tuple[str, ...] = argument("NAME...", many=True)
    purge: bool = False
    ignore_jobs: bool = False


@command("uninstall", UninstallOptions, lambda: uninstall.Uninstalls)
def uninstall_command(given: UninstallOptions) -> int:
    """Uninstall modules; until `gc`, their files stay for `rollback` and running jobs; your own files stay for good."""

    def ended(row: uninstall.Uninstalled | uninstall.NotUninstalled) -> None:
        if isinstance(row, uninstall.NotUninstalled):
            show_error(row.error.error, row.error.hint)
        else:
            _report(row, purge=given.purge)

    request = uninstall.UninstallRequest(given.names, given.purge, not given.ignore_jobs)
    done = uninstall.uninstall_modules(request, load_facts(given.settings).site, reporter(), ended)
    if done.freed:
        _report_freed(done.freed)
        _report_ended_holds(done, done.freed)
    if given.as_json:
        print_json(done)
    return max(
        (row.error.exit_code for row in done.uninstalled if isinstance(row, uninstall.NotUninstalled)), default=0
    )


def _report_freed(freed: "gc.Garbage") -> None:
    for old in freed.plan.generations:
        if old.keep:
            say(f"{old.module}: generation {old.number} stays in {old.root}: {old.keep}")
    for row in freed.rows:
        if row.keep and row.kind == "image":
            say(f"{row.path} stays: {row.keep}")
    if gone := freed.removed:
        kinds = f"{counted(len(gone.generations), 'generation')}, {counted(len(gone.images), 'image')}"
        say(f"removed {kinds}: {size_text(gone.size)}")


def _report_ended_holds(done: "uninstall.Uninstalls", freed: "gc.Garbage") -> None:
    rows = (row for row in done.uninstalled if isinstance(row, uninstall.Uninstalled))
    held = {(row.module, one.generation) for row in rows for one in row.held}
    for old in freed.removed.generations if freed.removed else ():
        if (old.module, old.number) in held:
            what = f"{old.module}: the rollback no longer holds the content of generation {old.number}, which is gone"
            say(f"{what}: an install of the same easyconfig makes it live again")


def _report(done: "uninstall.Uninstalled", *, purge: bool) -> None:
    module = done.module
    now = f"`sifmod uninstall --purge {module}` at once"
    frees = f"`sifmod gc --yes` frees its space after {GcOptions().days:g} days, {now}"
    later = "" if purge else f"; `sifmod rollback {module}` restores it; {frees}"
    if done.generation is None:
        say(f"{module}: was already uninstalled{later}")
        return
    go_on = "lose it" if purge else "keep using it but cannot unload it"
    say(f"{module}: shells that have it loaded {go_on}: start a new one")
    say(f"{module}: uninstalled{later}")
    if done.default:
        say(f"{module}: it was the default; `sifmod default` makes another {module.name} module the default")
    for view in done.views:
        say(f"{module}: {view} loads it and can no longer be loaded")
    if done.user_software:
        say(f"{module}: your own files stay in {done.user_software}")
    if done.user_layers:
        say(f"{module}: its layers stay in {done.user_layers}; `sifmod layer list {module}` says what removes them")
    for removal in done.kernels:
        say(f"{module}: Jupyter still lists its kernel; `{removal}` removes it")


class GcOptions(TreeOptions):
    yes: bool = False
    days: float = 14.0
    now: bool = False
    rollbacks: bool = False
    marks: bool = False
    ignore_jobs: bool = False


@command("gc", GcOptions, lambda: list[garbage.Candidate])
def gc_command(given: GcOptions) -> None:
    """Show, and with --yes remove, old generations, unused images, unfinished downloads and replaced layers.

    Kept are live generations except those of retired modules, what `rollback` would restore, what a Slurm job may still
    use, images that a stack's lock names, and files that you added or changed. Your caches and temporary files outside
    the prefix are listed with the command that frees them. A line for each kept generation, image and download gives
    the reason. --yes also cleans up after commands that died, on other nodes too.
    """
    days = 0.0 if given.now else given.days
    request = gc.GcRequest(days, given.rollbacks, not given.marks, not given.ignore_jobs, rooms=True, remove=given.yes)
    site = load_facts(given.settings).site
    found = gc.collect_garbage(request, site, reporter(), lambda found: _say_garbage(found, given))
    rows = found.rows
    if done := found.removed:
        for row in rows:
            if not row.keep and not row.removed:
                say(f"{row.text} stays in {row.path}: it came into use meanwhile")
        kinds = (
            (done.generations, "generation"),
            (done.images, "image"),
            (done.partials, "download"),
            (done.layers, "layer"),
        )
        say(f"removed {', '.join(counted(len(gone), noun) for gone, noun in kinds)}: {size_text(done.size)}")
    else:
        size = found.plan.size
        say(f"{size_text(size)} can be freed: run `{typed()} --yes`" if size else "nothing large can be freed")
    if given.as_json:
        print_json(rows)


def _say_garbage(found: "gc.Garbage", given: GcOptions) -> None:
    plan = found.plan
    if not given.as_json:
        for row in found.rows:
            why = f"  ({row.keep})" if row.keep else ""
            echo(one_line(f"{'keep  ' if row.keep else 'remove'}  {row.text}  {row.path}{why}"))
    kept = any(old.keep for olds in (plan.generations, plan.images, plan.partials) for old in olds)
    left = (
        (given.now, "--now", "recently used files"),
        (given.rollbacks, "--rollbacks", "what `rollback` would restore"),
    )
    more = " and ".join(f"{option} also removes {what}" for used, option, what in left if not used)
    if kept and more and not plan.jobs.unknown:
        say(more)
    if plan.jobs.unknown:
        say(f"{plan.jobs.unknown}; if you know that no job uses these files, add --ignore-jobs")
