"""The machine: its configuration, its site, and what doctor finds."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from sifmod.cli.outputs.error import Problem
from sifmod.cli.outputs.words import Hint, Path


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
