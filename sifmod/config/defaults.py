"""What an easyconfig is when nobody says otherwise: the lowest layer of the merge."""

from sifmod.config.node import Mark, Node
from sifmod.config.site import Site

_MARK = Mark("default", 0, 0)
# Empty, so that what the host has does not reach the container; `PYTHONPATH: null` lets it through.
_ENV = {"PYTHONNOUSERSITE": "1", "PIP_USER": "0", "PYTHONPATH": "", "LD_PRELOAD": ""}
_WRAPPERS = ("python", "python3", "pip", "pip3", "start-shell", "list-packages")
_RUNSCRIPTS = ("conda-python-simple", "conda-python-distributed", "get-master", "start-shell", "list-packages")


def defaults(site: Site) -> Node:
    """The lowest layer. Without an accelerator or an architecture of its own an easyconfig takes the site's."""
    values = {"path": ("/runscripts",), "env": _ENV, "wrappers": _WRAPPERS, "runscripts": _RUNSCRIPTS}
    node = tree(values, _MARK)
    of_site = tree({"accelerator": site.accelerator, "image": {"arch": site.arch}}, Mark(f"site {site.name}", 0, 0))
    entries = {**node.value, **of_site.value} if isinstance(node.value, dict) and isinstance(of_site.value, dict) else {}
    return Node(entries, _MARK, _MARK)


def filename(entries: dict[str, Node]) -> Node:
    """The SIF's name when the easyconfig gives none: `<name>-<version><versionsuffix>.sif`."""
    parts = [entries[key].value if key in entries else "" for key in ("name", "version", "versionsuffix")]
    name, version, suffix = (part if isinstance(part, str) else "" for part in parts)
    return tree(f"{name}-{version}{suffix}.sif" if name and version else "image.sif", _MARK)


def tree(value: object, mark: Mark) -> Node:
    """Plain values as a Node, all of it at one mark."""
    if isinstance(value, dict):
        return Node({key: tree(inner, mark) for key, inner in value.items()}, mark, mark)
    if isinstance(value, tuple):
        return Node(tuple(tree(inner, mark) for inner in value), mark, mark)
    return Node(str(value), mark, mark, str(value))
