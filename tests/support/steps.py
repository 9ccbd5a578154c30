"""Which steps of a verb a test disturbs: every few from a random one on; all of them where SIFMOD_EVERY_STEP is set."""

import os
import random
from collections.abc import Iterator

EVERY = bool(os.environ.get("SIFMOD_EVERY_STEP"))  # read here: no test sees such a variable


def some(first: int, last: int, stride: int) -> Iterator[int]:
    """Every `stride`th of the steps from `first` to `last`; the last one that a failure's output has was disturbed."""
    begin, stride = (first, 1) if EVERY else (first + random.randrange(stride), stride)
    for step in range(begin, last + 1, stride):
        print("step", step)
        yield step
