"""The history of a module's live generations, which `rollback` and `gc` use.

A rollback holds the generation that was live before it: its content does not become live again before the hold ends.
"""

import json
import os
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from sifmod.config.name import ModuleName
from sifmod.tree.durable import is_refused, read
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import Installation, live_number, numbers, read_receipt

_MOST = 10**18
_PLAUSIBLE = 1_577_836_800.0  # seconds since 1970: the year 2020, before sifmod existed


class Event(NamedTuple):
    """`generation` was live from `time` (seconds since 1970); None: nothing was live."""

    generation: int | None
    time: float
    held: tuple[int, ...] = ()  # generations that were rolled back and are held since then
    retired: bool = False  # nothing was live because gc removed what was retired: holds last, unlike after an uninstall


class Held(NamedTuple):
    """A generation that was rolled back, and is held since `time` (seconds since 1970)."""

    generation: int
    time: float
    installation: Installation | None  # None: its receipt cannot be read


class Past(NamedTuple):
    """What an install of a module finds: what is live, and what a rollback holds. None: the receipt cannot be read."""

    live: Installation | None  # None too if nothing is live
    last: Installation | None  # live, or live before an uninstall
    held: tuple[Held, ...]  # without what gc has removed, after an uninstall


def read_past(layout: Layout, module: ModuleName) -> Past:
    """The past of a module. Raises OSError if its history cannot be read."""
    events, there = read_history(layout, module), numbers(layout, module)
    lives = [event.generation for event in events if event.generation is not None]
    last = read_receipt(layout.generation(module, lives[-1])) if lives else None
    since = held_since(events).items()
    held = (Held(n, time, read_receipt(layout.generation(module, n))) for n, time in since if n in there)
    return Past(last if events and events[-1].generation else None, last, tuple(held))


def read_history(layout: Layout, module: ModuleName) -> tuple[Event, ...]:
    """The events, oldest first.

    The switch is the truth: when a run died between the switch and this record, the missing event is added.
    """
    events = recorded(layout, module)
    now = live_number(layout, module)
    if now == (events[-1].generation if events else None):
        return events
    # without a switch: the directory's time of change; on a full disk an uninstall writes no event
    places = (layout.switch(module), layout.switch(module).parent)
    since = next((place.lstat().st_mtime for place in places if os.path.lexists(place)), None)
    return (*events, Event(now, time.time() if since is None else since, _held_after(events, now)))


def recorded(layout: Layout, module: ModuleName) -> tuple[Event, ...]:
    """The history on disk; empty if it is missing or invalid.

    Raises OSError if it cannot be read: treating it as empty would overwrite it.
    """
    with suppress(ValueError, TypeError, RecursionError):
        try:
            return tuple(_event(*fields) for fields in json.loads(read(layout.history(module))))
        except OSError as error:
            if isinstance(error, PermissionError) or not is_refused(error):
                raise
    return ()


def _event(generation: object, since: object, held: object, retired: object = False) -> Event:
    if generation is not None and (type(generation) is not int or not 0 < generation < _MOST):
        raise ValueError("no generation")
    if not isinstance(since, int | float) or not 0 <= since < _MOST:
        raise ValueError("no time")
    if not isinstance(held, list | tuple) or not all(type(number) is int and 0 < number < _MOST for number in held):
        raise ValueError("no generations")
    return Event(generation, float(since), tuple(held), retired is True)


def _held_after(events: tuple[Event, ...], generation: int | None, *, same_content: bool = True) -> tuple[int, ...]:
    """The holds once `generation` is live: a return to an earlier one is a rollback, also after an uninstall.

    An uninstall keeps holds. A new generation ends them, unless it has the same content as the one before.
    """
    held = events[-1].held if events else ()
    if generation is None:
        return held
    lives = [event.generation for event in events if event.generation is not None]
    if generation in lives:
        left = {lives[-1]} if lives[-1] > generation else set()
        return tuple(sorted({*held, *left} - {generation}))
    return held if same_content else ()


def with_event(
    events: tuple[Event, ...], generation: int | None, *, same_content: bool = False, retired: bool = False
) -> str:
    """The history's text with `events`, and the event that `generation` (None: nothing) is live now."""
    if not events or (events[-1].generation, events[-1].retired) != (generation, retired):
        held = _held_after(events, generation, same_content=same_content)
        events = (*events, Event(generation, round(time.time(), 3), held, retired))
    return _text(events)


def without_holds(events: tuple[Event, ...]) -> str:
    """The history's text with `events`, of which there is one at least, without the present holds."""
    return _text((*events[:-1], events[-1]._replace(held=())))


def _text(events: tuple[Event, ...]) -> str:
    # an earlier sifmod reads events of three fields only
    return json.dumps([event if event.retired else event[:3] for event in events]) + "\n"


def held_since(events: tuple[Event, ...]) -> dict[int, float]:
    """The held generations, and since when each is held, in seconds since 1970."""
    found: dict[int, float] = {}
    for number in events[-1].held if events else ():
        for event in reversed(events):
            if number not in event.held:
                break
            found[number] = event.time
    return found


def format_held(since: Mapping[int, float]) -> str:
    """A sentence about held generations; "" for none."""
    return "; ".join(f"generation {number} is held since {in_utc(one)}" for number, one in since.items())


def in_utc(seconds: float) -> str:
    """The time in ISO 8601; "" for an invalid time: other users may have written it."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return ""


def superseded(events: tuple[Event, ...], generation: int) -> float | None:
    """Since when `generation` is not live (seconds since 1970); None if it is or never was live, or a clock was off."""
    last = max((index for index, event in enumerate(events) if event.generation == generation), default=None)
    if last is None or last + 1 == len(events):
        return None
    since = events[last + 1].time
    return since if since > _PLAUSIBLE else None


def previous(events: tuple[Event, ...], on_disk: Collection[int]) -> int | None:
    """The generation on disk that was live before the present one; None if there is none."""
    now = events[-1].generation if events else None
    return next((e.generation for e in reversed(events) if e.generation != now and e.generation in on_disk), None)
