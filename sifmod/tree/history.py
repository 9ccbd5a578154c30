"""Which generation of a module was live since when; what `rollback` and `gc` decide by."""

import json
import os
import time
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from sifmod.config.name import ModuleName
from sifmod.tree.durable import is_refused, read
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live_number

_MOST = 10**18
_PLAUSIBLE = 1_577_836_800.0  # seconds since 1970: 2020, before which there was no sifmod


class Event(NamedTuple):
    """From `time` on (seconds since 1970) `generation` was live; None: nothing was."""

    generation: int | None
    time: float


def read_history(layout: Layout, module: ModuleName) -> tuple[Event, ...]:
    """What became live and when, oldest first.

    The switch is the truth: when a run died between the switch and this record, the missing event is added.
    """
    events = recorded(layout, module)
    now = live_number(layout, module)
    if now == (events[-1].generation if events else None):
        return events
    # without a switch: its directory, which changed when it went; on a full disk an uninstall writes no event
    for place in (layout.switch(module), layout.switch(module).parent):
        if os.path.lexists(place):
            return (*events, Event(now, place.lstat().st_mtime))
    return (*events, Event(now, time.time()))


def recorded(layout: Layout, module: ModuleName) -> tuple[Event, ...]:
    """The history as it is on disk; nothing when there is none.

    Raises OSError for one that cannot be read now: who took it for none would write it anew and forget the past.
    """
    with suppress(ValueError, TypeError, RecursionError):
        try:
            return tuple(_event(*fields) for fields in json.loads(read(layout.history(module))))
        except OSError as error:
            if isinstance(error, PermissionError) or not is_refused(error):
                raise
    return ()


def _event(generation: object, since: object) -> Event:
    if generation is not None and (type(generation) is not int or not 0 < generation < _MOST):
        raise ValueError("no generation")
    if not isinstance(since, int | float) or not 0 <= since < _MOST:
        raise ValueError("no time")
    return Event(generation, float(since))


def with_event(events: tuple[Event, ...], generation: int | None) -> str:
    """The history's text after `generation` (None: nothing) has become live."""
    if not events or events[-1].generation != generation:
        events = (*events, Event(generation, round(time.time(), 3)))
    return json.dumps(events) + "\n"


def superseded(events: tuple[Event, ...], generation: int) -> float | None:
    """Since when `generation` has not been live; None when it is live or never was, or a clock was wrong then."""
    last = max((index for index, event in enumerate(events) if event.generation == generation), default=None)
    if last is None or last + 1 == len(events):
        return None
    since = events[last + 1].time
    return since if since > _PLAUSIBLE else None


def previous(events: tuple[Event, ...], on_disk: Collection[int]) -> int | None:
    """The generation, of those on disk, that was live before the present state; None when there is none."""
    now = events[-1].generation if events else None
    return next((e.generation for e in reversed(events) if e.generation != now and e.generation in on_disk), None)
