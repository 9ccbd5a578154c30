"""A Remote: something to download, and what is promised about it."""

from collections.abc import Callable
from dataclasses import dataclass

from sifmod.image.get import Get


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
