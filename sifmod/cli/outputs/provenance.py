"""Provenance: what is in an image, and what changed."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from sifmod.cli.outputs.words import ModuleName, Notes, Number, Path, Sha256


class SbomData(TypedDict):
    """A software bill of materials."""

    module: Annotated[ModuleName | None, Field(description="null for an image by itself")]
    generation: Number | None
    sha256: Annotated[Sha256 | None, Field(description="of the image; null for a view")]
    format: Literal["json", "xml"]
    path: Annotated[Path | None, Field(description="null without -o")]
    package_count: Annotated[int, Field(ge=0, description="of the image, or of all that a view loads")]
    layers: Annotated[list[str], Field(description="names of the user's layers that are in it")]
    notes: Notes
    text: Annotated[str, Field(description="the document, CycloneDX 1.6")]


class Change(TypedDict):
    """One thing that is not the same in both; null where it is not there."""

    name: str
    old: str | None
    new: str | None


class PackageChange(TypedDict):
    """A package that has not the same versions in both."""

    kind: Literal["python", "conda", "deb", "rpm"]
    name: str
    old_versions: Annotated[list[str], Field(description="each that is somewhere in the image")]
    new_versions: list[str]


class DiffData(TypedDict):
    """What changed between two generations, modules or images."""

    old: Annotated[str, Field(description="a module with @ and its generation, a digest, or a path")]
    new: str
    origin_changes: Annotated[list[Change], Field(description="image, source, easyconfig and the like")]
    loaded_modules: Annotated[list[Change], Field(description="that views load, by name, with their versions")]
    packages: list[PackageChange]
    variables: Annotated[list[Change], Field(description="that a load sets on the host")]
    variables_inside: Annotated[list[Change], Field(description="of the container; PATH: what comes in front of it")]
    binds: Annotated[list[Change], Field(description="by their targets")]
    commands: Annotated[list[Change], Field(description="and what they start")]
    notes: Notes
