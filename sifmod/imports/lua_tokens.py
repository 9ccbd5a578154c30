r"""The tokens of Lua.

Lmod runs on Lua 5.1 to 5.4. Where they read a text differently, 5.4's reading counts. From an escape that is new
(`\x41`, `\u{41}`, `\z`) 5.1 just drops the backslash, and so is done here with one that 5.4 refuses (`\q`).
"""

import re
import sys
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


def number(text: str) -> float:
    """The value of a number: an int for a hexadecimal one and an integer of up to 18 digits, else a float."""
    if text.startswith("0x"):
        return int(text, 16)
    return int(text) if text.isdecimal() and len(text) < 19 else float(text)
