"""A Package: what an image says that it has installed, and by which packager. All of its texts are untrusted."""

import time
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from sifmod.config.limits import bound, limits
from sifmod.image.printable import line

PackageKind = Literal["python", "conda", "deb", "rpm"]
KINDS: tuple[PackageKind, ...] = get_args(PackageKind)

_LONGEST = 60.0  # seconds
_LETTERS = 200  # of a name or a licence


class Package(NamedTuple):
    """One package. `place` is the directory of the Python, venv or conda that has it; / for a package of the system."""

    kind: PackageKind
    name: str
    version: str
    place: str
    licence: str = ""  # as in its metadata; "" if they have none


@dataclass(frozen=True)
class Inventory:
    """The packages of an image, sorted; `system` is like `debian-12`, from its os-release.

    The inventory is not `complete` if a limit was reached or the image is damaged; a note has the reason.
    """

    packages: tuple[Package, ...]
    system: str = ""
    notes: tuple[str, ...] = ()  # what could not be read, and why
    complete: bool = True


class TooMuchError(Exception):
    """A limit was reached; the packages found until then count."""


class Found:
    """Collects packages within limits, because an image may be malicious."""

    def __init__(self) -> None:
        """Start without packages, and start the clock."""
        self.notes: list[str] = []
        self._packages: dict[Package, None] = {}
        self._entries = 0
        self._end = time.monotonic() + _LONGEST

    def add(self, package: Package) -> Package:
        """Return a package with printable texts, added if it has a name and a version. Raises TooMuchError."""
        kind, *texts = package
        printable = Package(kind, *(line(text.strip(), _LETTERS) for text in texts))
        if printable.name.strip("/") and printable.version:  # slashes alone are no name in a package URL either
            self._packages.setdefault(printable)
        self.check()
        if len(self._packages) > limits().image_packages:
            raise TooMuchError(f"it has more packages than {bound('image_packages')}")
        return printable

    def leave_out(self, package: Package) -> None:
        """Remove a package that was added."""
        self._packages.pop(package, None)

    def step(self) -> None:
        """Count one more visited entry. Raises TooMuchError for too many, or after the time limit."""
        self._entries += 1
        if self._entries % 1024 == 0:
            self.check()
        if self._entries > limits().image_files:
            raise TooMuchError(f"it has more files than {bound('image_files')}")

    def check(self) -> None:
        """Raise TooMuchError if the time limit, a minute, is exceeded."""
        if self.late:
            raise TooMuchError(f"reading it takes more than {_LONGEST:g} seconds")

    @property
    def late(self) -> bool:
        """Whether the time limit, a minute, is exceeded."""
        return time.monotonic() > self._end

    def inventory(self, system: str, ended: str) -> Inventory:
        """The inventory of the collected packages; `ended` is why they are not complete, or ""."""
        notes = (*self.notes, *([f"{ended}: the rest is not listed"] if ended else []))
        packages = tuple(sorted(self._packages))
        return Inventory(packages, line(system, _LETTERS), tuple(line(note) for note in notes), not ended)
