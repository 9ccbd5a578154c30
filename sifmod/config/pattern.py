"""What a pattern with `*`, `?` or `[…]` finds, where it does not lead to too much.

Imports neither pydantic nor a YAML parser.
"""

# Paths as text, many of them, of which most are never looked at:
# ruff: noqa: PTH207

from glob import has_magic, iglob
from itertools import islice
from typing import NamedTuple


def is_pattern(path: str) -> bool:
    """Tell whether a path is a pattern: it holds `*`, `?` or `[`."""
    return has_magic(path)


class TooMuchError(ValueError):
    """A pattern leads to too much; `files` says whether that is what it finds, or the directories on the way."""

    def __init__(self, message: str, *, files: bool) -> None:
        super().__init__(message)
        self.files = files


class Most(NamedTuple):
    """What a pattern may lead to; by default as limits.Limits has it."""

    directories: int = 5_000
    files: int = 50_000


def found_by(pattern: str, word: str, most: Most, *, recursive: bool = False, hidden: bool = False) -> tuple[str, ...]:
    """What a pattern finds. Raises TooMuchError, about `word`, as for links that lead back.

    `hidden`: `*` is a dot in front too.
    """
    parts = pattern.split("/")
    looked_at = 0
    for depth, part in enumerate(parts[:-1], 1):
        if has_magic(part):
            for _ in iglob("/".join((*parts[:depth], "")), recursive=recursive, include_hidden=hidden):
                if (looked_at := looked_at + 1) > most.directories:
                    raise TooMuchError(f"{word} leads to more directories than {most.directories}", files=False)
    found = tuple(islice(iglob(pattern, recursive=recursive, include_hidden=hidden), most.files + 1))
    if len(found) > most.files:
        raise TooMuchError(f"{word} finds more files than {most.files}", files=True)
    return found
