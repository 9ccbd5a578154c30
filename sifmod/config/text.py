"""The kinds of text in configuration, each with the rule that makes it safe."""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from posixpath import normpath
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from sifmod.config.kinds import RUNTIMES
from sifmod.config.redact import has_login
from sifmod.config.yaml.node import Number, printable_text
from sifmod.secret import secret_parts

# C0 and C1 controls, DEL, and the two Unicode line ends: characters that a terminal, a shell or Lmod interprets. Half
# surrogates are bytes of the environment that are not UTF-8; they cannot be written to a file.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_CONTROL_BUT_LINES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# `,` and `:` separate bind paths, and the runtimes interpret `"` and `\` as quotes and escapes.
_NOT_IN_BINDS = re.compile(r'[,:"\\]')
_SIZE = re.compile(r"([0-9]+)\s*([kKMGT]i?B?|B)?")
_UNITS = {"": 1, "B": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def _line(text: str) -> str:
    if bad := _CONTROL.search(text):
        raise ValueError(f"the character {bad.group()!r} is not allowed here: use a single line of printable text")
    return text


def _no_url(text: str) -> str:
    if secret_parts((text,)):
        raise ValueError(f"expected a file, not a URL, got {printable_text(text)}")
    return text


def _text(text: str) -> str:
    if bad := _CONTROL_BUT_LINES.search(text):
        raise ValueError(f"the character {bad.group()!r} is not allowed here")
    return text


def _for_all(text: str) -> str:
    if "@" in text and has_login(text):
        raise ValueError("a login cannot be used here, because all users would read it")
    return text


def _matching(pattern: str, rule: str) -> AfterValidator:
    return AfterValidator(_match(pattern, rule))


def _match(pattern: str, rule: str) -> Callable[[str], str]:
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text) or ".." in text:
            raise ValueError(f"{printable_text(text)} cannot be used: {rule}")
        return text

    return check


def expecting(pattern: str, what: str) -> AfterValidator:
    """A validator that rejects a text unless the whole pattern matches: `expected …, got 'text'`."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"expected {what}, got {text!r}")
        return text

    return AfterValidator(check)


def _version(text: str) -> str:
    if text == "default":
        raise ValueError("'default' cannot be a version: module systems read a file of this name as a marker")
    return text


def _absolute(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError(f"expected an absolute path, got {printable_text(text)}")
    return _line(text)


def _bind_path(text: str) -> str:
    if bad := _NOT_IN_BINDS.search(text):
        several = "; several bind paths are several items of the list" if ",/" in text else ""
        raise ValueError(f"a path with {bad.group()} cannot be bound into a container: {printable_text(text)}{several}")
    return _absolute(text)


def can_be_bound(path: str) -> bool:
    """Whether a path can be used in a bind path."""
    return path.startswith("/") and not _NOT_IN_BINDS.search(path) and not _CONTROL.search(path)


def is_root(path: str) -> bool:
    """Whether an absolute path is `/`, in any spelling."""
    return not normpath(path).strip("/")


def _search_directory(text: str) -> str:
    if ":" in text:
        raise ValueError(f"a directory on a search path cannot hold ':', got {printable_text(text)}")
    return _absolute(text)


def _env_name(text: str) -> str:
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", text):
        raise ValueError(
            f"{printable_text(text)} is not a valid variable name: use letters, digits and _, not starting with a digit"
        )
    return text


def _no_tilde(text: str) -> str:
    # Environment Modules passes it to the shell unchanged
    if text.startswith("~") or ":~" in text:
        raise ValueError(f"{printable_text(text)}: write the full path, because a shell may not replace the ~")
    return text


def number_as_written(value: object) -> object:
    """The spelling of a value that YAML reads as a number; other values are unchanged."""
    return value.text if isinstance(value, Number) else value


def whole_number(value: object) -> object:
    """The int that a whole number in YAML means; other values are unchanged."""
    return int(value.text) if isinstance(value, Number) and re.fullmatch("-?[0-9]+", value.text) else value


def size_in_bytes(value: object) -> object:
    """The bytes that `4MB`, `4MiB`, `4M` or a number means; values of other types are unchanged. Raises ValueError."""
    text = value.text if isinstance(value, Number) else value
    if not isinstance(text, str):
        return value
    found = _SIZE.fullmatch(text)
    if not found:
        raise ValueError(f"expected a size such as 512MB or 4GiB, got {text!r}")
    unit = (found[2] or "").removesuffix("B")
    factor = 1024 ** "KMGT".index(unit[0].upper()) * 1024 if unit.endswith("i") else _UNITS[unit]
    return int(found[1]) * factor


def wrapper_item(value: object) -> tuple[str, str]:
    """A wrapper, `name` or a map of one `name: command line`, as (name, command line or ""). Raises ValueError."""
    name, command = value, ""
    if isinstance(value, dict) and len(value) == 1:
        name, command = next(iter(value.items()))
        if not isinstance(command, str):
            raise ValueError(f"expected {printable_text(str(name))}: COMMAND, with the command as text")
        _line(command)
        try:
            words = shlex.split(command)
        except ValueError:
            what = "unclosed quotation mark, or a backslash at the end, in"
            raise ValueError(f"{what} {printable_text(command)}") from None
        if not words or not words[0] or words[0].startswith("-"):
            said = printable_text(command)
            raise ValueError(f"expected a command, perhaps with its first arguments, got {said}")
    if not isinstance(name, str):
        raise PydanticCustomError("wrapper", "expected a name, or one name: command")
    if _match(_NAME, _NAME_RULE)(name) in RUNTIMES:
        raise ValueError(f"a wrapper cannot be named {name}: it would hide the runtime that it starts")
    return name, command


_NAME_RULE = "use letters, digits and . _ + -, starting with a letter or digit, without '..'"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._+-]*"

Pairs = tuple[tuple[str, str], ...]
Line = Annotated[str, AfterValidator(_line)]
Text = Annotated[str, AfterValidator(_text)]
OpenLine = Annotated[Line, AfterValidator(_for_all)]
"""A line that all users read, as in a modulefile or a catalogue."""
OpenText = Annotated[Text, AfterValidator(_for_all)]
NotEmpty = Annotated[str, Field(min_length=1), AfterValidator(_line)]
OpenNotEmpty = Annotated[NotEmpty, AfterValidator(_for_all)]
OwnFile = Annotated[NotEmpty, AfterValidator(_no_url)]
"""A file of this machine, or a pattern. A URL with a login or query is rejected, because logs would show it."""
Name = Annotated[str, Field(max_length=100), _matching(_NAME, _NAME_RULE)]
Version = Annotated[str, Field(max_length=100), _matching(_NAME, _NAME_RULE), AfterValidator(_version)]
VersionSuffix = Annotated[
    str, Field(max_length=100), _matching(r"[A-Za-z0-9._+-]*", "use letters, digits and . _ + -, without '..'")
]
SifName = Annotated[
    str,
    Field(max_length=200),
    _matching(
        r"[A-Za-z0-9_][A-Za-z0-9._+@=-]*\.sif",
        "use letters, digits and . _ + - @ =, with a letter, digit or _ first, .sif at the end and no '..'",
    ),
]
ModuleSpec = Annotated[
    str,
    _matching(
        r"[A-Za-z0-9][A-Za-z0-9._+-]*(/[A-Za-z0-9._+-]+)*",
        "use a module's name: letters, digits and . _ + -, a / between parts, without '..'",
    ),
]
Family = Annotated[
    str, _matching(r"[A-Za-z0-9][A-Za-z0-9_]*", "use letters, digits and _, starting with a letter or digit")
]
Sha256 = Annotated[str, _matching("[0-9a-f]{64}", "expected 64 lower-case hexadecimal digits, as sha256sum prints")]
Absolute = Annotated[str, AfterValidator(_absolute)]
BindPath = Annotated[str, AfterValidator(_bind_path)]
SearchDirectory = Annotated[str, AfterValidator(_search_directory)]
EnvName = Annotated[str, AfterValidator(_env_name)]
EnvValue = Annotated[
    str,
    BeforeValidator(number_as_written, json_schema_input_type=str | int | float),
    AfterValidator(_line),
    AfterValidator(_no_tilde),
]


@dataclass(frozen=True)
class Items:
    """Marks a field that is a map in YAML and a tuple of (key, value) pairs, in the file's order, in the model."""

    key: Any
    value: Any

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        mapping = core_schema.dict_schema(handler.generate_schema(self.key), handler.generate_schema(self.value))
        back = core_schema.plain_serializer_function_ser_schema(dict)
        return core_schema.no_info_after_validator_function(
            lambda items: tuple(items.items()), mapping, serialization=back
        )


Package = Annotated[  # normalized as in PEP 503
    str,
    expecting(r"[a-z0-9]+(-[a-z0-9]+)*-?\*?", "a package name in lower case with `-`, and `*` only at its end"),
]
