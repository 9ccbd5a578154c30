"""Inputs, one after the other: mutated, tried, and kept where they break a rule."""

import random
import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

SLOWEST = 10.0  # seconds of processor time that an input may take
LARGEST = 512 << 10  # KiB that the process may have

Mutate = Callable[[random.Random, bytearray], None]


def change(chance: random.Random, data: bytearray, at: int) -> None:
    """One change at the place `at`, in any of the ways in which files are damaged or forged."""
    if len(data) < 16:
        return
    what = chance.randrange(6)
    if what == 0:
        data[at] ^= 1 << chance.randrange(8)
    elif what == 1:
        data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    elif what == 2:
        width = chance.choice((2, 4, 8))
        number = chance.choice((0, 1, 1 << 15, (1 << 16) - 1, len(data), 1 << 31, 1 << 62))
        data[at : at + width] = number.to_bytes(8, "little")[:width]
    elif what == 3:
        data[at : at + 8] = data[(other := chance.randrange(len(data) - 8)) : other + 8]
    elif what == 4 and chance.random() < 0.05:
        del data[at:]
    else:
        data[at : at + 4] = chance.randbytes(4)


def try_inputs(
    path: Path, images: Sequence[bytes], mutate: Mutate, attempt: Callable[[int], str], numbers: range
) -> int:
    """Write each input to `path` and call `attempt` with its number, which tells how it ended or raises.

    Prints what it has seen every 10 000 inputs. The exit status: 1 at the first input that raises or takes too much,
    which is kept in the current directory.
    """
    ends: Counter[str] = Counter()
    slowest = 0.0
    for number in numbers:
        chance = random.Random(number)
        data = bytearray(chance.choice(images))
        mutate(chance, data)
        path.write_bytes(data)
        before = time.process_time()
        try:
            ends[attempt(number)] += 1
        except Exception as error:
            broken = f"{type(error).__name__}: {error}"
        else:
            broken = ""
        took = time.process_time() - before
        slowest = max(slowest, took)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if broken or took > SLOWEST or memory > LARGEST:
            Path(f"{path.stem}-{number}.bad").write_bytes(data)
            print(f"input {number}: {broken or 'too much'}: {took:.1f} s, {memory} KiB")
            return 1
        if (done := number - numbers.start + 1) % 10_000 == 0:
            seen = dict(ends.most_common(8))
            print(done, f"slowest {slowest:.2f} s, memory {memory >> 10} MiB", seen, flush=True)
    return 0
