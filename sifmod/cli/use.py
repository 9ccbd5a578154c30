"""`sifmod jobscript` and `jupyter`: use an installed module."""

import os
from typing import TYPE_CHECKING

from sifmod.actions.start import resolve, trees_for
from sifmod.cli.command import argument, command
from sifmod.cli.context import load_facts
from sifmod.cli.life import say_life
from sifmod.cli.output import echo, print_json, say
from sifmod.cli.shared_options import TreeOptions
from sifmod.config.name import ModuleName
from sifmod.errors import ModuleError, OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from sifmod.module.jobscript import Style
    from sifmod.tree.kernelspec import Kernelspec
    from sifmod.tree.receipt import Installation


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

    --style srun starts one task per GPU, or one per node without distributed Python; torchrun one launcher per node;
    lightning is like srun, for a script with a Trainer; nccl-tests is the image's all_reduce_perf, which measures the
    network.
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

    The kernel needs ipykernel, and --lab needs jupyterlab, in the image or in a layer (`sifmod add MODULE ipykernel`).
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
    """The module with this name, installed or of `kernels`; of several, one with a kernel for `layer`."""
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
