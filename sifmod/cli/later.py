"""Imports that take place at the first use: a command starts with the modules that it needs, and no others."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader


class _Later:
    """Finds modules like Python, and runs each at the first look into it."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, _target: object = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path)
        if spec and spec.loader:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def later() -> Iterator[None]:
    """In this block, `from package import module` only names a module: its first attribute that is read runs it.

    So annotations with its names are texts, and `from module import name` would run it at once.
    """
    sys.meta_path.insert(0, _Later)
    try:
        yield
    finally:
        sys.meta_path.remove(_Later)
