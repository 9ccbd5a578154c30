"""The layers of packages over a module's image."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from sifmod.cli.outputs.words import ModuleName, Path, Sha256, Size


class LayerData(TypedDict):
    """A layer."""

    module: ModuleName
    layer: str
    state: Annotated[
        Literal["live", "stale", "unreadable", "removed"],
        Field(
            description="stale: made for an image that is no longer installed; unreadable: it is used, but its own file"
            " about it cannot be read"
        ),
    ]
    ended: Annotated[str | None, Field(description="what is said of its module, where that is retired")]
    successor: Annotated[str | None, Field(description="the module to move it to with `add --onto`")]
    path: Path
    sha256: Annotated[Sha256 | None, Field(description="of the SIF that it was made for; null: unreadable")]
    python: Annotated[str, Field(description="of the image: 3.11")]
    requirements: Annotated[list[str], Field(description="as they were asked for")]
    editable: Annotated[list[str], Field(description="directories of projects")]
    added: Annotated[dict[str, str], Field(description="distribution: version")]
    kept: Annotated[dict[str, str], Field(description="distributions of the image that stay as they are")]
    file_count: int
    size: Annotated[Size, Field(description="bytes")]
    packed: Annotated[bool, Field(description="one file; false: a directory")]
