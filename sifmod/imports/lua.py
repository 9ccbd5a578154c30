"""Find the calls that a Lua modulefile makes when it is loaded, by reading it; nothing is run.

Environment variables count as unset, files as missing, modules as not loaded. If only a run could decide a condition,
every branch is read and its calls are marked. Other calls record their conditions, and `untaken` has the skipped
branches.
"""

import re
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from sifmod.imports.lua_parse import parse
from sifmod.imports.lua_syntax import (
    Assign,
    Call,
    Chain,
    Constant,
    Expression,
    ForEach,
    If,
    Items,
    Name,
    Skipped,
    Statement,
    effects,
    sets,
    tokens,
)
from sifmod.imports.lua_values import (
    HOLE,
    MAYBE,
    SOMEWHERE,
    Default,
    Environment,
    Made,
    Question,
    Read,
    Table,
    Untaken,
    Value,
    certain,
    equal,
    is_certain,
    joined,
    text_of,
    truth,
)
from sifmod.imports.result import Budget, CannotImportError

_PRIVATE = re.compile("[\ue000-\uf8ff]")  # the signs of lua_values.py: HOLE, MAYBE, SOMEWHERE
_NEWER = r"line {}: \x, \u and \z in a text are read as in Lua 5.3; Lua 5.1 drops the backslash"
_COMMANDS = ("set_shell_function", "set_alias")  # each word of these may have its own condition


def read_lua(text: str, name: str, version: str, given: frozenset[str] = frozenset()) -> Read:
    """Read a modulefile with this name and version; raises CannotImportError for invalid Lua or an exceeded limit.

    The environment variables `given` count as set to a directory that has every file that the modulefile looks for.
    """
    budget = Budget()
    file = _File(budget, ChainMap({"_name": name, "_version": version}), given)
    found = tokens(_PRIVATE.sub(HOLE, text))
    file.skipped += [_NEWER.format(token.line) for token in found if token.newer][:1]
    try:
        file.run(parse(found, budget))
        variables = {key: certain(value) for key, value in file.variables.items()}
    except RecursionError:
        raise CannotImportError("cannot be read: it is nested too deep") from None
    return Read(
        tuple(file.calls), variables, tuple(file.texts), tuple(dict.fromkeys(file.skipped)), tuple(file.untaken)
    )


@dataclass
class _File:
    budget: Budget
    variables: ChainMap[str, Value]  # of the innermost block first
    given: frozenset[str]
    calls: list[Made] = field(default_factory=list)
    texts: dict[str, None] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    untaken: list[Untaken] = field(default_factory=list)
    sure: bool = True
    under: tuple[Question, ...] = ()
    asked: list[Question] = field(default_factory=list)  # tests in the expression that is being evaluated

    def run(self, statements: tuple[Statement, ...]) -> None:
        for statement in statements:
            self.budget.step()
            self.statement(statement)

    def block(self, statements: tuple[Statement, ...], names: Mapping[str, Value] | None = None) -> None:
        """Run statements with their own local variables."""
        outside = self.variables
        self.variables = outside.new_child(dict(names or {}))
        self.run(statements)
        self.variables = outside

    def statement(self, statement: Statement) -> None:
        match statement:
            case Call():
                self.call(statement)
            case Assign(names=names, values=values, local=local):
                found = [self.value(value) for value in values]
                for index, name in enumerate(names):
                    self.assign(name, found[index] if index < len(found) else None, local)
            case If(branches=branches, otherwise=otherwise):
                self.conditional(branches, otherwise)
            case ForEach(names=names, over=over, body=body):
                for pair in self.pairs(over, statement):
                    self.budget.step()
                    self.block(body, dict(zip(names, pair, strict=False)))
            case Skipped(what=what, names=names, line=line, local=local):
                self.skipped.append(f"line {line}: {what} is not supported")
                for name in names:
                    self.scope(name, local)[name] = HOLE

    def scope(self, name: str, local: bool) -> dict[str, Value]:
        """The scope of a name: this block if `local`, else the innermost block with this name, or the global scope."""
        maps = self.variables.maps
        there = maps[:1] if local else (one for one in maps if name in one)
        return cast("dict[str, Value]", next(iter(there), maps[-1]))

    def assign(self, name: str, value: Value, local: bool) -> None:
        if isinstance(value, str):
            self.texts[str(certain(value))] = None
            self.budget.letters(len(value))
        self.scope(name, local)[name] = self.marked(value)

    def marked(self, value: Value) -> Value:
        """The value; a text is marked with MAYBE if it depends on a condition that only a run could decide."""
        return MAYBE + value if isinstance(value, str) and not self.sure else value

    def conditional(
        self, branches: tuple[tuple[Expression, tuple[Statement, ...]], ...], otherwise: tuple[Statement, ...]
    ) -> None:
        before = self.sure, self.under
        left = [*branches, (None, otherwise)]
        while left:
            condition, body = left.pop(0)
            holds, asked = (True, ()) if condition is None else self.condition(condition)
            self.under = (*self.under, *asked)
            if holds is False:
                self.leave(body, asked)
                continue
            self.sure = self.sure and holds is True
            self.block(body)
            if holds:
                break
        for _, body in left:
            self.leave(body, self.under[len(before[1]) :])
        self.sure, self.under = before

    def condition(self, expression: Expression) -> tuple[bool | None, tuple[Question, ...]]:
        """Whether the condition holds (None: only a run could decide), and what it tests."""
        self.asked = []
        holds = truth(self.value(expression))
        asked = tuple(dict.fromkeys(self.asked))
        names = {one.name for one in asked}
        if len(asked) == 1 and all(names):  # would a set variable change the result?
            given, calls = self.given, len(self.calls)
            self.given = given | names
            opposite = truth(self.value(expression)) is (not holds)
            self.given = given
            del self.calls[calls:]
            asked = (replace(asked[0], is_set=opposite),)
        return holds, asked

    def leave(self, body: tuple[Statement, ...], asked: tuple[Question, ...]) -> None:
        functions, names = list[str](), list[str]()
        for effect in effects(body):
            self.budget.step()
            if isinstance(effect, Call):
                functions.append(effect.function)
            else:
                names.append(effect)
        lines = [statement.line for statement in body if isinstance(statement, Call)]
        if asked and (functions or names):
            line = min(lines, default=0)
            self.untaken.append(Untaken(asked, line, tuple(dict.fromkeys(functions)), tuple(dict.fromkeys(names))))

    def pairs(self, over: Expression, loop: ForEach) -> list[tuple[Value, Value]]:
        table = self.value(over.arguments[0]) if isinstance(over, Call) and over.arguments else None
        if not isinstance(table, Table):
            self.skipped.append("a loop over anything but a list is not supported")
            for name in sets((loop,)):
                self.scope(name, local=False)[name] = HOLE
            return []
        items: list[tuple[Value, Value]] = [*enumerate(table.items, 1)]
        return items if isinstance(over, Call) and over.function == "ipairs" else [*items, *table.named]

    def value(self, expression: Expression) -> Value:
        with self.budget.level():
            self.budget.step()
            match expression:
                case Constant(value=value):
                    return value
                case Name(name=name):
                    return self.seen(self.variables.get(name)) if "." not in name else HOLE
                case Call():
                    return self.call(expression)
                case Items(values=values):
                    return self.table(values)
                case Chain(operator=operator, operands=operands):
                    return self.chain(operator, operands)
            return HOLE

    def table(self, values: tuple[tuple[Expression | None, Expression], ...]) -> Table:
        table = Table([])
        for key, expression in values:
            name, value = None if key is None else self.value(key), self.value(expression)
            if key is None:
                table.items.append(value)
            elif value is not None:
                table.named.append((name, value))
        return table

    def seen(self, value: Value) -> Value:
        """The value as it is used, SOMEWHERE for a variable of `given`; records the use of an environment variable."""
        name = value.name if isinstance(value, Environment) else value.variable if isinstance(value, Default) else ""
        if name:
            self.asked.append(Question("os.getenv", name))
        return SOMEWHERE if name in self.given else value

    def chain(self, operator: str, operands: tuple[Expression, ...]) -> Value:
        if operator in ("and", "or"):
            value: Value = None
            variable = ""
            for operand in operands:
                value = self.value(operand)
                holds = truth(value)
                if holds is None or holds is (operator == "or"):
                    break
                variable = value.name if isinstance(value, Environment) else variable
            return Default(value, variable, whole=True) if variable and type(value) is str else value
        values = tuple(self.value(operand) for operand in operands)
        if operator == "not":
            holds = truth(values[0])
            return HOLE if holds is None else not holds
        if operator == "..":
            texts = [text_of(value) for value in values]
            self.budget.letters(sum(map(len, texts)))
            return joined(values, "".join(texts))
        if operator in ("==", "~=") and len(values) == 2:
            return equal(values[0], values[1], operator == "==")
        return HOLE

    def call(self, call: Call) -> Value:
        given = tuple(self.value(argument) for argument in call.arguments)
        lone = len(given) == 1 and isinstance(call.arguments[0], Items) and not call.function.startswith("table.")
        if lone and isinstance(given[0], Table):
            table = given[0]  # prepend_path{"PATH", "/x", delim=";"}
            given = (*table.items, *(value for name, value in table.named if name == "delim"))
        arguments, sure = given, self.sure
        if call.function not in _COMMANDS:
            arguments = tuple(map(certain, given))
            sure = sure and all(map(is_certain, given))
        self.calls.append(Made(call.function, arguments, call.line, sure, self.under))
        texts = [text_of(value) for value in given]
        self.budget.letters(sum(map(len, texts)))
        match call.function:
            case "os.getenv" if texts:
                return self.seen(Environment(texts[0]))
            case "mode":
                return "load"
            case "myModuleName":
                return self.variables["_name"]
            case "myModuleVersion":
                return self.variables["_version"]
            case "myModuleFullName":
                return f"{self.variables['_name']}/{self.variables['_version']}"
            case "isloaded" | "isFile" | "isDir":
                found = any(SOMEWHERE in text for text in texts)
                if not found:
                    self.asked.append(Question(call.function))
                return found
            case "pathJoin":
                self.budget.letters(sum(map(len, texts)) + len(texts))
                return joined(given, re.sub("/{2,}", "/", "/".join(texts)))
            case "tostring" | "string.lower" if texts:
                return texts[0].lower() if call.function == "string.lower" else texts[0]
            case "table.concat" if given and isinstance(given[0], Table):
                parts = [text_of(item) for item in given[0].items]
                separator = texts[1] if len(texts) > 1 else ""
                self.budget.letters(sum(len(part) + len(separator) + 1 for part in parts))
                return separator.join(parts)
            case "table.insert" if len(given) > 1 and isinstance(given[0], Table):
                self.budget.step()
                items, place = given[0].items, given[1]
                first = len(given) > 2 and isinstance(place, int) and 1 <= place <= len(items)
                items.insert(place - 1 if first and isinstance(place, int) else len(items), self.marked(given[-1]))
                return None
        return HOLE
