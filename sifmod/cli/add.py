"""`sifmod add`."""

import click

from sifmod.cli.options import json_option, layer_options, places_options, prefix_option


@click.command("add")
@click.argument("module", metavar="MODULE")
@click.argument("requirements", nargs=-1, metavar="REQUIREMENT...")
@click.option(
    "-r", "--requirement", "files", multiple=True, metavar="FILE", help="Add what a requirements.txt asks for."
)
@click.option(
    "-e", "--editable", multiple=True, metavar="DIRECTORY", help="Add a project of yours as it is being edited."
)
@click.option("--onto", metavar="MODULE", help="Make the layer of MODULE anew for this module or its new image.")
@click.option("--upgrade", is_flag=True, help="Take newer versions of all that the layer holds.")
@click.option("--unpacked", is_flag=True, help="Keep a directory, which can be edited, and not one file.")
@places_options
@click.option("--no-build-isolation", is_flag=True, help="Compile with what the image and the layer hold (flash-attn).")
@layer_options
@prefix_option
@json_option
def command(
    module: str,
    requirements: tuple[str, ...],
    files: tuple[str, ...],
    editable: tuple[str, ...],
    onto: str | None,
    upgrade: bool,
    unpacked: bool,
    find_links: tuple[str, ...],
    no_index: bool,
    no_build_isolation: bool,
    layer: str,
    directory: str | None,
    prefix: str | None,
    as_json: bool,
) -> None:
    """Add Python packages to a module, in a layer over its image.

    They are there at once for everything that the module starts, on every node. What the image is built around (torch,
    what is compiled against it, NVIDIA's and AMD's libraries, MPI) stays as it is; anything else may be newer.
    """
    from pathlib import Path

    from sifmod.actions.layer.add import LayerChange
    from sifmod.cli.layers import changed
    from sifmod.errors import OptionError
    from sifmod.image.packages.wanted import Wanted, read_requirements, words_of
    from sifmod.image.packages.wanted import directory as directory_of

    asked = (*requirements, *(line for file in files for line in read_requirements(Path(file))))
    if not (asked or editable or onto or upgrade):
        raise OptionError("there is nothing to add", f"name packages: sifmod add {module} transformers")
    projects = tuple(directory_of(one, "--editable") for one in editable)
    words = words_of(find_links, no_index=no_index, no_build_isolation=no_build_isolation)
    change = LayerChange(layer, Wanted(asked, projects, words), upgrade=upgrade, unpacked=unpacked)
    changed(onto or module, change, directory, prefix, as_json=as_json, of=module if onto else None)
