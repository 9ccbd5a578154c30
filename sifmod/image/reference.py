"""A Reference: a parsed source of an image; and its SourceKind, with all properties of the kind."""

import ipaddress
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from sifmod.config.redact import shown
from sifmod.errors import FetchError
from sifmod.image.printable import line
from sifmod.system import walk

if TYPE_CHECKING:
    from sifmod.image.artifact import Fetched, Fetching, FetchRequest
    from sifmod.image.inspect.description import ImageDescription
    from sifmod.image.oci.image import OciImage
    from sifmod.image.settings import Settings

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*)(?P<port>:[0-9]{1,5})?")
_PART = r"[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(f"{_PART}(/{_PART})*")


@dataclass(frozen=True)
class Reference:
    """One source: its kind and its parts.

    `location` depends on the kind: a path or a bare name, a URL, or the text between `//` and the tag. `tag` and
    `digest` (`sha256:…`) may be empty.
    """

    kind: "SourceKind"
    source: str  # as the easyconfig spells it
    location: str
    tag: str = ""
    digest: str = ""

    @property
    def shown(self) -> str:
        """The source for messages and receipts."""
        return shown(self.source)

    @property
    def name(self) -> str:
        """The last part of the location."""
        location = urlsplit(self.location).path if self.kind.location == "url" else self.location
        return location.rpartition("/")[2]

    @property
    def host(self) -> str:
        """The registry of a repository, with its port; docker.io if it names none."""
        first, slash, _ = self.location.partition("/")
        return first if slash and re.search(r"[.:]|^localhost$", first) else "docker.io"


def in_a_registry(text: str) -> str:
    """A hint for an invalid source that may be the name of an image in a registry; "" for any other."""
    if not text.endswith(".sif") and re.fullmatch(
        f"({_HOST.pattern}/)?{_REPOSITORY.pattern}(:{_TAG.pattern}|@{_DIGEST.pattern})?", text
    ):
        return f"for an image in a registry write docker://{text}"
    return ""


def after_scheme(source: str) -> str:
    return source.partition(":")[2]


def path_after_scheme(kind: "SourceKind", source: str) -> str:
    """The path of a local source, and what follows it. Raises FetchError for `//HOST`, which is no path."""
    rest = after_scheme(source)
    if rest.startswith("//") and not rest.startswith("///"):
        raise refused(source, f"a path follows {kind.name}:, without `//`", f"such as {kind.example}")
    return rest


def refused(source: str, what: str, hint: str = "") -> FetchError:
    """The error for a source that is refused because of `what`; it shows no password."""
    return FetchError(f"source {shown(source)}: {what}", hint)


def is_loopback(host: str) -> bool:
    """Whether `host`, with or without a port, is localhost or a loopback address."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def parse_layout(kind: "SourceKind", source: str) -> Reference:
    """Parse `PATH`, `PATH:TAG` or `PATH@DIGEST` after the scheme. Raises FetchError for `//HOST` and without a path."""
    rest = path_after_scheme(kind, source)
    path, at, digest = rest.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        path, digest = rest, ""  # an @ in the path
    before, colon, tag = path.rpartition(":")
    if not colon or "/" in tag:
        before, tag = path, ""
    if not before:
        raise refused(source, f"expected {kind.name}:PATH or {kind.name}:PATH:TAG")
    return Reference(kind, source, before, tag, digest)


def parse_repository(kind: "SourceKind", source: str) -> Reference:
    """Parse `//REGISTRY/REPOSITORY`, with or without `:TAG` and `@DIGEST`. Raises FetchError, also for a login."""
    rest = after_scheme(source)
    if shown(source) != source:
        hint = (
            f"log in with `apptainer registry login` (logins of docker and podman also work), and write {kind.name}://"
        )
        raise refused(
            source,
            "a source must not contain a login (the text before @)",
            f"{hint}REGISTRY/REPOSITORY without it",
        )
    name, at, digest = rest.removeprefix("//").partition("@")
    before, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        before, tag = name, ""
    good = rest.startswith("//") and before and not re.search(r"\s|[?#&]|//|/$|^/|:$", name)
    if not good or (at and not _DIGEST.fullmatch(digest)) or (tag and not _TAG.fullmatch(tag)):
        raise refused(source, f"expected {kind.name}://REGISTRY/REPOSITORY:TAG or …@sha256:DIGEST")
    reference = Reference(kind, source, before, tag, digest)
    if kind.location == "repository":
        _check_name(reference)
    return reference


def _check_name(reference: Reference) -> None:
    repository = reference.location.removeprefix(f"{reference.host}/")
    if not (host := _HOST.fullmatch(reference.host)) or int((host["port"] or ":1")[1:]) not in range(1, 65536):
        raise refused(reference.source, f"{reference.host!r} is not a valid registry name")
    if not _REPOSITORY.fullmatch(repository):
        hint = "repository names have lower-case letters and digits, separated by . _ - and /"
        raise refused(reference.source, f"{repository!r} is not a valid repository name", hint)


Directories = tuple[str, ...]


def nothing(*_: object) -> None:
    """Return None: the answer of a kind that has nothing to give."""


def no_files(_reference: Reference, _image_dirs: Directories) -> tuple[str, ...]:
    """Return no file: the `watched` of a kind whose image does not depend on a local file."""
    return ()


def says_nothing(reference: Reference, _arch: str, _settings: "Settings") -> "ImageDescription":
    """Raise FetchError, because only the fetched image can be described."""
    raise FetchError(
        f"{line(reference.shown)} cannot be described before it is fetched",
        "fetch it, then show the file: sifmod fetch -o FILE.sif REFERENCE; sifmod show FILE.sif",
    )


Location = Literal["path", "url", "repository", "library", "definition", "recipe"]
"""The type of a reference's location; only the runtime interprets those of a library and of a definition."""


@dataclass(frozen=True)
class SourceKind:
    """All properties of a kind of source. No field has a default, so that a forgotten one is a type error.

    A new kind is one file in sources/, and two lines in sources/source_kinds.py; CONTRIBUTING.md has the recipe.
    """

    name: str  # for messages, receipts and the definition in a converted SIF
    schemes: tuple[str, ...]  # each stands before a colon
    example: str
    location: Location
    parse: "Callable[[SourceKind, str], Reference]"  # pure; raises FetchError
    watched: Callable[[Reference, Directories], tuple[str, ...]]  # the local files whose change means another image
    local_sif: Callable[[Reference, Directories], Path | None]  # the local SIF that a user names on the command line
    open: "Callable[[Reference, str, Settings, Path | None], OciImage] | None"  # None: no container image
    describe: "Callable[[Reference, str, Settings], ImageDescription]"  # (reference, arch, settings); raises FetchError
    pinned: "Callable[[FetchRequest], Fetched | None]"  # the SIF in the store for its digest; no server is asked
    announced: "Callable[[FetchRequest], int | None]"  # bytes to fetch; None where unknown; raises FetchError
    fetch: "Callable[[Fetching], Fetched]"  # to `incoming`, or one that is stored; raises FetchError, ImageError

    def reference(self, source: str) -> Reference:
        """Parse `source`; raises FetchError."""
        return self.parse(self, source)

    @property
    def is_local(self) -> bool:
        """Whether the source itself needs no network; the packages of a recipe may."""
        return self.location in ("path", "recipe")

    @property
    def ready_made(self) -> bool:
        """Whether the source is a SIF that was made elsewhere: sifmod keeps its bytes, and it can be signed."""
        return self.open is None and self.location not in ("definition", "recipe")

    @property
    def resumable(self) -> bool:
        """Whether sifmod downloads the image itself: a partial download stays for the next run."""
        return self.location in ("url", "repository")

    @property
    def is_file(self) -> bool:
        """Whether a reference of this kind names one file that is a SIF."""
        return self.ready_made and self.location in ("path", "url")


def the_location(reference: Reference, _image_dirs: Directories) -> tuple[str, ...]:
    """The path that the reference names: the `watched` of a kind whose image depends on this file alone."""
    return (reference.location,)


def size_of_location(request: "FetchRequest") -> int | None:
    """The size in bytes of the file or directory that the reference names; None if it does not exist."""
    return size_here((request.reference.location,))


def size_here(paths: tuple[str, ...]) -> int | None:
    """Bytes of the first of `paths` that exists, with all files in it; None if none exists."""
    found = next(filter(os.path.exists, map(Path, paths)), None)
    if found is None:
        return None
    below = (Path(place, name) for place, _, names in walk(found) for name in names)
    return sum(path.stat().st_size for path in filter(os.path.isfile, (found, *below)))
