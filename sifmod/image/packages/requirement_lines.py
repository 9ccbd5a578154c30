"""Lines of a requirements.txt: read, joined, expanded and parsed as in pip.

https://pip.pypa.io/en/stable/reference/requirements-file-format/. uv is given these values, never the file.
"""

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from optparse import OptionParser, OptionValueError, Values
from pathlib import Path
from typing import NoReturn

from sifmod.config.limits import NotReadError, bound, limits, read_bounded
from sifmod.config.private import closed_elsewhere, closed_to_author
from sifmod.config.redact import is_secret
from sifmod.errors import OptionError
from sifmod.secret import cut

_COMMENT = re.compile(r"(^|\s)#.*$")  # `\s+`, as pip has it, takes quadratic time for many blanks
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
_KEEP = (
    "if it is a login, put it in ~/.netrc, or for an index NAME of uv.toml in UV_INDEX_NAME_USERNAME and "
    "UV_INDEX_NAME_PASSWORD; if it is not a login, rename the variable"
)
_DEEPEST = 10  # files that name each other
_SHOWN = 60  # characters of a line that is too long
# short and long names of options: those of a whole file, then those of one requirement
_TEXTS = (
    *(("-i", "--index-url"), ("", "--pypi-url"), ("", "--extra-index-url"), ("-f", "--find-links")),
    *(("-c", "--constraint"), ("-r", "--requirement"), ("-e", "--editable"), ("", "--no-binary")),
    *(("", "--only-binary"), ("", "--trusted-host"), ("", "--use-feature"), ("", "--hash")),
    *(("", "--global-option"), ("-C", "--config-settings"), ("", "--config-setting")),
)
_SYNONYMS = {"--pypi-url": "--index-url", "--config-setting": "--config-settings"}
_FLAGS = ("--no-index", "--prefer-binary", "--require-hashes", "--pre")


class _RefusedError(Exception):
    """The line has options that a requirements.txt cannot have, or one without its value."""


class _TooMuchError(OptionError):
    """The files exceed a limit, of bytes, lines or included files, or one is not a regular file."""


class _Parser(OptionParser):
    def error(self, msg: str) -> NoReturn:
        raise _RefusedError(msg)


_PARSER = _Parser(add_help_option=False, usage="")
for _short, _long in _TEXTS:
    _PARSER.add_option(*filter(None, (_short, _long)), dest=_long, action="append")
for _flag in _FLAGS:
    _PARSER.add_option(_flag, dest=_flag, action="store_true")


@dataclass(frozen=True)
class Line:
    """One logical line: its requirement ("" for a line with only options) and its options, by their long names."""

    path: Path
    number: int
    requirement: str
    options: tuple[tuple[str, str], ...]
    constrains: bool  # the line is in a file of constraints
    problem: str = ""  # why the line cannot be used

    @property
    def where(self) -> str:
        return f"{self.path}:{self.number}"

    def values(self, name: str) -> tuple[str, ...]:
        return tuple(value for each, value in self.options if each == name)


def read_lines(path: Path, *, constrains: bool = False) -> Iterator[Line]:
    """The lines of a requirements file, and of those that it names by -r and -c, relative to it.

    Raises OptionError if `path` is unreadable, or has, with the files it includes, more bytes, lines or files than the
    limits. An included file that is unreadable, or includes itself, gives a line with a `problem`.
    """
    yield from _lines(path, constrains, (), _Reading())


class _Reading:
    """What was read so far; a file counts each time it is named."""

    def __init__(self) -> None:
        self._bytes = self._files = self._lines = 0

    def text(self, path: Path) -> str:
        text = read_text(path, "requirements_size")
        self._bytes, self._files = self._bytes + len(text.encode()), self._files + 1
        if self._bytes > limits().requirements_size:
            raise _TooMuchError(f"{path}: with it, requirements have more bytes than {bound('requirements_size')}")
        if self._files > limits().included_files:
            raise _TooMuchError(f"{path}: with it, requirements have more files than {bound('included_files')}")
        return text

    def lines(self, path: Path) -> Iterator[tuple[int, str]]:
        for number, text in _logical(self.text(path)):
            self._lines += 1
            if self._lines > limits().requirement_lines:
                raise _TooMuchError(f"{path}:{number}: requirements have more lines than {bound('requirement_lines')}")
            yield number, text


def _lines(path: Path, constrains: bool, above: tuple[Path, ...], reading: _Reading) -> Iterator[Line]:
    if len(above) > _DEEPEST or path.absolute() in above:
        raise OptionError(f"{path}: requirements files include each other in a circle, or more than {_DEEPEST} deep")
    for number, text in reading.lines(path):
        if len(text) > limits().requirement_size:
            said = f"{cut(text, _SHOWN)}… has more characters than {bound('requirement_size')}"
            yield Line(path, number, "", (), constrains, said)
            continue
        line = _taken_apart(path, number, text, constrains)
        nested = [(name, value) for name, value in line.options if name in ("--requirement", "--constraint")]
        if line.requirement or not nested:
            yield line
        for name, value in nested if not line.requirement else ():
            said = ""
            if "://" in value:
                said = f"{name} {value}: remote files are not read; download it, and give its path"
            elif why := closed_to_author(path.parent / value, path) or closed_elsewhere(path.parent / value, path):
                said = f"{name} {value}: {why}"
            else:
                try:
                    yield from _lines(path.parent / value, name == "--constraint", (*above, path.absolute()), reading)
                except _TooMuchError:  # raised at once, not listed: there may be any number
                    raise
                except OptionError as error:
                    said = f"{error.message}; {name} in a file is relative to that file"
            if said:
                yield Line(path, number, "", (), constrains, said)


def read_text(path: Path, limit: str) -> str:
    """The text of a lock or of requirements. Raises OptionError if it is unreadable, or exceeds the limit `limit`."""
    try:
        return read_bounded(path, limit).decode("utf-8-sig")
    except NotReadError as error:
        raise _TooMuchError(str(error)) from error
    except FileNotFoundError as error:
        raise OptionError(f"there is no file {path}") from error
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a NUL in the path
        raise OptionError(f"{path} cannot be read: {error}") from error


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, each with the number of its first line; a backslash at the end continues a line."""
    begun, parts = 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        begun = begun if parts else number
        if line.endswith("\\") and not _COMMENT.match(line):
            parts.append(line.strip("\\"))
            continue
        whole = _COMMENT.sub("", "".join((*parts, f" {line}" if _COMMENT.match(line) else line))).strip()
        parts = []
        if whole:
            yield begun, whole
    if whole := _COMMENT.sub("", "".join(parts)).strip():
        yield begun, whole


def _taken_apart(path: Path, number: int, text: str, constrains: bool) -> Line:
    missing = list[str]()
    secret = next((name for name in _VARIABLE.findall(text) if is_secret(name)), "")

    def value(found: re.Match[str]) -> str:
        if found[1] == secret:
            return found[0]
        if not (said := os.environ.get(found[1])):
            missing.append(found[1])
        return said or found[0]

    text = _VARIABLE.sub(value, text)
    words = text.split(" ")
    count = next((index for index, word in enumerate(words) if word.startswith("-")), len(words))
    requirement, said = " ".join(words[:count]).strip(), " ".join(words[count:])
    problem = f"the variable {missing[0]} is not set, or empty; export it, or write its value" if missing else ""
    if secret:
        problem = f"the value of the variable {secret} would be stored where other users can read it; {_KEEP}"
    if not said:
        return Line(path, number, requirement, (), constrains, problem)
    try:
        values, rest = _PARSER.parse_args(shlex.split(said))
        if rest:
            problem = problem or f"{rest[0]!r} is neither an option nor the value of one; give it its own line"
        options = tuple(_options(values))
    except (_RefusedError, OptionValueError, ValueError) as error:
        options = ()
        problem = problem or f"the options from {said.split()[0]} on cannot be used ({error}); correct or remove them"
    return Line(path, number, requirement, options, constrains, problem)


def _options(values: Values) -> Iterator[tuple[str, str]]:
    for name, said in vars(values).items():
        if isinstance(said, list):
            yield from ((_SYNONYMS.get(name, name), one) for one in said)
        elif said:
            yield name, ""
