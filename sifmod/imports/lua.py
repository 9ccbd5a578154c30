"""The calls that a Lua modulefile makes when it is loaded, found by reading it: nothing of it is run.

A variable of the environment counts as not set, a file as not there, a module as not loaded. Of a condition that only
a run could decide every branch is read, and its calls are marked. Of the others the calls say what their conditions
ask, and `untaken` holds the branches that were left out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from sifmod.imports.budget import Budget, CannotImportError
from sifmod.imports.lua_calls import Asked, Made, Read, Untaken
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
)
from sifmod.imports.lua_value import (
    HOLE,
    MAYBE,
    SOMEWHERE,
    Default,
    Environment,
    Table,
    Value,
    certain,
    equal,
    is_certain,
    joined,
    text_of,
    truth,
)

_PRIVATE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ue000-\uf8ff]")
_COMMANDS = ("set_shell_function", "set_alias")  # whose words may be there on a condition, each for itself


def read_lua(text: str, name: str, version: str, given: frozenset[str] = frozenset()) -> Read:
    """What a modulefile of this name and version does; raises CannotImportError for what is not Lua or too much.

    The variables of the environment that are `given` count as set, to a directory that holds what is looked for.
    """
    if bad := _PRIVATE.search(text):
        raise CannotImportError(f"the character {bad.group()!r} is not expected in a modulefile")
    budget = Budget()
    file = _File(budget, {"_name": name, "_version": version}, given)
    try:
        file.block(parse(text, budget))
        variables = {key: certain(value) for key, value in file.variables.items()}
    except (RecursionError, OverflowError):
        raise CannotImportError("cannot be read: it is nested too deep") from None
    return Read(
        tuple(file.calls), variables, tuple(file.texts), tuple(dict.fromkeys(file.skipped)), tuple(file.untaken)
    )


@dataclass
class _File:
    budget: Budget
    variables: dict[str, Value]
    given: frozenset[str]
    calls: list[Made] = field(default_factory=list)
    texts: dict[str, None] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    untaken: list[Untaken] = field(default_factory=list)
    sure: bool = True
    under: tuple[Asked, ...] = ()
    asked: list[Asked] = field(default_factory=list)  # by the expression that is being evaluated

    def block(self, statements: tuple[Statement, ...]) -> None:
        for statement in statements:
            self.budget.step()
            self.statement(statement)

    def statement(self, statement: Statement) -> None:
        match statement:
            case Call():
                self.call(statement)
            case Assign(names=names, values=values):
                found = [self.value(value) for value in values]
                for index, name in enumerate(names):
                    self.assign(name, found[index] if index < len(found) else None)
            case If(branches=branches, otherwise=otherwise):
                self.conditional(branches, otherwise)
            case ForEach(names=names, over=over, body=body):
                for pair in self.pairs(over):
                    self.budget.step()
                    self.variables |= zip(names, pair, strict=False)
                    self.block(body)
            case Skipped(what=what, names=names, line=line):
                self.skipped.append(f"line {line}: {what} is not read")
                self.variables |= dict.fromkeys(names, HOLE)

    def assign(self, name: str, value: Value) -> None:
        if isinstance(value, str):
            self.texts[str(certain(value))] = None
            self.budget.letters(len(value))
        self.variables[name] = self.marked(value)

    def marked(self, value: Value) -> Value:
        """A text that is there only on the condition that is being read."""
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

    def condition(self, expression: Expression) -> tuple[bool | None, tuple[Asked, ...]]:
        """Whether it holds, and what it asks."""
        self.asked = []
        holds = truth(self.value(expression))
        asked = tuple(dict.fromkeys(self.asked))
        names = {one.name for one in asked}
        if len(asked) == 1 and all(names):  # would any other value change it?
            given, calls = self.given, len(self.calls)
            self.given = given | names
            opposite = truth(self.value(expression)) is (not holds)
            self.given = given
            del self.calls[calls:]
            asked = (replace(asked[0], is_set=opposite),)
        return holds, asked

    def leave(self, body: tuple[Statement, ...], asked: tuple[Asked, ...]) -> None:
        functions, names = list[str](), list[str]()
        for statement in within(body):
            self.budget.step()
            if isinstance(statement, Call):
                functions.append(statement.function)
            elif isinstance(statement, Assign):
                names += statement.names
        lines = [statement.line for statement in body if isinstance(statement, Call)]
        if asked and (functions or names):
            line = min(lines, default=0)
            self.untaken.append(Untaken(asked, line, tuple(dict.fromkeys(functions)), tuple(dict.fromkeys(names))))

    def pairs(self, over: Expression) -> list[tuple[Value, Value]]:
        table = self.value(over.arguments[0]) if isinstance(over, Call) and over.arguments else None
        if not isinstance(table, Table):
            self.skipped.append("a loop over something else than a list is not read")
            return []
        return [(float(index), item) for index, item in enumerate(list(table.items), 1)]

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
                    return Table([self.value(value) for value in values])
                case Chain(operator=operator, operands=operands):
                    return self.chain(operator, operands)
            return HOLE

    def seen(self, value: Value) -> Value:
        """A value that is used: of a variable of the environment it is noted."""
        name = value.name if isinstance(value, Environment) else value.variable if isinstance(value, Default) else ""
        if name:
            self.asked.append(Asked("os.getenv", name))
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
            given = tuple(given[0].items)  # prepend_path{"PATH", "/x"}
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
                    self.asked.append(Asked(call.function))
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
                first = len(given) > 2 and isinstance(place, float) and 1 <= place <= len(items)
                items.insert(
                    int(place) - 1 if first and isinstance(place, float) else len(items), self.marked(given[-1])
                )
                return None
        return HOLE


def within(statements: tuple[Statement, ...]) -> Iterator[Statement]:
    """The statements, and those in their blocks."""
    for statement in statements:
        yield statement
        match statement:
            case If(branches=branches, otherwise=otherwise):
                for _, body in branches:
                    yield from within(body)
                yield from within(otherwise)
            case ForEach(body=body):
                yield from within(body)
