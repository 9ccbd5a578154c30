"""The words of all answers: one name has one meaning and one type in every verb.

What is not known is null; a list is there though it is empty.
"""

from typing import Annotated, Any

from typing_extensions import TypedDict


class Said:
    """What is said of a value, and what it must be, as pydantic spells that (`ge`, `pattern`); without pydantic."""

    def __init__(self, description: str, **limits: object) -> None:
        """Described in a few words; the limits are those of a text or a number."""
        self._description, self._limits = description, limits

    def __get_pydantic_core_schema__(self, source: object, handler: Any) -> Any:
        schema = handler(source)
        (schema["schema"] if schema["type"] == "nullable" else schema).update(self._limits)
        return schema

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return handler(schema) | {"description": self._description}


ModuleName = Annotated[str, Said("name and version of a module, Name/Version", pattern="^[^/]+/[^/]+$")]
Path = Annotated[str, Said("absolute path", pattern="^/")]
Sha256 = Annotated[str, Said("SHA-256, hexadecimal", pattern="^[0-9a-f]{64}$")]
Digest = Annotated[str, Said("digest as OCI writes it, sha256:…", pattern="^[a-z0-9]+:[0-9a-f]+$")]
Size = Annotated[int, Said("bytes", ge=0)]
Number = Annotated[int, Said("number of a generation", ge=0)]
Time = Annotated[
    str,
    Said("UTC, as ISO 8601 has it", pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"),
]
Day = Annotated[str, Said("day, as ISO 8601 has it", pattern=r"^\d{4}-\d\d-\d\d$")]
Arch = Annotated[str, Said("amd64, arm64, …")]
Source = Annotated[str, Said("what it was made from, as a source of an easyconfig or a path")]
Easyconfig = Annotated[str, Said("the path of an easyconfig, or the name that was typed")]
Variant = Annotated[str, Said("of an easyconfig; null where it has none")]
Hint = Annotated[str, Said("the next step")]
Notes = Annotated[list[str], Said("what the user should know")]


class Problem(TypedDict):
    """One thing that is wrong, or odd, at one place."""

    file: Annotated[str | None, Said("or the option or the variable that gave the value")]
    line: Annotated[int | None, Said("from 1")]
    column: Annotated[int | None, Said("from 1")]
    key: Annotated[str | None, Said("path of the key, as in image.sources[0]")]
    message: str


class Error(TypedDict):
    """What went wrong; the place is that of the first problem."""

    error: Annotated[str, Said("the message, as standard error has it")]
    hint: Hint | None
    exit_code: int
    file: str | None
    line: int | None
    column: int | None
    problems: list[Problem]
