"""Versions as people write them (2.4, 25.09-py3, 69afc4d): order, ranges and prefixes."""

import re

_PARTS = re.compile("[0-9]+|[A-Za-z]+")
_RANGE = re.compile(r"(>=|<=|==|!=|>|<)?\s*([A-Za-z0-9][A-Za-z0-9._+-]*)")
_SIGNS = {">=": (0, 1), "<=": (0, -1), "==": (0,), "!=": (1, -1), ">": (1,), "<": (-1,)}  # the signs of the difference
_BUILD_DATE = re.compile("[12][0-9]{7}")
_END = (0, 0, "")  # the end of a version sorts after letters (2.0rc1 before 2.0) and before a further number


def is_range(text: str) -> bool:
    """Whether `text` is a comparison operator and a version, or a version alone, which means equality.

    A version starts with a number, perhaps after a `v`, and has no `x` instead of a number.
    """
    found = _RANGE.fullmatch(text)
    return found is not None and bool(re.match("[vV]?[0-9]", found[2])) and "x" not in found[2].lower().split(".")


def within(version: str, ranges: tuple[str, ...]) -> bool:
    """Whether a version is in every range; in none that is invalid. Trailing zeros and all after a `+` are ignored."""
    for text in ranges:
        found = _RANGE.fullmatch(text)
        if not found:
            return False
        own, other = version_key(version), version_key(found[2])
        if (own > other) - (own < other) not in _SIGNS[found[1] or "=="]:
            return False
    return True


def matches_version(version: str, by: str) -> bool:
    """Whether `by` is this version or a prefix of it: 2.2 matches 2.2 and 2.2.0, neither 12.2 nor 2.20."""
    own, asked = _plain(version), _plain(by)
    return own[: len(asked)] == asked or version_key(version) == version_key(by)


def version_key(version: str) -> tuple[tuple[int, int, str], ...]:
    """The sort key of versions: numbers by value, letters below the end and below any number.

    Trailing zeros and everything after a `+` are ignored.
    """
    key: list[tuple[int, int, str]] = []
    for part in _PARTS.findall(version.partition("+")[0]):
        if part.isdecimal():
            number = part.lstrip("0")  # by its length, then its digits: Python converts no more than 4300 digits
            key.append((1, len(number), number))
            continue
        _drop_zeros(key)
        key.append((-1, 0, part.lower()))
    _drop_zeros(key)
    return (*key, _END)


def release_key(version: str) -> tuple[bool, tuple[tuple[int, int, str], ...]]:
    """The sort key of releases: that of versions, but a build date (20240918) is not newer than 2.4."""
    return not _BUILD_DATE.match(version), version_key(version)


def _plain(version: str) -> list[str]:
    """The numbers of a version, without leading zeros, and its words."""
    return [part.lstrip("0") or "0" if part.isdecimal() else part.lower() for part in _PARTS.findall(version)]


def _drop_zeros(key: list[tuple[int, int, str]]) -> None:
    while key and key[-1] == (1, 0, ""):
        key.pop()
