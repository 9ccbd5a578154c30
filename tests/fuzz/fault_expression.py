"""Faults of one expression of Python, whatever is around it."""

import ast
import copy
import re
from collections.abc import Iterator
from functools import singledispatch

Change = tuple[str, ast.expr | ast.stmt, str]  # operator, what is replaced, by which text

# of a call; what they say is for people, or is the default in the places where this house uses them
KEYWORDS_LEFT_ALONE = frozenset(
    {
        "help",
        "hint",
        "metavar",
        "description",
        "title",
        "encoding",
        "stacklevel",
        "slots",
        "frozen",
        "kw_only",
        "strict",
        "daemon",
        "name",
        "text",
        "transient",
        "refresh_per_second",
        "thread_name_prefix",
        "maxsize",
        "repr",
        "examples",
        "json_schema_extra",
    }
)
DEFAULTS = frozenset({("check", "False"), ("default", "None"), ("newline", "None"), ("errors", "'strict'")})
# a method that makes a text or a path regular: without it the thing itself
MAKES_REGULAR = frozenset(
    {"strip", "lstrip", "rstrip", "lower", "upper", "casefold", "resolve", "absolute", "expanduser", "removeprefix"}
)
# a function around a value that makes it safe or regular: without it the value
AROUND = frozenset(
    {
        "shell",
        "lua",
        "tcl",
        "literal",
        "escape",
        "quote",
        "sorted",
        "abs",
        "frozenset",
        "unquote",
        "normpath",
        "basename",
        "realpath",
    }
)
# clocks, and limits that are chosen: one more or less is nothing that anybody would notice
CHOSEN = re.compile(r"(\btime\.|monotonic|MOST|LIMIT|MAX|LARGEST|LONGEST|ENTRIES|SECONDS|EVERY|TRIES)")
LONG = 40  # a slice of at least so many is one of those too
FLAG = re.compile(r"\b(?!O_CLOEXEC)[A-Z_]+$")  # the interpreter sets that one anyway
SWAPPED: dict[type[ast.AST], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE,),
    ast.LtE: (ast.Lt,),
    ast.Gt: (ast.GtE,),
    ast.GtE: (ast.Gt,),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
CALLS_SWAPPED = {
    "fullmatch": "match",
    "any": "all",
    "all": "any",
    "min": "max",
    "max": "min",
    "rpartition": "partition",
}


def without(node: ast.AST, name: str, left: int, *others: str) -> str:
    """The text of a node without one item of a list."""
    new = copy.deepcopy(node)
    for each in (name, *others):
        del getattr(new, each)[left]
    return ast.unparse(new)


@singledispatch
def changes(_node: ast.AST) -> Iterator[Change]:
    """What happens to an expression."""
    yield from ()


@changes.register
def _(node: ast.IfExp) -> Iterator[Change]:
    yield "a condition is negated", node.test, f"not ({ast.unparse(node.test)})"


@changes.register
def _(node: ast.comprehension) -> Iterator[Change]:
    for condition in node.ifs:
        if not any(isinstance(each, ast.NamedExpr) for each in ast.walk(condition)):
            yield "a condition is dropped", condition, "True"


@changes.register
def _(node: ast.BoolOp) -> Iterator[Change]:
    other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield "and and or are swapped", node, ast.unparse(ast.BoolOp(other, node.values))
    for left in range(len(node.values)):
        if not any(isinstance(each, ast.NamedExpr) for each in ast.walk(node.values[left])):
            rest = [each for i, each in enumerate(node.values) if i != left]
            yield "a part is dropped", node, ast.unparse(ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0])


@changes.register
def _(node: ast.UnaryOp) -> Iterator[Change]:
    if isinstance(node.op, ast.Not):
        yield "a condition is negated", node, ast.unparse(node.operand)


@changes.register
def _(node: ast.Compare) -> Iterator[Change]:
    for i, operator in enumerate(node.ops):
        if isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE) and CHOSEN.search(ast.unparse(node)):
            continue
        for swapped in SWAPPED.get(type(operator), ()):
            new = copy.deepcopy(node)
            new.ops[i] = swapped()
            yield "a comparison is swapped", node, ast.unparse(new)
    text = ast.unparse(node.comparators[0])
    if isinstance(node.ops[0], ast.Eq) and is_text(node.comparators[0]) and re.search(r"\W", text[1:-1]):
        yield "== becomes startswith", node, f"{ast.unparse(node.left)}.startswith({text})"  # a word is a choice of few


@changes.register
def _(node: ast.Subscript) -> Iterator[Change]:
    if not isinstance(node.slice, ast.Slice):
        return
    for name in ("lower", "upper"):
        if (bound := getattr(node.slice, name)) is not None:
            new = copy.deepcopy(node)
            setattr(new.slice, name, None)
            yield "a bound is dropped", node, ast.unparse(new)
            if isinstance(bound, ast.Constant) and isinstance(bound.value, int) and bound.value < LONG:
                setattr(new.slice, name, ast.Constant(bound.value + 1))
                yield "off by one", node, ast.unparse(new)


@changes.register
def _(node: ast.BinOp) -> Iterator[Change]:
    number = isinstance(node.right, ast.Constant) and isinstance(node.right.value, int)
    if isinstance(node.op, ast.Add | ast.Sub) and number:
        yield "off by one", node, ast.unparse(node.left)
    elif isinstance(node.op, ast.BitAnd):
        yield "a mask is dropped", node, ast.unparse(node.left)
    elif isinstance(node.op, ast.BitOr) and FLAG.search(ast.unparse(node.right)):
        yield "a flag is dropped", node, ast.unparse(node.left)


@changes.register(ast.Tuple)
@changes.register(ast.List)
@changes.register(ast.Set)
def _(node: ast.Tuple | ast.List | ast.Set) -> Iterator[Change]:
    if len(node.elts) > 1 and all(is_text(each) for each in node.elts):
        for left in range(len(node.elts)):
            yield "an item is dropped", node, without(node, "elts", left)


@changes.register
def _(node: ast.Dict) -> Iterator[Change]:
    if len(node.keys) > 1 and all(each is not None and is_text(each) for each in node.keys):
        for left in range(len(node.keys)):
            yield "an item is dropped", node, without(node, "keys", left, "values")


@changes.register
def _(node: ast.Call) -> Iterator[Change]:
    yield from _of_arguments(node)
    name = ast.unparse(node.func)
    last = name.rpartition(".")[2]
    method = isinstance(node.func, ast.Attribute)
    if isinstance(node.func, ast.Attribute) and last in MAKES_REGULAR:
        yield "what makes it regular is dropped", node, ast.unparse(node.func.value)
    elif last in AROUND and len(node.args) == 1 and not isinstance(node.args[0], ast.Starred):
        bare = ast.unparse(node.args[0])
        yield "what is around it is dropped", node, f"list({bare})" if last == "sorted" else bare
    elif last in CALLS_SWAPPED and (method or name == last):
        new = copy.deepcopy(node)
        if isinstance(new.func, ast.Attribute):
            new.func.attr = CALLS_SWAPPED[last]
        else:
            new.func = ast.Name(CALLS_SWAPPED[last])
        yield "another call", node, ast.unparse(new)
    elif isinstance(node.func, ast.Attribute) and last in {"startswith", "endswith"} and is_text(node.args[0]):
        yield f"{last} becomes ==", node, f"{ast.unparse(node.func.value)} == {ast.unparse(node.args[0])}"


def _of_arguments(node: ast.Call) -> Iterator[Change]:
    if ast.unparse(node.func).rpartition(".")[2] == "suppress":
        for left in range(len(node.args)):
            yield "a caught error is dropped", node, without(node, "args", left)
    left_alone = KEYWORDS_LEFT_ALONE | ({"prefix", "suffix"} if "temp" in ast.unparse(node.func).lower() else set())
    for left, keyword in enumerate(node.keywords):
        if keyword.arg is None or keyword.arg in left_alone:
            continue
        if (keyword.arg, ast.unparse(keyword.value)) not in DEFAULTS:
            yield "an argument is dropped", node, without(node, "keywords", left)
            if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, bool):
                yield "an argument is swapped", keyword.value, str(not keyword.value.value)


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
