"""The words of all answers: one name has one meaning and one type in every verb.

What is not known is null; a list is there though it is empty.
"""

from typing import Annotated

from pydantic import Field
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
Day = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$", description="day, as ISO 8601 has it")]
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
