"""An Artifact: a verified SIF. A Request to one source, the Fetched file that it gives, and the store that keeps it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sifmod.image.settings import DEFAULT, Settings
from sifmod.module.origin import NO_ORIGIN, ImageOrigin

if TYPE_CHECKING:
    from sifmod.image.reference import Reference
    from sifmod.module.plan import ImagePlan, Runtime


@dataclass(frozen=True)
class Artifact:
    """A SIF whose header, size and digest have been checked."""

    path: Path  # in the store, or the user's own file when it is only referenced
    sha256: str
    size: int  # bytes
    source: str  # the source that gave it, as `shown` spells it
    arch: str  # amd64, arm64, … as the SIF's header says
    notes: tuple[str, ...] = ()  # what the user should know: e.g. a hard link that became a copy
    origin: ImageOrigin = NO_ORIGIN


class ImageStore(Protocol):
    """What fetching needs of the store (tree/store.py)."""

    def find(self, sha256: str) -> Path | None:
        """The stored image of this digest, or None."""

    def damaged(self, sha256: str) -> bool:
        """Whether another image is stored under this digest, which is not found any more; reads all of it."""

    def lent(self, sha256: str) -> tuple[Path, ImageOrigin] | None:
        """The image of this digest in another store that this one looks into, and its origin; its size is checked."""

    def lends(self, path: Path) -> bool:
        """Whether `path` is an image of another store, as `lent` and `find_made` give them."""

    def incoming(self) -> AbstractContextManager[Path]:
        """A fresh path on the store's file system; what is left there at exit is removed."""

    def find_made(self, source: str, digest: str) -> tuple[tuple[Path, ImageOrigin], ...]:
        """The stored images that `source` gave for `digest`, which is of an index or a manifest, and their origins.

        Those of other stores come last.
        """

    def gave(self, path: Path, origin: ImageOrigin, source: str) -> None:
        """Note that `source` gave the stored image at `path` too; idempotent."""

    def workspace(self) -> AbstractContextManager[Path]:
        """A fresh directory inside the prefix for the runtime's cache and temporary files, removed at exit."""

    def partial(self, key: str) -> AbstractContextManager[Path]:
        """A directory on the store's file system that stays when the block fails or dies, under a lock of `key`.

        Call `finished` when the download is no longer needed.
        """

    def finished(self, partial: Path) -> None:
        """Remove what `partial` gave."""

    def add(self, incoming: Path, sha256: str, origin: ImageOrigin = NO_ORIGIN, source: str = "") -> Path:
        """Put a complete file that `source` gave under its digest (fsync, read-only, rename) and return its path.

        Idempotent. `source` is what `find_made` wants.
        """


Progress = Callable[[str, int, int | None], None]
"""Called as (what, bytes done, bytes in all or None) while an image is copied or downloaded."""


def no_progress(what: str, done: int, total: int | None) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Request:
    """What a kind of source is asked: give the image of `reference` at `incoming`.

    `incoming` is a path that does not exist yet, on the store's file system; whatever is there afterwards is removed
    unless it is accepted. `partial` is a directory for one reference from the network, under a lock: the next run
    resumes what one that fails or dies leaves there. `store` lends a workspace for temporary files.
    """

    reference: "Reference"
    image: "ImagePlan"
    runtime: "Runtime"
    store: ImageStore
    progress: Progress
    settings: Settings = DEFAULT
    incoming: Path = Path("/nonexistent")
    partial: Path = Path("/nonexistent")
    base: Artifact | None = None  # what it is built upon, fetched


@dataclass(frozen=True)
class Fetched:
    """A file that a source gave: hashed, and not checked yet. `path` is `incoming` or a file that was there before."""

    path: Path
    sha256: str
    size: int  # bytes
    notes: tuple[str, ...] = ()
    origin: ImageOrigin = NO_ORIGIN
    lent: bool = False  # `path` is in another store, and neither taken as `link` says nor hashed yet
