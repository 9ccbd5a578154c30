r"""Quote any text as one literal of Lua, Tcl or the POSIX shell, so that no part of it is executed.

Each function accepts any text without NUL and returns a complete literal that the language reads back unchanged. The
literals are for people too: plain text stays readable, several lines stay several lines.
"""

import re
from collections.abc import Callable, Mapping

from sifmod.config.kinds import Syntax
from sifmod.errors import ModuleError

_LUA_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}
_TCL_ESCAPES = {"\n": "\\n", "\t": "\\t"} | {sign: f"\\{sign}" for sign in '\\"$[]{}'}
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:+@%,=-]+")


def lua(text: str) -> str:
    """A Lua string: `"…"`, or a long bracket for several lines of plain text."""
    _refuse_nul(text)
    if "\n" in text and not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text):
        # `[==[`, a line break that Lua skips, the text; with enough `=` that the text does not contain the end
        level = 2  # as EasyBuild writes it; Lua 5.1 also refuses a `[[` within `[[…]]`
        while f"]{'=' * level}]" in f"{text}]{'=' * level}":
            level += 1
        return f"[{'=' * level}[\n{text}]{'=' * level}]"
    escaped = re.sub(r'[\x00-\x1f\x7f"\\]', lambda sign: _LUA_ESCAPES.get(sign[0], f"\\{ord(sign[0]):03d}"), text)
    return f'"{escaped}"'


def tcl(text: str) -> str:
    """One Tcl word: bare if safe, else in braces, else in double quotes; also safe within outer braces."""
    _refuse_nul(text)
    if _PLAIN_WORD.fullmatch(text):
        return text
    if text != "*" and not re.search(r"[\x00-\x09\x0b-\x1f\x7f\\]", text) and _balanced(text):  # {*} is an operator
        return "{" + text + "}"
    signs = r'[\x00-\x1f\x7f"\\$\[\]{}]'
    escaped = re.sub(signs, lambda sign: _TCL_ESCAPES.get(sign[0], f"\\u{ord(sign[0]):04x}"), text)
    return f'"{escaped}"'


def shell(text: str) -> str:
    """One word of a POSIX shell: bare if safe, else in single quotes."""
    _refuse_nul(text)
    if _PLAIN_WORD.fullmatch(text) and "=" not in text:  # `a=b` before a command would be an assignment
        return text
    return "'" + text.replace("'", "'\\''") + "'"


def users_place(path: str) -> str:
    """A path of the user as a word of a POSIX shell, which expands a part `$USER` of it."""
    return "/".join('"${USER-}"' if part == "$USER" else shell(part) if part else "" for part in path.split("/"))


def _balanced(text: str) -> bool:
    depth = 0
    for sign in text:
        depth += (sign == "{") - (sign == "}")
        if depth < 0:
            return False
    return depth == 0


def _refuse_nul(text: str) -> None:
    if "\0" in text:
        raise ModuleError(f"a text contains a NUL character, which variables and scripts cannot contain: {text!r}")


SPELLED: Mapping[Syntax, Callable[[str], str]] = {"lua": lua, "tcl": tcl}  # quote a text in a modulefile of this syntax
BETWEEN: Mapping[Syntax, str] = {"lua": ", ", "tcl": " "}  # separate two literals of a list
