"""A memo: what was made of a header's bytes before, because most headers of a layer say the same."""

from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")

_ENTRIES = 1 << 14


class Memo(dict[bytes, Value], Generic[Value]):
    """`memo[key]` is `make(key)`, made once; holds a bounded number of them."""

    def __init__(self, make: Callable[[bytes], Value]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: bytes) -> Value:
        if len(self) >= _ENTRIES:
            self.clear()
        value = self[key] = self._make(key)
        return value
