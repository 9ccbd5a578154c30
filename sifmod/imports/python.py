"""Evaluate the constants of a file in Python's syntax, such as an EasyBuild easyconfig, without running it.

Supported are literals, f-strings, `%` and `.format`, some text methods, simple operators, indices, conditionals, list
comprehensions. The names that any other statement binds are unknown, with the reason.
"""

import ast
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from sifmod.imports.python_text import ITEM, METHODS, Python, UnknownError, formatted, percent, scalar
from sifmod.imports.result import Budget, CannotImportError
from sifmod.secret import cut

_CHANGES = ("append", "extend", "update")  # the methods that change a list or a map

_MOST_BRACES = 10_000  # Python takes time by the square of the fields of a text


def evaluate(text: str) -> "Constants":
    """The constants of a file; raises CannotImportError for invalid syntax or an exceeded limit."""
    if text.count("{") > _MOST_BRACES:
        raise CannotImportError(f"it has more than {_MOST_BRACES} braces")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes, which EasyBuild takes too
            tree = ast.parse(text)
    except SyntaxError as error:
        raise CannotImportError(
            f"line {error.lineno or 1}: invalid Python: {error.msg}", line=error.lineno or 1
        ) from None
    except (ValueError, RecursionError, MemoryError):
        raise CannotImportError("cannot be read: it contains a NUL, or is nested too deep") from None
    file = Constants(Budget())
    try:
        for statement in tree.body:
            file.run(statement)
    except RecursionError:
        raise CannotImportError("cannot be evaluated: it is nested too deep") from None
    return file


@dataclass
class Constants:
    """The names of a file with their values, and the names with unknown values, with the reason.

    Lists are tuples here, so that no two names share a mutable one.
    """

    budget: Budget
    values: dict[str, Python] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)

    def name(self, name: str) -> Python:
        """The value of a name; raises UnknownError."""
        if name in self.values:
            return self.values[name]
        if name in self.unknown:
            raise UnknownError(cut(f"{name} is unknown ({self.unknown[name]})", 200))
        raise UnknownError(f"{name} is not defined in this file")

    def value(self, node: ast.expr) -> Python:
        """An expression's value; raises UnknownError."""
        with self.budget.level():
            self.budget.step()
            try:
                found = self._expression(node)
                return found if isinstance(found, tuple | dict) else scalar(found)
            except (TypeError, ValueError, LookupError, ArithmeticError) as error:
                raise UnknownError(cut(f"{type(error).__name__}: {error}", 200)) from None

    def _expression(self, node: ast.expr) -> Python:
        match node:
            case ast.Constant(value=str() | int() | float() | None as value):
                return value
            case ast.Name(id=name):
                return self.name(name)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return tuple(value for item in items for value in self._items(item))
            case ast.Dict(keys=keys, values=values):
                return {
                    scalar(self.value(key)): self.value(value)
                    for key, value in zip(keys, values, strict=True)
                    if key is not None or _no("** in a map")
                }
            case ast.JoinedStr(values=parts):
                return self._joined([self._part(part) for part in parts])
            case ast.BinOp(left=left, op=op, right=right):
                return self._operation(op, self.value(left), self.value(right))
            case ast.IfExp(test=test, body=body, orelse=otherwise):
                return self.value(body if self.value(test) else otherwise)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.value(operand)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.BoolOp(op=op, values=values):
                return self._either(isinstance(op, ast.Or), values)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._compared(op, self.value(left), self.value(right))
            case ast.Subscript(value=whole, slice=index):
                return self._part_of(self.value(whole), index)
            case (
                ast.ListComp(elt=element, generators=[generator])
                | ast.GeneratorExp(elt=element, generators=[generator])
            ):
                return tuple(self._comprehended(element, generator))
            case ast.Call(func=function, args=arguments, keywords=keywords):
                return self._call(function, arguments, keywords)
        raise UnknownError(f"`{type(node).__name__}` is not evaluated")

    def _items(self, node: ast.expr) -> tuple[Python, ...]:
        if not isinstance(node, ast.Starred):
            return (self.value(node),)
        many = self.value(node.value)
        if not isinstance(many, tuple):
            raise UnknownError("* of anything but a list is not evaluated")
        self.budget.letters(len(many))
        return many

    def _part(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant):
            return str(node.value)
        if not isinstance(node, ast.FormattedValue):
            raise UnknownError("this part of an f-string is not evaluated")
        spec = self.value(node.format_spec) if node.format_spec else ""
        return formatted(scalar(self.value(node.value)), str(spec), chr(node.conversion) if node.conversion > 0 else "")

    def _joined(self, parts: list[str]) -> str:
        self.budget.letters(sum(map(len, parts)))
        return "".join(parts)

    def add(self, left: Python, right: Python) -> Python:
        if isinstance(left, str) and isinstance(right, str):
            return self._joined([left, right])
        if isinstance(left, tuple) and isinstance(right, tuple):
            self.budget.letters(len(left) + len(right))
            return (*left, *right)
        if isinstance(left, int | float) and isinstance(right, int | float):
            return scalar(left + right)
        raise UnknownError("+ of these values is not evaluated")

    def _operation(self, op: ast.operator, left: Python, right: Python) -> Python:
        match op, left, right:
            case ast.Add(), _, _:
                return self.add(left, right)
            case ast.Mod(), str(), _:
                return percent(left, right, self.budget.letters)
            case ast.Mult(), str() | tuple(), int():
                self.budget.letters(len(left) * max(right, 0))
                return left * right
            case ast.Mult(), int() | float(), int() | float():
                return scalar(left * right)
            case ast.Sub(), int() | float(), int() | float():
                return scalar(left - right)
        raise UnknownError(f"the operator {type(op).__name__} is not evaluated here")

    def _either(self, wanted: bool, nodes: list[ast.expr]) -> Python:
        value: Python = None
        for node in nodes:
            value = self.value(node)
            if bool(value) is wanted:
                break
        return value

    def _part_of(self, whole: Python, index: ast.expr) -> Python:
        if isinstance(whole, dict):
            return whole[scalar(self.value(index))]
        if not isinstance(whole, str | tuple):
            raise UnknownError("this index is not evaluated")
        if isinstance(index, ast.Slice):
            first, last, step = map(self._end, (index.lower, index.upper, index.step))
            self.budget.letters(len(whole))
            return whole[first:last:step]
        number = self.value(index)
        return whole[number] if isinstance(number, int) else _no("this index")

    def _end(self, node: ast.expr | None) -> int | None:
        end = self.value(node) if node else None
        return end if end is None or isinstance(end, int) else _no("this index")

    def _comprehended(self, element: ast.expr, generator: ast.comprehension) -> Iterator[Python]:
        many = self.value(generator.iter)
        if not isinstance(many, tuple) or not isinstance(generator.target, ast.Name):
            raise UnknownError("this comprehension is not evaluated")
        name = generator.target.id
        outer = {key: self.values[key] for key in (name,) if key in self.values}
        try:
            for item in many:
                self.budget.step()
                self.values[name] = item
                if all(self.value(test) for test in generator.ifs):
                    yield self.value(element)
        finally:
            self.values.pop(name, None)
            self.values |= outer

    def _call(self, function: ast.expr, arguments: list[ast.expr], keywords: list[ast.keyword]) -> Python:
        match function:
            case ast.Name(id="str" | "len" as name) if len(arguments) == 1 and not keywords:
                value = self.value(arguments[0])
                if name == "str":
                    return str(scalar(value))
                if isinstance(value, str | tuple | dict):
                    return len(value)
                raise UnknownError("len of this value is not evaluated")
            case ast.Attribute(value=of, attr=attr) if attr in METHODS:
                text = self.value(of)
                given = tuple(self.value(argument) for argument in arguments)
                named = {keyword.arg or "": scalar(self.value(keyword.value)) for keyword in keywords}
                if isinstance(text, str) and (not named or attr == "format"):
                    method: Callable[..., Python] = METHODS[attr]
                    return method(self.budget.letters, text, *given, **({"named": named} if attr == "format" else {}))
        raise UnknownError(f"the call of {cut(ast.unparse(function), 60)} is not evaluated")

    def _compared(self, op: ast.cmpop, left: Python, right: Python) -> bool:
        match op, left, right:
            case ((ast.In() | ast.NotIn()), str(), str()):
                self.budget.letters(len(right))
                return (left in right) is isinstance(op, ast.In)
            case ((ast.In() | ast.NotIn()), _, tuple() | dict()):
                self.budget.letters(ITEM * len(right))
                return (scalar(left) in tuple(map(scalar, right))) is isinstance(op, ast.In)
            case ast.Eq(), _, _:
                return scalar(left) == scalar(right)
            case ast.NotEq(), _, _:
                return scalar(left) != scalar(right)
        raise UnknownError(f"the comparison {type(op).__name__} is not evaluated")

    def run(self, node: ast.stmt) -> None:
        """Evaluate a statement; if that fails, the names it binds are unknown."""
        with self.budget.level():
            self.budget.step()
            try:
                self._statement(node)
            except UnknownError as error:
                for name in _bound(node):
                    self.values.pop(name, None)
                    self.unknown[name] = f"line {node.lineno}: {error}"

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                found = self.value(value)
                for target in targets:
                    self._assign(target, found)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self.value(value))
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value):
                self._bind(name, self.add(self.name(name), self.value(value)))
            case ast.If(test=test, body=body, orelse=otherwise):
                for statement in body if self.value(test) else otherwise:
                    self.run(statement)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr), args=[argument])) if (
                attr in _CHANGES
            ):
                self._change(name, attr, self.value(argument))
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case _:
                raise UnknownError(f"{type(node).__name__.lower()} statements are not evaluated")

    def _bind(self, name: str, value: Python) -> None:
        self.unknown.pop(name, None)
        self.values[name] = value

    def _assign(self, target: ast.expr, value: Python) -> None:
        match target:
            case ast.Name(id=name):
                self._bind(name, value)
            case ast.Subscript(value=ast.Name(id=name), slice=key):
                self._change(name, "update", {scalar(self.value(key)): value})
            case ast.Tuple(elts=targets) if isinstance(value, tuple) and len(targets) == len(value):
                for inner, item in zip(targets, value, strict=True):
                    self._assign(inner, item)
            case _:
                raise UnknownError("this kind of assignment is not evaluated")

    def _change(self, name: str, how: str, by: Python) -> None:
        old = self.name(name)
        if how == "update" and isinstance(old, dict) and isinstance(by, dict):
            self.budget.letters(len(old) + len(by))
            self._bind(name, {**old, **by})
        elif how != "update" and isinstance(old, tuple):
            self._bind(name, self.add(old, (by,) if how == "append" else by))
        else:
            raise UnknownError(f"this change of {name} is not evaluated")


def _no(what: str) -> NoReturn:
    raise UnknownError(f"{what} is not evaluated")


def _bound(node: ast.stmt) -> Iterator[str]:
    for inner in ast.walk(node):
        match inner:
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()):
                yield name
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if attr not in METHODS:
                yield name  # the method may change it
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=other):
                yield other or name
