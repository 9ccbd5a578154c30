"""Faults of templates and of what they hold: POSIX sh, Lua and Tcl, told apart by the file's name.

By lines, as these languages are written here: a line is a statement where it neither opens nor closes anything. The
words of messages, comments and the help text (but for its conditions) are left alone.
"""

import re
from collections.abc import Callable, Iterator

from fault import Fault

Change = tuple[str, int, int, str]  # operator, from and to which character of the line, by which text

COMMENT = {"sh": "#", "lua": "--", "tcl": "#", "text": "{#"}
NOTHING = {"sh": ":", "lua": "", "tcl": ""}
# what a line of sh begins with that opens, goes on or closes something
SHELL_FRAME = re.compile(
    r"(if|then|elif|else|fi|for|while|until|do|done|case|esac|function)\b"
    r"|[{}()]|\{%|;;|\S+\(\) \{|[^'\"$ ]+\)( |$)|&&|\|\||#|'|\"|return|shift"
)
ARM = re.compile(r"(?P<pattern>\s*\S[^()]*\) )(?P<body>[^;#\s].*?)(?P<end> ;;.*)$")
LUA_STATEMENT = re.compile(r"(?!for |if |while |return )([\w.\[\]\"' ,]+ = .+|[\w.:]+\(.*\))")
TCL_STATEMENT = re.compile(r"(set|lappend|append|dict|incr|unset|setenv|unsetenv|puts|break|continue|sifmod_\w+)\b.*")
TESTS: dict[str, tuple[tuple[str, str], ...]] = {
    "sh": ((r"\[ (?!!)", "[ ! "), (r"\[ ! ", "[ "), (r"&&", "||"), (r"\|\|", "&&"))
}
TESTS["lua"] = ((r"\bif not ", "if "), (r"\bif (?!not )", "if not "), (r" and ", " or "), (r" or ", " and "))
TESTS["lua"] += ((r" == ", " ~= "), (r" ~= ", " == "), (r" > ", " >= "), (r"#(\w+) > 0", r"#\1 > 1"))
TESTS["tcl"] = ((r"\bif \{!", "if {"), (r"\bif \{(?!!)\[", "if {!["), (r"&&", "||"), (r"\|\|", "&&"))
TESTS["tcl"] += ((r" eq ", " ne "), (r" ne ", " eq "), (r" > ", " >= "))
TESTS["text"] = ()
ANY = ((r"\{% if (?!not )([\w.]+)", r"{% if not \1"), (r" \| (shell|here\(root\)|quote)(?= |\))", ""))


def kind(path: str) -> str:
    """The language of a template."""
    name = path.removesuffix(".j2")
    return next(
        (each for end, each in ((".lua", "lua"), (".tcl", "tcl"), (".txt", "text")) if name.endswith(end)), "sh"
    )


def text_faults(path: str, source: bytes) -> list[Fault]:
    """Every fault that this template can have."""
    text = source.decode()
    language = kind(path)
    found = []
    lines = text.splitlines(keepends=True)
    start = 0
    embedded = False  # between a quote that a line leaves open and its end
    for number, line in enumerate(lines, 1):
        before = lines[number - 2].rstrip() if number > 1 else ""
        opens = language == "sh" and line.count("'") % 2 == 1 and not line.lstrip().startswith("#")
        if not (embedded or opens or line.lstrip().startswith(COMMENT[language])) and line.strip():
            for operator, begin, end, after in _changes_of(line.rstrip("\n"), before, language):
                at = [len(text[: start + place].encode()) for place in (begin, end)]
                found.append(Fault(path, number, operator, at[0], at[1], after))
        embedded ^= opens
        start += len(line)
    return found


def _changes_of(line: str, before: str, language: str) -> Iterator[Change]:
    code = _code(line, language)
    for pattern, after in (*ANY, *TESTS[language]):
        for match in re.finditer(pattern, code):
            yield "a test is swapped", match.start(), match.end(), match.expand(after)
    yield from OF_LANGUAGE[language](code, before)


def _code(line: str, language: str) -> str:
    """The line without the comment at its end."""
    return re.split(r"\s(?:--|#) (?=[^'\"]*$)", line)[0] if language != "tcl" else line


def _of_shell(code: str, before: str) -> Iterator[Change]:
    stripped = code.strip()
    indent = len(code) - len(code.lstrip())
    goes_on = before.endswith(("\\", "&&", "||", "|"))
    whole = not stripped.endswith(("\\", "{", "&&", "||", "|", ";;", "(")) and not goes_on
    if whole and not SHELL_FRAME.match(stripped):
        yield "a line is dropped", indent, len(code), NOTHING["sh"]
    if re.fullmatch(r"if .*; then .*; fi", stripped):
        yield "a line is dropped", indent, len(code), NOTHING["sh"]
    if arm := ARM.match(code):
        yield "what an arm does is dropped", arm.start("body"), arm.end("body"), ":"
    if pattern := re.match(r"\s*([^()'\"]+ \| [^()'\"]+)\)( |$)", code):
        items = pattern[1].split(" | ")
        for left in range(len(items)):
            rest = " | ".join(item for i, item in enumerate(items) if i != left)
            yield "an item of a pattern is dropped", pattern.start(1), pattern.end(1), rest
    if not re.match(r"(export )?\w+=", stripped) and not stripped.startswith(("case", "printf")):
        for quoted in re.finditer(r"\"(\$\{?(?![#?$]|\w+:-\d)[\w@#%*;:/-]+\}?)\"", code):
            yield "quotes are dropped", quoted.start(), quoted.end(), quoted[1]
    for mode in re.finditer(r"(?<=chmod )\S+|(?<=umask )\d+", code):
        yield "another mode", mode.start(), mode.end(), "000" if code[: mode.start()].endswith("umask ") else "a+rwX"
    for word in re.finditer(r" (-e|-n|-f|-d|-z) ", code):
        swapped = {"-e": "-d", "-n": "-z", "-z": "-n", "-f": "-e", "-d": "-e"}[word[1]]
        yield "a test is swapped", word.start(1), word.end(1), swapped


def _of_lua(code: str, before: str) -> Iterator[Change]:
    stripped = code.strip()
    whole = all(stripped.count(a) == stripped.count(b) for a, b in ("()", "[]", "{}"))
    if LUA_STATEMENT.fullmatch(stripped) and whole and not before.endswith(("{", ",", "=", "(", "and", "or")):
        yield "a line is dropped", len(code) - len(stripped), len(code), ""
    if one := re.search(r"(?<=then )(?!return)\S.*(?= end$)|(?<=do )\S.*(?= end$)", code):
        yield "a line is dropped", one.start(), one.end(), ""
    yield from _of_strings(code, r"\"\w+\", \"\w+\"", ", ")


def _of_tcl(code: str, before: str) -> Iterator[Change]:
    stripped = code.strip()
    whole = all(stripped.count(a) == stripped.count(b) for a, b in ("()", "[]", "{}"))
    if TCL_STATEMENT.fullmatch(stripped) and whole and not stripped.endswith("\\") and not before.endswith("\\"):
        yield "a line is dropped", len(code) - len(stripped), len(code), ""
    if one := re.fullmatch(r"(\s*(?:if|foreach) .*\{)([^{}]+)\}", code):
        yield "a line is dropped", one.start(2), one.end(2), ""


def _of_strings(code: str, pattern: str, separator: str) -> Iterator[Change]:
    for found in re.finditer(pattern, code):
        yield "an item is dropped", found.start(), found.end(), found[0].split(separator)[0]


def _of_text(_code: str, _before: str) -> Iterator[Change]:
    yield from ()


OF_LANGUAGE: dict[str, Callable[[str, str], Iterator[Change]]] = {
    "sh": _of_shell,
    "lua": _of_lua,
    "tcl": _of_tcl,
    "text": _of_text,
}
