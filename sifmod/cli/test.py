"""`sifmod test`."""

from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, prefix_option

if TYPE_CHECKING:
    from sifmod.actions.test.outcome import Tested
    from sifmod.cli.outputs.test import TestData


@click.command("test")
@click.argument("module", metavar="MODULE")
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="On N nodes of the allocation, by srun.")
@click.option("--network", is_flag=True, help="Say which network NCCL or RCCL takes; TCP fails on a site with a fabric.")
@click.option("--minimum", type=click.FloatRange(0), metavar="GB/S", help="Fail with less bandwidth of the bus.")
@click.option("--job", is_flag=True, help="Submit it as a job of N nodes, and wait for the answer.")
@click.option("-A", "--account", metavar="ACCOUNT", help="With --job: as sbatch has it.")
@click.option("-p", "--partition", metavar="PARTITION", help="With --job: as sbatch has it.")
@click.option("--timeout", type=click.FloatRange(1), default=600, metavar="SECONDS", help="For each command (600).")
@click.option("--junit", metavar="FILE", help="Write a report in JUnit's XML.")
@prefix_option
@json_option
def command(
    module: str,
    nodes: int | None,
    network: bool,
    minimum: float | None,
    job: bool,
    account: str | None,
    partition: str | None,
    timeout: float,
    junit: str | None,
    prefix: str | None,
    as_json: bool,
) -> int:
    """Show whether an installed module works here: its checks, its GPUs, a collective over its ranks, their network.

    Exit code 22 where a step fails.
    """
    import os
    from pathlib import Path

    from sifmod.actions.layer.places import installed, known, layouts
    from sifmod.actions.test.start import nodes_of
    from sifmod.actions.test.test import Wanted, test
    from sifmod.cli.context import load_facts, resolve
    from sifmod.cli.output import print_json, say
    from sifmod.errors import OptionError

    if (account or partition) and not job:
        raise OptionError("--account and --partition are for --job")
    site = load_facts({"prefix": prefix}).site
    trees = layouts(site.prefix, os.environ)
    installation = installed(resolve(module, known(trees)), trees)
    wanted = Wanted(nodes, network, minimum, timeout)
    if job:
        raise OptionError("not yet")
    wanted = Wanted(nodes_of(nodes), network, minimum, timeout)
    tested = test(installation, site, wanted, say)
    if junit:
        from sifmod.actions.author.new_file import write_text
        from sifmod.cli.junit import junit_xml

        write_text(junit_xml(tested), Path(junit), force=True)
    if as_json:
        print_json(test_data(tested))
    else:
        _print(tested)
    return 0 if tested.passed else 22


def test_data(tested: "Tested") -> "TestData":
    """A test as `--json` prints it."""
    from dataclasses import asdict

    return {
        "module": str(tested.module),
        "path": tested.root,
        "nodes": list(tested.nodes),
        "passed": tested.passed,
        "steps": [asdict(step) for step in tested.steps],
        "bandwidth": asdict(tested.bandwidth) if tested.bandwidth else None,
        "network": asdict(tested.network) if tested.network else None,
    }  # type: ignore[typeddict-item] # the fields are those of the dataclasses


def _print(tested: "Tested") -> None:
    from sifmod.cli.output import echo, print_rows

    print_rows([(step.outcome, step.name, f"{step.seconds:.1f} s", step.text) for step in tested.steps])
    for step in tested.steps:
        if step.outcome == "failed" and (step.said or step.hint):
            echo(f"\n{step.name}:")
            for line in (*step.said, *(f"hint: {hint}" for hint in step.hint.splitlines())):
                echo(f"  {line}")
