"""Imports that take place at the first use: a command starts with the modules that it needs, and no others."""

import builtins
import importlib
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Module:
    """The name of a module, which the first look into it imports.

    Not importlib's LazyLoader: a signal while it runs a module is lost, and half of the module stays. Signals wait
    for the end of the import, since some modules take an exception at any line for a missing part.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        module = sys.modules.get(self._name)
        if module is None:
            with _signals_later():
                module = importlib.import_module(self._name)
        return getattr(module, attribute)


@contextmanager
def _signals_later() -> Iterator[None]:
    """Call the handlers of signals at the end of the block.

    Not by the mask of blocked signals: it is one thread's, and any other thread takes the signal for the process.
    """
    received: list[signal.Signals] = []
    handlers: dict[signal.Signals, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                if callable(handler := signal.getsignal(number)):
                    handlers[number] = handler
                    signal.signal(number, lambda number, _: received.append(signal.Signals(number)))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in received:
            signal.raise_signal(number)


@contextmanager
def later() -> Iterator[None]:
    """In this block, `from package import module` only names a module: its first attribute that is read imports it.

    So annotations with its names are texts, and `from module import name` is not for this block.
    """

    def named(package: str, _globals: object, _locals: object, names: Sequence[str], _level: int) -> SimpleNamespace:
        return SimpleNamespace(**{name: _Module(f"{package}.{name}") for name in names})

    ordinary = builtins.__import__
    setattr(builtins, "__import__", named)  # noqa: B010 (typed otherwise)
    try:
        yield
    finally:
        setattr(builtins, "__import__", ordinary)  # noqa: B010
