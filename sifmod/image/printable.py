"""Printable text: metadata of an image, safe to print and small enough to store."""

LINE = 4096  # letters of a label, a variable, a word
TEXT = 1 << 16  # letters of a definition or a script


def line(text: str, most: int = LINE) -> str:
    r"""One line of at most `most` characters of `text`; control characters are escaped: `\x1b`, `\n`."""
    return block(text, most, kept="")


def block(text: str, most: int = TEXT, kept: str = "\n\t") -> str:
    r"""At most `most` characters of `text`; control characters are escaped, except those in `kept`."""
    letters = (letter if letter.isprintable() or letter in kept else _spelled(letter) for letter in text[: most + 1])
    shown = "".join(letters)
    return f"{shown[:most]}… ({len(text)} characters)" if len(text) > most else shown


def _spelled(letter: str) -> str:
    return letter.encode("ascii", "backslashreplace").decode() if ord(letter) > 0x7F else repr(letter)[1:-1]
