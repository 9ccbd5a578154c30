"""The packages of an RPM database: SQLite (since RPM 4.16), ndb (SUSE), or a hash of Berkeley DB (RHEL 8 and before).

Each has one RPM header per package; the layouts are from the sources of rpm and Berkeley DB 5.3.
"""

import struct
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO
from urllib.parse import quote

from sifmod.image.inspect.package import Found, Package

_PLACES = (b"var/lib/rpm", b"usr/lib/sysimage/rpm")
_FILES = (b"/rpmdb.sqlite", b"/Packages.db", b"/Packages")
DATABASES = frozenset(place + name for place in _PLACES for name in _FILES)  # paths in an image

_LARGEST = 512 << 20  # bytes of a database
_LARGEST_HEADER = 16 << 20
_NAME, _VERSION, _RELEASE, _EPOCH, _LICENCE = 1000, 1001, 1002, 1003, 1014  # rpmtag.h
_STRING, _I18N, _INT32 = 6, 9, 4
_NOT_PACKAGES = ("gpg-pubkey",)  # keys, which rpm lists like packages
_SLOT, _BLOB = b"Slot", b"BlbS"  # of ndb
_HASH_MAGIC, _OFF_PAGE, _HASH_PAGES, _OVERFLOW = 0x061561, 3, (2, 13), 7  # of Berkeley DB


def add_rpms(pieces: Iterable[bytes | int], size: int, found: Found) -> None:
    """Add the packages of the database with this data to `found`; an unreadable one gives a note.

    Raises TooMuchError.
    """
    if size > _LARGEST:
        found.notes.append(f"the rpm packages cannot be read: their database has {size} bytes, more than {_LARGEST}")
        return
    try:
        with NamedTemporaryFile(prefix="sifmod-rpm-") as file:
            for piece in pieces:
                file.seek(piece, 1) if isinstance(piece, int) else file.write(piece)
                found.check()
            file.truncate(size)
            file.flush()
            for header in _headers(file, found):
                found.check()
                if package := _package(header):
                    found.add(package)
    except (OSError, ValueError) as error:
        found.notes.append(f"not all rpm packages can be read: {error}")
    except (struct.error, IndexError):
        found.notes.append("not all rpm packages can be read: their database is damaged")


def _headers(file: IO[bytes], found: Found) -> Iterator[bytes]:
    start = _at(file, 0, 512)
    if start.startswith(b"SQLite format 3\0"):
        yield from _of_sqlite(Path(file.name), found)
    elif start.startswith(b"RpmP"):
        yield from _of_ndb(file, found)
    elif start[12:16] == struct.pack("<I", _HASH_MAGIC):
        yield from _of_hash(file, start, found)
    else:
        raise ValueError("their database has an unknown format")


def _at(file: IO[bytes], offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)


def _of_sqlite(path: Path, found: Found) -> Iterator[bytes]:
    import sqlite3  # needed for few images

    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_HEADER)
            database.set_progress_handler(lambda: found.late, 100_000)
            database.execute("PRAGMA trusted_schema = OFF")
            kinds = database.execute("SELECT type, sql FROM sqlite_master WHERE name = 'Packages'").fetchall()
            if len(kinds) != 1 or kinds[0][0] != "table":  # a view may be made to run for ever
                raise ValueError("their database has no table of packages")
            for (blob,) in database.execute("SELECT blob FROM Packages"):
                yield bytes(blob) if isinstance(blob, bytes) else b""
    except (sqlite3.Error, OverflowError) as error:
        found.check()  # raises TooMuchError if the time limit interrupted the query
        raise ValueError(str(error)) from error


def _of_ndb(file: IO[bytes], found: Found) -> Iterator[bytes]:
    """The headers in an ndb: its slots have the position of each, in blocks of 16 bytes. Raises ValueError."""
    (pages,) = struct.unpack("<I", _at(file, 12, 4))
    for offset in range(32, min(pages, 1 << 14) * 4096, 16):
        found.check()
        magic, number, block, _ = struct.unpack("<4sIII", _at(file, offset, 16))
        if magic != _SLOT:
            raise ValueError("their ndb database is damaged")
        if block:
            begin, same, _, length = struct.unpack("<4sIII", _at(file, block * 16, 16))
            if begin == _BLOB and same == number:
                yield _at(file, block * 16 + 16, min(length, _LARGEST_HEADER))


def _of_hash(file: IO[bytes], start: bytes, found: Found) -> Iterator[bytes]:
    """The headers in a hash, whose pages alternate keys and values; a header has its own pages. Raises ValueError."""
    size, last = struct.unpack_from("<I", start, 20)[0], struct.unpack_from("<I", start, 32)[0]
    if not 512 <= size <= 65536:
        raise ValueError("their Berkeley DB is damaged")
    for number in range(1, last + 1):
        found.step()
        page = _at(file, number * size, size)
        if len(page) < size:
            return
        (count,) = struct.unpack_from("<H", page, 20)
        if page[25] in _HASH_PAGES:
            for offset in struct.unpack_from(f"<{count}H", page, 26)[1::2]:
                if page[offset] == _OFF_PAGE:
                    first, length = struct.unpack_from("<II", page, offset + 4)
                    yield _chained(file, size, (first, length), found)


def _chained(file: IO[bytes], size: int, place: tuple[int, int], found: Found) -> bytes:
    number, length = place
    value = bytearray()
    while number and len(value) < min(length, _LARGEST_HEADER):
        found.check()
        page = _at(file, number * size, size)
        (number,), (used,) = struct.unpack_from("<I", page, 16), struct.unpack_from("<H", page, 22)
        if page[25] != _OVERFLOW or not used:
            break
        value += page[26 : 26 + used]
    return bytes(value[:length])


def _package(header: bytes) -> Package | None:
    """The package of this header, an index of tags and their data; None for a key or no name. Raises ValueError."""
    count, size = struct.unpack_from(">II", header)
    if not count <= len(header) // 16:
        raise ValueError("an rpm header is damaged")
    data = header[8 + 16 * count :][:size]
    said: dict[int, str] = {}
    for tag, kind, offset, _ in struct.iter_unpack(">IIII", header[8 : 8 + 16 * count]):
        if kind in (_STRING, _I18N) and tag in (_NAME, _VERSION, _RELEASE, _LICENCE):
            said[tag] = data[offset : offset + 4096].partition(b"\0")[0].decode("utf-8", "replace")
        elif (tag, kind) == (_EPOCH, _INT32):
            said[tag] = f"{struct.unpack_from('>I', data, offset)[0]}:"
    name = said.get(_NAME, "")
    if not name or name in _NOT_PACKAGES:
        return None
    version = f"{said.get(_EPOCH, '')}{said.get(_VERSION, '')}-{said.get(_RELEASE, '')}"
    return Package("rpm", name, version, "/", said.get(_LICENCE, ""))
