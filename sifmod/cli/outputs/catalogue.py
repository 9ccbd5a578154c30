"""The catalogue."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from sifmod.cli.outputs.words import Arch, ModuleName, Sha256, Size, Source, Time


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
    was: Annotated[str, Field(description="empty: it was not there")]
    now: Annotated[str, Field(description="empty: it is there no more")]


class Changes(TypedDict):
    """What is different from an earlier version for the same accelerator."""

    since: Annotated[str, Field(description="the earlier module")]
    differences: Annotated[list[PackageChange], Field(description="of packages that the easyconfigs name")]
    others: Annotated[int, Field(description="how many more packages are different, of those that are known")]


class CatalogueModule(TypedDict):
    """A module, as its users choose it."""

    module: ModuleName
    version: Annotated[str, Field(description="of the easyconfig, without its versionsuffix")]
    status: Literal["current", "deprecated", "retired", "not installed"]
    default: Annotated[bool, Field(description="whether a load without a version means it")]
    until: Annotated[str | None, Field(description="the last day of a deprecated module, 2027-03-31")]
    message: Annotated[str, Field(description="what its users should know of its end")]
    successor: Annotated[ModuleName | None, Field(description="the module to go on with")]
    labels: dict[str, str]
    accelerator: str
    arch: Arch
    site: Annotated[str | None, Field(description="that it was installed for")]
    description: str
    homepage: str | None
    docurls: Annotated[list[str], Field(description="where the documentation is")]
    license: Annotated[str | None, Field(description="of the software in the image")]
    keywords: list[str]
    contents: Annotated[dict[str, str], Field(description="packages in the image, with versions; the author's choice")]
    load: Annotated[list[str], Field(description="commands")]
    install: Annotated[str | None, Field(description="the command, where it is not installed")]
    add: Annotated[str | None, Field(description="the command that adds packages, where that can be done")]
    job_script: str | None
    source: Source
    sha256: Annotated[Sha256 | None, Field(description="of the SIF")]
    size: Annotated[Size | None, Field(description="bytes")]
    installed_at: Annotated[Time | None, Field(description="when its generation became live")]
    last_test: LastTest | None
    changes: Annotated[Changes | None, Field(description="null where nothing earlier is known")]


class CatalogueInventory(TypedDict):
    """All packages of an image; several modules may have it."""

    sha256: Sha256
    all_packages: list[CataloguePackage]


class Catalogue(TypedDict):
    """The modules, by name, the newest version first."""

    schema_version: Annotated[Literal[1], Field(description="of this data; another number where a field has changed")]
    title: str
    entries: list[CatalogueModule]
    inventories: Annotated[list[CatalogueInventory], Field(description="those of which the packages are known")]
