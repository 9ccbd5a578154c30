"""The name of a module, and the names derived from it."""

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from sifmod.result import ModuleText

_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,249}")


@dataclass(frozen=True, order=True)
class ModuleName:
    """`name` / `version` (the version with its versionsuffix), e.g. PyTorch / 2.2.0-rocm-5.6.1."""

    name: str
    version: str
    IN_JSON: ClassVar[object] = ModuleText

    def __str__(self) -> str:
        return f"{self.name}/{self.version}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The module that a text names. Raises ValueError where it names none."""
        name, _, version = text.partition("/")
        if not (is_part(name) and is_part(version)):
            raise ValueError(f"{text!r} names no module")
        return cls(name, version)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> Any:
        from pydantic_core.core_schema import no_info_plain_validator_function

        return no_info_plain_validator_function(
            lambda value: value if isinstance(value, cls) else cls.parse(str(value))
        )

    @property
    def variable(self) -> str:
        """The name as EasyBuild spells it in a variable (EBROOT…): upper case, `-` → MIN, `+` → PLUS, no dots."""
        spelled = self.name.upper().replace("-", "MIN").replace("+", "PLUS")
        return "".join(letter for letter in spelled if letter.isascii() and (letter.isalnum() or letter == "_"))


def is_part(text: str) -> bool:
    """Whether `text` can be a module's name or version: valid in an easyconfig and as a file name."""
    return _PART.fullmatch(text) is not None and ".." not in text


def fits(name: str, pattern: str) -> bool:
    """Whether `name` contains `pattern`, or matches it if it has `*`, `?` or `[`; case is ignored."""
    name, pattern = name.casefold(), pattern.casefold()
    if not any(sign in pattern for sign in "*?["):
        return pattern in name
    from fnmatch import fnmatchcase

    return fnmatchcase(name, pattern)
