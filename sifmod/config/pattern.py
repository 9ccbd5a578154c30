"""Matches of a pattern with `*`, `?` or `[…]`, within limits.

Imports neither pydantic nor a YAML parser.
"""

# Paths as text, because there are many and most are never accessed:
# ruff: noqa: PTH207

from glob import has_magic, iglob
from itertools import islice
from typing import NamedTuple


def is_pattern(path: str) -> bool:
    """Whether a path is a pattern: it holds `*`, `?` or `[`."""
    return has_magic(path)


_DEEPEST = 200  # nested directories; `iglob` calls itself for each


class TooMuchError(ValueError):
    """A pattern exceeds `limit`, a key of limits.Limits, or "" for one that settings cannot raise."""

    def __init__(self, message: str, limit: str) -> None:
        super().__init__(message)
        self.limit = limit


class Most(NamedTuple):
    """The limits of a pattern; by default those of limits.Limits."""

    directories: int = 5_000
    files: int = 50_000


def found_by(pattern: str, word: str, most: Most, *, recursive: bool = False, hidden: bool = False) -> tuple[str, ...]:
    """The matches of a pattern. Raises TooMuchError about `word`, also for cycles of links.

    `hidden`: `*` also matches a leading dot.
    """
    parts = pattern.split("/")
    looked_at = 0
    for depth, part in enumerate(parts[:-1], 1):
        if has_magic(part):
            for seen in iglob("/".join((*parts[:depth], "")), recursive=recursive, include_hidden=hidden):
                if seen.count("/") - depth > _DEEPEST:
                    raise TooMuchError(f"{word} visits more than {_DEEPEST} nested directories", "")
                if (looked_at := looked_at + 1) > most.directories:
                    raise TooMuchError(f"{word} visits more directories than {most.directories}", "pattern_directories")
    found = tuple(islice(iglob(pattern, recursive=recursive, include_hidden=hidden), most.files + 1))
    if len(found) > most.files:
        raise TooMuchError(f"{word} matches more files than {most.files}", "pattern_files")
    return found
