"""What is said of a module's end on each day: at a load, in `list`, and by the notices that a modulefile reads."""

from datetime import date

import pytest

from sifmod.config.name import ModuleName
from sifmod.tree.life import (
    Deprecated,
    Life,
    NameLife,
    Retired,
    begins,
    format_life,
    from_json,
    notice,
    notices,
    to_json,
)

MODULE = ModuleName("Tiny", "1.0")
FIRST, SECOND, THIRD, LAST = (date(2030, month, 9 + month) for month in (1, 3, 5, 7))
DAYS = (date(2030, 1, 9), FIRST, SECOND, date(2030, 5, 13), THIRD, date(2030, 5, 15), LAST, date(2030, 7, 17))
OLD = Deprecated(SECOND, THIRD, "old words")
LIVES = {
    "hidden": Life(hidden=True),
    "deprecated": Life(deprecated=Deprecated(SECOND, None, "old words")),
    "until": Life(deprecated=OLD),
    "silent": Life(deprecated=Deprecated(FIRST, THIRD)),
    "retired": Life(retired=Retired(THIRD, "Tiny/2.0", "new words")),
    "bare": Life(retired=Retired(SECOND)),
    "both": Life(deprecated=Deprecated(FIRST, LAST), retired=Retired(THIRD, "Tiny/2.0")),
    "earlier": Life(deprecated=OLD, retired=Retired(LAST, "Tiny/3.0", "new words")),
    "hidden and old": Life(hidden=True, deprecated=OLD),
}
DEPRECATED = "Tiny/1.0 is deprecated"
# of each, what a load says from the first day of DAYS on: the places of DAYS where it changes, and to what
LOADS: dict[str, dict[int, str]] = {
    "hidden": {0: "Tiny/1.0 is hidden"},
    "deprecated": {0: "", 2: f"{DEPRECATED}: old words"},
    "until": {
        0: "", 2: f"{DEPRECATED} and loads until 2030-05-14: old words",
        5: "Tiny/1.0 was retired on 2030-05-15: old words",
    },
    "silent": {0: "", 1: f"{DEPRECATED} and loads until 2030-05-14", 5: "Tiny/1.0 was retired on 2030-05-15"},
    "retired": {0: "Tiny/1.0 is hidden", 4: "Tiny/1.0 was retired on 2030-05-14: use Tiny/2.0; new words"},
    "bare": {0: "Tiny/1.0 is hidden", 2: "Tiny/1.0 was retired on 2030-03-12"},
    "both": {
        0: "Tiny/1.0 is hidden", 1: f"{DEPRECATED} and loads until 2030-05-13: use Tiny/2.0",
        4: "Tiny/1.0 was retired on 2030-05-14: use Tiny/2.0",
    },
    "earlier": {
        0: "Tiny/1.0 is hidden", 2: f"{DEPRECATED} and loads until 2030-05-14: old words",
        5: "Tiny/1.0 was retired on 2030-05-15: use Tiny/3.0; new words",
    },
    "hidden and old": {
        0: "Tiny/1.0 is hidden", 2: f"{DEPRECATED} and loads until 2030-05-14: old words",
        5: "Tiny/1.0 was retired on 2030-05-15: old words",
    },
}  # fmt: skip
LISTED: dict[str, dict[int, str]] = {
    "hidden": {0: "hidden"},
    "deprecated": {0: "", 2: "deprecated"},
    "until": {0: "retires 2030-05-15", 2: "retires 2030-05-15, deprecated", 5: "retired since 2030-05-15"},
    "silent": {0: "retires 2030-05-15", 1: "retires 2030-05-15, deprecated", 5: "retired since 2030-05-15"},
    "retired": {0: "hidden, retires 2030-05-14, use Tiny/2.0", 4: "retired since 2030-05-14, use Tiny/2.0"},
    "bare": {0: "hidden, retires 2030-03-12", 2: "retired since 2030-03-12"},
    "both": {
        0: "hidden, retires 2030-05-14, use Tiny/2.0", 1: "hidden, retires 2030-05-14, deprecated, use Tiny/2.0",
        4: "retired since 2030-05-14, use Tiny/2.0",
    },
    "earlier": {
        0: "hidden, retires 2030-05-15, use Tiny/3.0", 2: "hidden, retires 2030-05-15, deprecated, use Tiny/3.0",
        5: "retired since 2030-05-15, use Tiny/3.0",
    },
    "hidden and old": {
        0: "hidden, retires 2030-05-15", 2: "hidden, retires 2030-05-15, deprecated", 5: "retired since 2030-05-15",
    },
}  # fmt: skip


def from_each_day(changes: dict[int, str]) -> list[str]:
    return [changes[max(place for place in changes if place <= number)] for number in range(len(DAYS))]


@pytest.mark.parametrize("name", LIVES)
def test_what_is_said_on_each_day(name: str) -> None:
    life = LIVES[name]
    assert [notice(MODULE, life, day) for day in DAYS] == from_each_day(LOADS[name])
    for default, head in ((None, []), ("1.0", ["default"]), ("2.0", [])):
        both = NameLife(default, {"1.0": life, "2.0": Life()})
        expected = [", ".join([*head, *filter(None, [words])]) for words in from_each_day(LISTED[name])]
        assert [format_life("1.0", both, day) for day in DAYS] == expected
        assert from_json(to_json(both).encode()) == NameLife(default, {"1.0": life})


@pytest.mark.parametrize("name", LIVES)
def test_notices_say_the_same_as_the_verbs(name: str) -> None:
    """Of each day the last line whose time has come: what a load refuses, and what it says."""
    life = LIVES[name]
    text = dict(notices("Tiny", NameLife(None, {"1.0": life}))).get("1.0", "")
    lines = [line.split(" ", 2) for line in text.splitlines()]
    for day in DAYS:
        said = [(what, words) for since, what, words in lines if int(since) <= begins(day)][-1:]
        refuses = life.refused_from is not None and life.refused_from <= day
        expected = notice(MODULE, life, day)
        if expected == "Tiny/1.0 is hidden":
            expected = ""  # which only the verbs say
        assert said == ([("refuse" if refuses else "say", expected)] if expected else [])
