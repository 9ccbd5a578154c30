"""A Request to one source, and the Fetched file that it gives: the seam between kinds of sources."""

from dataclasses import dataclass
from pathlib import Path

from sifmod.image.artifact import ImageStore, Progress
from sifmod.image.reference import Reference
from sifmod.image.settings import DEFAULT, Settings
from sifmod.module.origin import NO_ORIGIN, ImageOrigin
from sifmod.module.plan import ImagePlan, Runtime


@dataclass(frozen=True)
class Request:
    """What a kind of source is asked: give the image of `reference` at `incoming`.

    `incoming` is a path that does not exist yet, on the store's file system; whatever is there afterwards is removed
    unless it is accepted. `partial` is a directory for one reference from the network, under a lock: the next run
    resumes what one that fails or dies leaves there. `store` lends a workspace for temporary files.
    """

    reference: Reference
    image: ImagePlan
    runtime: Runtime
    store: ImageStore
    progress: Progress
    settings: Settings = DEFAULT
    incoming: Path = Path("/nonexistent")
    partial: Path = Path("/nonexistent")


@dataclass(frozen=True)
class Fetched:
    """A file that a source gave: hashed, and not checked yet. `path` is `incoming` or a file that was there before."""

    path: Path
    sha256: str
    size: int  # bytes
    notes: tuple[str, ...] = ()
    origin: ImageOrigin = NO_ORIGIN
    lent: bool = False  # `path` is in another store, and neither taken as `link` says nor hashed yet
