"""Check the sources of an easyconfig before anything is done."""

import re

from sifmod.config.build import names_easyconfig
from sifmod.config.load_easyconfig import LoadedEasyconfig
from sifmod.errors import ConfigError, FetchError, OptionError, Problem

PLAIN = re.compile(
    r"(docker|oras|library)://[a-z0-9]+([./-][a-z0-9]+)*(:[A-Za-z0-9][A-Za-z0-9._-]{0,99})?(@sha256:[0-9a-f]{64})?"
    r"|/?[A-Za-z0-9]+([._/-][A-Za-z0-9]+)*\.sif",
    re.ASCII,
)
"""Sources that are always valid: importing the source kinds takes a quarter of a second."""


def check_sources(loaded: LoadedEasyconfig) -> None:
    """Raise ConfigError with every invalid source and its position; OptionError for `--source`."""
    image = loaded.easyconfig.image
    written = {f"image.sources[{index}]": source for index, source in enumerate(image.sources if image else ())}
    if image and image.build and image.build.from_ and not names_easyconfig(image.build.from_):
        written["image.build.from"] = image.build.from_
    if all(map(PLAIN.fullmatch, written.values())):
        return
    from sifmod.image.sources.source_kinds import parse

    places = {origin.key: origin.origin for origin in loaded.origins}
    problems = []
    for key, source in written.items():
        try:
            parse(source)
        except FetchError as error:
            file, _, line = places[key].rpartition(":")
            if not line.isdecimal():  # it came from the command line
                raise OptionError(f"--source: {error.message}", error.hint) from error
            message = f"{error.message}; {error.hint}" if error.hint else error.message
            problems.append(Problem(file, int(line), 1, key, message))
    if problems:
        raise ConfigError(tuple(problems))
