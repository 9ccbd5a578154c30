"""InstallOptions: what the command line asks of an install."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sifmod.tree.provenance import CommandLine

if TYPE_CHECKING:
    from sifmod.image.settings import SharedBlobs


@dataclass(frozen=True)
class InstallOptions:
    """What the command line asks of an install; `decide` adds the name by which the easyconfig was asked for."""

    variant: str | None = None
    source: str | None = None
    rebuild: bool = False  # a new generation even where nothing has changed
    if_different: int | None = None  # with rebuild: another generation than this one stays where it has the same files
    force: bool = False  # as rebuild, which is set too, and the image is fetched again
    module_only: bool = False  # render again, with the image that is there
    offline: bool = False
    keep_blobs: bool = False
    into_home: bool = False  # a large image may go to the home directory without a question
    despite_hold: bool = False  # what was rolled back from may come back, which ends the hold
    stores: tuple[Path, ...] = ()  # prefixes that may have the locked image
    shared: "SharedBlobs | None" = None  # layers that other modules of this run want too
    checked_since: float = 0.0  # a time: what sanity checks have found before it is looked for again
    beside: tuple[str, ...] = ()  # commands and paths that other modules of this run want of the image
    asked: CommandLine = field(default_factory=CommandLine)  # what the receipt keeps of the command line
