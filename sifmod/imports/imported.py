"""What one file of another tool says, as keys of an easyconfig, and what it says beside that."""

from collections.abc import Mapping
from dataclasses import dataclass

from sifmod.errors import SifmodError

Value = str | bool | tuple["Value", ...] | Mapping[str, "Value"]


@dataclass(frozen=True)
class Imported:
    """An easyconfig in the making: `keys` as in its file (`name`, `version` and `image` at least), in any order.

    `notes` are one-line sentences: what was not carried over, or only nearly, and what was guessed. `publisher` tells
    the file from others of the same name and version.
    """

    keys: Mapping[str, Value]
    notes: tuple[str, ...]
    publisher: str = ""


class CannotImportError(SifmodError):
    """A file, or the part of it that matters, cannot be read for certain without running it."""

    exit_code = 5
