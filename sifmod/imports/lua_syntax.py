"""The tokens of Lua, and the few kinds of statements and expressions that a modulefile is made of."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from sifmod.imports.budget import CannotImportError

_SPACE = re.compile(r"(?:\s+|--\[(=*)\[.*?\]\1\]|--(?!\[=*\[)[^\n]*)+", re.DOTALL)
_LONG = re.compile(r"\[(=*)\[\r?\n?(.*?)\]\1\]", re.DOTALL)
_OPENS = re.compile(r"(?:--)?\[=*\[")
_TOKEN = re.compile(
    r"""(?P<name>[A-Za-z_]\w*)|(?P<number>0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?)"""
    r"""|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<sign>\.\.\.|\.\.|[=~<>]=|[-+*/%^#<>=(){}\[\];:,.])""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(\d{1,3}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "", "b": "", "f": "", "v": ""}
_WORDS = (
    *("and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local"),
    *("nil", "not", "or", "repeat", "return", "then", "true", "until", "while"),
)


class Token(NamedTuple):
    """A token: its kind (name, word, number, text, sign, end), its text (a string's value) and its line."""

    kind: str
    text: str
    line: int


@dataclass(frozen=True)
class Constant:
    """nil, true, false, a number or a text."""

    value: str | float | bool | None


@dataclass(frozen=True)
class Name:
    """A variable; `string.format` is one with a dot in it."""

    name: str


@dataclass(frozen=True)
class Chain:
    """Operands with one binary operator between them; or `not` and its operand."""

    operator: str
    operands: tuple["Expression", ...]


@dataclass(frozen=True)
class Items:
    """A table: its positional values, then those with a name."""

    values: tuple["Expression", ...]


@dataclass(frozen=True)
class Call:
    """A call of a function by its name, on its own or within an expression."""

    function: str
    arguments: tuple["Expression", ...]
    line: int


@dataclass(frozen=True)
class Other:
    """An expression that is skipped: its value stays unknown."""

    what: str


Expression = Constant | Name | Chain | Items | Call | Other


@dataclass(frozen=True)
class Assign:
    """`local a, b = x, y`, or without local."""

    names: tuple[str, ...]
    values: tuple[Expression, ...]


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
    """A statement that is not evaluated: what it is, the names it binds, its line."""

    what: str
    names: tuple[str, ...]
    line: int


Statement = Assign | If | ForEach | Call | Skipped


def tokens(text: str) -> tuple[Token, ...]:
    """All tokens with an `end` behind them; raises CannotImportError for what is not Lua."""
    found: list[Token] = []
    position, line = 0, 1
    while position < len(text):
        if space := _SPACE.match(text, position):
            line += space.group().count("\n")
            position = space.end()
            continue
        if match := _LONG.match(text, position):
            found.append(Token("text", match[2], line))
        elif _OPENS.match(text, position):
            raise CannotImportError(f"line {line}: not Lua: a text or a comment in brackets is not closed")
        elif match := _TOKEN.match(text, position):
            found.append(_token(match, line))
        else:
            raise CannotImportError(f"line {line}: not Lua: {text[position : position + 20]!r}")
        line += match.group().count("\n")
        position = match.end()
    return (*found, Token("end", "", line))


def _token(match: re.Match[str], line: int) -> Token:
    kind, text = str(match.lastgroup), match.group()
    if kind == "name" and text in _WORDS:
        kind = "word"
    if kind == "text":
        text = _ESCAPE.sub(lambda found: _escape(found[1]), text[1:-1])
    return Token(kind, text, line)


def _escape(text: str) -> str:
    return chr(int(text) % 256) if text.isdecimal() else _ESCAPES.get(text, text)
