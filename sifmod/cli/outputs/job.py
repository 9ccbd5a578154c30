"""Job scripts."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from sifmod.cli.outputs.words import ModuleName, Path


class JobScript(TypedDict):
    """A job script."""

    module: ModuleName
    style: Literal["srun", "torchrun", "lightning", "nccl-tests"]
    path: Annotated[Path | None, Field(description="null without -o")]
    text: str
