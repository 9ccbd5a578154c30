"""The sources of an image: whether each can be one, where those on this machine are, how much they will bring."""

from collections.abc import Callable
from pathlib import Path

from sifmod.config.load import LoadedEasyconfig
from sifmod.errors import ConfigError, FetchError, OptionError, Problem
from sifmod.image.sources.reference import Reference, parse
from sifmod.module.plan import ImagePlan


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


def local_files(image: ImagePlan) -> tuple[str, ...]:
    """The files here whose change means another image: SIFs, archives, an OCI layout's index, a definition."""
    paths = [image.build] if image.build else []
    for reference in map(parse, image.sources):
        if reference.kind == "oci":
            paths.append(f"{reference.location}/index.json")
        elif reference.is_local:
            paths += _places(reference, image)
    return tuple(paths)


def announced_size(
    image: ImagePlan,
    remote: Callable[[Reference], int | None] = lambda reference: None,  # noqa: ARG005
) -> int | None:
    """Bytes that the first source which can work will bring; None where that is not known before it is fetched.

    `remote` says it of a source that is not on this machine. 0 when nothing will be brought: a SIF that is only
    referred to, one that is there, or nothing that could be had offline.
    """
    if image.build:
        return None
    for reference in map(parse, image.sources):
        if not reference.is_local:
            if image.offline:
                continue
            return remote(reference)
        if found := next((path for path in map(Path, _places(reference, image)) if path.exists()), None):
            if image.link == "reference" and reference.kind in ("name", "path"):
                return 0
            return sum(path.stat().st_size for path in (found, *found.rglob("*")) if path.is_file())
    return 0


def _places(reference: Reference, image: ImagePlan) -> tuple[str, ...]:
    if reference.kind == "name":
        return tuple(f"{directory}/{reference.location}" for directory in image.image_dirs)
    return (reference.location,)
