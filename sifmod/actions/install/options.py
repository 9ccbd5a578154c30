"""InstallOptions: the options of an install."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sifmod.tree.provenance import CommandLine

if TYPE_CHECKING:
    from sifmod.image.settings import SharedBlobs


@dataclass(frozen=True)
class InstallOptions:
    """The options of an install; `decide` adds the name that the easyconfig was requested by."""

    variant: str | None = None
    source: str | None = None
    rebuild: bool = False  # a new generation even if nothing changed
    if_different: int | None = None  # with rebuild: keep a later generation than this one if it has the same files
    force: bool = False  # like rebuild, which is set too, and fetch the image again
    module_only: bool = False  # render again with the installed image
    offline: bool = False
    keep_blobs: bool = False
    into_home: bool = False  # a large image may go to the home directory without a question
    despite_hold: bool = False  # install held content too, which ends the hold
    stores: tuple[Path, ...] = ()  # prefixes whose stores are searched too
    shared: "SharedBlobs | None" = None  # layers that other modules of this run need too
    checked_since: float = 0.0  # a time: results of earlier sanity checks do not count
    beside: tuple[str, ...] = ()  # commands and paths that other modules of this run check in the same image
    asked: CommandLine = field(default_factory=CommandLine)  # the command line, for the receipt
