"""`sifmod remove`."""

import click

from sifmod.cli.options import json_option, layer_options, places_options, prefix_option


@click.command("remove")
@click.argument("module", metavar="MODULE")
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--all", "everything", is_flag=True, help="The whole layer.")
@click.option("--stale", is_flag=True, help="The layers for images that are no longer installed.")
@places_options
@layer_options
@prefix_option
@json_option
def command(
    module: str,
    names: tuple[str, ...],
    everything: bool,
    stale: bool,
    find_links: tuple[str, ...],
    no_index: bool,
    layer: str,
    directory: str | None,
    prefix: str | None,
    as_json: bool,
) -> None:
    """Take packages out of a module's layer, and what only they needed; what the image holds is there again."""
    from sifmod.actions.layer.add import LayerChange
    from sifmod.cli.layers import changed, removed_stale
    from sifmod.errors import OptionError
    from sifmod.image.packages.wanted import Wanted, words_of

    if stale:
        if names or everything:
            raise OptionError("--stale goes without packages and without --all")
        removed_stale(module, layer, directory, prefix, as_json=as_json)
        return
    if not names and not everything:
        raise OptionError("there is nothing to remove", "name packages, or --all for the whole layer")
    words = words_of(find_links, no_index=no_index)
    change = LayerChange(layer, Wanted(words=words), remove=names, everything=everything)
    changed(module, change, directory, prefix, as_json=as_json)
