"""Something to download: what opens it, and what is promised about it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import requests

Get = Callable[[Mapping[str, str]], AbstractContextManager["requests.Response"]]
"""Opens one resource, with these headers besides: 200, 206 or 416, its body not read yet.

Authenticated, redirects followed. Raises TransientError where another try may help, FetchError where it will not; so
does reading the body inside the `with`. May be called by several threads at once.
"""


@dataclass(frozen=True)
class Remote:
    """One resource. `name` is what messages call it.

    `size` in bytes and `digest` (sha256:…) are promised, or None and "". `by_digest` says that the server finds it by
    its digest, so that it cannot change. `check` is given the first bytes, and raises ImageError where they are wrong.
    """

    name: str
    get: Get
    size: int | None = None
    digest: str = ""
    by_digest: bool = False
    check: Callable[[bytes], None] | None = None
