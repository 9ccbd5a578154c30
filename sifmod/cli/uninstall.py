"""`sifmod uninstall`."""

import click

from sifmod.cli.options import prefix_option


@click.command("uninstall")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@prefix_option
def command(names: tuple[str, ...], prefix: str | None) -> None:
    """Take modules out of sight; files stay for `rollback` and running jobs until `gc`, what you added for ever."""
    from sifmod.actions.ownership import ownership
    from sifmod.actions.uninstall import uninstall
    from sifmod.cli.context import load_facts
    from sifmod.cli.names import resolve
    from sifmod.cli.output import say, waiting
    from sifmod.tree.layout import Layout
    from sifmod.tree.receipt import known_modules

    site = load_facts({"prefix": prefix}).site
    layout = Layout(site.prefix)
    known = known_modules(layout)
    for module in [resolve(name, known) for name in names]:
        with ownership(site):
            done = uninstall(layout, module, site.lock_lease, waiting(module))
        say(f"{module}: shells that have it loaded go on with it, but cannot unload it: start a new one")
        say(f"{module}: uninstalled; `sifmod rollback {module}` brings it back, `sifmod gc` frees its space")
        if done.user_software:
            say(f"{module}: what you added stays in {done.user_software}")
