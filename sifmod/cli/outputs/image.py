"""Images: fetched, shown, and those of installations."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from sifmod.cli.outputs.error import Error
from sifmod.cli.outputs.words import Arch, Digest, Notes, Path, Sha256, Size, Source, Time


class MadeFrom(TypedDict):
    """The content that a reference stood for when it was fetched."""

    index: Digest | None
    manifest: Digest | None
    layers: Annotated[list[Digest], Field(description="the bottom layer first")]
    compression: Annotated[str | None, Field(description="of the squashfs; null for what was a SIF already")]
    tools: Annotated[dict[str, str], Field(description="what decides the bytes of a conversion, with versions")]


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
    promise: Annotated[Promise | None, Field(description="null for what was a SIF already")]


class FetchedOfSeveral(Fetched):
    """One of several references."""

    reference: str


class NotFetchedError(Error):
    """A reference that could not be fetched."""

    reference: str


class PushedImage(TypedDict):
    """What a registry has now."""

    reference: Annotated[Source, Field(description="names just this image, by its digest")]
    digest: Annotated[Digest, Field(description="of what the tag names: the manifest, or an index with it")]
    manifest: Digest
    arch: Arch
    size: Annotated[int, Field(ge=0, description="bytes of all its blobs")]
    sent: Annotated[int, Field(ge=0, description="bytes of blobs that went out")]
    there: Annotated[bool, Field(description="the tag named this image before")]
    notes: Notes


class Part(TypedDict):
    """One data object of a SIF, or one layer of an OCI image."""

    kind: Annotated[str, Field(description="the SIF's type for people, or the media type")]
    size: Size
    digest: Annotated[Digest | None, Field(description="of a layer")]


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
    size: Annotated[Size, Field(description="bytes; of the layers as they are in a registry")]
    sha256: Annotated[Sha256 | None, Field(description="of the SIF, where it is known without reading it")]
    manifest: Digest | None
    index: Digest | None
    created: Time | None
    source: Source | None
    parts: list[Part]
    compression: Annotated[str | None, Field(description="of the squashfs")]
    config: ImageConfig
    runscript: str | None
    definition: str | None
    signers: Annotated[list[str], Field(description="that its signatures name; not checked")]
    notes: Annotated[list[str], Field(description="what could not be read, and why")]
