"""`sifmod test`."""

from typing import TYPE_CHECKING, Any

import click

from sifmod.cli.options import json_option, prefix_option

if TYPE_CHECKING:
    from sifmod.actions.test.outcome import Tested
    from sifmod.cli.outputs.test import TestData


def _number(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    """Refuse `nan`, which is in every range."""
    if value is not None and value != value:
        raise click.BadParameter("nan is no number")
    return value


@click.command("test")
@click.argument("module", metavar="MODULE")
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="On N nodes of the allocation, by srun.")
@click.option(
    "--network", is_flag=True, help="Say which network NCCL or RCCL takes; TCP fails on a site with a fabric."
)
@click.option(
    "--minimum",
    type=click.FloatRange(0),
    callback=_number,
    metavar="GB/S",
    help="Fail with less bandwidth of the bus, or where none was measured.",
)
@click.option("--job", is_flag=True, help="Submit it as a job of N nodes, and wait for the answer.")
@click.option("-A", "--account", metavar="ACCOUNT", help="With --job: as sbatch has it.")
@click.option("-p", "--partition", metavar="PARTITION", help="With --job: as sbatch has it.")
@click.option("--timeout", type=click.IntRange(1), default=600, metavar="SECONDS", help="For each command (600).")
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
    timeout: int,
    junit: str | None,
    prefix: str | None,
    as_json: bool,
) -> int:
    """Show whether an installed module works here: its checks, its GPUs, a collective over its ranks, their network.

    Exit code 22 where a step fails.
    """
    import os
    from pathlib import Path

    from sifmod.actions.author.new_file import check_replaceable, write_text
    from sifmod.actions.layer.places import installed, known, layouts
    from sifmod.cli.context import load_facts, resolve
    from sifmod.cli.life import say_life
    from sifmod.cli.output import print_json, say
    from sifmod.errors import OptionError

    if (account or partition) and not job:
        raise OptionError("--account and --partition are for --job", "add --job, which submits the test as a job")
    if junit:
        check_replaceable(Path(junit))
    site = load_facts({"prefix": prefix}).site
    trees = layouts(site.prefix, os.environ)
    installation = installed(resolve(module, known(trees)), trees)
    say_life(installation)
    if job:
        from sifmod.actions.slurm import Resources
        from sifmod.actions.test.job import run_job

        gpus = 0 if installation.provenance.accelerator == "none" else site.gpus_per_node
        words = [
            str(installation.module),
            "--prefix",
            str(Path(installation.root).parents[4]),
            "--timeout",
            str(timeout),
        ]
        words += ["--nodes", str(nodes)] if nodes else []
        words += ["--network"] if network else []
        words += ["--minimum", str(minimum)] if minimum is not None else []
        asked = Resources(nodes=nodes or 1, gpus_per_node=gpus, account=account, partition=partition)
        data: TestData = run_job(asked, words, say)  # type: ignore[assignment]
    else:
        from sifmod.actions.reporter import Reporter
        from sifmod.actions.test.record import record_test
        from sifmod.actions.test.start import nodes_of
        from sifmod.actions.test.test import Wanted, test
        from sifmod.cli.context import typed

        tested = test(installation, site, Wanted(nodes_of(nodes), network, minimum, timeout), say)
        record_test(installation, site, Reporter(say, command=typed()), passed=tested.passed)
        data = test_data(tested)
    if as_json:
        print_json(data)
    else:
        _print(data)
    if junit:
        from sifmod.cli.junit import junit_xml

        write_text(junit_xml(data), Path(junit), force=True)
    return 0 if data["passed"] else 22


def test_data(tested: "Tested") -> "TestData":
    """A test as `--json` prints it."""
    from dataclasses import asdict

    data: Any = asdict(tested) | {"module": str(tested.module), "passed": tested.passed}
    data["path"] = data.pop("root")
    told: TestData = data
    return told


def _print(data: "TestData") -> None:
    from sifmod.cli.output import echo, print_rows

    steps = data["steps"]
    print_rows([(step["outcome"], step["name"], f"{step['seconds']:.1f} s", step["text"]) for step in steps])
    for step in steps:
        if step["outcome"] == "failed" and (step["said"] or step["hint"]):
            echo(f"\n{step['name']}:")
            for line in (*step["said"], *(f"hint: {hint}" for hint in (step["hint"] or "").splitlines())):
                echo(f"  {line}")
