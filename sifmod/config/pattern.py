"""Matches of a pattern with `*`, `?` or `[…]`, within limits.

Imports neither pydantic nor a YAML parser.
"""

# Paths as text, because there are many and most are never accessed:
# ruff: noqa: PTH207

from dataclasses import dataclass
from glob import has_magic, iglob
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


@dataclass
class Searched:
    """How many directories the patterns of a file have visited so far, and how many files they have found."""

    directories: int = 0
    files: int = 0


def found_by(
    pattern: str,
    word: str,
    most: Most,
    *,
    recursive: bool = False,
    hidden: bool = False,
    searched: Searched | None = None,
) -> tuple[str, ...]:
    """The matches of a pattern. Raises TooMuchError about `word`, also for cycles of links.

    `hidden`: `*` also matches a leading dot. `searched`: what patterns before this one count for.
    """
    parts = pattern.split("/")
    searched = searched or Searched()

    def visit() -> None:
        searched.directories += 1
        if searched.directories > most.directories:
            what = f"with {word}, more directories are visited than {most.directories}"
            raise TooMuchError(what, "pattern_directories")

    visit()  # the directory before the first sign
    for depth, part in enumerate(parts[:-1], 1):
        if has_magic(part):
            for seen in iglob("/".join((*parts[:depth], "")), recursive=recursive, include_hidden=hidden):
                if seen.count("/") - depth > _DEEPEST:
                    raise TooMuchError(f"{word} visits more than {_DEEPEST} nested directories", "")
                visit()
    found: list[str] = []
    for name in iglob(pattern, recursive=recursive, include_hidden=hidden):
        searched.files += 1
        if searched.files > most.files:
            raise TooMuchError(f"with {word}, more files are found than {most.files}", "pattern_files")
        found.append(name)
    return tuple(found)
