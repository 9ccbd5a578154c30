"""`sifmod uninstall`."""

import click

from sifmod.cli.options import prefix_option


@click.command("uninstall")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--purge", is_flag=True, help="Free the space at once; there is no rollback then.")
@click.option("--ignore-jobs", is_flag=True, help="With --purge: do not ask Slurm, no job uses the modules.")
@prefix_option
def command(names: tuple[str, ...], purge: bool, ignore_jobs: bool, prefix: str | None) -> None:
    """Take modules out of sight; files stay for `rollback` and running jobs until `gc`, what you added for ever."""
    from sifmod.actions.changing_prefix import changing_prefix
    from sifmod.actions.reporter import Reporter
    from sifmod.actions.uninstall import purge as free
    from sifmod.actions.uninstall import uninstall
    from sifmod.cli.context import load_facts, resolve, typed
    from sifmod.cli.output import counted, say
    from sifmod.system import size_text
    from sifmod.tree.layout import Layout
    from sifmod.tree.receipt import known_modules

    site = load_facts({"prefix": prefix}).site
    layout = Layout(site.prefix)
    known = known_modules(layout)
    modules = [resolve(name, known) for name in names]
    reporter = Reporter(say, command=typed())
    for module in modules:
        with changing_prefix(site):
            done = uninstall(layout, module, site.lock_lease, reporter)
        later = "" if purge else f"; `sifmod rollback {module}` brings it back, `sifmod gc` frees its space"
        if done.generation is None:
            say(f"{module}: not installed, it was uninstalled before{later}")
            continue
        go_on = "lose it" if purge else "keep using it, but cannot unload it"
        say(f"{module}: shells that have it loaded {go_on}: start a new one")
        say(f"{module}: uninstalled{later}")
        if done.user_software:
            say(f"{module}: what you added stays in {done.user_software}")
    if not purge:
        return
    with changing_prefix(site):
        plan, done_now = free(layout, modules, site.lock_lease, reporter, ask_jobs=not ignore_jobs)
    for old in plan.generations:
        if old.keep:
            say(f"{old.module}: generation {old.number} stays in {old.root}: {old.keep}")
    for path, keep in (*((old.image.path, old.keep) for old in plan.images), *((u.path, u.keep) for u in plan.used)):
        if keep:
            say(f"{path} stays: {keep}")
    gone = f"{counted(len(done_now.generations), 'generation')}, {counted(len(done_now.images), 'image')}"
    say(f"removed {gone}: {size_text(done_now.size)}")
