"""`sifmod list`, `log`, `rollback`, `uninstall` and `gc`: commands for installed modules."""

from typing import TYPE_CHECKING

import click

from sifmod.cli.command import argument, command
from sifmod.cli.context import layout_for, load_facts, reporter, resolve
from sifmod.cli.output import counted, echo, print_json, print_rows, say, show_error
from sifmod.cli.shared_options import TreeOptions
from sifmod.errors import SifmodError, as_result
from sifmod.system import one_line, size_text
from sifmod.tree.layout import Layout

if TYPE_CHECKING:
    from sifmod.actions.uninstall import Uninstalled
    from sifmod.tree.log import Done, Entry
    from sifmod.tree.receipt import Installation


class ListOptions(TreeOptions):
    pattern: str = argument(default="")


@command("list", ListOptions)
def list_command(given: ListOptions) -> None:
    """List installed modules whose name contains PATTERN."""
    from sifmod.actions.list import list_modules
    from sifmod.tree.history import in_words as held
    from sifmod.tree.life import in_words, today
    from sifmod.tree.state import remains

    def _size(installation: "Installation | None") -> str:
        if installation is None:
            return "?"
        return size_text(installation.image.size) if installation.image else "view"

    layout = layout_for(given.prefix)
    found = list_modules(layout, given.pattern)
    if given.as_json:
        print_json(found)
        return
    day = today()
    print_rows(
        [
            (
                str(listed.module),
                _size(listed.installation),
                f"generation {listed.generation}",
                "; ".join(
                    filter(
                        None,
                        (in_words(listed.module.version, listed.life, day), held(listed.held), *listed.problems),
                    )
                ),
            )
            for listed in found
        ]
    )
    if not found:
        pattern = given.pattern
        echo(f"no installed module matches {pattern!r}" if pattern else "no modules are installed here", err=True)
    if others := set(remains(layout)) - {str(listed.module) for listed in found}:
        told = f"earlier runs were killed and left files of {', '.join(sorted(others)[:3])}"
        say(f"{told}: the next install or `sifmod gc --yes` removes them")


class LogOptions(TreeOptions):
    modules: tuple[str, ...] = argument("[MODULE]...", default=(), many=True)


@command("log", LogOptions)
def log_command(given: LogOptions) -> None:
    """Show the changes of the tree, newest last: time (UTC), user, host and command.

    MODULE is a name with a version, without one, or with the start of one; uninstalled modules keep their log. Without
    MODULE, images and downloads that were fetched alone or removed are listed too.
    """
    from sifmod.actions.log import changes

    log = changes(layout_for(given.prefix), given.modules)
    for problem in log.problems:
        say(f"warning: {problem}")
    if given.as_json:
        print_json(log.entries)
        return
    print_rows([_log_row(entry) for entry in log.entries])
    if not log.entries and not given.modules:
        echo("no changes are recorded here", err=True)


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


class RollbackOptions(TreeOptions):
    name: str = argument("NAME")
    to: int | None = None
    release: bool = False


@command("rollback", RollbackOptions)
def rollback_command(given: RollbackOptions) -> None:
    """Switch a module back to its previous generation; also restores an uninstalled module.

    The content that was live is held from then on: `stack apply` skips it and `install` asks, until --release, a
    rollback to it, an install of different content, or `uninstall`.
    """
    from sifmod.actions.changing_prefix import changing_prefix
    from sifmod.actions.installed import installed_from
    from sifmod.actions.rollback import release_held, rollback
    from sifmod.tree.history import held_since, in_words, read_history
    from sifmod.tree.receipt import known_modules

    if given.release and given.to is not None:
        raise click.UsageError("--release does not switch generations: leave --to out")

    site = load_facts(given.settings).site
    layout = Layout(site.prefix)
    module = resolve(given.name, known_modules(layout))
    if given.release:
        with changing_prefix(site):
            telling = reporter()
            numbers = release_held(telling.tree(site), module, telling)
        from sifmod.actions.verify import installed

        if given.as_json:
            print_json(installed_from(installed(layout, module)))
        else:
            say(f"{module}: generation {', '.join(map(str, numbers))} is no longer held")
        return
    with changing_prefix(site):
        telling = reporter()
        installation = rollback(telling.tree(site), module, given.to, telling)
    if given.as_json:
        print_json(installed_from(installation))
    else:
        say(f"{module}: generation {installation.generation} is live")
        if held := held_since(read_history(layout, module)):
            say(f"{module}: {in_words(held)}; `sifmod rollback --release {module}` releases it")


class UninstallOptions(TreeOptions):
    names: tuple[str, ...] = argument("NAME...", many=True)
    purge: bool = False
    ignore_jobs: bool = False


@command("uninstall", UninstallOptions)
def uninstall_command(given: UninstallOptions) -> int:
    """Uninstall modules; their files stay for `rollback` and running jobs until `gc`, your own files for good."""
    from sifmod.actions.changing_prefix import changing_prefix
    from sifmod.actions.gc import after, candidates
    from sifmod.actions.uninstall import NotUninstalled, Uninstalled, Uninstalls, uninstall
    from sifmod.actions.uninstall import purge as free
    from sifmod.tree.receipt import known_modules

    site = load_facts(given.settings).site
    layout = Layout(site.prefix)
    known = known_modules(layout)
    modules = [resolve(name, known) for name in given.names]
    telling = reporter()
    rows: list[Uninstalled | NotUninstalled] = []
    worst, gone = 0, []
    for module in modules:
        try:
            with changing_prefix(site):
                done = uninstall(telling.tree(site), module, telling)
        except SifmodError as error:  # continue with the others
            worst = max(worst, error.exit_code)
            show_error(error.message, error.hint)
            rows.append(NotUninstalled(module, as_result(error)))
            continue
        gone.append(module)
        rows.append(done)
        _report(done, purge=given.purge)
    purged = []
    if given.purge and gone:
        with changing_prefix(site):
            plan, freed = free(layout, gone, site, telling, ask_jobs=not given.ignore_jobs)
        purged = after(candidates(plan))
        for old in plan.generations:
            if old.keep:
                say(f"{old.module}: generation {old.number} stays in {old.root}: {old.keep}")
        for row in purged:
            if row.keep and row.kind == "image":
                say(f"{row.path} stays: {row.keep}")
        kinds = f"{counted(len(freed.generations), 'generation')}, {counted(len(freed.images), 'image')}"
        say(f"removed {kinds}: {size_text(freed.size)}")
    if given.as_json:
        print_json(Uninstalls(tuple(rows), tuple(purged)))
    return worst


def _report(done: "Uninstalled", *, purge: bool) -> None:

    module = done.module
    later = "" if purge else f"; `sifmod rollback {module}` restores it, `sifmod gc` frees its space"
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
        say(f"{module}: its layers stay in {done.user_layers}; `sifmod remove {module} --stale` removes them")
    for removal in done.kernels:
        say(f"{module}: Jupyter still lists its kernel; `{removal}` removes it")


class GcOptions(TreeOptions):
    yes: bool = False
    days: float = 14.0
    now: bool = False
    rollbacks: bool = False
    marks: bool = False
    ignore_jobs: bool = False


@command("gc", GcOptions)
def gc_command(given: GcOptions) -> None:
    """Show, and with --yes remove, old generations, unused images, unfinished downloads and replaced layers.

    Kept are live generations, what `rollback` would restore, what a Slurm job may still use, images that a stack's lock
    names, and files that you added or changed. Your caches and temporary files outside the prefix are listed with the
    command that frees them. A line for each kept generation, image and download gives the reason.
    """
    from sifmod.actions.changing_prefix import changing_prefix
    from sifmod.actions.garbage import plan_gc
    from sifmod.actions.gc import after, apply_gc, candidates
    from sifmod.actions.room import rooms

    site = load_facts(given.settings).site
    layout = Layout(site.prefix)
    days, mark_days = 0.0 if given.now else given.days, 0.0 if given.marks else site.mark_days
    plan = plan_gc(layout, days, ask_jobs=not given.ignore_jobs, rollbacks=given.rollbacks, mark_days=mark_days)
    rows = candidates(plan, rooms(site))
    if not given.as_json:
        for row in rows:
            why = f"  ({row.keep})" if row.keep else ""
            echo(one_line(f"{'keep  ' if row.keep else 'remove'}  {row.text}  {row.path}{why}"))
    kept = [old.keep for old in plan.generations] + [old.keep for old in plan.images]
    kept += [old.keep for old in plan.partials]
    if any(kept) and not (given.now and given.rollbacks):
        say("--now also removes recently used files, --rollbacks also what `rollback` would restore")
    if plan.jobs.unknown:
        say(f"{plan.jobs.unknown}; if you know that no job uses these files: --ignore-jobs")
    if given.yes:
        with changing_prefix(site):
            telling = reporter()
            done = apply_gc(telling.tree(site), plan, telling)
        rows = after(rows)
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
        say(
            f"{size_text(plan.size)} can be freed: run `sifmod gc --yes`" if plan.size else "nothing large can be freed"
        )
    if given.as_json:
        print_json(rows)
