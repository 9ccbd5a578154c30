"""The settings of a fetch: the site's, bounded by what this process may use."""

from pathlib import Path

from sifmod.config.site import Site
from sifmod.image.convert.budget import memory, threads
from sifmod.image.settings import Settings, Striping


def fetch_settings(site: Site, *, keep_blobs: bool = False, fresh: bool = False, startable: bool = False) -> Settings:
    """The fetch and conversion settings of `site`; `startable`: the site's runtime must be able to start the image."""
    striping = site.striping
    return Settings(
        connections=site.connections,
        processors=threads(site.processors, site.memory),
        memory=memory(site.memory),
        compression=site.compression,
        mirrors=site.mirrors,
        insecure_registries=site.insecure_registries,
        token_servers=site.token_servers,
        striping=Striping(striping.count, striping.size) if striping else None,
        keep_blobs=keep_blobs,
        fresh=fresh,
        startable=startable,
        policy=site.signatures.policy,
        keys=tuple(Path(key) for key in site.signatures.keys),
    )
