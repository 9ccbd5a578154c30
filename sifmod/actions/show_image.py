"""show: what an image says about itself, in a file or behind a reference."""

import re
from dataclasses import replace
from pathlib import Path

from sifmod.actions.fetch_settings import fetch_settings
from sifmod.config.site import Site
from sifmod.image.inspect.description import ImageDescription
from sifmod.image.inspect.sif import describe_sif
from sifmod.image.sources.kinds import parse
from sifmod.tree.layout import Layout


def describe(text: str, site: Site, arch: str) -> ImageDescription:
    """The description of the image that `text` names; nothing is fetched but what describes it.

    Raises FetchError, ImageError or PermissionsError.
    """
    reference = parse(text)
    path = reference.kind.local_sif(reference, site.image_dirs)
    if path is None:
        return reference.kind.describe(reference, arch, fetch_settings(site))
    return replace(describe_sif(path), sha256=stored_digest(path, site))


def stored_digest(path: Path, site: Site) -> str:
    """The SHA-256 of a SIF that lies in the store, as its name says; "" for any other file."""
    resolved = path.resolve()
    known = re.fullmatch("[0-9a-f]{64}", resolved.stem)
    return resolved.stem if known and resolved == Layout(site.prefix).image(resolved.stem).resolve() else ""
