"""Printable text: metadata of an image, safe to print and small enough to store."""

LINE = 4096  # letters of a label, a variable, a word
TEXT = 1 << 16  # letters of a definition or a script


def line(text: str, most: int = LINE) -> str:
    r"""`text` on one line, cut after `most` characters; control characters are escaped: `\x1b`, `\n`."""
    return block(text, most, kept="")


def block(text: str, most: int = TEXT, kept: str = "\n\t") -> str:
    r"""`text`; after `most` characters it is cut and gets its length; control characters not in `kept` are escaped."""
    letters = (letter if letter.isprintable() or letter in kept else _spelled(letter) for letter in text[: most + 1])
    shown = "".join(letters)
    return f"{shown[:most]}… ({len(text)} characters)" if len(text) > most else shown


def _spelled(letter: str) -> str:
    return letter.encode("ascii", "backslashreplace").decode() if ord(letter) > 0x7F else repr(letter)[1:-1]
