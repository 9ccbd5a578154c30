"""The constants of a file in Python's syntax, evaluated without running it: what EasyBuild's easyconfigs are made of.

Known are literals, f-strings, `%` and `.format`, some methods of texts, concatenation, conditionals, list
comprehensions. Whatever else stands in the file makes the names it binds unknown, with the reason.
"""

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sifmod.imports.budget import Budget, CannotImportError
from sifmod.imports.python_text import METHODS, Python, UnknownError, scalar
from sifmod.imports.python_value import Names

_CHANGES = ("append", "extend", "update")  # the methods that change a list or a map


@dataclass(frozen=True)
class Constants:
    """The names of a file with their values, and those whose value is not known, with the reason."""

    values: Mapping[str, Python]
    unknown: Mapping[str, str]


def evaluate(text: str) -> Constants:
    """The constants of a file; raises CannotImportError for what is not Python's syntax, and for what is too much."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes, which EasyBuild takes too
            tree = ast.parse(text)
    except SyntaxError as error:
        raise CannotImportError(f"line {error.lineno or 1}: not Python's syntax: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError):
        raise CannotImportError("cannot be read: it holds a NUL, or is nested too deep") from None
    file = _File(Budget())
    try:
        for statement in tree.body:
            file.run(statement)
    except RecursionError:
        raise CannotImportError("cannot be evaluated: it is nested too deep") from None
    return Constants(file.values, file.unknown)


class _File(Names):
    """The file so far. Lists are tuples here: no two names share one that changes."""

    def run(self, node: ast.stmt) -> None:
        """One statement; one that cannot be evaluated leaves the names it binds unknown."""
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
                raise UnknownError("such an assignment is not evaluated")

    def _change(self, name: str, how: str, by: Python) -> None:
        old = self.name(name)
        if how == "update" and isinstance(old, dict) and isinstance(by, dict):
            self.budget.letters(len(old) + len(by))
            self._bind(name, {**old, **by})
        elif how != "update" and isinstance(old, tuple):
            self._bind(name, self.add(old, (by,) if how == "append" else by))
        else:
            raise UnknownError(f"{name}.{how} is not evaluated")


def _bound(node: ast.stmt) -> Iterator[str]:
    """The names that a statement binds or changes."""
    for inner in ast.walk(node):
        match inner:
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()):
                yield name
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if attr not in METHODS:
                yield name  # which it may change
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=other):
                yield other or name
