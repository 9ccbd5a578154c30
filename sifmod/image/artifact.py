"""An Artifact: a verified SIF. Also the values of a fetch: request, fetched file, store, and a resource of a server."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

from sifmod.errors import FetchError
from sifmod.image.settings import DEFAULT, Settings
from sifmod.module.image_origin import NO_ORIGIN, ImageOrigin
from sifmod.result import Arch, Named, Notes, Sha256, Size, Source

if TYPE_CHECKING:
    import requests

    from sifmod.image.reference import Reference
    from sifmod.module.plan import BuildPlan, ImagePlan, Runtime


@dataclass(frozen=True)
class Artifact:
    """A verified SIF: its header is valid, and it has the digest or the files that the easyconfig promises, if any."""

    path: Path  # in the store, or the user's own file if only referenced
    sha256: Sha256
    size: Size
    source: Source  # where the SIF is from, as `redact` shows it
    arch: Arch  # as the SIF's header says
    notes: Notes = ()  # for the user, such as: a copy was made instead of a hard link
    origin: Annotated[ImageOrigin, Named("made_from")] = NO_ORIGIN


class ImageStore(Protocol):
    """The methods of a store that a fetch needs; tree/store.py documents them."""

    def find(self, sha256: str) -> Path | None: ...
    def damaged(self, sha256: str) -> bool: ...
    def from_other_store(self, sha256: str) -> tuple[Path, ImageOrigin] | None: ...
    def can_lend(self, path: Path) -> bool: ...
    def incoming(self) -> AbstractContextManager[Path]: ...
    def find_made(self, source: str, digest: str) -> tuple[tuple[Path, ImageOrigin], ...]: ...
    def gave(self, path: Path, origin: ImageOrigin, source: str) -> None: ...
    def workspace(self) -> AbstractContextManager[Path]: ...
    def partial(self, key: str) -> AbstractContextManager[Path]: ...
    def finished(self, partial: Path) -> None: ...
    def add(self, incoming: Path, sha256: str, origin: ImageOrigin = NO_ORIGIN, source: str = "") -> Path: ...


Progress = Callable[[str, int, int | None], None]
"""Called as (what, bytes done, total bytes or None) while an image is hashed, copied, downloaded, made or unpacked."""


def no_progress(what: str, done: int, total: int | None) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class FetchRequest:
    """A question to a kind of source about the image of `reference`. `store` has the images and lends a workspace."""

    reference: "Reference"
    image: "ImagePlan"
    runtime: "Runtime"
    store: ImageStore
    progress: Progress
    settings: Settings = DEFAULT
    base: Artifact | None = None  # the fetched base image of a build

    @property
    def build(self) -> "BuildPlan":
        """How the image is built. Raises FetchError for an image without `build`."""
        if self.image.build is None:
            raise FetchError(f"there is no `build` for {self.image.filename}")
        return self.image.build


@dataclass(frozen=True, kw_only=True)
class Fetching(FetchRequest):
    """A request to a kind of source: put the image at `incoming`, or find it in a store.

    `incoming` is a path on the store's file system that does not exist yet; the file is removed afterwards unless it is
    accepted. `partial` is a directory for one reference and architecture, under a lock: the next run resumes the
    download of a failed or killed run. Where nothing can be resumed, `partial` is `incoming`.
    """

    incoming: Path
    partial: Path


@dataclass(frozen=True)
class Fetched:
    """A fetched file whose header and promised digest are not checked yet. `path` is `incoming` or an existing file."""

    path: Path
    sha256: str
    size: int  # bytes
    notes: tuple[str, ...] = ()
    origin: ImageOrigin = NO_ORIGIN
    from_other_store: bool = False  # `path` is in another store, and neither linked nor hashed yet


Get = Callable[[Mapping[str, str]], AbstractContextManager["requests.Response"]]
"""Opens one resource with additional headers: a status that the request accepts (200, 206, 416), body not read yet.

Handles authentication and redirects. Raises TransientError if a retry may help, otherwise FetchError; so does reading
the body inside the `with`. May be called by several threads at once.
"""


@dataclass(frozen=True)
class Remote:
    """One resource of a server. `name` is its name in messages.

    `size` in bytes and `digest` (sha256:…) are the expected values; None and "" if unknown. `by_digest`: the server
    finds it by its digest, so it cannot change. `check` gets the first bytes, and raises ImageError if they are wrong.
    `end` gets all bytes so far, and says where the content ends, or None; it is asked if no length is announced.
    """

    name: str
    get: Get
    size: int | None = None
    digest: str = ""
    by_digest: bool = False
    check: Callable[[bytes], None] | None = None
    end: Callable[[bytes], int | None] | None = None
