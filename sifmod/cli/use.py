"""`sifmod test`, `jobscript` and `jupyter`: use an installed module."""

import os
from typing import TYPE_CHECKING

from sifmod.cli.command import argument, command, typed_again
from sifmod.cli.context import load_facts, reporter, resolve, trees_for
from sifmod.cli.life import say_life
from sifmod.cli.output import echo, print_json, print_rows, say
from sifmod.cli.shared_options import TreeOptions
from sifmod.config.name import ModuleName
from sifmod.errors import ModuleError, OptionError
from sifmod.system import escape_controls

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from sifmod.actions.test.test import Tested
    from sifmod.module.jobscript import Style
    from sifmod.tree.kernelspec import Kernelspec
    from sifmod.tree.receipt import Installation


class TestOptions(TreeOptions):
    module: str = argument("MODULE")
    nodes: int | None = None
    network: bool = False
    minimum: float | None = None
    job: bool = False
    account: str | None = None
    partition: str | None = None
    timeout: int = 600
    junit: str | None = None


@command("test", TestOptions)
def test_command(given: TestOptions) -> int:
    """Show whether an installed module works here: its checks, its GPUs, a collective over its ranks, their network.

    The exit code is 22 if a step fails.
    """
    from pathlib import Path

    from sifmod.actions.author.new_file import check_replaceable, write_text
    from sifmod.actions.layer.places import installed, known, layouts_of

    if (given.account or given.partition) and not given.job:
        raise OptionError("--account and --partition need --job", "add --job to submit the test as a job")
    if given.junit:
        check_replaceable(Path(given.junit))
    site = load_facts(given.settings).site
    trees = layouts_of(site, os.environ)
    installation = installed(resolve(given.module, known(trees)), trees)
    say_life(installation)
    if given.job:
        from sifmod.actions.slurm import Resources, at_site
        from sifmod.actions.test.test import run_job

        gpus = 0 if installation.provenance.accelerator == "none" else site.gpus_per_node
        words = (str(installation.module), *typed_again("test", given), f"--prefix={installation.prefix}")
        nodes = given.nodes or 1
        asked = Resources(nodes=nodes, gpus_per_node=gpus, account=given.account, partition=given.partition)
        tested = run_job(at_site(asked, site.slurm), words, say)
    else:
        from sifmod.actions.test.collective import nodes_of
        from sifmod.actions.test.test import Wanted, record_test, test

        tested = test(
            installation, site, Wanted(nodes_of(given.nodes), given.network, given.minimum, given.timeout), say
        )
        record_test(installation, site, reporter(), passed=tested.passed)
    if given.as_json:
        print_json(tested)
    else:
        _print(tested)
    if given.junit:
        write_text(junit_xml(tested), Path(given.junit), force=True)
    return 0 if tested.passed else 22


def _print(tested: "Tested") -> None:
    print_rows([(step.outcome, step.name, f"{step.seconds:.1f} s", step.text) for step in tested.steps])
    for step in tested.steps:
        if step.outcome == "failed" and (step.said or step.hint):
            echo(f"\n{step.name}:")
            for line in (*step.said, *(f"hint: {hint}" for hint in (step.hint or "").splitlines())):
                echo(f"  {line}")


def junit_xml(tested: "Tested") -> str:
    """A test suite with a case for each step."""
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
    """The text with only characters that XML 1.0 allows."""
    return escape_controls(text).translate({0xFFFE: "?", 0xFFFF: "?"})


class JobscriptOptions(TreeOptions):
    module: str = argument("MODULE")
    style: "Style" = "srun"
    nodes: int | None = None
    time: str | None = None
    account: str | None = None
    partition: str | None = None
    bcast: bool = False
    output: str | None = None


@command("jobscript", JobscriptOptions)
def jobscript_command(given: JobscriptOptions) -> None:
    """Print a Slurm job script with this site's account, partition, GPUs, processors and binding (key `slurm`).

    srun: one task per GPU. torchrun: one launcher per node. lightning: like srun, for a script with a Trainer.
    nccl-tests: the image's all_reduce_perf, which measures the network.
    """
    from pathlib import Path

    from sifmod.actions.author.new_file import check_target, write_text
    from sifmod.actions.jobscript import JobScript, jobscript
    from sifmod.actions.layer.places import installed, known, layouts_of
    from sifmod.module.jobscript import JobOptions
    from sifmod.module.quote import shell

    target = Path(given.output) if given.output and given.output != "-" else None
    if target:
        check_target(target)
    site = load_facts(given.settings).site
    trees = layouts_of(site, os.environ)
    installation = installed(resolve(given.module, known(trees)), trees)
    say_life(installation)
    options = JobOptions(
        given.style,
        given.nodes or JobOptions.nodes,
        given.time or JobOptions.time,
        given.account or site.slurm.account or JobOptions.account,
        given.partition or JobOptions.partition,
        given.bcast,
    )
    text = jobscript(installation, options, site.slurm, trees)
    if target:
        write_text(text, target)
    if given.as_json:
        print_json(JobScript(installation.module, given.style, target and target.absolute(), text))
    elif not target:
        echo(text, nl=False)
    else:
        marks = [mark for mark in (JobOptions.account, JobOptions.partition) if f"={mark}\n" in text]
        say(f"{'fill in ' + ' and '.join(marks) + ', then ' if marks else ''}`sbatch {shell(str(target))}`")


class JupyterOptions(TreeOptions):
    module: str = argument("MODULE")
    layer: str = ""
    lab: bool = False
    remove: bool = False


@command("jupyter", JupyterOptions)
def jupyter_command(given: JupyterOptions) -> None:
    """Make a module a kernel of Jupyter, Open OnDemand and VS Code, or start JupyterLab in it.

    The kernel needs ipykernel, and --lab jupyterlab, in the image or in a layer: `sifmod add MODULE ipykernel`.
    """
    from sifmod.actions.jupyter import Kernel, KernelState, install_kernel
    from sifmod.actions.layer.add import check
    from sifmod.actions.layer.places import installed, known, layouts
    from sifmod.tree.kernelspec import Kernelspec, kernels_directory, our_kernelspecs, remove_kernelspec

    layer = given.layer
    if given.lab and given.remove:
        raise OptionError("--lab and --remove cannot be combined", "leave one of them out: --remove removes a kernel")
    kernels, trees = kernels_directory(os.environ), layouts(trees_for(given.prefix), os.environ)
    ours = set(our_kernelspecs(kernels))
    found = _module(given.module, known(trees).keys(), [one for one in ours if given.remove], layer)
    spec = Kernelspec(found, layer)
    if given.remove:
        if spec not in ours:
            raise ModuleError(
                f"there is no kernel {spec.display_name} in {kernels}", "`jupyter kernelspec list` shows them"
            )
        remove_kernelspec(kernels, spec)
        state: KernelState = "removed"
    else:
        installation = installed(found, trees)
        say_life(installation)
        check(installation, layer or "default")
        if given.lab:
            _start(installation, layer, as_json=given.as_json)
        state = "made" if install_kernel(installation, layer, kernels, os.environ) else "unchanged"
    if given.as_json:
        print_json(Kernel(spec, kernels / spec.kernel, state))
    else:
        words = {"made": f"Jupyter, Open OnDemand and VS Code list it; {kernels}/{spec.kernel}", "removed": "removed"}
        say(f"kernel {spec.display_name}: {words.get(state, 'nothing to do')}")


def _module(name: str, modules: "Set[ModuleName]", kernels: "Sequence[Kernelspec]", layer: str) -> "ModuleName":
    """The module with this name; of several, the one that has a kernel."""
    from contextlib import suppress

    try:
        return resolve(name, modules | {one.module for one in kernels})
    except ModuleError:
        with suppress(ModuleError):
            return resolve(name, {one.module for one in kernels if one.layer == layer})
        raise


def _start(installation: "Installation", layer: str, *, as_json: bool) -> None:
    """Print how to reach JupyterLab, then exec it, so that ^C, job signals and the exit code are its own."""
    from sifmod.actions.jupyter import lab

    found = lab(installation, layer, os.environ)
    if as_json:
        print_json(found)
    else:
        say(f"JupyterLab of {installation.module} starts on {found.node}; ^C stops it. On your own computer, type")
        echo(f"  {found.tunnel}")
        say("keep that running, and open in the browser")
        echo(f"  {found.url}")
    os.execve(found.command[0], found.command, found.environment)  # noqa: S606 (as every wrapper does)
