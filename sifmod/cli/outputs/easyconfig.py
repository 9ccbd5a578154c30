"""Easyconfigs: drafted, imported, shown, found and checked; and the machine that they are for."""

from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict

from sifmod.cli.outputs.words import Error, Hint, ModuleName, Notes, Path, Problem, Said, Source, Variant


class Drafted(TypedDict):
    """A first easyconfig."""

    path: Annotated[Path | None, Said("null with -o -")]
    module: ModuleName
    sif: Annotated[Path, Said("the image that was looked at")]
    text: str


class Imported(TypedDict):
    """An easyconfig made from another tool's file."""

    source: Source
    path: Annotated[Path, Said("of the easyconfig")]
    module: ModuleName
    notes: Notes


class NotImportedError(Error):
    """A file of which no easyconfig was made."""

    source: Source
    notes: Notes


class ShownEasyconfig(TypedDict):
    """An easyconfig with all that is merged into it."""

    path: Path
    variant: Variant | None
    keys: Annotated[dict[str, Any], Said("as `sifmod schema` describes them")]


class Offered(TypedDict):
    """A module that an easyconfig can install."""

    variant: Variant | None
    module: ModuleName
    accelerator: str
    name: NotRequired[str]
    version: NotRequired[Annotated[str, Said("of the easyconfig, without its versionsuffix")]]
    versionsuffix: NotRequired[str]
    description: NotRequired[str]
    contents: NotRequired[Annotated[dict[str, str], Said("packages in the image, with versions")]]
    sources: NotRequired[list[str]]
    public: NotRequired[Annotated[bool, Said("whether a source is on a network")]]
    available: NotRequired[Annotated[str | None, Said("where the image is, when it is not public")]]


class Found(TypedDict):
    """An easyconfig that fits the words."""

    path: Path
    variants: list[Offered]
    problems: NotRequired[list[Problem]]


class CheckedModule(TypedDict):
    """A variant of an easyconfig that can be installed."""

    module: ModuleName
    variant: Variant | None
    rendered: Annotated[int, Said("files")]


class Checked(TypedDict):
    """A file that can be used."""

    path: Path
    modules: list[CheckedModule]
    problems: list[Problem]
    warnings: list[Problem]


class CheckError(Error):
    """A file that cannot be used."""

    path: Path
    modules: list[CheckedModule]
    warnings: list[Problem]


class OriginOfKey(TypedDict):
    """A value, and where it came from."""

    key: str
    value: str | None
    origin: str


class ShownSite(TypedDict):
    """What is true of a site."""

    origins: list[OriginOfKey]
    warnings: list[Problem]


class DetectedSite(TypedDict):
    """Which site this machine is."""

    site: str
    how: str
    warnings: list[Problem]


class NewSite(TypedDict):
    """A first site file."""

    path: Annotated[Path | None, Said("null with -o -")]
    site: str
    text: str
    hides: Annotated[Path | None, Said("the file of the same site that it stands in front of")]


class Diagnosis(TypedDict):
    """One thing that `doctor` looked at."""

    subject: str
    status: Literal["ok", "note", "missing"]
    text: str
    hint: Hint | None
