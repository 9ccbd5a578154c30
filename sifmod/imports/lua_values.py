"""The values of Lua's expressions without a run, and the calls of a modulefile with their conditions.

A part that only a run could tell (the output of a program) is a hole in a text: a sign of Unicode's private area. Such
signs in a file are read as holes.
"""

import re
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

HOLE = "\ue000"
MAYBE = "\ue001"  # in front of a text that depends on a condition that only a run could decide
SOMEWHERE = "\ue002"  # the value of an environment variable that counts as set
_UNKNOWN = re.compile(f"[{HOLE}{MAYBE}]")


@dataclass(frozen=True)
class Environment:
    """The value of an environment variable: unset."""

    name: str


class Default(str):
    """The default for an unset environment variable: `os.getenv("X") or "text"`.

    `whole` is false if the text has more than that default in it.
    """

    variable: str
    whole: bool

    def __new__(cls, text: str, variable: str, *, whole: bool) -> "Default":
        made = super().__new__(cls, text)
        made.variable, made.whole = variable, whole
        return made


@dataclass
class Table:
    """A Lua table: its list and its named values, in the file's order."""

    items: list["Value"]
    named: list[tuple["Value", "Value"]] = field(default_factory=list)


Value = str | int | float | bool | None | Environment | Table


class Term(NamedTuple):
    """A variable, by its `name` (with dots); or a value: of the call of a function, or of anything else."""

    name: str = ""
    value: Value = HOLE
    function: str = ""
    given: tuple[Value, ...] = ()
    line: int = 0
    what: str = ""  # it is, if its value is unknown


def text_of(value: Value) -> str:
    """A value as `..` joins it; a hole for an unknown one.

    Numbers that Lua 5.1 and 5.3 print differently are unknown: 1.0 is 1 or 1.0, 10¹⁴ 1e+14 or its digits.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if value < 10**14 else HOLE
    text = f"{value:.14g}" if isinstance(value, float) else ""
    return HOLE if text.isdecimal() else text or HOLE


def certain(value: Value, made: dict[int, Table] | None = None) -> Value:
    """A value without markers of conditions; a list that is in several others, or in itself, is converted once."""
    if isinstance(value, str):
        return value.replace(MAYBE, "") if MAYBE in value else value
    if not isinstance(value, Table):
        return value
    made = {} if made is None else made
    if id(value) not in made:
        table = made[id(value)] = Table([])
        table.items = [certain(item, made) for item in value.items]
        table.named = [(certain(name, made), certain(item, made)) for name, item in value.named]
    return made[id(value)]


def is_certain(value: Value, seen: set[int] | None = None) -> bool:
    """Whether no part of a value depends on a condition that only a run could decide."""
    if isinstance(value, Table):
        seen = set() if seen is None else seen
        if id(value) in seen:
            return True
        seen.add(id(value))
        return all(is_certain(item, seen) for item in (*value.items, *chain.from_iterable(value.named)))
    return not (isinstance(value, str) and MAYBE in value)


def joined(values: tuple[Value, ...], text: str) -> str:
    """The `text` that was made from the values; a Default if one of these is."""
    variable = next((value.variable for value in values if isinstance(value, Default)), "")
    return Default(text, variable, whole=False) if variable else text


def truth(value: Value) -> bool | None:
    """Whether a value is true in Lua; None if only a run could tell."""
    if isinstance(value, str) and _UNKNOWN.search(value):
        return None
    return not (value is None or value is False or isinstance(value, Environment))


def equal(left: Value, right: Value, wanted: bool) -> Value:
    """Whether two values are equal, or if not `wanted`, unequal; a hole if only a run could tell."""
    left, right = (None if isinstance(value, Environment) else value for value in (left, right))
    if any(isinstance(value, Table) or (isinstance(value, str) and _UNKNOWN.search(value)) for value in (left, right)):
        return HOLE
    return (left == right) is wanted


@dataclass(frozen=True)
class Question:
    """What a condition tests: an environment variable by name, or something else by a function (isloaded, isDir)."""

    what: str
    name: str = ""
    is_set: bool = False  # it only tests whether the variable is set

    def __str__(self) -> str:
        """The assumption, as a clause."""
        return f"{self.name} counts as unset" if self.name else f"{self.what} counts as false"


@dataclass(frozen=True)
class Made:
    """One call: function, arguments, line; `sure` unless it depends on a condition that only a run could decide.

    `asked` lists the tests in its conditions, each with an assumed result.
    """

    function: str
    arguments: tuple[Value, ...]
    line: int
    sure: bool
    asked: tuple[Question, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(value for value in self.arguments if isinstance(value, str))


@dataclass
class Skipped:
    """What a part that is not evaluated would do, such as a branch whose condition does not hold."""

    scopes: int  # that are around it
    functions: dict[str, None] = field(default_factory=dict)  # that its statements call
    names: dict[str, None] = field(default_factory=dict)  # that it sets, and that are not local to it
    line: int = 0  # of the first call that is not in an inner block
    asked: tuple[Question, ...] = ()  # by its condition


@dataclass(frozen=True)
class Read:
    """A file's calls in order, its variables at the end, all texts that these had at some time.

    `skipped` lists what could not be evaluated, in words, `untaken` the branches that were not taken.
    """

    calls: tuple[Made, ...]
    variables: dict[str, Value]
    texts: tuple[str, ...]
    skipped: tuple[str, ...]
    untaken: tuple[Skipped, ...]
