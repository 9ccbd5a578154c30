"""The result of reading one file, and limits of steps, depth and length, so that no file takes much time or memory."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sifmod.errors import SifmodError

Value = str | bool | tuple["Value", ...] | Mapping[str, "Value"]
MAX_BYTES = 1 << 20
MAX_STEPS = 200_000
MAX_DEPTH = 80
MAX_LETTERS = 16 << 20  # made while evaluating, all together
MAX_TEXT = 1 << 20  # letters of one text, or items of one list


class Budget:
    """What is left of the limits for one file; each method raises CannotImportError when a limit is exceeded."""

    def __init__(self) -> None:
        self._steps = MAX_STEPS
        self._letters = MAX_LETTERS
        self._depth = 0

    def step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise CannotImportError(f"it takes more than {MAX_STEPS} steps to evaluate")

    def letters(self, count: int) -> None:
        """Account for a new text (or list) of `count` characters (or items)."""
        self._letters -= count
        if count > MAX_TEXT or self._letters < 0:
            raise CannotImportError("it creates a text or a list that is too long, or too many of them")

    @contextmanager
    def level(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CannotImportError(f"its expressions or blocks are nested more than {MAX_DEPTH} deep")
        try:
            yield
        finally:
            self._depth -= 1


def read_text(path: Path) -> str:
    """A file's text; raises CannotImportError unless it is a regular file of at most 1 MiB of UTF-8."""
    try:
        if path.exists() and not path.is_file():
            raise CannotImportError("is not a regular file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CannotImportError(f"cannot be read: {reason[:1].lower()}{reason[1:]}") from error
    if len(data) > MAX_BYTES:
        raise CannotImportError("is larger than 1 MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CannotImportError("is not UTF-8 text") from error


@dataclass(frozen=True)
class Imported:
    """A converted easyconfig: `keys` as in its file (`name`, `version` and `image` at least), in any order.

    `notes` are one-line sentences: what was not imported, or only approximately, and what was guessed. `publisher`
    distinguishes the file from others with the same name and version.
    """

    keys: Mapping[str, Value]
    notes: tuple[str, ...]
    publisher: str = ""


class CannotImportError(SifmodError):
    """A file cannot be converted: invalid, too large, without a usable image, or only a run could tell its values."""

    exit_code = 5

    def __init__(self, message: str, hint: str = "", line: int | None = None) -> None:
        super().__init__(message, hint)
        self.line = line
