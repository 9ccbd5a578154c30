"""The sites for one run, each read once."""

import os
from collections.abc import Mapping

from sifmod.config.load_site import Kept, LoadedSite, load_site
from sifmod.config.prefix import OPTION_KEYS


class Sites:
    """The sites for one run. Its quirks come with a site, so that they too are read once."""

    def __init__(self) -> None:
        self._loaded: dict[object, LoadedSite] = {}

    def of(self, given: Mapping[str, str], kept: Kept | None = None) -> LoadedSite:
        """The site in force with those of these options that are about it. Raises ConfigError, OptionError."""
        about = {name: text for name, text in given.items() if name in OPTION_KEYS}
        key = (frozenset(about.items()), kept and (kept.site, frozenset(kept.facts.items())))
        if key not in self._loaded:
            self._loaded[key] = load_site(about, os.environ, kept)
        return self._loaded[key]
