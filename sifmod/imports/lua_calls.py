"""What reading a Lua modulefile gives: the calls that a load of it makes, and what was left out."""

from dataclasses import dataclass

from sifmod.imports.lua_value import Value


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
        """The arguments that are texts."""
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
