"""`sifmod test`, `jobscript` and `jupyter`: what an installed module is used for."""

import os
from typing import TYPE_CHECKING, Any

import click

from sifmod.cli.context import layout_for, load_facts, reporter, resolve
from sifmod.cli.life import say_life
from sifmod.cli.output import echo, print_json, print_rows, say
from sifmod.cli.shared_options import json_option, prefix_option
from sifmod.config.name import ModuleName
from sifmod.errors import ModuleError, OptionError
from sifmod.system import harmless

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from sifmod.actions.test.test import Tested
    from sifmod.module.jobscript import Style
    from sifmod.tree.kernelspec import Kernelspec
    from sifmod.tree.receipt import Installation


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
def test_command(
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
    from pathlib import Path

    from sifmod.actions.author.new_file import check_replaceable, write_text
    from sifmod.actions.layer.places import installed, known, layouts

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
        from sifmod.actions.test.test import run_job

        gpus = 0 if installation.provenance.accelerator == "none" else site.gpus_per_node
        words = [
            str(installation.module),
            "--prefix",
            str(installation.prefix),
            "--timeout",
            str(timeout),
        ]
        words += ["--nodes", str(nodes)] if nodes else []
        words += ["--network"] if network else []
        words += ["--minimum", str(minimum)] if minimum is not None else []
        asked = Resources(nodes=nodes or 1, gpus_per_node=gpus, account=account, partition=partition)
        tested = run_job(asked, words, say)
    else:
        from sifmod.actions.test.collective import nodes_of
        from sifmod.actions.test.test import Wanted, record_test, test

        tested = test(installation, site, Wanted(nodes_of(nodes), network, minimum, timeout), say)
        record_test(installation, site, reporter(), passed=tested.passed)
    if as_json:
        print_json(tested)
    else:
        _print(tested)
    if junit:
        write_text(junit_xml(tested), Path(junit), force=True)
    return 0 if tested.passed else 22


def _print(tested: "Tested") -> None:
    print_rows([(step.outcome, step.name, f"{step.seconds:.1f} s", step.text) for step in tested.steps])
    for step in tested.steps:
        if step.outcome == "failed" and (step.said or step.hint):
            echo(f"\n{step.name}:")
            for line in (*step.said, *(f"hint: {hint}" for hint in (step.hint or "").splitlines())):
                echo(f"  {line}")


def junit_xml(tested: "Tested") -> str:
    """One suite, with a case for each step."""
    from xml.etree.ElementTree import Element, SubElement, indent, tostring

    steps, module = tested.steps, str(tested.module)
    counts = {word: sum(step.outcome == word for step in steps) for word in ("failed", "skipped")}
    numbers = {"tests": len(steps), "failures": counts["failed"], "errors": 0, "skipped": counts["skipped"]}
    time = f"{sum(step.seconds for step in steps):.3f}"
    suites = Element("testsuites")
    suite = SubElement(suites, "testsuite", {"name": f"sifmod test {module}", "time": time})
    suite.attrib |= {name: str(number) for name, number in numbers.items()} | {"hostname": ",".join(tested.nodes)}
    for step in steps:
        names = {"classname": module.replace(".", "_"), "name": step.name, "time": f"{step.seconds:.3f}"}
        case = SubElement(suite, "testcase", names)
        match step.outcome:
            case "failed":
                failure = SubElement(case, "failure", {"message": _written(step.text), "type": "failed"})
                failure.text = _written("\n".join((step.text, *step.said, step.hint or "")))
            case "skipped":
                SubElement(case, "skipped", {"message": _written(step.text)})
            case "passed":
                SubElement(case, "system-out").text = _written(step.text)
    indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(suites, encoding="unicode")}\n'


def _written(text: str) -> str:
    """A text of characters that XML 1.0 has."""
    return harmless(text).translate({0xFFFE: "?", 0xFFFF: "?"})


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
def jobscript_command(
    module: str, style: "Style", bcast: bool, output: str | None, prefix: str | None, as_json: bool, **given: Any
) -> None:
    """Print a job script for Slurm, with this site's GPUs, processors and their binding in it.

    srun: each task is a process, one for each GPU. torchrun: started once on each node. lightning: as srun, for a
    script with a Trainer. nccl-tests: all_reduce_perf of the image, which measures the network.
    """
    from pathlib import Path

    from sifmod.actions.author.new_file import check_target, write_text
    from sifmod.actions.jobscript import JobScript, jobscript
    from sifmod.actions.layer.places import installed, known, layouts
    from sifmod.module.jobscript import JobOptions
    from sifmod.module.quote import shell

    target = Path(output) if output not in (None, "-") else None
    if target:
        check_target(target)
    trees = layouts(layout_for(prefix).prefix, os.environ)
    installation = installed(resolve(module, known(trees)), trees)
    say_life(installation)
    options = JobOptions(style=style, bcast=bcast, **{name: value for name, value in given.items() if value})
    text = jobscript(installation, options, trees)
    if target:
        write_text(text, target)
    if as_json:
        print_json(JobScript(installation.module, style, target and target.absolute(), text))
    elif not target:
        echo(text, nl=False)
    else:
        marks = [
            mark for mark, value in (("PROJECT", given["account"]), ("PARTITION", given["partition"])) if value is None
        ]
        say(f"{'fill in ' + ' and '.join(marks) + ', then ' if marks else ''}`sbatch {shell(str(target))}`")


@click.command("jupyter")
@click.argument("module", metavar="MODULE")
@click.option("--layer", metavar="LAYER", default="", help="With this layer of packages, and not `default`.")
@click.option("--lab", is_flag=True, help="Start JupyterLab in the module's container, and say how to reach it.")
@click.option("--remove", is_flag=True, help="Take the kernel away.")
@prefix_option
@json_option
def jupyter_command(module: str, layer: str, *, lab: bool, remove: bool, prefix: str | None, as_json: bool) -> None:
    """Make a module a kernel of Jupyter, Open OnDemand and VS Code, or start JupyterLab in it.

    The kernel needs ipykernel, and --lab jupyterlab, in the image or in a layer: `sifmod add MODULE ipykernel`.
    """
    from sifmod.actions.jupyter import Kernel, KernelState, install_kernel
    from sifmod.actions.layer.add import check
    from sifmod.actions.layer.places import installed, known, layouts
    from sifmod.tree.kernelspec import Kernelspec, kernels_directory, our_kernelspecs, remove_kernelspec

    if lab and remove:
        raise OptionError(
            "--lab and --remove do not go together", "leave one of them out: --remove takes a kernel away"
        )
    kernels, trees = kernels_directory(os.environ), layouts(layout_for(prefix).prefix, os.environ)
    ours = set(our_kernelspecs(kernels))
    found = _module(module, known(trees).keys(), [one for one in ours if remove], layer)
    spec = Kernelspec(found, layer)
    if remove:
        if spec not in ours:
            raise ModuleError(f"no kernel {spec.display_name} is in {kernels}", "`jupyter kernelspec list` shows them")
        remove_kernelspec(kernels, spec)
        state: KernelState = "removed"
    else:
        installation = installed(found, trees)
        say_life(installation)
        check(installation, layer or "default")
        if lab:
            _start(installation, layer, as_json=as_json)
        state = "made" if install_kernel(installation, layer, kernels, os.environ) else "unchanged"
    if as_json:
        print_json(Kernel(spec, kernels / spec.kernel, state))
    else:
        told = {"made": f"Jupyter, Open OnDemand and VS Code list it; {kernels}/{spec.kernel}", "removed": "removed"}
        say(f"kernel {spec.display_name}: {told.get(state, 'nothing to do, it is as asked for')}")


def _module(name: str, modules: "Set[ModuleName]", kernels: "Sequence[Kernelspec]", layer: str) -> "ModuleName":
    """The module called so; of several the one that has a kernel."""
    from contextlib import suppress

    try:
        return resolve(name, modules | {one.module for one in kernels})
    except ModuleError:
        with suppress(ModuleError):
            return resolve(name, {one.module for one in kernels if one.layer == layer})
        raise


def _start(installation: "Installation", layer: str, *, as_json: bool) -> None:
    """Say how JupyterLab is reached, and become it: ^C, the signals of a job and the exit code are then its own."""
    from sifmod.actions.jupyter import lab

    found = lab(installation, layer, os.environ)
    if as_json:
        print_json(found)
    else:
        say(f"JupyterLab of {installation.module} starts on {found.node}; ^C ends it. On your own computer type")
        echo(f"  {found.tunnel}")
        say("leave that open, and open in the browser")
        echo(f"  {found.url}")
    os.execve(found.command[0], found.command, found.environment)  # noqa: S606 (as every wrapper does)
