"""Files that `.containerignore` or `.dockerignore` exclude from a Dockerfile's context.

Each part of a path is compared separately, and `**` is any number of parts: with one regular expression for a path a
line such as `*a*a*a*a` takes hours.
"""

import re
from collections.abc import Iterator
from posixpath import normpath
from typing import NamedTuple

from sifmod.secret import cut

_LONGEST = 1024  # characters of a line; the time to read one grows with the square


class Rule(NamedTuple):
    """Whether a line excludes its matches, and the parts of its pattern; None stands for any number of parts."""

    leaves_out: bool
    parts: tuple[re.Pattern[str] | None, ...]


class UnclearError(ValueError):
    """The matches of a line depend on the builder, as for `a**b`, or the line is too long to be read here."""


def rules_of(text: str) -> Iterator[Rule]:
    """The rule of each line, which applies to a path and everything below it. Raises UnclearError."""
    for line in (each.strip() for each in text.splitlines()):
        if not line or line.startswith("#"):
            continue
        if len(line) > _LONGEST:
            raise UnclearError(cut(line, 60))
        words = normpath(line.removeprefix("!").strip()).lstrip("/").split("/")
        try:
            parts = [None if word == "**" else _part(word) for word in words]
        except re.error:
            continue  # the builder says what is wrong with it
        below = [None] if parts[-1] else [_part("*"), None]  # `a/**` is what is in `a`, and not `a`
        yield Rule(not line.startswith("!"), (*parts, *below))


def is_ignored(path: str, rules: tuple[Rule, ...]) -> bool:
    """Whether the last line that matches a path, relative to the context, excludes it."""
    names = path.split("/")
    return next((rule.leaves_out for rule in reversed(rules) if _fits(rule.parts, names)), False)


def _part(word: str) -> re.Pattern[str]:
    """The expression for one part of a line, which searches the text after a `*` once. Raises UnclearError."""
    signs: list[str] = re.findall(r"\*+|\?|\[[^\]]+\]|\\.|.", word)
    if any(sign.startswith("**") for sign in signs):
        raise UnclearError(word)
    texts = [""]
    for sign in signs:
        if sign == "*":
            texts.append("")
        elif sign == "?":
            texts[-1] += "."
        else:
            texts[-1] += sign if sign[0] == "[" and sign[1:] else re.escape(sign[-1])
    first, *middle, last = texts if texts[1:] else (*texts, "")
    between = "".join(f"(?>.*?{text})" for text in middle)
    return re.compile(f"{first}{between}{'.*' if texts[1:] else ''}{last}", re.DOTALL)


def _fits(parts: tuple[re.Pattern[str] | None, ...], names: list[str]) -> bool:
    """Whether the parts match the names, from the first to the last.

    If a part fails, the last `**` takes more names.
    """
    at = done = 0
    again: tuple[int, int] | None = None
    while done < len(names):
        part = parts[at] if at < len(parts) else re.compile("(?!)")
        if part is None:
            again, at = (at, done), at + 1
        elif part.fullmatch(names[done]):
            at, done = at + 1, done + 1
        elif again:
            again = (again[0], again[1] + 1)
            at, done = again[0] + 1, again[1]
        else:
            return False
    return all(part is None for part in parts[at:])
