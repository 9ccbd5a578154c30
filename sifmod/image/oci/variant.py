"""A variant: the level of a processor that an image was built for, as an index names it."""

import platform
import re
from functools import cache
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
# flags as Linux spells them, of the levels of the x86-64 psABI
_LEVELS = (
    (2, "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"),
    (3, "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"),
    (4, "avx512f avx512bw avx512cd avx512dq avx512vl"),
)
_LOWEST = {"amd64": (1,), "arm64": (8,)}
_NUMBERS = re.compile(r"v([0-9]{1,4})(?:\.([0-9]{1,4}))?")

Rank = tuple[int, ...]


def rank(arch: str, variant: str) -> Rank:
    """Which of two variants of `arch` is the lower one: every processor of the architecture runs the lowest.

    No variant is the lowest (v1 of amd64, v8 of arm64); one of another form comes after all others.
    """
    if not variant:
        return _LOWEST.get(arch, ())
    found = _NUMBERS.fullmatch(variant)
    if found is None:
        return (1 << 32,)
    return tuple(int(number) for number in found.groups() if number)


def level(flags: str) -> int:
    """The level of the x86-64 psABI, 1 to 4, of a processor with these `flags`."""
    have, found = set(flags.split()), 1
    for number, needed in _LEVELS:
        if not have.issuperset(needed.split()):
            break
        found = number
    return found


def runs_here(arch: str, variant: str) -> bool:
    """Whether this machine runs `variant` of `arch`; True where it cannot tell, as for another architecture."""
    own = _own_level()
    return arch != "amd64" or own is None or rank(arch, variant) <= (own,)


@cache
def _own_level() -> int | None:
    if platform.machine() != "x86_64":
        return None
    try:
        found = re.search(r"(?m)^flags\s*:(.*)$", _CPUINFO.read_text())
    except OSError:
        return None
    return level(found[1]) if found else None
