"""What went wrong, and what is odd."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from sifmod.cli.outputs.words import Hint


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
