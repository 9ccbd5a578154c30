"""Sites: each site that many modules need, loaded once."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from sifmod.config.load_site import Kept, LoadedSite, load_site
from sifmod.config.prefix import OPTION_KEYS
from sifmod.config.site import Site


class Sites:
    """The sites for one run. Its quirks come with a site, so that they too are read once."""

    def __init__(self, adapted: Callable[[Site], Site] = lambda site: site) -> None:
        self._adapted = adapted
        self._loaded: dict[object, LoadedSite] = {}

    def of(self, given: Mapping[str, str], kept: Kept | None = None) -> LoadedSite:
        """The site in force with those of these options that are about it. Raises ConfigError, OptionError."""
        about = {name: text for name, text in given.items() if name in OPTION_KEYS}
        key = (frozenset(about.items()), kept and (kept.site, frozenset(kept.facts.items())))
        if key not in self._loaded:
            loaded = load_site(about, os.environ, kept)
            self._loaded[key] = replace(loaded, site=self._adapted(loaded.site))
        return self._loaded[key]
