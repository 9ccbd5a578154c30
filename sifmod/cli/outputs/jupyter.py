"""Kernels of Jupyter, and JupyterLab."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from sifmod.cli.outputs.words import ModuleName, Path

Layer = Annotated[str | None, Field(description="null: the one that the module takes by itself")]


class KernelData(TypedDict):
    """A kernel."""

    module: ModuleName
    layer: Layer
    kernel: Annotated[str, Field(description="its name, as in `jupyter kernelspec list`")]
    display_name: Annotated[str, Field(description="as people choose it")]
    path: Path
    state: Literal["made", "unchanged", "removed"]


class LabData(TypedDict):
    """JupyterLab, which is about to start; its log goes to standard error."""

    module: ModuleName
    layer: Layer
    node: str
    port: int
    tunnel: Annotated[str, Field(description="to be typed on one's own computer")]
    url: Annotated[str, Field(description="to be opened there; with the token, which is a password")]
