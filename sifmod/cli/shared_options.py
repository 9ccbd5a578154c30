"""Options that several commands have, each group a frozen value."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from sifmod.cli.command import Options
from sifmod.config.option import KEYS


class JsonOption(Options):
    """How the answer is printed."""

    as_json: bool = False


class PrefixOption(Options):
    """Which tree."""

    prefix: str | None = None

    @property
    def settings(self) -> dict[str, str]:
        """Those of its options that are given and are keys of the site."""
        options = {name: text for name, text in vars(self).items() if text is not None}
        return {name: text for name, text in options.items() if name in KEYS and KEYS[name].typed}


class TreeOptions(PrefixOption, JsonOption):
    """Which tree, and how the answer is printed."""


class SiteOptions(TreeOptions):
    """What is true of this machine: each is a SIFMOD_ variable and a key of config.yaml too."""

    site: str | None = None
    robot_paths: str | None = None
    image_dirs: str | None = None
    accelerator: str | None = None
    runtime: str | None = None
    module_syntax: str | None = None


class ConversionOptions(SiteOptions):
    """Of commands that may convert an image."""

    compression: str | None = None
    processors: str | None = None
    offline: bool = False
    quiet: bool = False
    yes: bool = False


class PlacesOptions(Options):
    """Where packages are looked for."""

    find_links: tuple[str, ...] = ()
    no_index: bool = False
    index_url: str | None = None
    extra_index_url: tuple[str, ...] = ()


class LayerOptions(TreeOptions, PlacesOptions):
    """Which layer of a module: its name, where it is made, and of what."""

    layer: str = "default"
    directory: str | None = None


# for stack.py, stack_job.py and layers.py, until they have options of this form
Decorated = TypeVar("Decorated", bound=Callable[..., Any])

Given = Mapping[str, Any]
"""The options of a command line, by their names, as click gives them."""

SITE_KEYS = tuple(key for key, option in KEYS.items() if option.typed)


def several(*options: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Options as one decorator, in the order of the help."""

    def decorate(function: Decorated) -> Decorated:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


json_option = click.option("--json", "as_json", is_flag=True, help="Print data for programs.")
prefix_option = click.option(
    "--prefix", metavar="DIR", help="The tree that holds modules, images and software (SIFMOD_PREFIX)."
)
# what is true of this machine; each is also a SIFMOD_ variable and a key of config.yaml
site_options = several(
    click.option("--site", metavar="NAME", help="Facts of a site: a shipped one (lumi-g, …) or a file."),
    prefix_option,
    click.option("--robot-paths", metavar="DIRS", help="Where easyconfigs are looked for (`:` between)."),
    click.option("--image-dirs", metavar="DIRS", help="Where images given by name are looked for."),
    click.option("--accelerator", type=click.Choice(["auto", "rocm", "cuda", "none"]), help="GPUs of the site."),
    click.option("--runtime", metavar="NAME|PATH", help="apptainer, singularity, or the path of one."),
    click.option("--module-syntax", type=click.Choice(["auto", "lua", "tcl", "both"]), help="Modulefiles."),
)
# of verbs that may convert an image
conversion_options = several(
    click.option("--compression", metavar="KIND", help="Of a converted image: auto, zstd:N, gzip:N, lz4."),
    click.option("--processors", metavar="N", help="Threads that convert an image (default: all, at most 8)."),
)
keep_blobs_option = click.option(
    "--keep-blobs",
    is_flag=True,
    help="Keep the layers that a conversion downloaded, in PREFIX/images/partial, until `sifmod gc --yes` finds"
    " them 14 days old or the image is fetched without this option.",
)
yes_option = click.option(
    "-y", "--yes", is_flag=True, help="Do not ask before a large image goes to the home directory."
)
# where packages are looked for
places_options = several(
    click.option("--find-links", multiple=True, metavar="PLACE", help="Look for wheels in this directory or page too."),
    click.option("--no-index", is_flag=True, help="Ask no index: only the places of --find-links."),
    click.option("--index-url", "-i", metavar="URL", help="Ask this index in the place of uv's own."),
    click.option("--extra-index-url", multiple=True, metavar="URL", help="Ask this index first."),
)
# which layer of a module: its name, and where it is made
layer_options = several(
    click.option("--layer", metavar="LAYER", default="default", help="Another one than `default`."),
    click.option("--name", "layer", default="default", hidden=True),  # an older spelling
    click.option("--dir", "directory", metavar="DIRECTORY", help="Keep it here: of a project, named by SIFMOD_LAYERS."),
)
