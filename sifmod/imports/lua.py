"""The calls that a Lua modulefile makes when it is loaded, found by reading it: nothing of it is run.

A variable of the environment counts as not set, a file as not there. What only a run could tell (the output of a
program) is a hole in a text: a sign of Unicode's private area, which no file may hold. Of a condition that hangs on a
hole every branch is read, and its calls are marked.
"""

import re
from dataclasses import dataclass, field

from sifmod.imports.budget import Budget, CannotImportError
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

HOLE = "\ue000"
_PRIVATE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ue000-\uf8ff]")


@dataclass(frozen=True)
class Environment:
    """The value of a variable of the environment: not set."""

    name: str


@dataclass
class Table:
    """A list."""

    items: list["Value"]


Value = str | float | bool | None | Environment | Table


@dataclass(frozen=True)
class Made:
    """One call: function, arguments, line, and whether it hangs on a condition that only a run could decide."""

    function: str
    arguments: tuple[Value, ...]
    line: int
    sure: bool

    @property
    def texts(self) -> tuple[str, ...]:
        """The arguments that are texts."""
        return tuple(value for value in self.arguments if isinstance(value, str))


@dataclass(frozen=True)
class Read:
    """A file's calls in order, its variables at the end, and what was skipped."""

    calls: tuple[Made, ...]
    variables: dict[str, Value]
    skipped: tuple[str, ...]


def read_lua(text: str, name: str, version: str) -> Read:
    """What a modulefile of this name and version does; raises CannotImportError for what is not Lua or too much."""
    if bad := _PRIVATE.search(text):
        raise CannotImportError(f"the character {bad.group()!r} is not expected in a modulefile")
    budget = Budget()
    file = _File(budget, {"_name": name, "_version": version})
    try:
        file.block(parse(text, budget))
    except (RecursionError, OverflowError):
        raise CannotImportError("cannot be read: it is nested too deep") from None
    return Read(tuple(file.calls), file.variables, tuple(dict.fromkeys(file.skipped)))


@dataclass
class _File:
    budget: Budget
    variables: dict[str, Value]
    calls: list[Made] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    sure: bool = True

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
                    self.variables[name] = found[index] if index < len(found) else None
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

    def conditional(
        self, branches: tuple[tuple[Expression, tuple[Statement, ...]], ...], otherwise: tuple[Statement, ...]
    ) -> None:
        before = self.sure
        for condition, body in branches:
            holds = _truth(self.value(condition))
            if holds is False:
                continue
            self.sure = self.sure and holds is True
            self.block(body)
            if holds:
                break
        else:
            self.block(otherwise)
        self.sure = before

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
                    return self.variables.get(name) if "." not in name else HOLE
                case Call():
                    return self.call(expression)
                case Items(values=values):
                    return Table([self.value(value) for value in values])
                case Chain(operator=operator, operands=operands):
                    return self.chain(operator, operands)
            return HOLE

    def chain(self, operator: str, operands: tuple[Expression, ...]) -> Value:
        if operator in ("and", "or"):
            value: Value = None
            for operand in operands:
                value = self.value(operand)
                truth = _truth(value)
                if truth is None or truth is (operator == "or"):
                    return value
            return value
        values = [self.value(operand) for operand in operands]
        if operator == "not":
            truth = _truth(values[0])
            return HOLE if truth is None else not truth
        if operator == "..":
            texts = [text_of(value) for value in values]
            self.budget.letters(sum(map(len, texts)))
            return "".join(texts)
        if operator in ("==", "~=") and len(values) == 2:
            return _equal(values[0], values[1], operator == "==")
        return HOLE

    def call(self, call: Call) -> Value:
        given = tuple(self.value(argument) for argument in call.arguments)
        lone = len(given) == 1 and isinstance(call.arguments[0], Items) and not call.function.startswith("table.")
        if lone and isinstance(given[0], Table):
            given = tuple(given[0].items)  # prepend_path{"PATH", "/x"}
        self.calls.append(Made(call.function, given, call.line, self.sure))
        texts = [text_of(value) for value in given]
        self.budget.letters(sum(map(len, texts)))
        match call.function:
            case "os.getenv" if texts:
                return Environment(texts[0])
            case "mode":
                return "load"
            case "myModuleName":
                return self.variables["_name"]
            case "myModuleVersion":
                return self.variables["_version"]
            case "myModuleFullName":
                return f"{self.variables['_name']}/{self.variables['_version']}"
            case "isloaded" | "isFile" | "isDir":
                return False
            case "pathJoin":
                self.budget.letters(sum(map(len, texts)) + len(texts))
                return re.sub("/{2,}", "/", "/".join(texts))
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
                items.insert(int(place) - 1 if first and isinstance(place, float) else len(items), given[-1])
                return None
        return HOLE


def text_of(value: Value) -> str:
    """A value as `..` joins it; a hole for what is not known."""
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else HOLE


def _truth(value: Value) -> bool | None:
    """Whether a value counts as true; None where only a run could tell."""
    if isinstance(value, str) and HOLE in value:
        return None
    return not (value is None or value is False or isinstance(value, Environment))


def _equal(left: Value, right: Value, wanted: bool) -> Value:
    left, right = (None if isinstance(value, Environment) else value for value in (left, right))
    if any(isinstance(value, Table) or (isinstance(value, str) and HOLE in value) for value in (left, right)):
        return HOLE
    return (left == right) is wanted
