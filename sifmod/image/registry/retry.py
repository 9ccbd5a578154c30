"""Retry: how often, and after how long, the same bytes are asked for again."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sifmod.errors import FetchError
from sifmod.image.registry.network import TransientError

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Patience:
    """Seconds, and numbers of attempts in a row that give nothing."""

    attempts: int = 8  # of a server that has answered before
    first_attempts: int = 3  # of one that never did: a wrong name or a node without a network fails soon
    delay: float = 0.5  # before the second attempt; it doubles
    longest_delay: float = 30.0


PATIENCE = Patience()


class Attempts:
    """The attempts at one thing; `fruitless` is how many in a row have given nothing."""

    def __init__(self, patience: Patience = PATIENCE) -> None:
        self._patience = patience
        self.fruitless = 0

    def failed(self, error: TransientError, *, progress: bool, answered: bool) -> float:
        """How many seconds to wait before the next attempt: with jitter, and never less than the server wants.

        Raises FetchError where enough attempts have given nothing. `progress` says that this one gave something,
        `answered` that the server has ever given anything.
        """
        self.fruitless = 0 if progress else self.fruitless + 1
        most = self._patience.attempts if answered else self._patience.first_attempts
        if self.fruitless >= most:
            raise FetchError(f"{error.message} ({self.fruitless} attempts)", error.hint) from error
        longest = min(self._patience.delay * 2.0 ** max(0, self.fruitless - 1), self._patience.longest_delay)
        return max(longest * random.uniform(0.5, 1), error.retry_after or 0.0)  # noqa: S311  no secret


def patiently(ask: Callable[[], _Result], patience: Patience = PATIENCE) -> _Result:
    """What `ask` gives, tried again after a TransientError; raises FetchError where enough attempts gave nothing."""
    attempts = Attempts(patience)
    while True:
        try:
            return ask()
        except TransientError as error:
            time.sleep(attempts.failed(error, progress=False, answered=" answered " in error.message))
