"""`sifmod lock`."""

from pathlib import Path

import click

from sifmod.cli.options import json_option, site_options
from sifmod.cli.output import print_json
from sifmod.cli.stack_options import Value


@click.command("lock")
@click.argument("easyconfigs", nargs=-1, required=True, metavar="FILE|NAME...")
@click.option("--variant", "variants", metavar="NAME|all", multiple=True, help="Which variants; may be repeated.")
@click.option("-o", "--output", metavar="LOCK", type=click.Path(path_type=Path), help="One lock of them all.")
@site_options
@json_option
def command(
    easyconfigs: tuple[str, ...], variants: tuple[str, ...], output: Path | None, as_json: bool, **given: Value
) -> None:
    """Write down what is installed of easyconfigs: `install --locked` gives exactly that elsewhere, or fails.

    The lock of FILE.yaml is FILE.lock beside it; that of a NAME is in this directory.
    """
    from sifmod.cli.stack_files import write_lock
    from sifmod.config.stack import stack_of

    stacks = (easyconfigs,) if output else tuple((word,) for word in easyconfigs)
    written: list[dict[str, object]] = []
    for words in stacks:
        beside = Path(words[0])
        path = output or beside.with_name(f"{beside.stem}.lock")
        written.append(write_lock(stack_of(words, variants), path, given, as_json=as_json))
    if as_json:
        print_json(written[0] if len(written) == 1 else written)
