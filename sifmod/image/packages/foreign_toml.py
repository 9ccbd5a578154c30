"""Read TOML that another user may have written, with bounded time and memory."""

import re
import tomllib
from typing import Any

from sifmod.config.limits import bound, limits

# tomllib's time and memory grow with the square of a key's length: a.b.c…
_LONG_KEY = re.compile(r"""(?<![\w.-])(?:(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){64}""")
# no (?!…) within *+, which Python 3.11 gets wrong
_TEXT = re.compile(
    r"""#[^\n]*+|"{3}(?:[^"\\]|\\.|"{1,2}(?:[^"\\]|\\.))*+(?:"{3,5})?|'{3}(?:[^']|'{1,2}[^'])*+(?:'{3,5})?"""
    r"""|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?""",
    re.DOTALL,
)
_SIGNS = "[{=,."  # in front of each value and each part of a key, of which tomllib needs up to 1 kB
_SIGNS_OF_A_TEXT = 4  # locks of uv have two for each text


class TooManyValuesError(ValueError):
    """The text has more values than the limit."""


def read_toml(text: str) -> dict[str, Any]:
    """The table in `text`. Raises TOMLDecodeError, TooManyValuesError, or another ValueError if it is too deep."""
    plain = _TEXT.sub("", text)
    if sum(map(plain.count, _SIGNS)) > _SIGNS_OF_A_TEXT * limits().lock_values:
        raise TooManyValuesError(f"more values than {bound('lock_values')}")
    try:
        if _LONG_KEY.search(text):
            raise RecursionError
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
