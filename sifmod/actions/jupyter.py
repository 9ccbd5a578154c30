"""jupyter: install a module as a Jupyter kernel, or run JupyterLab in its container."""

import getpass
import os
import secrets
import shlex
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from sifmod.actions.layer.inside import python_wrapper
from sifmod.actions.layer.places import module_words, searched
from sifmod.actions.script_output import AS_FIELDS, said
from sifmod.config.name import ModuleName
from sifmod.errors import ModuleError
from sifmod.image.child import run_child
from sifmod.module.quote import shell
from sifmod.module.scripts import NO_LAYER
from sifmod.result import Beside, Described, Internal, OrNull
from sifmod.tree.kernelspec import Kernelspec, write_kernelspec
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import Installation

_START = """#!/bin/sh
# The Python of {module} as a kernel, for the kernel.json beside this file; written by `sifmod jupyter`.
if [ -d /.singularity.d ] && [ -n "${{APPTAINER_CONTAINER-}}${{SINGULARITY_CONTAINER-}}" ]; then
  case ${{CONTAINERROOT-}} in
    {generations}/*) command -v python >/dev/null && exec python "$@"; exec python3 "$@" ;;
  esac
  echo {elsewhere} >&2
  exit 1
fi
if [ ! -x {wrapper} ]; then
  echo {gone} >&2
  exit 127
fi
# Jupyter's and VS Code's connection files may be in directories that the container does not see
for file; do :; done
case $file in
  *[,:]*) ;;
  /?*/*) export SINGULARITY_BIND="${{SINGULARITY_BIND:+$SINGULARITY_BIND,}}${{file%/*}}" ;;
esac
{layer}
export SIFMOD_LAYERS={layers}"${{SIFMOD_LAYERS:+:$SIFMOD_LAYERS}}"
exec {wrapper} "$@"
"""


# `-m jupyterlab` would first look for each of its imports in the current directory, where others may write
_LAB = (
    "import sys; sys.path[:] = filter(None, sys.path); "
    "import runpy; runpy.run_module('jupyterlab', None, '__main__', True)"
)

KernelState = Literal["made", "unchanged", "removed"]


@dataclass(frozen=True)
class Kernel:
    """A kernel of this user's Jupyter, and what was done with it."""

    spec: Beside[Kernelspec]
    path: Path
    state: KernelState


@dataclass(frozen=True)
class Lab:
    """JupyterLab, which is about to start; its log goes to standard error."""

    command: Internal[tuple[str, ...]]
    environment: Internal[Mapping[str, str]]
    module: ModuleName
    layer: Annotated[OrNull[str], Described("name of the layer; null: the module's default layer")]
    node: str
    port: int
    tunnel: Annotated[str, Described("command to type on your own computer")]
    url: Annotated[str, Described("address to open there, with the token, which is a password")]


def install_kernel(installation: Installation, layer: str, kernels: Path, environ: Mapping[str, str]) -> bool:
    """Make the module a kernel of this user's Jupyter; returns whether anything changed.

    Raises ModuleError if ipykernel cannot be imported there, InstallError or PermissionsError if the
    kernelspec cannot be written.
    """
    tree, module = Layout(installation.prefix), installation.module
    layers = ":".join(map(str, searched((tree,), environ)))
    own = {name: value for name, value in environ.items() if name != "SIFMOD_LAYER"}
    _check(installation, "ipykernel", _environment(layer, own) | {"SIFMOD_LAYERS": layers}, environ)
    wrapper = tree.switch(module) / "bin" / python_wrapper(installation).name
    start = _START.format(
        module=module,
        generations=shell(str(tree.generations(module))),
        elsewhere=shell(
            f"{module} needs its own container, and this Jupyter runs in another one: start Jupyter outside"
        ),
        gone=shell(f"{module} is not here: {wrapper}; `{Kernelspec(module, layer).removal}` removes the kernel"),
        wrapper=shell(str(wrapper)),
        layer=f"export SIFMOD_LAYER={shell(layer)}" if layer else "unset SIFMOD_LAYER",
        layers=shell(layers),
    )
    return write_kernelspec(kernels, Kernelspec(module, layer), start)


def lab(installation: Installation, layer: str, environ: Mapping[str, str]) -> Lab:
    """How to start JupyterLab with the module's Python, on a free port of this node, protected by a token.

    Raises ModuleError if JupyterLab cannot be imported there.
    """
    environment = _environment(layer, environ)
    _check(installation, "jupyterlab", environment, environ)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # other users of the node see a command's arguments, but not its environment
    environment |= {"JUPYTER_TOKEN": (token := secrets.token_hex(24))}
    words = ("--no-browser", "-y", "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0")
    command = (
        str(python_wrapper(installation)),
        "-c",
        _LAB,
        *words,
        *(("--allow-root",) * (os.geteuid() == 0)),
    )
    node, way = ssh_route(environ)
    tunnel = shlex.join(("ssh", "-N", "-L", f"{port}:127.0.0.1:{port}", *way))
    url = f"http://127.0.0.1:{port}/lab?token={token}"
    return Lab(command, environment, installation.module, layer, node, port, tunnel, url)


def ssh_route(environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The node's name, and the ssh arguments to reach it: a job's node through the node that submitted it."""
    here, user = socket.gethostname(), getpass.getuser()
    node, login = environ.get("SLURMD_NODENAME") or here, environ.get("SLURM_SUBMIT_HOST") or here
    return node, (*(("-J", f"{user}@{login}") if login not in (node, here) else ()), f"{user}@{node}")


def _environment(layer: str, environ: Mapping[str, str]) -> dict[str, str]:
    return {**environ, "SIFMOD_LAYER": layer} if layer else dict(environ)


def _check(
    installation: Installation, package: str, environment: Mapping[str, str], environ: Mapping[str, str]
) -> None:
    """Raise ModuleError unless the module's Python can import the package in `environment`.

    `environ` is the user's, for the commands in hints.
    """
    command = (str(python_wrapper(installation)), "-c", f"import {package}")
    ended = run_child(command, cwd=Path("/"), env={**environment, **AS_FIELDS})
    if ended.code == 0:
        return
    module, layer, named = installation.module, environment.get("SIFMOD_LAYER"), module_words(installation, environ)
    lines = said(ended)
    hint = next((line.hint for line in reversed(lines) if line.hint is not None), "")
    add = f"sifmod add {named} {package}{f' --layer {layer}' if layer else ''}"
    if layer and ended.code == NO_LAYER:
        none = f"{module} has no layer {layer}"
        raise ModuleError(none, f"`{add}` makes it; `sifmod layer list {named}` lists the existing ones")
    if f"No module named '{package}'" not in "".join(ended.lines[-1:]):
        raise ModuleError(f"{package} of {module} cannot be used: {' '.join(line.text for line in lines[-3:])}", hint)
    if layer == "":
        raise ModuleError(
            f"the image of {module} has no {package}", "run `unset SIFMOD_LAYER`: an empty value disables layers"
        )
    raise ModuleError(f"neither the image of {module} nor its layer{f' {layer}' if layer else ''} has {package}", add)
