"""Stacks: what they come to, what became of them, and their catalogue."""

from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict

from sifmod.cli.outputs.use import OutgoingLayerData
from sifmod.cli.outputs.words import (
    Arch,
    Easyconfig,
    Error,
    ModuleName,
    Notes,
    Number,
    Path,
    Said,
    Sha256,
    Size,
    Source,
    Time,
    Variant,
)


class StackModule(TypedDict):
    """A module of a stack."""

    module: Annotated[ModuleName | None, Said("null where the easyconfig cannot be read")]
    easyconfig: Easyconfig
    variant: Variant | None
    mark: Annotated[
        Literal[" ", "x", "R", "H", "E", "!"],
        Said("new; there as it is to be; made anew; held after a rollback; retired and removed; cannot be installed"),
    ]
    why: Annotated[list[str], Said("it is made anew, held, or left out")]
    generation: Annotated[Number | None, Said("that is live; null where none is")]
    changed: Annotated[bool, Said("whether this run has made it")]
    outgoing_layers: Annotated[list[OutgoingLayerData], Said("that its next image does not fit")]


class StackModuleError(StackModule, Error):
    """A module of a stack that cannot be, or was not, installed."""


class StackJob(TypedDict):
    """A job that installs modules, or tests them, queued or running."""

    job: Annotated[str, Said("its number, of an array")]
    what: Literal["apply", "test"]
    names: Annotated[list[ModuleName], Said("of the modules that it is for")]


class StackTest(TypedDict):
    """How a test by a job has ended."""

    names: Annotated[list[ModuleName], Said("of the module, or of several that share an element")]
    passed: bool
    log: Annotated[Path, Said("that is there where it has not passed")]


class DecidedOf(TypedDict):
    """A change of what is decided about a module."""

    module: ModuleName
    what: Annotated[str, Said("made the default, hidden, deprecated, retired, labelled, or no longer so")]


class Applied(TypedDict):
    """A stack, planned or applied."""

    stack: Annotated[str, Said("its name")]
    path: Annotated[Path, Said("of the prefix")]
    members: list[StackModule | StackModuleError]
    unnamed: Annotated[list[ModuleName], Said("that it has installed and does not name any more")]
    decided: Annotated[list[DecidedOf], Said("what is different about a module's life")]
    images: NotRequired[Annotated[int, Said("to be fetched")]]
    size: NotRequired[Annotated[Size, Said("bytes to be fetched, of images whose size is known")]]
    unknown: NotRequired[Annotated[int, Said("images of unknown size")]]
    copies: NotRequired[Annotated[int, Said("images to copy from another tree or a bundle")]]
    copied: NotRequired[Annotated[Size, Said("bytes of these")]]
    shared_size: NotRequired[Annotated[Size, Said("bytes of layers that several images share")]]
    room: NotRequired[Annotated[int, Said("bytes that this may take on the disk")]]
    log: NotRequired[Annotated[Path, Said("directory with a log for each module")]]
    jobs: NotRequired[Annotated[list[StackJob], Said("with --job")]]
    tests: NotRequired[Annotated[list[StackTest], Said("with --job-test and --wait")]]


class Locked(TypedDict):
    """A lock that was written."""

    path: Path
    locked: list[ModuleName]


class Bundled(TypedDict):
    """A bundle that was written."""

    path: Path
    size: Annotated[Size, Said("bytes of what is in it")]


class StackFile(TypedDict):
    """A stack's file of what is installed."""

    path: Annotated[Path | None, Said("null with -")]
    text: str
    notes: Notes


class Newer(TypedDict):
    """Something newer than what is installed."""

    module: ModuleName
    what: Literal["image", "easyconfig"]
    was: Annotated[str, Said("a digest, or a version")]
    now: Annotated[str, Said("a digest, or the path of an easyconfig")]
    note: Annotated[str, Said("for people")]


class Outdated(TypedDict):
    """What is newer, and which servers could not be asked."""

    newer: list[Newer]
    notes: Notes


class CataloguePackage(TypedDict):
    """A package in an image."""

    name: str
    version: str


class LastTest(TypedDict):
    """The last `sifmod test` of the live generation."""

    time: Time
    host: str
    passed: bool


class PackageChange(TypedDict):
    """A package that is there in another version, or in one of two modules."""

    name: str
    was: Annotated[str, Said("empty: it was not there")]
    now: Annotated[str, Said("empty: it is there no more")]


class Changes(TypedDict):
    """What is different from an earlier version for the same accelerator."""

    since: Annotated[str, Said("the earlier module")]
    differences: Annotated[list[PackageChange], Said("of packages that the easyconfigs name")]
    others: Annotated[int, Said("how many more packages are different, of those that are known")]


class CatalogueModule(TypedDict):
    """A module, as its users choose it."""

    module: ModuleName
    version: Annotated[str, Said("of the easyconfig, without its versionsuffix")]
    status: Literal["current", "deprecated", "retired", "not installed"]
    default: Annotated[bool, Said("whether a load without a version means it")]
    until: Annotated[str | None, Said("the last day of a deprecated module, 2027-03-31")]
    message: Annotated[str, Said("what its users should know of its end")]
    successor: Annotated[ModuleName | None, Said("the module to go on with")]
    labels: dict[str, str]
    accelerator: str
    arch: Arch
    site: Annotated[str | None, Said("that it was installed for")]
    description: str
    homepage: str | None
    docurls: Annotated[list[str], Said("where the documentation is")]
    license: Annotated[str | None, Said("of the software in the image")]
    keywords: list[str]
    contents: Annotated[dict[str, str], Said("packages in the image, with versions; the author's choice")]
    load: Annotated[list[str], Said("commands")]
    install: Annotated[str | None, Said("the command, where it is not installed")]
    add: Annotated[str | None, Said("the command that adds packages, where that can be done")]
    job_script: str | None
    source: Source
    sha256: Annotated[Sha256 | None, Said("of the SIF")]
    size: Annotated[Size | None, Said("bytes")]
    installed_at: Annotated[Time | None, Said("when its generation became live")]
    last_test: LastTest | None
    changes: Annotated[Changes | None, Said("null where nothing earlier is known")]


class CatalogueInventory(TypedDict):
    """All packages of an image; several modules may have it."""

    sha256: Sha256
    all_packages: list[CataloguePackage]


class Catalogue(TypedDict):
    """The modules, by name, the newest version first."""

    schema_version: Annotated[Literal[1], Said("of this data; another number where a field has changed")]
    title: str
    entries: list[CatalogueModule]
    inventories: Annotated[list[CatalogueInventory], Said("those of which the packages are known")]
