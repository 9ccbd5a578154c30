"""Settings: how to fetch and convert images. None of them decides which files an image contains."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

Policy = Literal["off", "warn", "require"]


@dataclass(frozen=True)
class Striping:
    """Lustre striping of images: the number of targets, and the bytes per stripe."""

    count: int
    size: int  # bytes


class SharedBlobs(NamedTuple):
    """A directory for layers that several images of one run share: existing ones are read, others are kept there."""

    directory: Path
    digests: frozenset[str]  # sha256:…


@dataclass(frozen=True)
class Settings:
    """All settings for fetching that do not depend on an image."""

    connections: int = 4  # to one server at a time
    processors: int = 1  # threads that compress
    memory: int | None = None  # bytes that a conversion may take, None: any number
    compression: str = "auto"  # auto, or what squashfs/compression.py parses
    mirrors: tuple[tuple[str, tuple[str, ...]], ...] = ()  # prefix of a reference, and its replacements, in order
    insecure_registries: tuple[str, ...] = ()  # host[:port] that plain http may reach
    token_servers: tuple[tuple[str, tuple[str, ...]], ...] = ()  # a registry, and hosts that may get its login
    named: bool = True  # the user named the registries: the login in variables, which name none, is for them
    striping: Striping | None = None
    keep_blobs: bool = False  # keep the downloaded layers after a conversion
    shared: SharedBlobs | None = None
    fresh: bool = False  # fetch and convert again what the store already has
    startable: bool = False  # refuse a SIF that the site's runtime does not start; else only add a note
    policy: Policy = "off"  # about signatures
    keys: tuple[Path, ...] = ()  # OpenPGP public keys, armored or binary


DEFAULT = Settings()
