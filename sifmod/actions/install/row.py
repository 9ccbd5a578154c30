"""A Row: the output of `install --json` for one easyconfig, or for one installed module."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from sifmod.actions.layer.places import OutgoingLayer
from sifmod.actions.list import Installed
from sifmod.config.name import ModuleName
from sifmod.errors import Error
from sifmod.result import Beside, Described, Easyconfig, Notes, Sha256, Variant


@dataclass(frozen=True)
class InstallDone(Installed):
    """A module that is installed now."""

    changed: Annotated[bool, Described("whether this run installed the module")]
    outgoing_layers: Annotated[tuple[OutgoingLayer, ...], Described("layers that do not fit the image of this run")]


class DryRun(NamedTuple):
    """A preview of an install."""

    easyconfig: Easyconfig
    module: ModuleName
    mark: Annotated[
        Literal[" ", "x", "R", "F", "H"], Described("blank new, x installed, R rebuilt, F fetched again, H held")
    ]
    outgoing_layers: Annotated[tuple[OutgoingLayer, ...], Described("layers that do not fit the new image")] = ()


class FetchedFor(NamedTuple):
    """The stored image of an easyconfig's module."""

    module: ModuleName
    path: Path
    sha256: Sha256


class Row(NamedTuple):
    """The outcome of an easyconfig; with an error if it could not be installed or fetched."""

    easyconfig: Easyconfig
    variant: Variant | None
    outcome: Beside[InstallDone | DryRun | FetchedFor | Error]


class ReappliedRow(NamedTuple):
    """An installed module, and its changes by `--module-only --installed`."""

    module: ModuleName
    diff: str
    notes: Notes
    error: Beside[Error | None]
