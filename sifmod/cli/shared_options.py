"""Options that several commands have, each group a frozen value."""

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
        """The given options that are keys of the site."""
        options = {name: text for name, text in vars(self).items() if text is not None}
        return {name: text for name, text in options.items() if name in KEYS and KEYS[name].typed}


class TreeOptions(PrefixOption, JsonOption):
    """Which tree, and how the answer is printed."""


class SiteOptions(TreeOptions):
    """Properties of this machine: each is also a SIFMOD_ variable and a key of config.yaml."""

    site: str | None = None
    robot_paths: str | None = None
    image_dirs: str | None = None
    accelerator: str | None = None
    runtime: str | None = None
    module_syntax: str | None = None


class ConversionOptions(SiteOptions):
    """Options of commands that may convert an image."""

    compression: str | None = None
    processors: str | None = None
    offline: bool = False
    quiet: bool = False
    yes: bool = False


class PlacesOptions(Options):
    """Where to search for packages."""

    find_links: tuple[str, ...] = ()
    no_index: bool = False
    index_url: str | None = None
    extra_index_url: tuple[str, ...] = ()


class LayerOptions(TreeOptions, PlacesOptions):
    """The layer of a module: its name, its directory, and where its packages come from."""

    layer: str = "default"
    directory: str | None = None
