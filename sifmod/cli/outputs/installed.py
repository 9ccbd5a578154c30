"""Modules: installed, listed, or about to be; their images, and what is decided about them."""

from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict

from sifmod.cli.outputs.use import OutgoingLayerData
from sifmod.cli.outputs.words import (
    Arch,
    Day,
    Digest,
    Easyconfig,
    Error,
    ModuleName,
    Notes,
    Number,
    Path,
    Problem,
    Said,
    Sha256,
    Size,
    Source,
    Time,
    Variant,
)


class MadeFrom(TypedDict):
    """The content that a reference stood for when it was fetched."""

    index: Digest | None
    manifest: Digest | None
    layers: Annotated[list[Digest], Said("the bottom layer first")]
    compression: Annotated[str | None, Said("of the squashfs; null for what was a SIF already")]
    tools: Annotated[dict[str, str], Said("what decides the bytes of a conversion, with versions")]


class Conversion(TypedDict):
    """What makes the same SIF again."""

    compression: str
    tools: dict[str, str]
    tree: Sha256


class Promise(TypedDict):
    """The keys of `image` that promise a conversion."""

    sha256: Sha256
    conversion: Conversion


class Fetched(TypedDict):
    """A verified SIF."""

    path: Path
    sha256: Sha256
    size: Size
    arch: Arch
    source: Source
    notes: Notes
    made_from: MadeFrom
    promise: Annotated[Promise | None, Said("null for what was a SIF already")]


class FetchedOfSeveral(Fetched):
    """One of several references."""

    reference: str


class NotFetchedError(Error):
    """A reference that could not be fetched."""

    reference: str


class PushedImage(TypedDict):
    """What a registry has now."""

    reference: Annotated[Source, Said("names just this image, by its digest")]
    digest: Annotated[Digest, Said("of what the tag names: the manifest, or an index with it")]
    manifest: Digest
    arch: Arch
    size: Annotated[int, Said("bytes of all its blobs", ge=0)]
    sent: Annotated[int, Said("bytes of blobs that went out", ge=0)]
    there: Annotated[bool, Said("the tag named this image before")]
    notes: Notes


class ExportedImage(TypedDict):
    """What was written."""

    path: Path
    form: Literal["sif", "sqsh", "oci-archive", "docker-archive", "sandbox"]
    size: Annotated[int | None, Said("bytes of the file; null for a directory", ge=0)]
    notes: Notes


class Part(TypedDict):
    """One data object of a SIF, or one layer of an OCI image."""

    kind: Annotated[str, Said("the SIF's type for people, or the media type")]
    size: Size
    digest: Annotated[Digest | None, Said("of a layer")]


class ImageConfig(TypedDict):
    """What an image's author set for those who run it."""

    labels: dict[str, str]
    environment: dict[str, str]
    entrypoint: list[str]
    cmd: list[str]
    working_dir: str | None
    user: str | None


class ShownImage(TypedDict):
    """What an image says about itself."""

    kind: Literal["SIF", "OCI image"]
    arch: Arch
    size: Annotated[Size, Said("bytes; of the layers as they are in a registry")]
    sha256: Annotated[Sha256 | None, Said("of the SIF, where it is known without reading it")]
    manifest: Digest | None
    index: Digest | None
    created: Time | None
    source: Source | None
    parts: list[Part]
    compression: Annotated[str | None, Said("of the squashfs")]
    config: ImageConfig
    runscript: str | None
    definition: str | None
    bases: Annotated[list[str], Said("of an image that recipes have built, the lowest first")]
    signers: Annotated[list[str], Said("that its signatures name; not checked")]
    notes: Annotated[list[str], Said("what could not be read, and why")]


class DeprecatedData(TypedDict):
    """A module that goes, which a load on a terminal says."""

    since: Day
    until: Annotated[Day | None, Said("the last day on which it loads")]
    message: str


class RetiredData(TypedDict):
    """A module that is hidden, and from a day on does not load."""

    since: Day
    successor: Annotated[str | None, Said("the module to use instead, with or without a version")]
    message: str


class LifeData(TypedDict):
    """What is decided about a module, whichever of its generations is live."""

    default: bool
    hidden: bool
    deprecated: DeprecatedData | None
    retired: RetiredData | None
    labels: dict[str, str]


class Decided(TypedDict):
    """A module about which something was decided."""

    module: ModuleName
    changed: Annotated[bool, Said("whether any file was written")]
    life: LifeData


class Input(TypedDict):
    """A file that was read, or looked for."""

    path: Path
    sha256: Annotated[Sha256 | None, Said("null where there was none")]


class Provenance(TypedDict):
    """What an installation was made from."""

    sifmod: Annotated[str, Said("version")]
    easyconfig: Easyconfig
    version: Annotated[str, Said("of the easyconfig, without its versionsuffix")]
    variant: Variant | None
    site: str
    accelerator: str
    mpi: Annotated[str, Said("which MPI, and how srun starts it; empty without one")]
    facts: Annotated[dict[str, str], Said("what was found on the machine")]
    options: Annotated[dict[str, str], Said("of the command line, those that decide what is installed")]
    checked: Annotated[bool, Said("by the sanity check")]
    inputs: list[Input]


class Image(TypedDict):
    """The SIF of an installation."""

    path: Path
    sha256: Sha256
    size: Size
    arch: Arch
    source: Source
    link: Annotated[str, Said("copy, hardlink or reference")]
    filename: Annotated[str, Said("of the link in the generation")]
    made_from: MadeFrom


class File(TypedDict):
    """A file that sifmod wrote."""

    path: Path
    sha256: Sha256
    mode: Annotated[int, Said("permissions, as in chmod")]


class Link(TypedDict):
    """A symlink that sifmod made."""

    path: Path
    target: str


class Installed(TypedDict):
    """A generation of a module."""

    module: ModuleName
    generation: Number
    path: Annotated[Path, Said("of the generation")]
    provenance: Provenance
    image: Annotated[Image | None, Said("null for a view")]
    loads: Annotated[list[str], Said("those that a view loads")]
    files: list[File]
    links: list[Link]
    modulefiles: list[File]


class InstallDone(Installed):
    """A module that is installed now."""

    easyconfig: NotRequired[Easyconfig]
    variant: NotRequired[Variant | None]
    changed: Annotated[bool, Said("whether this run installed it")]
    outgoing_layers: Annotated[list[OutgoingLayerData], Said("that the image of this run does not fit")]


class EasyconfigError(Error):
    """An easyconfig that could not be installed or fetched."""

    easyconfig: Easyconfig
    variant: NotRequired[Variant | None]


class DryRun(TypedDict):
    """What would be done."""

    easyconfig: Easyconfig
    variant: NotRequired[Variant | None]
    module: ModuleName
    mark: Annotated[Literal[" ", "x", "R", "F"], Said("x installed, R rebuilt, F fetched again")]
    outgoing_layers: Annotated[list[OutgoingLayerData], Said("that the image of an install would not fit")]


class FetchedFor(TypedDict):
    """The image of an easyconfig in the store."""

    easyconfig: NotRequired[Easyconfig]
    variant: NotRequired[Variant | None]
    module: ModuleName
    path: Path
    sha256: Sha256


class ModuleError(Error):
    """A module with which it could not be done."""

    module: ModuleName


class Reapplied(TypedDict):
    """An installed module, and what `--module-only --installed` changes in it."""

    module: ModuleName
    diff: str
    notes: Notes


class ReappliedError(ModuleError):
    """A module that could not be decided about, or changed."""

    diff: str
    notes: Notes


class HeldGeneration(TypedDict):
    """A generation that was rolled back from, and is held."""

    generation: Number
    since: Time


class Listed(TypedDict):
    """An installed module."""

    module: ModuleName
    generation: Number
    held: Annotated[list[HeldGeneration], Said("what was rolled back from, and is not installed again unasked")]
    life: LifeData
    problems: Annotated[list[Problem], Said("what it lacks to be usable")]
    installation: Annotated[Installed | None, Said("null where the receipt cannot be read")]
