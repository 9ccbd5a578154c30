"""Data for tests that is made when it is first asked for: a collection makes none of it."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

Made = TypeVar("Made")


class Lazily(Mapping[str, Made]):
    """A mapping of names to what their functions give, each called once."""

    def __init__(self, **makers: Callable[[], Made]) -> None:
        self._makers = {name.replace("_", " "): make for name, make in makers.items()}
        self._made: dict[str, Made] = {}

    def __getitem__(self, name: str) -> Made:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)
