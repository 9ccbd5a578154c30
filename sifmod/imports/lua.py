"""Find the calls that a Lua modulefile makes when it is loaded, by reading it; nothing is run.

Environment variables count as unset, files as missing, modules as not loaded. If only a run could decide a condition,
every branch is read and its calls are marked. Other calls record their conditions, and `untaken` has the skipped
branches.
"""

import re
from collections import ChainMap
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import cast

from sifmod.imports.lua_expressions import Expressions
from sifmod.imports.lua_tokens import tokens
from sifmod.imports.lua_values import HOLE, Question, Read, Skipped, Table, Value, certain, truth
from sifmod.imports.result import Budget, CannotImportError

_PRIVATE = re.compile("[\ue000-\uf8ff]")  # the signs of lua_values.py: HOLE, MAYBE, SOMEWHERE
_NEWER = r"line {}: \x, \u and \z in a text are read as in Lua 5.3; Lua 5.1 drops the backslash"


def read_lua(text: str, name: str, version: str, given: frozenset[str] = frozenset()) -> Read:
    """Read a modulefile with this name and version; raises CannotImportError for invalid Lua or an exceeded limit.

    The environment variables `given` count as set to a directory that has every file that the modulefile looks for.
    """
    found = tokens(_PRIVATE.sub(HOLE, text))
    file = _File(found, Budget(), ChainMap({"_name": name, "_version": version}), given)
    file.skipped += [_NEWER.format(token.line) for token in found if token.newer][:1]
    try:
        file.statements()
        variables = {key: certain(value) for key, value in file.variables.items()}
    except RecursionError:
        raise CannotImportError("cannot be read: it is nested too deep") from None
    return Read(
        tuple(file.calls), variables, tuple(file.texts), tuple(dict.fromkeys(file.skipped)), tuple(file.untaken)
    )


@dataclass
class _File(Expressions):
    """The statements of a file, which are executed while they are parsed."""

    texts: dict[str, None] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    untaken: list[Skipped] = field(default_factory=list)

    def statements(self, *ends: str) -> None:
        with self.budget.level():
            while self.peek().kind != "end" and not self.is_at(*ends):
                if not self.accept(";"):
                    self.statement()

    def block(self, *ends: str, names: Mapping[str, Value] | None = None) -> None:
        """Statements with their own local variables, up to one of the words `ends`."""
        outside = self.variables
        self.variables = outside.new_child(dict(names or {}))
        self.statements(*ends)
        self.variables = outside

    def statement(self) -> None:
        token = self.peek()
        if token.kind != "word":
            self.assignment_or_call()
            return
        match self.next().text:
            case "if":
                self.conditional()
            case "for":
                self.loop(token.line)
            case "do":
                self.block("end")
                self.expect("end")
            case "while":
                with self.skip() as body:
                    self.expression()
                    self.expect("do")
                    self.block("end")
                    self.expect("end")
                self.leave_out("a loop", token.line, body.names)
            case "repeat":
                with self.skip() as body:
                    self.block("until")
                    self.expect("until")
                    self.expression()
                self.leave_out("a loop", token.line, body.names)
            case "function":
                name = self.next().text
                while self.accept(".", ":"):
                    name = f"{name}.{self.next().text}"[:200]
                self.function_body()
                self.leave_out("a function definition", token.line, (name,))
            case "local" if self.accept("function"):
                name = self.next().text
                self.function_body()
                self.leave_out("a function definition", token.line, (name,), local=True)
            case "local":
                names = self.names()
                self.assign(names, self.expressions() if self.accept("=") else (), local=True)
            case "return" | "break" as word:
                with self.skip():
                    if not (self.peek().kind == "end" or self.is_at("end", "else", "elseif", "until", ";")):
                        self.expressions()
                self.leave_out(f"the end of execution ({word})", token.line)
            case word:
                raise self.refused(f"unexpected {word}", token.line)

    def names(self) -> tuple[str, ...]:
        found = [self.next().text]
        while self.accept(","):
            found.append(self.next().text)
        return tuple(found)

    def leave_out(self, what: str, line: int, names: Iterable[str] = (), *, local: bool = False) -> None:
        """Note a statement that is not evaluated; the names that it sets have unknown values."""
        if self.skipping is None:
            self.skipped.append(f"line {line}: {what} is not supported")
        for name in names:
            self.bind(name, HOLE, local)

    def bind(self, name: str, value: Value, local: bool) -> None:
        """Set a name in this block if `local`, else in the innermost block that has it, or globally."""
        maps = cast("list[dict[str, Value]]", self.variables.maps)
        if (skipped := self.skipping) is None:
            there = maps[:1] if local else (one for one in maps if name in one)
            next(iter(there), maps[-1])[name] = value
        elif local:
            maps[0][name] = HOLE
        elif not any(name in one for one in maps[: -skipped.scopes]):
            skipped.names[name] = None

    def assign(self, names: tuple[str, ...], values: tuple[Value, ...], local: bool) -> None:
        for index, name in enumerate(names):
            value = values[index] if index < len(values) else None
            if isinstance(value, str) and self.skipping is None:
                self.texts[str(certain(value))] = None
                self.budget.letters(len(value))
            self.bind(name, self.marked(value), local)

    def assignment_or_call(self) -> None:
        line = self.peek().line
        first = self.term()
        targets = [first]
        while self.accept(","):
            targets.append(self.term())
        names = tuple(target.name for target in targets if target.name)
        if self.accept("="):
            known = len(names) == len(targets)
            with nullcontext() if known else self.skip():
                values = self.expressions()
            if known:
                self.assign(names, values, local=False)
            else:
                self.leave_out("this kind of assignment", line, names)
        elif first.function and self.skipping:
            self.skipping.functions[first.function] = None
            if len(self.variables.maps) == self.skipping.scopes + 1:
                self.skipping.line = self.skipping.line or first.line
        elif first.what:
            self.leave_out(first.what, line)
        elif not first.function:
            raise self.refused("expected a statement", line)

    def conditional(self) -> None:
        before = self.sure, self.under
        holds: bool | None
        taken, more = False, True
        while more:
            if taken:
                holds, asked = False, self.under[len(before[1]) :]
                with self.skip():
                    self.expression()
            else:
                holds, asked = self.condition()
                self.under = (*self.under, *asked)
            self.expect("then")
            taken = self.branch(holds, asked, "elseif", "else", "end") or taken
            more = self.accept("elseif")
        if self.accept("else"):
            self.branch(not taken, self.under[len(before[1]) :], "end")
        self.expect("end")
        self.sure, self.under = before

    def condition(self) -> tuple[bool | None, tuple[Question, ...]]:
        """Whether the condition holds (None: only a run could decide), and what it tests."""
        if self.skipping:
            self.expression()
            return None, ()
        self.asked = []
        start = self.at
        holds = truth(self.expression())
        asked = tuple(dict.fromkeys(self.asked))
        names = {one.name for one in asked}
        if len(asked) == 1 and all(names):  # would a set variable change the result?
            given, calls, end = self.given, len(self.calls), self.at
            self.given, self.at = given | names, start
            opposite = truth(self.expression()) is (not holds)
            self.given, self.at = given, end
            del self.calls[calls:]
            asked = (replace(asked[0], is_set=opposite),)
        return holds, asked

    def branch(self, holds: bool | None, asked: tuple[Question, ...], *ends: str) -> bool:
        """Read a branch, or skip it if its condition does not hold; whether it is certainly taken."""
        if holds is not False or self.skipping:
            self.sure = self.sure and holds is True
            self.block(*ends)
            return bool(holds)
        with self.skip() as left:
            self.block(*ends)
        if asked and (left.functions or left.names):
            left.asked = asked
            self.untaken.append(left)
        return False

    def loop(self, line: int) -> None:
        names = self.names()
        counted = self.accept("=")
        if not counted:
            self.expect("in")
        start = self.at
        with self.skip() as body:
            several = len(self.expressions()) > 1
            self.expect("do")
            first = self.at
            self.block("end", names=dict.fromkeys(names))
            self.expect("end")
        if counted or several:
            self.leave_out("a loop", line, body.names)
        elif self.skipping:
            self.skipping.functions |= body.functions
            for name in body.names:
                self.bind(name, HOLE, local=False)
        else:
            end, self.at = self.at, start
            for pair in self.pairs(body.names):
                self.budget.step()
                self.at = first
                self.block("end", names=dict(zip(names, pair, strict=False)))
            self.at = end

    def pairs(self, names: Iterable[str]) -> list[tuple[Value, Value]]:
        """The pairs of a table that a loop is over; else a note, and `names`, which the loop sets, are unknown."""
        calls = len(self.calls)
        over = self.term()
        if self.is_at("do") and over.function:
            self.calls.pop()
            if isinstance(table := next(iter(over.given), None), Table):
                items: list[tuple[Value, Value]] = [*enumerate(table.items, 1)]
                return items if over.function == "ipairs" else [*items, *table.named]
        else:
            del self.calls[calls:]
        self.skipped.append("a loop over anything but a list is not supported")
        for name in names:
            self.bind(name, HOLE, local=False)
        return []
