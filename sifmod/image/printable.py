"""Printable text: what an image says about itself, made harmless to show and small enough to keep."""

LINE = 4096  # letters of a label, a variable, a word
TEXT = 1 << 16  # letters of a definition or a script

_KEPT = "\n\t"


def line(text: str, most: int = LINE) -> str:
    r"""One line of at most `most` letters of `text`; what no terminal should be sent is spelled: `\x1b`, `\n`."""
    return _cut(
        "".join(letter if letter.isprintable() else _spelled(letter) for letter in text[: most + 1]), text, most
    )


def block(text: str, most: int = TEXT) -> str:
    r"""The same with line ends and tabs as they are."""
    letters = (letter if letter.isprintable() or letter in _KEPT else _spelled(letter) for letter in text[: most + 1])
    return _cut("".join(letters), text, most)


def _spelled(letter: str) -> str:
    return letter.encode("ascii", "backslashreplace").decode() if ord(letter) > 0x7F else repr(letter)[1:-1]


def _cut(shown: str, text: str, most: int) -> str:
    return f"{shown[:most]}… ({len(text)} characters)" if len(text) > most else shown
