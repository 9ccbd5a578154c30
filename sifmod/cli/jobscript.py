"""`sifmod jobscript`."""

from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, prefix_option

if TYPE_CHECKING:
    from sifmod.module.job import Style

STYLES = ("srun", "torchrun", "lightning", "nccl-tests")
_TIME = r"[0-9]+(-[0-9]+(:[0-9]+){0,2}|(:[0-9]+){1,2})?|(?i:UNLIMITED|INFINITE)"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._,+@-]*"


def _matching(pattern: str, example: str) -> "click.ParamType[str]":
    """A type of options whose values stand in a line of the script."""
    import re

    def convert(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise click.BadParameter(f"expected a value such as {example}, got {text!r}")
        return text

    return click.types.FuncParamType(convert)


@click.command("jobscript")
@click.argument("module", metavar="MODULE")
@click.option("--style", type=click.Choice(STYLES), default="srun", help="How processes are started (default: srun).")
@click.option(
    "--nodes", type=click.IntRange(1, 100_000), help="How many (default: 2, or 1 without distributed Python)."
)
@click.option("--time", metavar="TIME", type=_matching(_TIME, "02:00:00"), help="As sbatch takes it (00:30:00).")
@click.option(
    "--account", metavar="NAME", type=_matching(_NAME, "project_1"), help="Without it PROJECT marks its place."
)
@click.option("--partition", metavar="NAME", type=_matching(_NAME, "gpu"), help="Without it PARTITION marks its place.")
@click.option("--bcast", is_flag=True, help="Copy image and layer to each node first: for many nodes.")
@click.option("-o", "--output", metavar="FILE", help="Write it here; a file that exists is left as it is.")
@prefix_option
@json_option
def command(
    module: str,
    style: "Style",
    nodes: int | None,
    time: str | None,
    account: str | None,
    partition: str | None,
    bcast: bool,
    output: str | None,
    prefix: str | None,
    as_json: bool,
) -> None:
    """Print a job script for Slurm, with this site's GPUs, processors and their binding in it.

    srun: each task is a process, one for each GPU. torchrun: started once on each node. lightning: as srun, for a
    script with a Trainer. nccl-tests: all_reduce_perf of the image, which measures the network.
    """
    import os
    from pathlib import Path

    from sifmod.actions.author.new_file import check_target, write_text
    from sifmod.actions.jobscript import jobscript
    from sifmod.actions.layer.places import installed, known, layouts
    from sifmod.cli.context import layout_for, resolve
    from sifmod.cli.life import say_life
    from sifmod.cli.output import echo, print_json, say
    from sifmod.module.job import JobOptions
    from sifmod.module.quote import shell

    target = Path(output) if output not in (None, "-") else None
    if target:
        check_target(target)
    trees = layouts(layout_for(prefix).prefix, os.environ)
    installation = installed(resolve(module, known(trees)), trees)
    say_life(installation)
    given = {"nodes": nodes, "time": time, "account": account, "partition": partition}
    options = JobOptions(style=style, bcast=bcast, **{name: value for name, value in given.items() if value})  # type: ignore[arg-type]
    text = jobscript(installation, options, trees)
    if target:
        write_text(text, target)
    if as_json:
        path = str(target.absolute()) if target else None
        print_json({"module": str(installation.module), "style": style, "path": path, "text": text})
    elif not target:
        echo(text, nl=False)
    else:
        marks = [mark for mark, value in (("PROJECT", account), ("PARTITION", partition)) if value is None]
        say(f"{'fill in ' + ' and '.join(marks) + ', then ' if marks else ''}`sbatch {shell(str(target))}`")
