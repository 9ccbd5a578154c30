"""What `--json` prints: the fields of every verb, and the JSON Schema of them.

The verbs import it for its types alone, so that none of them loads pydantic for it. One name means one thing, of one
type, in every verb; what is not known is null, a list is there though it is empty.
"""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

ModuleName = Annotated[str, Field(pattern="^[^/]+/[^/]+$", description="name and version of a module, Name/Version")]
Path = Annotated[str, Field(pattern="^/", description="absolute path")]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256, hexadecimal")]
Digest = Annotated[str, Field(pattern="^[a-z0-9]+:[0-9a-f]+$", description="digest as OCI writes it, sha256:…")]
Size = Annotated[int, Field(ge=0, description="bytes")]
Number = Annotated[int, Field(ge=0, description="number of a generation")]
Time = Annotated[
    str,
    Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$", description="UTC, as ISO 8601 has it"),
]
Arch = Annotated[str, Field(description="amd64, arm64, …")]
Source = Annotated[str, Field(description="what it was made from, as a source of an easyconfig or a path")]
Easyconfig = Annotated[str, Field(description="the path of an easyconfig, or the name that was typed")]
Variant = Annotated[str, Field(description="of an easyconfig; null where it has none")]
Hint = Annotated[str, Field(description="the next step")]
Notes = Annotated[list[str], Field(description="what the user should know")]


class Problem(TypedDict):
    """One thing that is wrong, or odd, at one place."""

    file: Annotated[str | None, Field(description="or the option or the variable that gave the value")]
    line: Annotated[int | None, Field(description="from 1")]
    column: Annotated[int | None, Field(description="from 1")]
    key: Annotated[str | None, Field(description="path of the key, as in image.sources[0]")]
    message: str


class Error(TypedDict):
    """What went wrong; the place is that of the first problem."""

    error: Annotated[str, Field(description="the message, as standard error has it")]
    hint: Hint | None
    exit_code: int
    file: str | None
    line: int | None
    column: int | None
    problems: list[Problem]


class Input(TypedDict):
    """A file that was read, or looked for."""

    path: Path
    sha256: Annotated[Sha256 | None, Field(description="null where there was none")]


class Provenance(TypedDict):
    """What an installation was made from."""

    sifmod: Annotated[str, Field(description="version")]
    easyconfig: Easyconfig
    version: Annotated[str, Field(description="of the easyconfig, without its versionsuffix")]
    variant: Variant | None
    site: str
    accelerator: str
    facts: Annotated[dict[str, str], Field(description="what was found on the machine")]
    options: Annotated[dict[str, str], Field(description="of the command line, those that decide what is installed")]
    checked: Annotated[bool, Field(description="by the sanity check")]
    inputs: list[Input]


class MadeFrom(TypedDict):
    """The content that a reference stood for when it was fetched."""

    index: Digest | None
    manifest: Digest | None
    layers: Annotated[list[Digest], Field(description="the bottom layer first")]
    compression: Annotated[str | None, Field(description="of the squashfs; null for what was a SIF already")]
    tools: Annotated[dict[str, str], Field(description="what decides the bytes of a conversion, with versions")]


class Image(TypedDict):
    """The SIF of an installation."""

    path: Path
    sha256: Sha256
    size: Size
    arch: Arch
    source: Source
    link: Annotated[str, Field(description="copy, hardlink or reference")]
    filename: Annotated[str, Field(description="of the link in the generation")]
    made_from: MadeFrom


class File(TypedDict):
    """A file that sifmod wrote."""

    path: Path
    sha256: Sha256
    mode: Annotated[int, Field(description="permissions, as in chmod")]


class Link(TypedDict):
    """A symlink that sifmod made."""

    path: Path
    target: str


class Installed(TypedDict):
    """A generation of a module."""

    module: ModuleName
    generation: Number
    path: Annotated[Path, Field(description="of the generation")]
    provenance: Provenance
    image: Image
    files: list[File]
    links: list[Link]
    modulefiles: list[File]


class InstallDone(Installed):
    """A module that is installed now."""

    easyconfig: NotRequired[Easyconfig]
    variant: NotRequired[Variant | None]
    changed: Annotated[bool, Field(description="whether this run installed it")]


class EasyconfigError(Error):
    """An easyconfig that could not be installed or fetched."""

    easyconfig: Easyconfig
    variant: NotRequired[Variant | None]


class DryRun(TypedDict):
    """What would be done."""

    easyconfig: Easyconfig
    variant: NotRequired[Variant | None]
    module: ModuleName
    mark: Annotated[Literal[" ", "x", "R", "F"], Field(description="x installed, R rebuilt, F fetched again")]


class FetchedFor(TypedDict):
    """The image of an easyconfig in the store."""

    easyconfig: NotRequired[Easyconfig]
    variant: NotRequired[Variant | None]
    module: ModuleName
    path: Path
    sha256: Sha256


class Reapplied(TypedDict):
    """An installed module, and what `--module-only --installed` changes in it."""

    module: ModuleName
    diff: str
    notes: Notes


class ModuleError(Error):
    """A module with which it could not be done."""

    module: ModuleName


class ReappliedError(ModuleError):
    """A module that could not be decided about, or changed."""

    diff: str
    notes: Notes


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


class Drafted(TypedDict):
    """A first easyconfig."""

    path: Annotated[Path | None, Field(description="null with -o -")]
    module: ModuleName
    sif: Annotated[Path, Field(description="the image that was looked at")]
    text: str


class Imported(TypedDict):
    """An easyconfig made from another tool's file."""

    source: Source
    path: Annotated[Path | None, Field(description="of the easyconfig; null where that of the same content failed")]
    module: ModuleName
    notes: Notes


class NotImportedError(Error):
    """A file of which no easyconfig was made."""

    source: Source
    notes: Notes


class Listed(TypedDict):
    """An installed module."""

    module: ModuleName
    generation: Number
    problems: Annotated[list[Problem], Field(description="what it lacks to be usable")]
    installation: Annotated[Installed | None, Field(description="null where the receipt cannot be read")]


class ShownEasyconfig(TypedDict):
    """An easyconfig with all that is merged into it."""

    path: Path
    variant: Variant | None
    keys: Annotated[dict[str, Any], Field(description="as `sifmod schema` describes them")]


class OriginOfKey(TypedDict):
    """A value, and where it came from."""

    key: str
    value: str | None
    origin: str


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


class Offered(TypedDict):
    """A module that an easyconfig can install."""

    variant: Variant | None
    module: ModuleName
    accelerator: str
    name: NotRequired[str]
    version: NotRequired[Annotated[str, Field(description="of the easyconfig, without its versionsuffix")]]
    versionsuffix: NotRequired[str]
    description: NotRequired[str]
    contents: NotRequired[Annotated[dict[str, str], Field(description="packages in the image, with versions")]]
    sources: NotRequired[list[str]]
    public: NotRequired[Annotated[bool, Field(description="whether a source is on a network")]]
    available: NotRequired[Annotated[str | None, Field(description="where the image is, when it is not public")]]


class Found(TypedDict):
    """An easyconfig that fits the words."""

    path: Path
    variants: list[Offered]
    problems: NotRequired[list[Problem]]


class Finding(TypedDict):
    """One thing that is not as the receipt says."""

    kind: Annotated[
        Literal["missing", "changed", "unreadable", "added", "released", "moved"],
        Field(description="added and released are the user's doing, and no fault"),
    ]
    path: Path
    expected: str
    found: str


class Verified(TypedDict):
    """A module, compared with its receipt."""

    module: ModuleName
    findings: list[Finding]


class Signed(TypedDict):
    """An image that owners of known keys have signed."""

    module: Annotated[ModuleName | None, Field(description="null for a file")]
    path: Path
    signers: Annotated[list[str], Field(description="fingerprint and name")]


class SignatureError(Error):
    """An image without a good signature over all of it."""

    module: ModuleName | None
    path: Path
    signers: list[str]


Kind = Literal["generation", "image", "download", "remains of a run"]


class Collected(TypedDict):
    """What `gc` looks at."""

    kind: Kind
    module: Annotated[ModuleName | None, Field(description="of a generation")]
    generation: Number | None
    size: Annotated[Size | None, Field(description="bytes; of an image or a download")]
    path: Path
    keep: Annotated[str | None, Field(description="why it stays; null: it goes")]
    removed: Annotated[bool, Field(description="by this run")]


class UninstalledModule(TypedDict):
    """A module that is out of sight."""

    module: ModuleName
    generation: Annotated[Number | None, Field(description="that was live; null: it was uninstalled before")]
    user_software: Annotated[Path | None, Field(description="what the user added, which stays")]


class Uninstalled(TypedDict):
    """What `uninstall` did."""

    uninstalled: list[UninstalledModule | ModuleError]
    purged: Annotated[list[Collected], Field(description="with --purge: what was looked at to free space")]


class Logged(TypedDict):
    """One change of the tree."""

    time: Time
    user: str
    uid: int
    login: Annotated[str | None, Field(description="who logged in, where that is another user")]
    host: str
    sifmod: Annotated[str, Field(description="version")]
    command: str
    what: Annotated[str, Field(description="installed, rendered, restored, rolled back, uninstalled, removed, fetched")]
    module: Annotated[ModuleName | None, Field(description="null for an image or a download by itself")]
    generation: Annotated[Number | None, Field(description="that is live now")]
    before: Annotated[Number | None, Field(description="the generation that was live, or was removed")]
    sha256: Annotated[Sha256 | None, Field(description="of the image")]
    size: Annotated[Size | None, Field(description="bytes that came or went")]


class CheckedModule(TypedDict):
    """A variant of an easyconfig that can be installed."""

    module: ModuleName
    variant: Variant | None
    rendered: Annotated[int, Field(description="files")]


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

    path: Annotated[Path | None, Field(description="null with -o -")]
    site: str
    text: str
    hides: Annotated[Path | None, Field(description="the file of the same site that it stands in front of")]


class Diagnosis(TypedDict):
    """One thing that `doctor` looked at."""

    subject: str
    status: Literal["ok", "note", "missing"]
    text: str
    hint: Hint | None


# what each verb prints where it succeeds; where it fails as a whole, an Error
OUTPUTS: dict[str, Any] = {
    "install": (
        list[InstallDone | EasyconfigError]
        | list[DryRun | EasyconfigError]
        | list[FetchedFor | EasyconfigError]
        | list[Reapplied | ReappliedError]
    ),
    "fetch": Fetched | list[FetchedOfSeveral | NotFetchedError],
    "new": Drafted,
    "import": list[Imported | NotImportedError],
    "list": list[Listed],
    "show": Installed | ShownEasyconfig | list[OriginOfKey] | ShownImage,
    "search": list[Found],
    "verify": list[Verified] | list[Signed | SignatureError],
    "uninstall": Uninstalled,
    "rollback": Installed,
    "log": list[Logged],
    "gc": list[Collected],
    "check": list[Checked | CheckError],
    "config show": list[OriginOfKey],
    "site show": ShownSite,
    "site detect": DetectedSite,
    "site new": NewSite,
    "doctor": list[Diagnosis],
}


def output_schema(verb: str) -> dict[str, Any]:
    """The schema (JSON Schema 2020-12) of what a verb prints with `--json`; raises KeyError for one without."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"sifmod {verb} --json",
        **TypeAdapter(OUTPUTS[verb] | Error).json_schema(),
    }
