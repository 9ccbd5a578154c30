"""Every command in one table, so that `sifmod --help` and TAB for a command's name import none of them."""

from typing import NamedTuple


class Entry(NamedTuple):
    """The file that defines a command, and its text in `sifmod --help`."""

    file: str  # in cli/
    text: str


class Topic(NamedTuple):
    """A part of `sifmod --help`: `sifmod help TOPIC` explains its commands."""

    title: str
    rows: tuple[tuple[str, ...], ...]  # commands that share a line


COMMANDS = {
    "doctor": Entry("machine", "Look at this machine: what works, what is missing"),
    "search": Entry("search", "Find modules to install, by name, package or version"),
    "install": Entry("install", "Install modules, by name or from easyconfigs"),
    "init": Entry("machine", "Print the shell lines for your modules and completion"),
    "help": Entry("help", "Explain a command, or a topic"),
    "list": Entry("installed", "List the installed modules"),
    "show": Entry("show", "Show a module, a merged easyconfig, or an image"),
    "add": Entry("layers", "Add Python packages to a module, in a layer over its image"),
    "layer": Entry("layers", "List, change and rebuild layers of packages"),
    "test": Entry("test", "Check whether a module works here: GPUs, ranks, network"),
    "jobscript": Entry("use", "Print a Slurm job script for a module"),
    "jupyter": Entry("use", "Make a module a Jupyter kernel, or start JupyterLab"),
    "outdated": Entry("newer", "Show which modules have a newer version or image"),
    "upgrade": Entry("newer", "Install what is newer; earlier versions stay"),
    "rollback": Entry("installed", "Switch a module back to its previous generation"),
    "uninstall": Entry("installed", "Remove modules; what the user added stays"),
    "log": Entry("installed", "Show what was changed, when and by whom"),
    "diff": Entry("subject", "Show what changed between modules, generations or images"),
    "verify": Entry("verify", "Compare images and files with their receipts"),
    "gc": Entry("installed", "Free space: old generations, unused images"),
    "new": Entry("author", "Write a first easyconfig for an image"),
    "import": Entry("author", "Turn files of EasyBuild, shpc and NGC into easyconfigs"),
    "check": Entry("author", "Validate easyconfigs, and files of settings"),
    "schema": Entry("author", "Print the JSON Schema of an easyconfig"),
    "fetch": Entry("fetch", "Fetch an image, verified, into the store or a file"),
    "push": Entry("subject", "Push an image to a registry"),
    "export": Entry("subject", "Write an image for enroot, podman, docker; or its files"),
    "sbom": Entry("subject", "List the packages of a module or image, as CycloneDX"),
    "lock": Entry("author", "Record what is installed, to install the same elsewhere"),
    "stack": Entry("stack", "Publish many modules from one file"),
    "default": Entry("life", "Choose the module that a name without a version loads"),
    "hide": Entry("life", "Hide modules from `module avail`"),
    "deprecate": Entry("life", "Announce at each load that a module will go"),
    "retire": Entry("life", "Hide modules and refuse to load them"),
    "config": Entry("machine", "Show the settings and where each comes from"),
    "site": Entry("machine", "Name, show or write the facts of this machine"),
    "self": Entry("machine", "Write a module for sifmod itself"),
}
"""In the order of `sifmod --help`."""

ALIASES = {"layers": "layer list", "remove": "layer remove", "sync": "layer sync"}
"""Earlier names, which still work and are not listed."""

TOPICS = {
    "start": Topic("Start here", (("doctor",), ("search",), ("install",), ("init",), ("help",))),
    "use": Topic("Use a module", (("list",), ("show",), ("add",), ("layer",), ("test",), ("jobscript",), ("jupyter",))),
    "change": Topic(
        "Change and undo",
        (("outdated",), ("upgrade",), ("rollback",), ("uninstall",), ("log",), ("diff",), ("verify",), ("gc",)),
    ),
    "recipes": Topic(
        "Recipes and images",
        (("new",), ("import",), ("check", "schema"), ("fetch",), ("push", "export"), ("sbom",), ("lock",)),
    ),
    "admin": Topic(
        "Run a site", (("stack",), ("default", "hide"), ("deprecate", "retire"), ("config", "site"), ("self",))
    ),
}
TOGETHER: dict[tuple[str, ...], str] = {
    ("check", "schema"): "Validate easyconfigs and settings; print their schema",
    ("push", "export"): "Write an image to a registry, or for another tool",
    ("default", "hide"): "Choose what a name loads, and what `avail` shows",
    ("deprecate", "retire"): "Announce the end of modules, and end them",
    ("config", "site"): "Show the settings, and the facts of this machine",
}
"""The texts for commands that share a line."""

EXIT_CODES = (
    (0, "ok"),
    (1, "failure, or a check that found something"),
    (2, "bad option, or a choice that only you can make"),
    (4, "no such easyconfig"),
    (5, "bad easyconfig or settings"),
    (10, "no image, or no runtime"),
    (18, "the tree could not be changed"),
    (22, "the sanity check failed"),
    (24, "no such module"),
    (25, "permissions"),
    (70, "a bug in sifmod"),
    (130, "interrupted"),
)
"""Up to 25 they are EasyBuild 5's numbers."""
