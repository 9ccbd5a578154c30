"""`sifmod jupyter`."""

from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, prefix_option

if TYPE_CHECKING:
    from collections.abc import Sequence, Set
    from typing import Literal

    from sifmod.cli.outputs.jupyter import KernelData
    from sifmod.config.name import ModuleName
    from sifmod.tree.kernelspec import Kernelspec
    from sifmod.tree.receipt import Installation


@click.command("jupyter")
@click.argument("module", metavar="MODULE")
@click.option("--layer", metavar="LAYER", default="", help="With this layer of packages, and not `default`.")
@click.option("--lab", is_flag=True, help="Start JupyterLab in the module's container, and say how to reach it.")
@click.option("--remove", is_flag=True, help="Take the kernel away.")
@prefix_option
@json_option
def command(module: str, layer: str, *, lab: bool, remove: bool, prefix: str | None, as_json: bool) -> None:
    """Make a module a kernel of Jupyter, Open OnDemand and VS Code, or start JupyterLab in it.

    The kernel needs ipykernel, and --lab jupyterlab, in the image or in a layer: `sifmod add MODULE ipykernel`.
    """
    import os

    from sifmod.actions.jupyter import install_kernel
    from sifmod.actions.layer.add import check
    from sifmod.actions.layer.places import installed, known, layouts
    from sifmod.cli.context import layout_for
    from sifmod.cli.life import say_life
    from sifmod.cli.output import print_json, say
    from sifmod.errors import ModuleError, OptionError
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
        state: Literal["made", "unchanged", "removed"] = "removed"
    else:
        installation = installed(found, trees)
        say_life(installation)
        check(installation, layer or "default")
        if lab:
            _start(installation, layer, as_json=as_json)
        state = "made" if install_kernel(installation, layer, kernels, os.environ) else "unchanged"
    if as_json:
        print_json(_data(spec, f"{kernels}/{spec.name}", state))
    else:
        told = {"made": f"Jupyter, Open OnDemand and VS Code list it; {kernels}/{spec.name}", "removed": "removed"}
        say(f"kernel {spec.display_name}: {told.get(state, 'nothing to do, it is as asked for')}")


def _module(name: str, modules: "Set[ModuleName]", kernels: "Sequence[Kernelspec]", layer: str) -> "ModuleName":
    """The module called so; of several the one that has a kernel."""
    from contextlib import suppress

    from sifmod.cli.context import resolve
    from sifmod.errors import ModuleError

    try:
        return resolve(name, modules | {one.module for one in kernels})
    except ModuleError:
        with suppress(ModuleError):
            return resolve(name, {one.module for one in kernels if one.layer == layer})
        raise


def _data(spec: "Kernelspec", path: str, state: "Literal['made', 'unchanged', 'removed']") -> "KernelData":
    """As `--json` prints it."""
    return {
        "module": str(spec.module),
        "layer": spec.layer or None,
        "kernel": spec.name,
        "display_name": spec.display_name,
        "path": path,
        "state": state,
    }


def _start(installation: "Installation", layer: str, *, as_json: bool) -> None:
    """Say how JupyterLab is reached, and become it: ^C, the signals of a job and the exit code are then its own."""
    import os

    from sifmod.actions.jupyter import lab
    from sifmod.cli.output import echo, print_json, say
    from sifmod.cli.outputs.jupyter import LabData

    found = lab(installation, layer, os.environ)
    if as_json:
        data: LabData = {
            "module": str(installation.module),
            "layer": layer or None,
            "node": found.node,
            "port": found.port,
            "tunnel": found.tunnel,
            "url": found.url,
        }
        print_json(data)
    else:
        say(f"JupyterLab of {installation.module} starts on {found.node}; ^C ends it. On your own computer type")
        echo(f"  {found.tunnel}")
        say("leave that open, and open in the browser")
        echo(f"  {found.url}")
    os.execve(found.command[0], found.command, found.environment)  # noqa: S606 (as every wrapper does)
