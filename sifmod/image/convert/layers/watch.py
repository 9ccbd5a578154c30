"""The watch over a merge: the tree of an image with very many files may not take all memory of a machine."""

import os
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

from sifmod.errors import ImageError
from sifmod.system import size_text

Item = TypeVar("Item")

_RUN = 256  # members; one may have a MiB of attributes
_STATUS = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Watch:
    """Looks at this process's own memory between runs of members; `limit` in bytes, None for any."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._members = 0

    def runs(self, members: Iterator[Item]) -> Iterator[Iterator[Item]]:
        """All members, in runs that are read to their end. Raises ImageError where the tree has become too large.

        A quarter of the memory is left for the tables that are made of the tree at the end.
        """
        for first in members:
            yield chain((first,), islice(members, _RUN - 1))
            self._members += _RUN
            if self._limit is not None and (taken := _own_memory()) > self._limit // 4 * 3:
                raise _too_large(self._members, taken, self._limit)


def _too_large(members: int, taken: int, limit: int) -> ImageError:
    return ImageError(
        f"the image has more files than fit into the memory that a conversion may take, {size_text(limit)}: after"
        f" {members} entries of its layers {size_text(taken)} are taken, and a quarter is kept for the tables of the"
        " file system; nothing was converted",
        "raise `memory` (SIFMOD_MEMORY) if this machine has more to spare, or convert the image on a larger one",
    )


def _own_memory() -> int:
    """Bytes of memory that this process alone has: what is resident, without pages of files; 0 where none is said."""
    try:
        _, resident, shared, *_ = map(int, _STATUS.read_bytes().split())
    except OSError:
        return 0
    return (resident - shared) * _PAGE
