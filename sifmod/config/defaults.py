"""What an easyconfig is where nothing else is said: the lowest layer of the merge."""

from sifmod.config.site import Site
from sifmod.config.yaml.node import Mark, Node, tree

_MARK = Mark("default", 0, 0)
# Empty, so that what the host has does not reach the container; `PYTHONPATH: null` lets it through.
_ENV = {"PYTHONNOUSERSITE": "1", "PIP_USER": "0", "PYTHONPATH": "", "LD_PRELOAD": ""}
_WRAPPERS = ("start-shell",)  # of an image nothing else is known
_RUNSCRIPTS = (
    *("conda-python-simple", "conda-python-distributed", "get-master", "start-shell", "list-packages"),
    *("torchrun-distributed", "gpu-check"),
)


def defaults(site: Site) -> Node:
    """The lowest layer. Without an accelerator or an architecture of its own an easyconfig takes the site's."""
    values = {"path": ("/runscripts",), "env": _ENV, "wrappers": _WRAPPERS, "runscripts": _RUNSCRIPTS}
    of_site = {"accelerator": site.accelerator, "image": {"arch": site.arch}}
    entries = {**tree(values, _MARK).entries, **tree(of_site, Mark(f"site {site.name}", 0, 0)).entries}
    return Node(entries, _MARK, _MARK)


def filename(easyconfig: Node) -> Node:
    """The SIF's name when the easyconfig gives none: `<name>-<version><versionsuffix>.sif`."""
    parts = [easyconfig.entries[key].text if key in easyconfig.entries else "" for key in ("name", "version")]
    suffix = easyconfig.entries["versionsuffix"].text if "versionsuffix" in easyconfig.entries else ""
    return tree(f"{'-'.join(parts)}{suffix}.sif" if all(parts) else "image.sif", _MARK)
