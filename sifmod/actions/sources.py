"""The sources of an easyconfig, checked before anything is done."""

from sifmod.config.load_easyconfig import LoadedEasyconfig
from sifmod.errors import ConfigError, FetchError, OptionError, Problem
from sifmod.image.sources.kinds import parse


def check_sources(loaded: LoadedEasyconfig) -> None:
    """Raise ConfigError with every source that cannot be one, each at its place; OptionError for `--source`."""
    places = {origin.key: origin.origin for origin in loaded.origins}
    problems = []
    for index, source in enumerate(loaded.easyconfig.image.sources):
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
