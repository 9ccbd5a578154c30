"""What MODULE, MODULE@GENERATION or IMAGE on the command line stands for."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sifmod.actions.subject import Subject
    from sifmod.tree.layout import Layout


def subject(text: str, layout: "Layout") -> "Subject":
    """The module or the image that `text` names; raises ModuleError or FetchError where there is none."""
    import os

    from sifmod.actions.layer.places import known, layouts
    from sifmod.actions.subject import is_digest, of_generation, of_image
    from sifmod.cli.context import resolve
    from sifmod.cli.show_image import names_image
    from sifmod.tree.receipt import known_modules

    if names_image(text) or is_digest(text):
        return of_image(layout, text)
    name, at, number = text.partition("@")
    if at and not number.isdecimal():
        name, number = text, ""
    trees = layouts(layout.prefix, os.environ)
    live = known(trees)
    module = resolve(name, live if not number else {*live, *known_modules(layout)})
    return of_generation(live.get(module, layout), module, int(number) if number else None)
