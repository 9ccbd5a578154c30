"""`sifmod list`."""

from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, prefix_option

if TYPE_CHECKING:
    from sifmod.tree.receipt import Installation


@click.command("list")
@click.argument("pattern", default="")
@prefix_option
@json_option
def command(pattern: str, prefix: str | None, as_json: bool) -> None:
    """List the installed modules whose name holds PATTERN."""
    from sifmod.actions.list import list_modules
    from sifmod.cli.context import layout_for
    from sifmod.cli.life import life_data
    from sifmod.cli.output import echo, print_json, print_rows, problems_data, receipt_data
    from sifmod.errors import Problem
    from sifmod.system import size_text
    from sifmod.tree.life import in_words, today

    def _size(installation: "Installation | None") -> str:
        if installation is None:
            return "?"
        return size_text(installation.image.size) if installation.image else "view"

    found = list_modules(layout_for(prefix), pattern)
    if as_json:
        print_json(
            [
                {
                    "module": str(listed.module),
                    "generation": listed.generation,
                    "life": life_data(listed.life, listed.module.version),
                    "problems": problems_data(Problem("", 0, 0, "", told) for told in listed.problems),
                    "installation": receipt_data(listed.installation) if listed.installation else None,
                }
                for listed in found
            ]
        )
        return
    day = today()
    print_rows(
        [
            (
                str(listed.module),
                _size(listed.installation),
                f"generation {listed.generation}",
                "; ".join(filter(None, (in_words(listed.module.version, listed.life, day), *listed.problems))),
            )
            for listed in found
        ]
    )
    if not found:
        echo("no module is installed here" if not pattern else f"no installed module matches {pattern!r}", err=True)
