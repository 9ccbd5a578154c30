"""The tree: what was verified, uninstalled, collected and logged."""

from typing import Annotated, Literal

from typing_extensions import TypedDict

from sifmod.cli.outputs.installed import ModuleError
from sifmod.cli.outputs.words import Error, ModuleName, Number, Path, Said, Sha256, Size, Time


class Finding(TypedDict):
    """One thing that is not as the receipt says."""

    kind: Annotated[
        Literal["missing", "changed", "unreadable", "added", "released"],
        Said("added and released are the user's doing, and no fault"),
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

    module: Annotated[ModuleName | None, Said("null for a file")]
    path: Path
    signers: Annotated[list[str], Said("fingerprint and name")]


class SignatureError(Error):
    """An image without a good signature over all of it."""

    module: ModuleName | None
    path: Path
    signers: list[str]


class Modes(TypedDict):
    """A file or directory of sifmod's that the site's `sharing` wants to have another group or mode."""

    path: Path
    expected: str
    found: str
    owner: Annotated[str, Said("who can repair it; root can too")]
    repaired: Annotated[bool, Said("by this run")]


Kind = Literal["generation", "image", "download", "layer", "remains of a run", "cache", "temporary files"]


class Collected(TypedDict):
    """What `gc` looks at."""

    kind: Kind
    module: Annotated[ModuleName | None, Said("of a generation")]
    generation: Number | None
    size: Annotated[Size | None, Said("bytes; of an image, a download, a layer, a cache or temporary files")]
    path: Path
    keep: Annotated[str | None, Said("why it stays; null: it goes")]
    removed: Annotated[bool, Said("by this run")]


class UninstalledModule(TypedDict):
    """A module that is out of sight."""

    module: ModuleName
    generation: Annotated[Number | None, Said("that was live; null: it was uninstalled before")]
    user_software: Annotated[Path | None, Said("what the user added, which stays")]
    user_layers: Annotated[Path | None, Said("packages that the user added, which stay")]
    default: Annotated[bool, Said("whether it was what its name alone loads")]
    views: Annotated[list[ModuleName], Said("modules that load it, and can be loaded no more")]
    kernels: Annotated[list[str], Said("commands that remove the user's kernels of it from Jupyter")]


class Uninstalled(TypedDict):
    """What `uninstall` did."""

    uninstalled: list[UninstalledModule | ModuleError]
    purged: Annotated[list[Collected], Said("with --purge: what was looked at to free space")]


class Logged(TypedDict):
    """One change of the tree."""

    time: Time
    user: str
    uid: int
    login: Annotated[str | None, Said("who logged in, where that is another user")]
    host: str
    sifmod: Annotated[str, Said("version")]
    command: str
    what: Annotated[
        str,
        Said(
            "installed, rendered, restored, rolled back, held, released, uninstalled, removed, fetched, test passed,"
            " test failed, made the default, hidden, shown, deprecated, retired, labelled, or that it is no longer so;"
            " of a layer made, removed"
        ),
    ]
    module: Annotated[ModuleName | None, Said("null for an image or a download by itself")]
    generation: Annotated[Number | None, Said("that is live now")]
    before: Annotated[Number | None, Said("the generation that was live, or was removed")]
    sha256: Annotated[Sha256 | None, Said("of the image")]
    size: Annotated[Size | None, Said("bytes that came or went")]
    layer: Annotated[str | None, Said("of packages, which was made or removed; generations are its own")]
