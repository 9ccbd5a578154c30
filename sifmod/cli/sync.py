"""`sifmod sync`."""

import click

from sifmod.cli.options import json_option, layer_options, places_options, prefix_option


@click.command("sync")
@click.argument("module", metavar="MODULE")
@click.argument("lock", metavar="LOCK")
@places_options
@click.option("--unpacked", is_flag=True, help="Keep a directory and not one file.")
@layer_options
@prefix_option
@json_option
def command(
    module: str,
    lock: str,
    find_links: tuple[str, ...],
    no_index: bool,
    unpacked: bool,
    layer: str,
    directory: str | None,
    prefix: str | None,
    as_json: bool,
) -> None:
    """Make a layer as a lock says (pylock.toml, which each layer has beside it): the same bytes on every machine."""
    from pathlib import Path

    from sifmod.actions.layer.add import LayerChange
    from sifmod.cli.layers import changed
    from sifmod.image.packages.wanted import Wanted, read_lock, words_of

    words = words_of(find_links, no_index=no_index)
    change = LayerChange(layer, Wanted(words=words), lock=read_lock(Path(lock)), unpacked=unpacked)
    changed(module, change, directory, prefix, as_json=as_json)
