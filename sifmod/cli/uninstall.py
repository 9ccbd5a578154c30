"""`sifmod uninstall`."""

from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, prefix_option

if TYPE_CHECKING:
    from sifmod.actions.uninstall import Uninstalled


@click.command("uninstall")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--purge", is_flag=True, help="Free the space at once; there is no rollback then.")
@click.option("--ignore-jobs", is_flag=True, help="With --purge: do not ask Slurm, no job uses the modules.")
@prefix_option
@json_option
def command(names: tuple[str, ...], purge: bool, ignore_jobs: bool, prefix: str | None, as_json: bool) -> int:
    """Take modules out of sight; files stay for `rollback` and running jobs until `gc`, what you added for ever."""
    from sifmod.actions.changing_prefix import changing_prefix
    from sifmod.actions.reporter import Reporter
    from sifmod.actions.uninstall import purge as free
    from sifmod.actions.uninstall import uninstall
    from sifmod.cli.context import load_facts, resolve, typed
    from sifmod.cli.gc import after, collected
    from sifmod.cli.main import show_error
    from sifmod.cli.output import counted, error_data, print_json, say
    from sifmod.errors import SifmodError
    from sifmod.system import size_text
    from sifmod.tree.layout import Layout
    from sifmod.tree.receipt import known_modules

    site = load_facts({"prefix": prefix}).site
    layout = Layout(site.prefix)
    known = known_modules(layout)
    modules = [resolve(name, known) for name in names]
    reporter = Reporter(say, command=typed())
    rows: list[dict[str, object]] = []
    worst, gone = 0, []
    for module in modules:
        try:
            with changing_prefix(site):
                done = uninstall(layout, module, site.lock_lease, reporter)
        except SifmodError as error:  # the others have their turn
            worst = max(worst, error.exit_code)
            show_error(error.message, error.hint)
            rows.append({"module": str(module), **error_data(error)})
            continue
        gone.append(module)
        rows.append(done._asdict() | {"module": str(module), "views": [str(view) for view in done.views]})
        _report(done, purge=purge)
    purged = []
    if purge and gone:
        with changing_prefix(site):
            plan, freed = free(layout, gone, site, reporter, ask_jobs=not ignore_jobs)
        purged = after(collected(plan))
        for old in plan.generations:
            if old.keep:
                say(f"{old.module}: generation {old.number} stays in {old.root}: {old.keep}")
        for row in purged:
            if row["keep"] and row["kind"] == "image":
                say(f"{row['path']} stays: {row['keep']}")
        kinds = f"{counted(len(freed.generations), 'generation')}, {counted(len(freed.images), 'image')}"
        say(f"removed {kinds}: {size_text(freed.size)}")
    if as_json:
        print_json({"uninstalled": rows, "purged": purged})
    return worst


def _report(done: "Uninstalled", *, purge: bool) -> None:
    from sifmod.cli.output import say

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
