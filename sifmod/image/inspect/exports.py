"""The variables that an environment script of an image exports, read and not run."""

import re

_ASSIGNED = re.compile(r"(?:^|[;&|\n])[ \t]*(export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)=")
_EXPORTED = re.compile(r"(?:^|[;&\n])[ \t]*export((?:[ \t]+[A-Za-z_][A-Za-z0-9_]*)+)[ \t]*(?=$|[;&\n])")
_DEFAULT = re.compile(r"\$\{(\w+):?-")
_LARGEST = 1 << 20  # letters of a script
_DEEPEST = 8  # quotes in braces in quotes


def exported(script: str) -> dict[str, str]:
    """What `script` exports, in its order, without quotes; `NAME=${NAME:-"default"}` gives the default.

    A value that needs a shell (`$PATH:…`, `$(…)`) stays as it is written. It is for people and for guesses: control
    flow is not followed.
    """
    script = script[:_LARGEST]
    later = {name for match in _EXPORTED.finditer(script) for name in match[1].split()}
    found: dict[str, str] = {}
    at = 0
    while match := _ASSIGNED.search(script, at):
        value, at = _scan(script, match.end(), " \t\n;&|", match[2])
        if match[1] or match[2] in later:
            found[match[2]] = value
    return found


def _scan(script: str, at: int, ends: str, name: str, depth: int = 0) -> tuple[str, int]:
    """The text up to one of `ends`, without its quotes, and the place of that end."""
    parts: list[str] = []
    while at < len(script) and (letter := script[at]) not in ends:
        default = _DEFAULT.match(script, at) if letter == "$" else None
        if letter == "\\":
            kept = script[at + 1 : at + 2]
            parts.append(kept if ends != '"' or kept in '"\\$`' else f"\\{kept}")
            at += 2
        elif letter == "'" and ends != '"':
            end = script.find("'", at + 1)
            parts.append(script[at + 1 : end] if end >= 0 else script[at + 1 :])
            at = end + 1 if end >= 0 else len(script)
        elif depth < _DEEPEST and (letter == '"' or (default and default[1] == name)):
            begin, inner = (default.end(), "}") if default else (at + 1, '"')
            text, at = _scan(script, begin, inner, name, depth + 1)
            parts.append(text)
            at += 1
        else:
            parts.append(letter)
            at += 1
    return "".join(parts), at
