"""`sifmod jobscript` and `jupyter`: use an installed module."""

import os
from collections.abc import Sequence, Set

from sifmod.actions.start import resolve, trees_for
from sifmod.cli.command import argument, command
from sifmod.cli.context import load_facts
from sifmod.cli.later import later
from sifmod.cli.life import say_life
from sifmod.cli.output import echo, print_json, say
from sifmod.cli.shared_options import TreeOptions
from sifmod.config.name import ModuleName
from sifmod.errors import ModuleError, OptionError

with later():
    from sifmod.actions import jobscript, jupyter
    from sifmod.actions.author import new_file
    from sifmod.actions.layer import add, places
    from sifmod.module import jobscript as module_jobscript
    from sifmod.module import quote
    from sifmod.tree import kernelspec, receipt


class JobscriptOptions(TreeOptions):
    module: str = argument("MODULE")
    style: "module_jobscript.Style" = "srun"
    nodes: int | None = None
    time: str | None = None
    account: str | None = None
    partition: str | None = None
    bcast: bool = False
    output: str | None = None


@command("jobscript", JobscriptOptions, lambda: jobscript.JobScript)
def jobscript_command(given: JobscriptOptions) -> None:
    """Print a Slurm job script with this site's account, partition, GPUs, processors and binding (key `slurm`).

    --style srun starts one task per GPU, or one per node without distributed Python; torchrun one launcher per node;
    lightning is like srun, for a script with a Trainer; nccl-tests is the image's all_reduce_perf, which measures the
    network.
    """
    from pathlib import Path

    target = Path(given.output) if given.output and given.output != "-" else None
    if target:
        new_file.check_target(target)
    site = load_facts(given.settings).site
    trees = places.layouts_of(site, os.environ)
    installation = places.installed(resolve(given.module, places.known(trees)), trees)
    say_life(installation)
    options = module_jobscript.JobOptions(
        given.style,
        given.nodes or module_jobscript.JobOptions.nodes,
        given.time or module_jobscript.JobOptions.time,
        given.account or site.slurm.account or module_jobscript.JobOptions.account,
        given.partition or module_jobscript.JobOptions.partition,
        given.bcast,
    )
    text = jobscript.jobscript(installation, options, site.slurm, trees)
    if target:
        new_file.write_text(text, target)
    if given.as_json:
        print_json(jobscript.JobScript(installation.module, given.style, target and target.absolute(), text))
    elif not target:
        echo(text, nl=False)
    else:
        marks = [
            mark
            for mark in (module_jobscript.JobOptions.account, module_jobscript.JobOptions.partition)
            if f"={mark}\n" in text
        ]
        say(f"{'fill in ' + ' and '.join(marks) + ', then ' if marks else ''}`sbatch {quote.shell(str(target))}`")


class JupyterOptions(TreeOptions):
    module: str = argument("MODULE")
    layer: str = ""
    lab: bool = False
    remove: bool = False


@command("jupyter", JupyterOptions, lambda: jupyter.Kernel | jupyter.Lab)
def jupyter_command(given: JupyterOptions) -> None:
    """Make a module a kernel of Jupyter, Open OnDemand and VS Code, or start JupyterLab in it.

    The kernel needs ipykernel, and --lab needs jupyterlab, in the image or in a layer (`sifmod add MODULE ipykernel`).
    """
    layer = given.layer
    if given.lab and given.remove:
        raise OptionError("--lab and --remove cannot be combined", "leave one of them out: --remove removes a kernel")
    kernels, trees = kernelspec.kernels_directory(os.environ), places.layouts(trees_for(given.prefix), os.environ)
    ours = set(kernelspec.our_kernelspecs(kernels))
    found = _module(given.module, places.known(trees).keys(), [one for one in ours if given.remove], layer)
    spec = kernelspec.Kernelspec(found, layer)
    if given.remove:
        if spec not in ours:
            raise ModuleError(
                f"there is no kernel {spec.display_name} in {kernels}", "`jupyter kernelspec list` shows them"
            )
        kernelspec.remove_kernelspec(kernels, spec)
        state: jupyter.KernelState = "removed"
    else:
        installation = places.installed(found, trees)
        say_life(installation)
        add.check(installation, layer or "default")
        if given.lab:
            _start(installation, layer, as_json=given.as_json)
        state = "made" if jupyter.install_kernel(installation, layer, kernels, os.environ) else "unchanged"
    if given.as_json:
        print_json(jupyter.Kernel(spec, kernels / spec.kernel, state))
    else:
        words = {"made": f"Jupyter, Open OnDemand and VS Code list it; {kernels}/{spec.kernel}", "removed": "removed"}
        say(f"kernel {spec.display_name}: {words.get(state, 'nothing to do')}")


def _module(
    name: str, modules: "Set[ModuleName]", kernels: "Sequence[kernelspec.Kernelspec]", layer: str
) -> "ModuleName":
    """The module with this name, installed or of `kernels`; of several, one with a kernel for `layer`."""
    from contextlib import suppress

    try:
        return resolve(name, modules | {one.module for one in kernels})
    except ModuleError:
        with suppress(ModuleError):
            return resolve(name, {one.module for one in kernels if one.layer == layer})
        raise


def _start(installation: "receipt.Installation", layer: str, *, as_json: bool) -> None:
    """Print how to reach JupyterLab, then exec it, so that ^C, job signals and the exit code are its own."""
    found = jupyter.lab(installation, layer, os.environ)
    if as_json:
        print_json(found)
    else:
        say(f"JupyterLab of {installation.module} starts on {found.node}; ^C stops it. On your own computer, type")
        echo(f"  {found.tunnel}")
        say("keep that running, and open in the browser")
        echo(f"  {found.url}")
    os.execve(found.command[0], found.command, found.environment)  # noqa: S606 (as every wrapper does)
