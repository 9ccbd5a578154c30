"""A view: an easyconfig without an image, whose module loads others and adds variables and bind paths of its own."""

from dataclasses import replace

from sifmod.config.yaml.node import Node, problem_at
from sifmod.errors import Problem

_OF_AN_IMAGE = (
    *("image", "activate", "conda", "venv", "wrappers", "verb", "runscripts", "runscript_env", "user_software"),
    *("protected", "gpu_selection", "mpi", "sanity_check"),
)


def is_view(easyconfig: Node) -> bool:
    """Whether merged keys are those of a view."""
    return "modules" in easyconfig.entries and bool(easyconfig.entries["modules"].items)


def view_defaults(defaults: Node) -> Node:
    """The lowest layer of a view: most of what other easyconfigs get belongs to the modules that it loads."""
    return replace(defaults, value={"accelerator": defaults.entries["accelerator"]})


def checked_view(view: Node) -> tuple[Node, tuple[Problem, ...]]:
    """A view without keys that only an image can have, and what is wrong: each of them, and modules of one name."""
    entries = view.entries
    found = [
        problem_at(entries[key].key, key, "a view, which has modules, has no image of its own: leave one of them out")
        for key in _OF_AN_IMAGE
        if key in entries
    ]
    seen = {entries["name"].text: "the view itself"} if "name" in entries else {}
    for index, module in enumerate(entries["modules"].items):
        name, _, _ = module.text.partition("/")
        if name in seen:
            message = f"{module.text} cannot be loaded beside {seen[name]}, which has its name"
            found.append(problem_at(module.mark, f"modules[{index}]", message))
        seen.setdefault(name, module.text)
    rest = {key: node for key, node in entries.items() if key not in _OF_AN_IMAGE}
    return replace(view, value=rest), tuple(found)
