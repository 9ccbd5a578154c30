"""Parse a shell script into statements, as far as needed to know the variables that it sets.

A statement that is not understood keeps its text. A script where even the end of a statement is unclear is refused.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from sifmod.image.inspect.shell_words import NotUnderstoodError, Word, WordReader

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r"\n|;;&|;;|;&|;|&&|&>>|&>|&|\|\||\||\(|\)")
_REDIRECTION = re.compile(r"(?:[0-9]+)?(?:<<<|<<-?|<>|<&|<|>>|>&|>\||>)")
_DELIMITER = re.compile(r"""[ \t]*(?:'([^'\n]+)'|"([^"$`\\\n]+)"|([A-Za-z0-9_.+-]+))(?=[\s;&|)]|\Z)""")
_ENDS = {"if": "fi", "for": "done", "while": "done", "until": "done", "select": "done", "case": "esac", "{": "}"}
_REFUSED = frozenset((*_ENDS.values(), "function", "coproc"))
_BEFORE_COMMANDS = frozenset(("then", "do", "else", "elif", "if", "while", "until", "{", "!", "time"))
_KEYWORDS = frozenset((*_BEFORE_COMMANDS, *_ENDS.values()))
_ASSIGNED_ANY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[^\]]*\])?\+?=")
_SET_IN_BRACES = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):?=")
_EXPORT = frozenset(("export", "declare", "typeset"))
_SETTING = ("readonly", "local", "unset", "read", "for", "select", "getopts", "mapfile", "readarray", "printf", "let")
_SET_NAMES = _EXPORT | {*_SETTING}
_RUN = frozenset((".", "source", "eval", "alias"))
_END = frozenset(("return", "exit", "exec", "set", "shopt", "trap", "break", "continue"))


@dataclass(frozen=True)
class Statement:
    """The words of a simple command that always runs; none for any other statement, which only has tokens."""

    tokens: tuple[str, ...]
    words: tuple[Word, ...] = ()


@dataclass(frozen=True)
class _Token:
    kind: Literal["word", "operator", "redirection"]
    text: str
    word: Word | None = None


def statements(script: str) -> Iterator[Statement]:
    """The statements of `script` in order. Raises NotUnderstoodError before the first one."""
    found: list[_Token] = []
    depth: list[str] = []
    begins, in_pattern = True, False
    result: list[Statement] = []
    for token in (*_tokens(script), _Token("operator", "\n")):
        text = token.text
        if token.kind == "operator" and not depth and text in ("\n", ";"):
            if text == ";" and not found:
                raise NotUnderstoodError
            result += _statement(found)
            found, begins = [], True
            continue
        found.append(token)
        if token.kind == "operator":
            if text == "(" and not in_pattern:
                depth.append(")")
            elif text == ")" and depth[-1:] == [")"]:
                depth.pop()
            elif text == ")" and not in_pattern:
                raise NotUnderstoodError
            in_pattern = depth[-1:] == ["esac"] and (text in (";;", ";;&", ";&") or (in_pattern and text != ")"))
            begins = True
        elif token.kind == "word" and begins:
            if depth and text == depth[-1]:
                depth.pop()
                begins = in_pattern = False
            elif in_pattern:
                begins = False
            elif text in _REFUSED:
                raise NotUnderstoodError
            else:
                if text in _ENDS:
                    depth.append(_ENDS[text])
                begins = text in _BEFORE_COMMANDS
        elif token.kind == "word" and text == "in" and depth[-1:] == ["esac"]:
            in_pattern, begins = True, True
    if depth:
        raise NotUnderstoodError
    yield from result


def _statement(tokens: list[_Token]) -> Iterator[Statement]:
    """The commands of a line, if `&&` only joins ones that cannot fail; else one statement without words."""
    if not tokens:
        return
    whole = tuple(token.text for token in tokens)
    commands: list[list[_Token]] = [[]]
    for token in tokens:
        if token.kind == "operator" and token.text == "&&":
            commands.append([])
        else:
            commands[-1].append(token)
    words = [tuple(token.word for token in command if token.word) for command in commands]
    plain = all(token.kind == "word" for command in commands for token in command) and all(words)
    assigns = all(_always_succeeds(command) for command in words[:-1]) if plain else False
    if not plain or not assigns or any(command[0].text in (*_ENDS, "!", "time") for command in words):
        yield Statement(whole)
        return
    for command in words:
        yield Statement(tuple(word.text for word in command), command)


def is_name(text: str) -> bool:
    """Whether `text` can be a variable's name."""
    return bool(_NAME.fullmatch(text))


def rough_tokens(script: str) -> list[str]:
    """The tokens of a script that is not understood, split at blanks and operators."""
    return re.findall(r"[\n;&|()]|[^\s;&|()]+", script)


@dataclass
class Effects:
    """The possible effects of a statement on variables, whether it is run or not."""

    names: set[str] = field(default_factory=set)  # that it may set or unset
    exported: set[str] = field(default_factory=set)
    runs: list[str] = field(default_factory=list)  # scripts and texts that are read as further statements
    ends: bool = False  # what follows may not run, or run otherwise
    all_exported: bool = False


def effects(tokens: Iterable[str]) -> Effects:
    """The possible effects of the commands among `tokens`."""
    found, command, begins = Effects(), list[str](), True
    for text in (*tokens, "\n"):
        found.names.update(_SET_IN_BRACES.findall(text))
        if _OPERATOR.fullmatch(text) or (begins and text in (*_KEYWORDS, "command", "builtin")):
            _note_command(found, command)
            command, begins = [], True
        elif begins and (assigned := _ASSIGNED_ANY.match(text)):
            found.names.add(assigned[1])
        else:
            command.append(text)
            begins = False
    return found


def _note_command(found: Effects, command: list[str]) -> None:
    name, *words = command or [""]
    if name in _SET_NAMES:
        names = {named[1] for word in words if (named := _ASSIGNED_ANY.match(word.strip("\"'")))}
        names |= {word for word in words if _NAME.fullmatch(word)}
        found.names |= names
        found.exported |= names if name in _EXPORT else set()
    if name in _RUN or (name in _EXPORT and any("$" in word.partition("=")[0] for word in words)):
        found.runs.append(" ".join(command))
    found.ends = found.ends or name in _END
    found.all_exported = found.all_exported or (
        name == "set" and bool(re.search(r" -\w*a| -o allexport", " ".join(command)))
    )


def _always_succeeds(words: tuple[Word, ...]) -> bool:
    of_exports = words[0].text in ("export", "readonly")
    return all(word.name or (of_exports and _NAME.fullmatch(word.text)) for word in words)


def _tokens(script: str) -> list[_Token]:
    reader, tokens, delimiters = WordReader(script), list[_Token](), list[tuple[str, bool]]()
    while reader.skip_blanks():
        at = reader.at
        if found := _REDIRECTION.match(script, at):
            reader.at = found.end()
            if "<<" in found[0] and not found[0].endswith("<<<"):
                named = _DELIMITER.match(script, reader.at)
                if not named:
                    raise NotUnderstoodError
                reader.at = named.end()
                delimiters.append((named[1] or named[2] or named[3], found[0].endswith("-")))
            tokens.append(_Token("redirection", script[at : reader.at]))
        elif found := _OPERATOR.match(script, at):
            reader.at = found.end()
            tokens.append(_Token("operator", found[0]))
            if found[0] == "\n" and delimiters:
                for delimiter, tabs in delimiters:
                    reader.skip_document(delimiter, tabs=tabs)
                delimiters = []
        else:
            word = reader.word()
            tokens.append(_Token("word", word.text, word))
    if delimiters:
        raise NotUnderstoodError
    return tokens
