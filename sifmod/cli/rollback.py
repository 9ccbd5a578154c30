"""`sifmod rollback`."""

import click

from sifmod.cli.options import json_option, prefix_option


@click.command("rollback")
@click.argument("name", metavar="NAME")
@click.option("--to", type=int, metavar="NUMBER", help="This generation rather than the previous one.")
@prefix_option
@json_option
def command(name: str, to: int | None, prefix: str | None, as_json: bool) -> None:
    """Switch a module back to the generation that was live before; also brings an uninstalled module back."""
    from sifmod.actions.changing_prefix import changing_prefix
    from sifmod.actions.reporter import Reporter
    from sifmod.actions.rollback import rollback
    from sifmod.cli.context import load_facts, resolve, typed
    from sifmod.cli.output import print_json, receipt_data, say
    from sifmod.tree.layout import Layout
    from sifmod.tree.receipt import known_modules

    site = load_facts({"prefix": prefix}).site
    layout = Layout(site.prefix)
    module = resolve(name, known_modules(layout))
    with changing_prefix(site):
        installation = rollback(layout, module, to, site.lock_lease, Reporter(say, command=typed()))
    if as_json:
        print_json(receipt_data(installation))
    else:
        say(f"{module}: generation {installation.generation} is live")
