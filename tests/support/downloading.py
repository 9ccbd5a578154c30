"""What the tests of downloads need: a server of one file, a Transfer run to its end, and content that is not alike."""

import hashlib
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sifmod.image.artifact import Get, Remote
from sifmod.image.download import journal
from sifmod.image.download.arriving_file import Shared
from sifmod.image.download.downloads import Pool
from sifmod.image.download.pieces import Coverage
from sifmod.image.download.transfer import Transfer
from sifmod.image.registry.credentials import Netrc
from sifmod.image.registry.http import Http
from sifmod.image.registry.network import RetryPolicy, Timeouts
from sifmod.image.registry.url import Url
from sifmod.image.settings import Settings
from support.ranged import Ranged, Span
from support.web import Web

IMPATIENT = RetryPolicy(attempts=4, first_attempts=2, delay=0.01, longest_delay=0.02)
SHORT = Timeouts(connect=5.0, silence=0.5)
LENGTH = 40_000_000  # bytes of `content`: five pieces and a bit


@lru_cache(maxsize=4)
def content(seed: int = 1, length: int = LENGTH) -> bytes:
    """Bytes of which no two parts are alike."""
    return random.Random(seed).randbytes(length)


def sha256(data: bytes) -> str:
    """With the algorithm in front, as registries write it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@contextmanager
def serving(*files: Ranged) -> Iterator[Web]:
    """A server that gives the files at /0, /1, …."""
    server = Web()
    server.answers.update({f"/{number}": file for number, file in enumerate(files)})
    server.start()
    try:
        yield server
    finally:
        server.stop()


def getter(server: Web, number: int = 0) -> Get:
    """What opens a file of `serving`."""
    return Http(timeouts=SHORT).resource(Url.parse(server.url(f"/{number}")), Netrc())


@dataclass(frozen=True)
class Outcome:
    """A finished download."""

    content: bytes
    sha256: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """Where a test downloads to: `path` in a directory of its own."""

    directory: Path
    connections: int = 4
    patience: RetryPolicy = IMPATIENT

    @property
    def path(self) -> Path:
        return self.directory / "file"

    def fetch(self, remote: Remote, told: Callable[[int], None] | None = None) -> Outcome:
        """Run it to its end, or raise what ended it. `told` is called with the bytes that have arrived."""
        self.directory.mkdir(exist_ok=True)
        shared = Shared()
        transfer = Transfer(shared, remote, self.path, Settings(connections=self.connections), self.patience)
        notes: list[str] = []

        def progress(what: str, done: int, total: int | None) -> None:
            assert total is None or done <= total
            note = what.partition("(")[2].rstrip(")")
            notes.extend([note] if note and note not in notes else [])
            if told is not None:
                told(done)

        with (
            Pool(shared, (transfer,), self.connections) as pool,
            pool.telling("file", progress, "downloading"),
        ):
            pool.complete()
        data = self.path.read_bytes()
        assert hashlib.sha256(data).hexdigest() == transfer.sha256
        assert transfer.size == len(data)
        return Outcome(data, f"sha256:{transfer.sha256}", tuple(notes))

    def missing(self) -> list[Span]:
        """What another run has to ask for, as the journal says."""
        record = journal.load(self.path)
        assert record is not None
        return list(Coverage(record.spans).missing(record.size))

    def left(self) -> list[str]:
        """The names of the files that are there."""
        return sorted(os.listdir(self.directory)) if self.directory.exists() else []
