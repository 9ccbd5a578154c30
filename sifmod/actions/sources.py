"""The sources of an easyconfig, checked before anything is done."""

import re

from sifmod.config.load_easyconfig import LoadedEasyconfig
from sifmod.errors import ConfigError, FetchError, OptionError, Problem

PLAIN = re.compile(
    r"(docker|oras|library)://[a-z0-9]+([./-][a-z0-9]+)*(:[A-Za-z0-9][A-Za-z0-9._-]{0,99})?(@sha256:[0-9a-f]{64})?"
    r"|/?[A-Za-z0-9]+([._/-][A-Za-z0-9]+)*\.sif",
    re.ASCII,
)
"""Sources in which nothing can be wrong: the kinds, and all that they import, take a quarter of a second."""


def check_sources(loaded: LoadedEasyconfig) -> None:
    """Raise ConfigError with every source that cannot be one, each at its place; OptionError for `--source`."""
    sources = loaded.easyconfig.image.sources if loaded.easyconfig.image else ()
    if all(map(PLAIN.fullmatch, sources)):
        return
    from sifmod.image.sources.kinds import parse

    places = {origin.key: origin.origin for origin in loaded.origins}
    problems = []
    for index, source in enumerate(sources):
        try:
            parse(source)
        except FetchError as error:
            key = f"image.sources[{index}]"
            file, _, line = places[key].rpartition(":")
            if not line.isdecimal():  # it is the command line's
                raise OptionError(f"--source: {error.message}", error.hint) from error
            message = f"{error.message}; {error.hint}" if error.hint else error.message
            problems.append(Problem(file, int(line), 1, key, message))
    if problems:
        raise ConfigError(tuple(problems))
