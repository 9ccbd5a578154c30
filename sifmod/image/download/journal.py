"""A journal: which bytes a partial file holds, written beside it so that a later run can resume the download."""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from sifmod.image.disk import writing
from sifmod.image.download.partial_file import mode_within

_FORMAT = 1
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC  # another user may have put a link there
_LARGEST = 1 << 20  # bytes; a journal has a few spans

Span = tuple[int, int]
"""From a byte, to before a byte."""


@dataclass(frozen=True)
class Record:
    """The state of a partial file. `validator` is the server's strong ETag or date of the content, "" without one."""

    size: int  # bytes of the whole
    digest: str  # sha256:…, "" without a promise
    validator: str
    spans: tuple[Span, ...]


def journal_path(partial: Path) -> Path:
    """The path of the journal of a partial file."""
    return partial.with_name(partial.name + ".journal")


def save(partial: Path, record: Record) -> None:
    """Replace the journal of `partial`, whose data is on the disk already. Raises as `writing` says."""
    path = journal_path(partial)
    new = path.with_name(path.name + ".new")
    try:
        with writing(path):
            new.unlink(missing_ok=True)
            descriptor = os.open(new, _NEW, mode_within(new.parent))
            with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor)
                file.write(json.dumps({"format": _FORMAT, **asdict(record)}).encode())
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def load(partial: Path) -> Record | None:
    """The journal of `partial`; None where there is none, or none that fits the file that is there."""
    try:
        with journal_path(partial).open("rb") as file:
            record = _record(json.loads(file.read(_LARGEST)))
        length = partial.stat().st_size
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return record if record is not None and all(end <= min(length, record.size) for _, end in record.spans) else None


def forget(partial: Path) -> None:
    """Remove the journal of `partial`; idempotent."""
    path = journal_path(partial)
    for gone in (path, path.with_name(path.name + ".new")):
        with writing(gone):
            gone.unlink(missing_ok=True)


def _record(content: dict[str, object]) -> Record | None:
    size, digest, validator, spans = (content[key] for key in ("size", "digest", "validator", "spans"))
    good = isinstance(size, int) and isinstance(digest, str) and isinstance(validator, str) and isinstance(spans, list)
    if content["format"] != _FORMAT or not good:
        return None
    checked = tuple((int(start), int(end)) for start, end in spans)  # type: ignore[attr-defined]
    if any(not 0 <= start < end for start, end in checked):
        return None
    return Record(size, digest, validator, checked)  # type: ignore[arg-type]
