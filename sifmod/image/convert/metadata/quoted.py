"""Texts of an image's config, made safe for a shell script or a JSON file."""

import re

_PLAIN = re.compile(r"[A-Za-z0-9_./:+@%,-]+")
# the shell built into the runtimes reads '\'' after `export NAME=` as \', and CR LF as LF even within quotes
_QUOTE = "'\"'\"'"
_RETURN = "'\"$(printf '\\r')\"'\n"


def unicode_text(text: str) -> str:
    """`text` with U+FFFD for half surrogate pairs, which JSON can spell but UTF-8 cannot; Go's JSON reads them so."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def shell_word(text: str) -> str:
    """One word that dash, bash and the shell built into the runtimes read back as `text`, which holds no NUL."""
    text = unicode_text(text)
    if _PLAIN.fullmatch(text):
        return text
    return "'" + text.replace("'", _QUOTE).replace("\r\n", _RETURN) + "'"
