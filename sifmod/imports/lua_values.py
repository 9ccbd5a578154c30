"""What Lua's expressions are worth unrun, and the calls of a modulefile with what they hang on.

What only a run could tell (the output of a program) is a hole in a text: a sign of Unicode's private area, which no
file may hold.
"""

import re
from dataclasses import dataclass, field
from itertools import chain

HOLE = "\ue000"
MAYBE = "\ue001"  # in front of a text that stands there on a condition that only a run could decide
SOMEWHERE = "\ue002"  # the value of a variable of the environment that is taken to be set
_UNKNOWN = re.compile(f"[{HOLE}{MAYBE}]")


@dataclass(frozen=True)
class Environment:
    """The value of a variable of the environment: not set."""

    name: str


class Default(str):
    """A text that stands for a variable of the environment that is not set: `os.getenv("X") or "text"`.

    `whole` is false where the text is only a part of it.
    """

    variable: str
    whole: bool

    def __new__(cls, text: str, variable: str, *, whole: bool) -> "Default":
        made = super().__new__(cls, text)
        made.variable, made.whole = variable, whole
        return made


@dataclass
class Table:
    """A list, and the values that have a name, in the file's order."""

    items: list["Value"]
    named: list[tuple["Value", "Value"]] = field(default_factory=list)


Value = str | int | float | bool | None | Environment | Table


def text_of(value: Value) -> str:
    """A value as `..` joins it; a hole for what is not known.

    That is so of a number that Lua 5.1 and 5.3 write differently: 1.0 is 1 or 1.0, 10¹⁴ 1e+14 or its digits.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if value < 10**14 else HOLE
    text = f"{value:.14g}" if isinstance(value, float) else ""
    return HOLE if text.isdecimal() else text or HOLE


def certain(value: Value, made: dict[int, Table] | None = None) -> Value:
    """A value without the signs of conditions in it; a list that is in several others, or in itself, is made once."""
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
    """Whether no part of a value stands there on a condition that only a run could decide."""
    if isinstance(value, Table):
        seen = set() if seen is None else seen
        if id(value) in seen:
            return True
        seen.add(id(value))
        return all(is_certain(item, seen) for item in (*value.items, *chain.from_iterable(value.named)))
    return not (isinstance(value, str) and MAYBE in value)


def joined(values: tuple[Value, ...], text: str) -> str:
    """The text that was made of the values, and hangs on what they hang on."""
    variable = next((value.variable for value in values if isinstance(value, Default)), "")
    return Default(text, variable, whole=False) if variable else text


def truth(value: Value) -> bool | None:
    """Whether a value counts as true; None where only a run could tell."""
    if isinstance(value, str) and _UNKNOWN.search(value):
        return None
    return not (value is None or value is False or isinstance(value, Environment))


def equal(left: Value, right: Value, wanted: bool) -> Value:
    """Whether two values are equal, or are not; a hole where only a run could tell."""
    left, right = (None if isinstance(value, Environment) else value for value in (left, right))
    if any(isinstance(value, Table) or (isinstance(value, str) and _UNKNOWN.search(value)) for value in (left, right)):
        return HOLE
    return (left == right) is wanted


@dataclass(frozen=True)
class Asked:
    """What a condition asks: for a variable of the environment by its name, else by a function (isloaded, isDir)."""

    what: str
    name: str = ""
    is_set: bool = False  # it asks just whether the variable is set

    def __str__(self) -> str:
        """As an assumption in a sentence."""
        return f"{self.name} counts as not set" if self.name else f"{self.what} counts as false"


@dataclass(frozen=True)
class Made:
    """One call: function, arguments, line, and whether it hangs on a condition that only a run could decide.

    `asked` is what the conditions asked that were taken to hold.
    """

    function: str
    arguments: tuple[Value, ...]
    line: int
    sure: bool
    asked: tuple[Asked, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(value for value in self.arguments if isinstance(value, str))


@dataclass(frozen=True)
class Untaken:
    """A branch that was left out for what its condition asks: its line, the functions it calls, the names it sets."""

    asked: tuple[Asked, ...]
    line: int
    functions: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Read:
    """A file's calls in order, its variables at the end, every text that one of them had, and what was left out."""

    calls: tuple[Made, ...]
    variables: dict[str, Value]
    texts: tuple[str, ...]
    skipped: tuple[str, ...]
    untaken: tuple[Untaken, ...]
