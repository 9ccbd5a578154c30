"""Numbers of a tar header: octal text, or base-256 where the first bit says so."""

from sifmod.image.convert.layers.malformed import Malformed

_OCTAL = frozenset(b"01234567")


def number(field: bytes) -> int:
    """The value of one field; empty is 0. Raises Malformed for anything else than digits."""
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
    """A whole number of a PAX record."""
    if not (text.isdigit() and len(text) <= 20):
        raise Malformed(f"is damaged: {what} is {text[:40]!r}, not a number")
    return int(text)


def whole(text: bytes, what: str) -> int:
    """The same where it may be negative."""
    digits = text.removeprefix(b"-")
    value = decimal(digits, what)
    return value if digits == text else -value


def seconds(text: bytes) -> int:
    """A PAX time, rounded down to whole seconds."""
    whole, dot, fraction = text.partition(b".")
    digits = whole.removeprefix(b"-")
    if not (digits + fraction).isdigit() or len(digits) > 20 or (dot and not digits):
        raise Malformed(f"is damaged: a time is {text[:40]!r}")
    value = int(digits)
    return value if whole == digits else -value - bool(fraction.strip(b"0"))
