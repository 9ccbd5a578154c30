"""`sifmod sync`."""

import click

from sifmod.cli.options import json_option, layer_options, prefix_option


@click.command("sync")
@click.argument("module", metavar="MODULE")
@click.argument("lock", metavar="LOCK")
@click.option("--find-links", multiple=True, metavar="DIRECTORY", help="Take wheels from this directory.")
@click.option("--no-index", is_flag=True, help="Fetch nothing: every wheel is in a directory of --find-links.")
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
    from sifmod.actions.layer.wanted import Wanted, looked_in, read_lock
    from sifmod.cli.layers import changed

    words = (*(("--no-index",) if no_index else ()), *looked_in(find_links))
    change = LayerChange(layer, Wanted(words=words), lock=read_lock(Path(lock)), unpacked=unpacked)
    changed(module, change, directory, prefix, as_json=as_json)
