"""Faults of Python: what a tired colleague leaves out, swaps, or is off by one in.

Left alone is what no test could notice or need notice: docstrings, annotations, the words of messages (all of a
`raise`), help texts, `__slots__`, `if TYPE_CHECKING`, arguments that say what is the default anyway.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fault import Fault
from fault_expression import KEYWORDS_LEFT_ALONE, Change, changes, without

DECORATORS_LEFT_ALONE = ("dataclass", "cache", "lru_cache", "cached_property", "property", "overload", "contextmanager")
SAID = ("print", "click.echo", "click.secho", "warnings.warn")
USUAL = {"bool": ("True", "False"), "None": ("None",), "tuple": ("()",)}  # by the function's annotation
MOVES_BYTES = re.compile(r"\b(p?read|p?write|pwritev|preadv|recv|readinto|sendfile|copy_file_range)\(")


@dataclass(frozen=True)
class _Statement:
    """A statement, the function around it, and what it defines where there is none."""

    node: ast.stmt
    function: ast.FunctionDef | None

    @property
    def names(self) -> tuple[str, ...]:
        return () if self.function else _defined(self.node)


def python_faults(path: str, source: bytes) -> list[Fault]:
    """Every fault that this file can have; a few do not compile (see `is_another`)."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for statement in _statements(ast.parse(source)):
        for operator, node, text in _changes_of(statement, source):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            found.append(Fault(path, node.lineno, operator, start, end, text, _lines(statement.node), statement.names))
    return found


def is_another(source: bytes, changed: bytes) -> bool:
    """Whether the changed text is a program, and another one."""
    try:
        compile(changed, "changed", "exec")
    except SyntaxError:
        return False
    return ast.dump(ast.parse(source)) != ast.dump(ast.parse(changed))


def _statements(tree: ast.Module) -> Iterator[_Statement]:
    """Every statement that may be changed."""
    todo = [_Statement(each, None) for each in tree.body]
    while todo:
        statement = todo.pop()
        if not _is_left_alone(statement.node):
            yield statement
            inside = statement.node if isinstance(statement.node, ast.FunctionDef) else statement.function
            todo += [_Statement(each, inside) for each in _inner(statement.node)]


def _inner(node: ast.stmt) -> Iterator[ast.stmt]:
    for name in ("body", "orelse", "finalbody"):
        yield from getattr(node, name, ())
    for handler in getattr(node, "handlers", ()):
        yield from handler.body
    for case in getattr(node, "cases", ()):
        yield from case.body


def _is_left_alone(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Raise | ast.Assert | ast.Global | ast.Nonlocal):
        return not (isinstance(node, ast.Raise) and node.exc is None)
    if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "__name__ == '__main__'"}:
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    return bool({"__slots__", "__all__"} & set(_defined(node)))


def _defined(node: ast.stmt) -> tuple[str, ...]:
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    names = [part.id for each in targets if each for part in ast.walk(each) if isinstance(part, ast.Name)]
    return (*names, node.name) if isinstance(node, ast.FunctionDef | ast.ClassDef) else tuple(names)


def _lines(node: ast.stmt) -> tuple[int, ...]:
    """Those of the statement itself, without the statements in it."""
    inner = [each.lineno for each in _inner(node)]
    return tuple(range(node.lineno, max(min(inner, default=(node.end_lineno or node.lineno) + 1), node.lineno + 1)))


def _changes_of(statement: _Statement, source: bytes) -> Iterator[Change]:
    yield from _of_statement(statement.node)
    if isinstance(statement.node, ast.Return) and statement.function:
        yield from _of_return(statement.node, statement.function)
    for part in _parts(statement.node):
        for node in _expressions(part):
            for operator, place, text in changes(node):
                yield operator, place, f"({text})"
            if isinstance(node, ast.Constant) and isinstance(node.value, int):
                yield from _of_mode(node, node.value, source)


def _parts(node: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement that may be changed."""
    if isinstance(node, ast.FunctionDef):
        yield from (each for each in (*node.args.defaults, *node.args.kw_defaults) if each)
        for decorator in node.decorator_list:
            if ast.unparse(decorator).partition("(")[0].rpartition(".")[2] not in DECORATORS_LEFT_ALONE:
                yield decorator
    elif isinstance(node, ast.AnnAssign):
        if node.value and "TypeAlias" not in ast.unparse(node.annotation):
            yield node.value
    elif not isinstance(node, ast.ClassDef):
        for name, value in ast.iter_fields(node):
            if name not in {"body", "orelse", "finalbody", "handlers", "cases", "targets", "target"}:
                yield from (
                    each for each in (value if isinstance(value, list) else [value]) if isinstance(each, ast.AST)
                )


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all below it, but for words and types."""
    if isinstance(node, ast.JoinedStr | ast.Lambda) or _is_for_people(node):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if isinstance(node, ast.Subscript) and name == "slice" and "Literal" in ast.unparse(node.value):
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.keyword):
                if each.arg not in KEYWORDS_LEFT_ALONE:
                    yield from _expressions(each.value)
            elif isinstance(each, ast.Tuple) and isinstance(node, ast.Tuple | ast.List | ast.Dict):
                yield from (
                    below for item in each.elts for below in _expressions(item)
                )  # a record, whole or not at all
            elif isinstance(each, ast.AST):
                yield from _expressions(each)


def _is_for_people(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func)
    last = name.rpartition(".")[2]
    return name in {*SAID, "cast", "NewType", "TypeVar"} or last.endswith(("Error", "Exception", "Warning"))


def _of_statement(node: ast.stmt) -> Iterator[Change]:
    """What happens to whole statements."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "a call is dropped", node, "pass"
    elif _changes_something(node):
        yield "a change is dropped", node, "pass"
    elif isinstance(node, ast.Raise):
        yield "an error is swallowed", node, "pass"
    elif isinstance(node, ast.Try):
        yield from _of_try(node)
    elif isinstance(node, ast.While) and MOVES_BYTES.search(ast.unparse(node)):
        yield "a loop runs once", _between(node, node.test), f"for _once in range(bool({ast.unparse(node.test)}))"
    if isinstance(node, ast.If | ast.While) and not isinstance(node.test, ast.Constant):
        if isinstance(node, ast.If) and not node.orelse and _leaves(node.body):
            yield "a check never holds", node.test, f"({ast.unparse(node.test)}) and False"
        yield "a condition is negated", node.test, f"not ({ast.unparse(node.test)})"


def _changes_something(node: ast.stmt) -> bool:
    """Something that is there without it too: not a name's only value."""
    if isinstance(node, ast.Assign):
        return any(isinstance(each, ast.Subscript | ast.Attribute) for each in node.targets)
    return isinstance(node, ast.AugAssign) or (isinstance(node, ast.Delete) and not _defined(node))


def _of_return(node: ast.Return, function: ast.FunctionDef) -> Iterator[Change]:
    """A function gives the usual instead of what it found."""
    if node.value and function.returns and not isinstance(node.value, ast.Constant):
        for usual in USUAL.get(ast.unparse(function.returns).partition("[")[0].rpartition(" | ")[2], ()):
            yield "the usual is returned", node.value, usual


def _leaves(body: Sequence[ast.stmt]) -> bool:
    return len(body) == 1 and isinstance(body[0], ast.Raise | ast.Return | ast.Continue | ast.Break)


def _of_try(node: ast.Try) -> Iterator[Change]:
    if node.finalbody:
        yield "what finally does is dropped", _between(node.finalbody[0], node.finalbody[-1]), "pass"
    for handler in node.handlers:
        if isinstance(handler.type, ast.Tuple):
            for left in range(len(handler.type.elts)):
                yield "a caught error is dropped", handler.type, without(handler.type, "elts", left)
        elif handler.type is not None:
            yield "a caught error is dropped", handler.type, "()"


def _between(first: ast.stmt, last: ast.stmt | ast.expr) -> ast.stmt:
    return ast.Pass(
        lineno=first.lineno, col_offset=first.col_offset, end_lineno=last.end_lineno, end_col_offset=last.end_col_offset
    )


def _of_mode(node: ast.Constant, mode: int, source: bytes) -> Iterator[Change]:
    """A number that is written in octal is a mode, or a mask of one."""
    if (ast.get_source_segment(source.decode(), node) or "").startswith("0o"):
        yield "another mode", node, oct(mode | 0o066 if mode & 0o066 != 0o066 else mode & 0o700)
