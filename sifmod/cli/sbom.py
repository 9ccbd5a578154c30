"""`sifmod sbom`."""

from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, prefix_option

if TYPE_CHECKING:
    from sifmod.actions.sbom import Format


@click.command("sbom")
@click.argument("name", metavar="MODULE|FILE|REFERENCE")
@click.option("--format", "form", type=click.Choice(["json", "xml"]), default="json", help="Of CycloneDX (json).")
@click.option("-o", "--output", metavar="FILE", help="Write it here; a file that exists is left as it is.")
@prefix_option
@json_option
def command(name: str, form: "Format", output: str | None, prefix: str | None, as_json: bool) -> None:
    """Print a software bill of materials (CycloneDX 1.6): the packages of an image, read without starting it.

    NAME@NUMBER is a generation of a module. FILE is a SIF; an image of the store can be named by its digest too, or by
    the reference that gave it. Your layers over a module are in it, each as a component of its own. Of a view the
    modules are that it loads, each with its packages.
    """
    import os
    from pathlib import Path

    from sifmod.actions.author.new_file import check_target, write_text
    from sifmod.actions.layer.places import found_layers, known, layouts
    from sifmod.actions.sbom import sbom
    from sifmod.cli.context import layout_for
    from sifmod.cli.output import counted, echo, print_json, say
    from sifmod.cli.subject import subject

    target = Path(output) if output not in (None, "-") else None
    if target:
        check_target(target)
    layout = layout_for(prefix)
    meant = subject(name, layout)
    module = meant.installation.module if meant.installation else None
    trees = layouts(layout.prefix, os.environ)
    layers = [*found_layers(trees, os.environ)] if module else []
    made = sbom(meant, layers, form, os.environ, known(trees))
    if target:
        write_text(made.text, target)
    for note in made.notes:
        say(f"note: {note}")
    if as_json:
        print_json(
            {
                "module": str(module) if module else None,
                "generation": meant.installation.generation if meant.installation else None,
                "sha256": made.sha256 or None,
                "format": form,
                "path": str(target.absolute()) if target else None,
                "package_count": made.packages,
                "layers": made.layers,
                "notes": made.notes,
                "text": made.text,
            }
        )
    elif target:
        say(f"{target}: {counted(made.packages, 'package')}, {counted(len(made.layers), 'layer')}")
    else:
        echo(made.text, nl=False)
