"""Fields of a tar: the numbers of a header; PAX records, which override a header; maps of sparse files.

A header's number is octal text, or base-256 if its first bit is set. Keys of records are POSIX's, GNU's, star's and
libarchive's.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from urllib.parse import unquote_to_bytes

from sifmod.config.limits import bound, limits
from sifmod.image.convert.inode import Xattrs
from sifmod.image.convert.layers.stream import Malformed, Warnings, printable_name

_OCTAL = frozenset(b"01234567")
Records = Mapping[bytes, bytes]

_STAR, _LIBARCHIVE = b"SCHILY.xattr.", b"LIBARCHIVE.xattr."
_ATTRIBUTES = (_STAR, _LIBARCHIVE)
_TEXTS = (b"path", b"linkpath", b"GNU.sparse.name")
_MAP = {b"GNU.sparse.offset": 0, b"GNU.sparse.numbytes": 1}
_ACL = b"SCHILY.acl."
_XATTR_NAME, _XATTR_VALUE = 255, 65536  # bytes; Linux's limit
MAP = 1 << 20  # bytes; the longest supported map of a sparse file
Extents = tuple[tuple[int, int], ...]
"""The data of a sparse file: offset and length, in ascending order, not overlapping; the rest is holes."""


def number(field: bytes) -> int:
    """The value of a header's field, octal or base-256; 0 if empty. Raises Malformed for any other text."""
    if field[0] & 0x80:
        value = int.from_bytes(bytes((field[0] & 0x7F,)) + field[1:], "big")
        return value - (1 << (8 * len(field) - 1)) if field[0] & 0x40 else value
    text = field.strip(b"\0 ").partition(b"\0")[0].strip(b" ")
    if not text:
        return 0
    if not _OCTAL.issuperset(text):
        raise Malformed(f"is damaged: {text!r} is not an octal number")
    return int(text, 8)


def decimal(text: bytes, what: str) -> int:
    """A whole number of a PAX record, not negative; `what` names it in the error. Raises Malformed."""
    if not (text.isdigit() and len(text) <= 20):
        raise Malformed(f"is damaged: {what} is {text[:40]!r}, not a number")
    return int(text)


def whole(text: bytes, what: str) -> int:
    """A whole number of a PAX record, possibly negative; `what` names it in the error. Raises Malformed."""
    digits = text.removeprefix(b"-")
    value = decimal(digits, what)
    return value if digits == text else -value


def seconds(text: bytes) -> int:
    """A PAX time, rounded down to whole seconds. Raises Malformed."""
    whole, dot, fraction = text.partition(b".")
    digits = whole.removeprefix(b"-")
    if not (digits + fraction).isdigit() or len(digits) > 20 or (dot and not digits):
        raise Malformed(f"is damaged: a time is {text[:40]!r}")
    value = int(digits)
    return value if whole == digits else -value - bool(fraction.strip(b"0"))


def parse(data: bytes) -> dict[bytes, bytes]:
    """The records of one extended header: `LENGTH KEY=VALUE` and a newline each.

    Repeated offset and numbytes of GNU sparse 0.0 are combined to GNU.sparse.map, as in 0.1. Raises Malformed.
    """
    records: dict[bytes, bytes] = {}
    pairs: list[bytes] = []
    at = 0
    while at < len(data):
        space = data.find(b" ", at, at + 20)
        digits = data[at:space] if space > at else b""
        end = at + int(digits) if digits.isdigit() else 0
        key, equals, value = data[space + 1 : end - 1].partition(b"=")
        if not (space + 1 < end <= len(data) and equals and key and data[end - 1] == 10) or b"\0" in key:
            raise Malformed(f"is damaged: a PAX header is malformed at its byte {at}")
        if key in _TEXTS and b"\0" in value:
            raise Malformed(f"is damaged: a PAX {key.decode()} contains a zero byte: {printable_name(value)}")
        if key in _MAP:
            if len(pairs) % 2 != _MAP[key]:
                raise Malformed("is damaged: a sparse map's offsets and lengths do not alternate")
            pairs.append(value)
        records[key] = value
        at = end
    if pairs:
        records[b"GNU.sparse.map"] = b",".join(pairs)
    return records


def in_force(before: Records, after: Records) -> dict[bytes, bytes]:
    """The records `before` overridden by `after`; a record without a value deletes the earlier one (POSIX).

    An extended attribute may be empty: GNU tar and libarchive write and read such records.
    """
    return {key: value for key, value in {**before, **after}.items() if value or key.startswith(_ATTRIBUTES)}


def xattrs(records: Records, warnings: Warnings) -> Xattrs:
    """The attributes `user.*`, `trusted.*`, `security.*`; others, ACLs and SELinux labels are dropped with a warning.

    Raises Malformed for one that Linux refuses, or whose value is not the base64 that its record must have.
    """
    found: dict[bytes, bytes] = {}
    for key, value in records.items():
        if key.startswith(_LIBARCHIVE):
            found.setdefault(unquote_to_bytes(key.removeprefix(_LIBARCHIVE)), _base64(value))
        elif key.startswith(_STAR):
            found[key.removeprefix(_STAR)] = value
        elif key.startswith(_ACL):
            warnings.count("dropped", f"ACL ({printable_name(key.removeprefix(_ACL))})")
        elif key == b"RHT.security.selinux":
            warnings.count("dropped", "xattr security.selinux")
    return tuple(sorted(item for item in found.items() if _kept(*item, warnings)))


def _kept(name: bytes, value: bytes, warnings: Warnings) -> bool:
    if not name.startswith((b"user.", b"trusted.", b"security.")) or name == b"security.selinux":
        warnings.count("dropped", f"xattr {printable_name(name)}")
        return False
    if len(name) > _XATTR_NAME or len(value) > _XATTR_VALUE or b"\0" in name or name.endswith(b"."):
        raise Malformed(f"has an xattr that Linux refuses: {printable_name(name)}, {len(value)} bytes")
    return True


def _base64(value: bytes) -> bytes:
    try:
        return base64.b64decode(value.rstrip(b"=") + b"=" * (-len(value.rstrip(b"=")) % 4), validate=True)
    except binascii.Error as error:
        raise Malformed(f"is damaged: an xattr's value is not base64: {printable_name(value)}") from error


def pax_size(records: Records) -> int | None:
    """The real size of a sparse file by PAX records in bytes, None for other files. Raises Malformed."""
    for key in (b"GNU.sparse.realsize", b"GNU.sparse.size"):
        if key in records:
            return _bounded(decimal(records[key], "the size of a sparse file"))
    return None


def pax_map(records: Records, read: Callable[[], bytes]) -> Extents:
    """The extents by PAX records: GNU's 0.0 and 0.1 have a record, 1.0 blocks (`read`) first. Raises Malformed."""
    if records.get(b"GNU.sparse.major") == b"1":
        return _paired(_numbers_in_blocks(read))
    text = records.get(b"GNU.sparse.map", b"")
    return _paired([decimal(value, "a sparse map's entry") for value in text.split(b",")] if text else [])


def header_map(block: bytes, read: Callable[[], bytes]) -> tuple[Extents, int]:
    """Extents and real size of an old GNU member (type S); each `read` gives the next block. Raises Malformed."""
    size = _bounded(number(block[483:495]))
    fields, more, blocks = block[386:482], block[482], 0
    numbers: list[int] = []
    while True:
        for at in range(0, len(fields), 24):
            if fields[at] == 0:  # an unused entry ends the map
                break
            numbers += number(fields[at : at + 12]), number(fields[at + 12 : at + 24])
        if not more:
            return _paired(numbers), size
        blocks += 1
        if blocks * 512 > MAP:
            raise Malformed("is damaged: a sparse map is too long")
        block = read()
        fields, more = block[:504], block[504]


def check(extents: Extents, size: int, stored: int) -> Extents:
    """`extents` without empty ones. Raises Malformed unless they fit the file's size and its stored data."""
    end = total = 0
    for offset, length in extents:
        if offset < end or length < 0 or offset + length > size:
            raise Malformed("is damaged: a sparse map is out of order or exceeds its file")
        end = offset + length
        total += length
    if total != stored:
        raise Malformed(f"is damaged: a sparse map has {total} bytes of data, but {stored} are stored")
    return tuple(extent for extent in extents if extent[1])


def _numbers_in_blocks(read: Callable[[], bytes]) -> list[int]:
    text = b""
    wanted = 1
    numbers: list[int] = []
    length = 0
    while len(numbers) < wanted:
        block = read()
        length += len(block)
        *lines, text = (text + block).split(b"\n")
        if length > MAP or len(text) > 512:
            raise Malformed("is damaged: a sparse map is too long")
        for line in lines:
            if len(numbers) < wanted:
                numbers.append(decimal(line, "a sparse map's entry"))
                wanted = 1 + 2 * numbers[0]
    return numbers[1:]


def _paired(numbers: list[int]) -> Extents:
    if len(numbers) % 2:
        raise Malformed("is damaged: a sparse map has an offset without a length")
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def _bounded(size: int) -> int:
    if not 0 <= size <= limits().sparse_file_size:
        raise Malformed(f"has a sparse file of {size} bytes, more than {bound('sparse_file_size')}")
    return size
