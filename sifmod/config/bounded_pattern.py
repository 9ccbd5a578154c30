"""The matches of a pattern, within limits that the settings can raise."""

from sifmod.config.limits import limits, raised
from sifmod.config.pattern import Most, TooMuchError, found_by
from sifmod.errors import PatternError


def matches(pattern: str) -> tuple[str, ...]:
    """The matches of a pattern, sorted. Raises PatternError for too many."""
    try:
        return tuple(sorted(found_within_limits(pattern, pattern)))
    except TooMuchError as error:
        raise PatternError(str(error), "name the paths, or use a narrower pattern") from error


def found_within_limits(pattern: str, word: str, *, recursive: bool = False, hidden: bool = False) -> tuple[str, ...]:
    """Like `found_by`; the message of its TooMuchError says how to raise the limit."""
    most = Most(limits().pattern_directories, limits().pattern_files)
    try:
        return found_by(pattern, word, most, recursive=recursive, hidden=hidden)
    except TooMuchError as error:
        key = raised("pattern_files" if error.files else "pattern_directories")
        raise TooMuchError(f"{error}{key}", files=error.files) from error
