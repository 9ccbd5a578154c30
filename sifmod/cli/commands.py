"""Every command in one table, so that `sifmod --help` and TAB for a command's name import none of them."""

from typing import NamedTuple


class Entry(NamedTuple):
    """The topic of a command, the file that defines it, and its text in `sifmod --help`."""

    topic: str
    file: str  # in cli/
    text: str


COMMANDS = {
    "doctor": Entry("start", "machine", "Look at this machine: what works, what is missing"),
    "search": Entry("start", "search", "Find modules to install, by name, package or version"),
    "install": Entry("start", "install", "Install modules, by name or from easyconfigs"),
    "init": Entry("start", "machine", "Print the shell lines for your modules and completion"),
    "help": Entry("start", "help", "Explain a command, or a topic"),
    "list": Entry("use", "installed", "List the installed modules"),
    "show": Entry("use", "show", "Show a module, a merged easyconfig, or an image"),
    "add": Entry("use", "layers", "Add Python packages to a module, in a layer over its image"),
    "layer": Entry("use", "layers", "List, change and rebuild layers of packages"),
    "test": Entry("use", "test", "Check whether a module works here: GPUs, ranks, network"),
    "jobscript": Entry("use", "use", "Print a Slurm job script for a module"),
    "jupyter": Entry("use", "use", "Make a module a Jupyter kernel, or start JupyterLab"),
    "outdated": Entry("change", "newer", "Show which modules have a newer version or image"),
    "upgrade": Entry("change", "newer", "Install what is newer; earlier versions stay"),
    "rollback": Entry("change", "installed", "Switch a module back to its previous generation"),
    "uninstall": Entry("change", "installed", "Remove modules; what the user added stays"),
    "log": Entry("change", "installed", "Show what was changed, when and by whom"),
    "diff": Entry("change", "subject", "Show what changed between modules, generations or images"),
    "verify": Entry("change", "verify", "Compare images and files with their receipts"),
    "gc": Entry("change", "installed", "Free space: old generations, unused images"),
    "new": Entry("recipes", "author", "Write a first easyconfig for an image"),
    "import": Entry("recipes", "author", "Turn files of EasyBuild, shpc and NGC into easyconfigs"),
    "check": Entry("recipes", "author", "Validate easyconfigs, and files of settings"),
    "schema": Entry("recipes", "author", "Print the JSON Schema of an easyconfig"),
    "fetch": Entry("recipes", "fetch", "Fetch an image, verified, into the store or a file"),
    "push": Entry("recipes", "subject", "Push an image to a registry"),
    "export": Entry("recipes", "subject", "Write an image for enroot, podman, docker; or its files"),
    "sbom": Entry("recipes", "subject", "List the packages of a module or image, as CycloneDX"),
    "lock": Entry("recipes", "author", "Record what is installed, to install the same elsewhere"),
    "stack": Entry("admin", "stack", "Publish many modules from one file"),
    "default": Entry("admin", "life", "Choose the module that a name without a version loads"),
    "hide": Entry("admin", "life", "Hide modules from `module avail`"),
    "deprecate": Entry("admin", "life", "Announce at each load that a module will go"),
    "retire": Entry("admin", "life", "Hide modules and refuse to load them"),
    "config": Entry("admin", "machine", "Show the settings and where each comes from"),
    "site": Entry("admin", "machine", "Name, show or write the facts of this machine"),
    "self": Entry("admin", "machine", "Write a module for sifmod itself"),
}
"""In the order of `sifmod --help`."""

ALIASES = {"layers": "layer list", "remove": "layer remove", "sync": "layer sync"}
"""Earlier names, which still work and are not listed."""

TOPICS = {
    "start": "Start here",
    "use": "Use a module",
    "change": "Change and undo",
    "recipes": "Recipes and images",
    "admin": "Run a site",
}
"""The parts of `sifmod --help`, and their titles: `sifmod help TOPIC` explains its commands."""

TOGETHER = {
    "check": ("schema", "Validate easyconfigs and settings; print their schema"),
    "push": ("export", "Write an image to a registry, or for another tool"),
    "default": ("hide", "Choose what a name loads, and what `avail` shows"),
    "deprecate": ("retire", "Announce the end of modules, and end them"),
    "config": ("site", "Show the settings, and the facts of this machine"),
}
"""Commands that share their line with another, and its text."""

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
