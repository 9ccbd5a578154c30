"""A ShownLayer: a layer of packages as commands show it."""

from dataclasses import dataclass
from typing import Annotated

from sifmod.actions.layer.layers import State
from sifmod.config.name import ModuleName
from sifmod.result import Described, OrNull, PathText, Sha256, Size
from sifmod.tree.layer import Layer

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ShownLayer:
    """A layer, its state, and the retirement of its module."""

    module: ModuleName
    layer: str
    state: Annotated[
        State,
        Described(
            "stale: built for an image that is no longer installed; unreadable: the layer is used, but its receipt "
            "cannot be read"
        ),
    ]
    ended: Annotated[OrNull[str], Described("retirement notice of the layer's module")]
    successor: Annotated[OrNull[str], Described("the module to move the layer to with `add --onto`")]
    path: PathText
    sha256: Annotated[OrNull[Sha256], Described("SHA-256 of the SIF that the layer is for; null: unreadable")]
    python: Annotated[str, Described("version of the image's Python: 3.11")]
    requirements: Annotated[tuple[str, ...], Described("requirements, as requested")]
    editable: Annotated[tuple[str, ...], Described("directories of editable projects")]
    added: Annotated[Pairs, Described("distributions that the layer adds, with versions")]
    kept: Annotated[Pairs, Described("distributions of the image that stay as they are")]
    file_count: int
    size: Size
    packed: Annotated[bool, Described("whether the layer is one file; false: a directory")]


def shown_layer(layer: Layer, state: State, retired: tuple[str, str] = ("", "")) -> ShownLayer:
    """The layer with its state; `retired`: the notice of its module, and the module to move it to."""
    ended, successor = retired
    return ShownLayer(
        layer.module,
        layer.name,
        state,
        ended,
        successor,
        path=layer.root,
        sha256=layer.image,
        python=layer.version,
        requirements=layer.requirements,
        editable=layer.editable,
        added=layer.added,
        kept=layer.kept,
        file_count=layer.files,
        size=layer.size,
        packed=layer.packed,
    )
