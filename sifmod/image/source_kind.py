"""A SourceKind: everything that sifmod knows of one kind of source; and the answers that several kinds share."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sifmod.errors import FetchError
from sifmod.image.artifact import Fetched, Request
from sifmod.image.inspect.description import ImageDescription
from sifmod.image.oci.image import OciImage
from sifmod.image.printable import line
from sifmod.image.reference import Reference
from sifmod.image.settings import Settings

Directories = tuple[str, ...]

Location = Literal["path", "url", "repository", "library", "definition"]
"""What the location of a reference is; the runtime alone makes something of the last two."""


@dataclass(frozen=True)
class SourceKind:
    """One kind of source, in one value. No field has a default, so that a forgotten one is a type error.

    A new kind is one file in sources/ and one line in sources/kinds.py; CONTRIBUTING.md has the recipe.
    """

    name: str  # for messages, receipts and the definition in a converted SIF
    schemes: tuple[str, ...]  # each stands before a colon
    example: str
    location: Location
    parse: "Callable[[SourceKind, str], Reference]"  # pure; raises FetchError
    watched: Callable[[Reference, Directories], tuple[str, ...]]  # the files here whose change means another image
    local_sif: Callable[[Reference, Directories], Path | None]  # the SIF here that a user names on the command line
    open: Callable[[Reference, str, Settings, Path | None], OciImage] | None  # None: a SIF already
    describe: Callable[[Reference, str, Settings], ImageDescription]  # (reference, arch, settings); raises FetchError
    pinned: Callable[[Request], Fetched | None]  # the SIF that the store has for its digest; no server is asked
    announced: Callable[[Request], int | None]  # bytes to fetch; None where unknown; raises FetchError
    fetch: Callable[[Request], Fetched]  # to `request.incoming`, or one that is stored; raises FetchError, ImageError

    def reference(self, source: str) -> Reference:
        """`source`, taken apart; raises FetchError."""
        return self.parse(self, source)

    @property
    def is_local(self) -> bool:
        """Whether it needs no network."""
        return self.location == "path"

    @property
    def ready_made(self) -> bool:
        """Whether the SIF was made elsewhere: it has the same bytes each time, and can be signed."""
        return self.open is None and self.location != "definition"

    @property
    def resumable(self) -> bool:
        """Whether sifmod downloads it: what has arrived stays for the next run."""
        return self.location in ("url", "repository")

    @property
    def is_file(self) -> bool:
        """Whether it names one file that is a SIF."""
        return self.ready_made and self.location in ("path", "url")


def nothing(*_: object) -> None:
    """The answer where a kind has none."""


def no_files(_reference: Reference, _image_dirs: Directories) -> tuple[str, ...]:
    """No file here says which image it is."""
    return ()


def the_location(reference: Reference, _image_dirs: Directories) -> tuple[str, ...]:
    """The file that it names says which image it is."""
    return (reference.location,)


def size_of_location(request: Request) -> int | None:
    """Bytes of the file or the directory that it names."""
    return size_here((request.reference.location,))


def size_here(paths: tuple[str, ...]) -> int | None:
    """Bytes of the first of `paths` that exists, with all files in it; None where none does."""
    found = next((path for path in map(Path, paths) if path.exists()), None)
    if found is None:
        return None
    return sum(path.stat().st_size for path in (found, *found.rglob("*")) if path.is_file())


def says_nothing(reference: Reference, _arch: str, _settings: Settings) -> ImageDescription:
    """Raise FetchError: only the fetched image can be described."""
    raise FetchError(
        f"{line(reference.shown)} says nothing about itself before it is fetched",
        "fetch it, then look at the file: sifmod fetch -o FILE.sif REFERENCE; sifmod show FILE.sif",
    )
