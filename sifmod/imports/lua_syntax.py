r"""The tokens of Lua, and the statements and expressions that a modulefile is made of.

Lmod runs on Lua 5.1 to 5.4. Where they read a text differently, 5.4's reading counts. From an escape that is new
(`\x41`, `\u{41}`, `\z`) 5.1 just drops the backslash, and so is done here with one that 5.4 refuses (`\q`).
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sifmod.imports.lua_values import HOLE
from sifmod.imports.result import CannotImportError

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
        raise CannotImportError(f"line {line}: not Lua: invalid escape {error}", line=line) from None
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
    """The calls in the statements and their blocks, and the names that they set and that are not local to them."""
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
    """The names that the statements set and that are not local to them, once each."""
    return tuple(dict.fromkeys(one for one in effects(statements) if isinstance(one, str)))
