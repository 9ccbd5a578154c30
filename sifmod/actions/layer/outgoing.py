"""Layers that an install leaves, or may leave, without their image, reported before it starts."""

from collections.abc import Iterable, Mapping
from typing import Annotated, NamedTuple

from sifmod.actions.layer.places import layers_for, layouts, module_words, searched
from sifmod.config.name import ModuleName
from sifmod.module.quote import shell
from sifmod.result import Described, PathText
from sifmod.tree.layer import DEFAULT, all_layers
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import Installation


class OutgoingLayer(NamedTuple):
    """A layer of this user's, made for an image that an install replaces, or may replace."""

    module: ModuleName
    layer: Annotated[str, Described("name of the layer")]
    path: PathText
    command: Annotated[str, Described("command that makes the layer for the new image, after the install")]
    certain: Annotated[bool, Described("whether the new image is surely another one")]


def outgoing(before: Installation, digest: str | None, environ: Mapping[str, str]) -> tuple[OutgoingLayer, ...]:
    """Layers of this user over the image of `before`, which the image with this digest replaces (None: unknown)."""
    if before.image is None or digest == before.image_sha256:
        return ()
    module, own = before.module, layers_for(before, None, before.prefix, environ).prefix
    found = (
        layer
        for place in searched(layouts((Layout(before.prefix),), environ), environ)
        for layer in all_layers(place, module)
        if layer.image == before.image_sha256
    )
    rows = []
    for layer in found:
        more = "" if layer.name == DEFAULT else f" --layer {layer.name}"
        more += "" if layer.top == own else f" --dir {shell(str(layer.top))}"
        command = f"sifmod add {module_words(before, environ)} --onto {module}{more}"
        rows.append(OutgoingLayer(module, layer.name, layer.root, command, digest is not None))
    return tuple(rows)


def warnings(layers: Iterable[OutgoingLayer]) -> Iterable[str]:
    """A warning for each layer, on one line."""
    for one in layers:
        gets = "gets" if one.certain else "may get"
        text = f"{one.module} {gets} another image, which its layer {one.layer} does not fit"
        yield f"warning: {text}; afterwards run `{one.command}` to rebuild the layer"
