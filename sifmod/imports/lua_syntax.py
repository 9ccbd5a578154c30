r"""Lua's tokens, the statements and expressions of modulefiles, and their values without a run.

Lmod runs on Lua 5.1 to 5.4. If they read a text differently, 5.4 is followed: 5.1 just drops the backslash of newer
escapes (`\x41`, `\u{41}`, `\z`), and of those that 5.4 rejects (`\q`). A value that only a run could tell (the output
of a program) is a hole in a text: a character of Unicode's private use area, which no file may contain.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from sifmod.imports.cost import CannotImportError

HOLE = "\ue000"
MAYBE = "\ue001"  # in front of a text that stands there on a condition that only a run could decide
SOMEWHERE = "\ue002"  # the value of a variable of the environment that is taken to be set
_UNKNOWN = re.compile(f"[{HOLE}{MAYBE}]")


@dataclass(frozen=True)
class Environment:
    """The value of an environment variable: unset."""

    name: str


class Default(str):
    """The default for an unset environment variable: `os.getenv("X") or "text"`.

    `whole` is false if the text is only a part of it.
    """

    variable: str
    whole: bool

    def __new__(cls, text: str, variable: str, *, whole: bool) -> "Default":
        made = super().__new__(cls, text)
        made.variable, made.whole = variable, whole
        return made


@dataclass
class Table:
    """A list, and the named values, in the file's order."""

    items: list["Value"]
    named: list[tuple["Value", "Value"]] = field(default_factory=list)


Value = str | int | float | bool | None | Environment | Table


def text_of(value: Value) -> str:
    """A value as `..` joins it; a hole for an unknown one.

    Numbers that Lua 5.1 and 5.3 print differently are unknown: 1.0 is 1 or 1.0, 10¹⁴ 1e+14 or its digits.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if value < 10**14 else HOLE
    text = f"{value:.14g}" if isinstance(value, float) else ""
    return HOLE if text.isdecimal() else text or HOLE


def certain(value: Value, made: dict[int, Table] | None = None) -> Value:
    """A value without markers of conditions; a list that is in several others, or in itself, is converted once."""
    if isinstance(value, str):
        return value.replace(MAYBE, "") if MAYBE in value else value
    if not isinstance(value, Table):
        return value
    made = {} if made is None else made
    if id(value) not in made:
        table = made[id(value)] = Table([])
        table.items = [certain(item, made) for item in value.items]
        table.named = [(certain(name, made), certain(item, made)) for name, item in value.named]
    return made[id(value)]


def is_certain(value: Value, seen: set[int] | None = None) -> bool:
    """Whether no part of a value depends on a condition that only a run could decide."""
    if isinstance(value, Table):
        seen = set() if seen is None else seen
        if id(value) in seen:
            return True
        seen.add(id(value))
        return all(is_certain(item, seen) for item in (*value.items, *chain.from_iterable(value.named)))
    return not (isinstance(value, str) and MAYBE in value)


def joined(values: tuple[Value, ...], text: str) -> str:
    """The text made from the values, with their conditions."""
    variable = next((value.variable for value in values if isinstance(value, Default)), "")
    return Default(text, variable, whole=False) if variable else text


def truth(value: Value) -> bool | None:
    """Whether a value is true in Lua; None if only a run could tell."""
    if isinstance(value, str) and _UNKNOWN.search(value):
        return None
    return not (value is None or value is False or isinstance(value, Environment))


def equal(left: Value, right: Value, wanted: bool) -> Value:
    """Whether two values are equal, or unequal; a hole if only a run could tell."""
    left, right = (None if isinstance(value, Environment) else value for value in (left, right))
    if any(isinstance(value, Table) or (isinstance(value, str) and _UNKNOWN.search(value)) for value in (left, right)):
        return HOLE
    return (left == right) is wanted


@dataclass(frozen=True)
class Asked:
    """What a condition tests: an environment variable by name, or something else by a function (isloaded, isDir)."""

    what: str
    name: str = ""
    is_set: bool = False  # it asks just whether the variable is set

    def __str__(self) -> str:
        """The assumption, as a clause."""
        return f"{self.name} counts as unset" if self.name else f"{self.what} counts as false"


@dataclass(frozen=True)
class Made:
    """One call: function, arguments, line, and whether it depends on a condition that only a run could decide.

    `asked` lists the tests of the conditions that were assumed to be true.
    """

    function: str
    arguments: tuple[Value, ...]
    line: int
    sure: bool
    asked: tuple[Asked, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(value for value in self.arguments if isinstance(value, str))


@dataclass(frozen=True)
class Untaken:
    """A branch that was skipped because of its condition: its line, the functions it calls, the names it sets."""

    asked: tuple[Asked, ...]
    line: int
    functions: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Read:
    """A file's calls in order, its variables at the end, all texts that they had, and the skipped branches."""

    calls: tuple[Made, ...]
    variables: dict[str, Value]
    texts: tuple[str, ...]
    skipped: tuple[str, ...]
    untaken: tuple[Untaken, ...]


_SPACE = re.compile(r"(?:\s+|--\[(=*)\[.*?\]\1\]|--(?!\[=*\[)[^\n]*)+", re.DOTALL)
_LONG = re.compile(r"\[(=*)\[\r?\n?(.*?)\]\1\]", re.DOTALL)
_OPENS = re.compile(r"(?:--)?\[=*\[")
_TOKEN = re.compile(
    r"""(?P<name>[A-Za-z_]\w*)|(?P<number>0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?)"""
    r"""|(?P<text>"(?:[^"\\\r\n]|\\(?:z\s*+|\r\n|.))*+"|'(?:[^'\\\r\n]|\\(?:z\s*+|\r\n|.))*+')"""
    r"""|(?P<sign>\.\.\.|\.\.|[=~<>]=|[-+*/%^#<>=(){}\[\];:,.])""",
    re.DOTALL,
)
_ESCAPE = re.compile(rb"\\(?:(\d{1,3})|x([0-9a-fA-F]{2})|u\{0*+([0-9a-fA-F]{1,8})\}|z\s*+|(\r\n|.))", re.DOTALL)
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v", b"\r\n": b"\n"}
_NO_LETTERS = re.compile("[\udc80-\udcff\ue000-\uf8ff]+")
_WORDS = (
    *("and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local"),
    *("nil", "not", "or", "repeat", "return", "then", "true", "until", "while"),
)


class Token(NamedTuple):
    """A token: its kind (name, word, number, text, sign, end), its text (a string's value) and its line.

    A text is `newer` if Lua 5.1 reads it differently.
    """

    kind: str
    text: str
    line: int
    newer: bool = False


@dataclass(frozen=True)
class Constant:
    """nil, true, false, a number (an integer is an int) or a text."""

    value: str | float | bool | None


@dataclass(frozen=True)
class Name:
    """A variable; `string.format` is one with a dot."""

    name: str


@dataclass(frozen=True)
class Chain:
    """Operands with one binary operator between them; or `not` and its operand."""

    operator: str
    operands: tuple["Expression", ...]


@dataclass(frozen=True)
class Items:
    """A table: its values; the key of a named value is an expression."""

    values: tuple[tuple["Expression | None", "Expression"], ...]


@dataclass(frozen=True)
class Call:
    """A call of a function by name, as a statement or in an expression."""

    function: str
    arguments: tuple["Expression", ...]
    line: int


@dataclass(frozen=True)
class Other:
    """A skipped expression: its value is unknown."""

    what: str


Expression = Constant | Name | Chain | Items | Call | Other


@dataclass(frozen=True)
class Assign:
    """`local a, b = x, y`, or without local."""

    names: tuple[str, ...]
    values: tuple[Expression, ...]
    local: bool


@dataclass(frozen=True)
class If:
    """Conditions with their blocks, and the block of `else`."""

    branches: tuple[tuple[Expression, tuple["Statement", ...]], ...]
    otherwise: tuple["Statement", ...]


@dataclass(frozen=True)
class ForEach:
    """`for a, b in expression do`."""

    names: tuple[str, ...]
    over: Expression
    body: tuple["Statement", ...]


@dataclass(frozen=True)
class Skipped:
    """A statement that is not evaluated: its kind, the names it binds, its line."""

    what: str
    names: tuple[str, ...]
    line: int
    local: bool = False


Statement = Assign | If | ForEach | Call | Skipped


def tokens(text: str) -> tuple[Token, ...]:
    """All tokens, followed by an `end`; raises CannotImportError for invalid Lua."""
    found: list[Token] = []
    position, line = 0, 1
    while position < len(text):
        if space := _SPACE.match(text, position):
            line += space.group().count("\n")
            position = space.end()
            continue
        if match := _LONG.match(text, position):
            found.append(Token("text", match[2].replace("\r\n", "\n"), line))
        elif _OPENS.match(text, position):
            raise CannotImportError(f"line {line}: not Lua: unclosed text or comment in brackets", line=line)
        elif match := _TOKEN.match(text, position):
            found.append(_token(match, line))
        else:
            raise CannotImportError(f"line {line}: not Lua: {text[position : position + 20]!r}", line=line)
        line += match.group().count("\n")
        position = match.end()
    return (*found, Token("end", "", line))


def _token(match: re.Match[str], line: int) -> Token:
    kind, text = str(match.lastgroup), match.group()
    if kind == "name" and text in _WORDS:
        kind = "word"
    if kind != "text":
        return Token(kind, text, line)
    newer = bool(re.search(r"(?<!\\)(?:\\\\)*+\\[xuz]", text))
    try:
        data = _ESCAPE.sub(_escaped, text[1:-1].encode())
    except ValueError as error:
        raise CannotImportError(f"line {line}: not Lua: the escape {error}", line=line) from None
    return Token(kind, _NO_LETTERS.sub(HOLE, data.decode(errors="surrogateescape")), line, newer)


def _escaped(found: re.Match[bytes]) -> bytes:
    """The bytes of an escape; raises ValueError if no version of Lua accepts it."""
    byte, hexadecimal, code, sign = found.groups()
    if code:
        number = int(code, 16)
        return chr(number).encode(errors="surrogatepass") if number <= sys.maxunicode else b"\xff"
    if byte and int(byte) > 255:
        raise ValueError(found.group().decode())
    if byte or hexadecimal:
        return bytes([int(byte or hexadecimal, 10 if byte else 16)])
    return _ESCAPES.get(sign, sign or b"")


def effects(statements: tuple[Statement, ...]) -> Iterator[Call | str]:
    """The calls in the statements and their blocks, and the names that they set outside."""
    own = set[str]()
    for statement in statements:
        inner: Iterator[Call | str] = iter(())
        match statement:
            case Call():
                yield statement
            case Assign(names=names, local=True) | Skipped(names=names, local=True):
                own.update(names)
            case Assign(names=names) | Skipped(names=names):
                inner = iter(names)
            case If(branches=branches, otherwise=otherwise):
                inner = (one for body in (*(body for _, body in branches), otherwise) for one in effects(body))
            case ForEach(names=names, body=body):
                inner = (one for one in effects(body) if one not in names)
        yield from (one for one in inner if not isinstance(one, str) or one not in own)


def sets(statements: tuple[Statement, ...]) -> tuple[str, ...]:
    """The names that the statements set outside, once each."""
    return tuple(dict.fromkeys(one for one in effects(statements) if isinstance(one, str)))
