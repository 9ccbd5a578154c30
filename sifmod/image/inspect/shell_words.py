"""The words of a shell script: quotes, expansions, and values that only a shell can compute."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?=)")
_PLAIN = re.compile(r"[A-Za-z0-9_./+%,@-]+")
_CARRIAGE_RETURN = "$(printf '\\r')"  # the spelling in sifmod's own scripts
_DEEPEST = 8  # quotes in braces in quotes


class NotUnderstoodError(Exception):
    """The ends of a script's statements are unclear."""


@dataclass(frozen=True)
class Variable:
    """`$name`, or `${name…}` with one of :- - :+ + and the word after it."""

    name: str
    operator: str = ""
    word: tuple["Part", ...] = ()


@dataclass(frozen=True)
class Unknown:
    """A value that only a shell can compute; `command`: it may differ from start to start, like a command's output."""

    command: bool = False


Part = str | Variable | Unknown


@dataclass(frozen=True)
class Word:
    """One word: its text as written, and its value; with `name` and `operator` (= or +=) it assigns that value."""

    text: str
    value: tuple[Part, ...]
    name: str = ""
    operator: str = ""


class WordReader:
    """Reads the words of `script`, from the position `at` on."""

    def __init__(self, script: str) -> None:
        self.script, self.at = script, 0

    def skip_blanks(self) -> bool:
        """Go to the next token; False at the end. Comments and escaped line ends are not tokens."""
        script = self.script
        while self.at < len(script):
            if script[self.at] in " \t":
                self.at += 1
            elif script.startswith("\\\n", self.at):
                self.at += 2
            elif script[self.at] == "#":
                end = script.find("\n", self.at)
                self.at = end if end >= 0 else len(script)
            else:
                return True
        return False

    def skip_document(self, delimiter: str, *, tabs: bool) -> None:
        while self.at < len(self.script):
            end = self.script.find("\n", self.at)
            end = end if end >= 0 else len(self.script)
            line = self.script[self.at : end]
            self.at = end + 1
            if (line.lstrip("\t") if tabs else line) == delimiter:
                return
        raise NotUnderstoodError

    def word(self) -> Word:
        begin, name, operator = self.at, "", ""
        if assigned := _ASSIGNED.match(self.script, begin):
            (name, operator), self.at = assigned.groups(), assigned.end()
        value = tuple(self.parts(" \t\n;&|()<>", 0, tildes=True))
        if self.at == begin:
            raise NotUnderstoodError
        if self.script.startswith("(", self.at) and (name or value):  # a function, or an array
            value = (Unknown(),)
        return Word(self.script[begin : self.at], value, name, operator)

    def parts(self, ends: str, depth: int, *, tildes: bool = False) -> Iterator[Part]:
        """Text outside of quotes, up to one of `ends`. Raises NotUnderstoodError."""
        begin = self.at
        while self.at < len(self.script) and (letter := self.script[self.at]) not in ends:
            if letter == "\\":
                if not self.script.startswith("\\\n", self.at):
                    yield Unknown()  # Apptainer's shell keeps the backslash in an assignment, others do not
                self.at += 2
            elif letter == "'":
                self.at += 1
                yield self.up_to("'")
            elif letter == '"':
                self.at += 1
                yield from self.quoted('"', depth + 1)
            elif letter == "~" and (not tildes or self.at == begin or self.script[self.at - 1] in ":="):
                self.at += 1
                yield Unknown()
            else:
                yield from self.other(depth, quoted=False)

    def up_to(self, end: str) -> str:
        begin, self.at = self.at, self.script.find(end, self.at) + 1
        if not self.at:
            raise NotUnderstoodError
        return self.script[begin : self.at - 1]

    def quoted(self, end: str, depth: int) -> Iterator[Part]:
        """Text in double quotes, or after an operator in braces within them. Raises NotUnderstoodError."""
        if depth > _DEEPEST:
            raise NotUnderstoodError
        while not self.script.startswith(end, self.at):
            letter = self.script[self.at : self.at + 1]
            if not letter:
                raise NotUnderstoodError
            if letter == "\\":
                following = self.script[self.at + 1 : self.at + 2]
                self.at += 2
                if end == "}":
                    yield Unknown()
                elif following != "\n":
                    yield following if following in '"\\$`' and following else f"\\{following}"
            elif letter == '"':  # only in braces
                self.at += 1
                yield from self.quoted('"', depth + 1)
            elif letter == "'" and end == "}":  # whether it quotes depends on what is around the braces
                raise NotUnderstoodError
            else:
                yield from self.other(depth, quoted=True)
        self.at += 1

    def other(self, depth: int, *, quoted: bool) -> Iterator[Part]:
        """One character, or the construct that starts with it. Raises NotUnderstoodError."""
        script, letter = self.script, self.script[self.at]
        following = script[self.at + 1 : self.at + 2]
        if letter == "`":
            self.at += 1
            while self.up_to("`").endswith("\\"):
                pass
            yield Unknown(command=True)
        elif letter != "$":
            found = _PLAIN.match(script, self.at)
            self.at = found.end() if found else self.at + 1
            yield found[0] if found else letter
        elif script.startswith(_CARRIAGE_RETURN, self.at):
            self.at += len(_CARRIAGE_RETURN)
            yield "\r"
        elif following == "(":
            self.at += 2
            self.skip_command()
            yield Unknown(command=True)
        elif following == "{":
            self.at += 2
            yield from self.braces(depth, quoted=quoted)
        elif found := _NAME.match(script, self.at + 1):
            self.at = found.end()
            yield Variable(found[0])
        elif following == "'" and not quoted:
            raise NotUnderstoodError
        elif following and following in '"' and not quoted:
            self.at += 1
            yield Unknown()
        elif following and following in "0123456789?@*#!$-":
            self.at += 2
            yield Unknown(command=following == "$")  # `$$` differs from start to start
        else:
            self.at += 1
            yield letter

    def braces(self, depth: int, *, quoted: bool) -> Iterator[Part]:
        found = _NAME.match(self.script, self.at)
        operator = re.compile(r"\}|:?[-+]").match(self.script, found.end()) if found else None
        if not found or not operator or depth >= _DEEPEST:
            list(self.quoted("}", depth + 1))
            yield Unknown()
            return
        self.at = operator.end()
        if operator[0] == "}":
            yield Variable(found[0])
            return
        if quoted:
            word = tuple(self.quoted("}", depth + 1))
        else:
            word = tuple(self.parts("}", depth + 1))
            if not self.script.startswith("}", self.at):
                raise NotUnderstoodError
            self.at += 1
        yield Variable(found[0], operator[0], word)

    def skip_command(self) -> None:
        """Go past the `)` of `$(…)` or `$((…))`. Raises NotUnderstoodError where another `)` may come before it."""
        depth = 1
        while depth:
            letter = self.script[self.at : self.at + 1]
            if not letter or re.compile(r"(?<=[\s;&|(])#|<<|case\b").match(self.script, self.at):
                raise NotUnderstoodError
            self.at += 1
            if letter == "\\":
                self.at += 1
            elif letter == "'":
                self.up_to("'")
            elif letter == '"':
                list(self.quoted('"', 1))
            elif letter == "`":
                raise NotUnderstoodError
            else:
                depth += {"(": 1, ")": -1}.get(letter, 0)
