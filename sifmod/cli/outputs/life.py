"""What staff have decided about a module."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from sifmod.cli.outputs.words import Day, ModuleName


class DeprecatedData(TypedDict):
    """A module that goes, which a load on a terminal says."""

    since: Day
    until: Annotated[Day | None, Field(description="the last day on which it loads")]
    message: str


class RetiredData(TypedDict):
    """A module that is hidden, and from a day on does not load."""

    since: Day
    successor: Annotated[str | None, Field(description="the module to use instead, with or without a version")]
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
    changed: Annotated[bool, Field(description="whether any file was written")]
    life: LifeData
