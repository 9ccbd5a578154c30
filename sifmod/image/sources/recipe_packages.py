"""The packages that a recipe asks for: by name and from an index, so that it builds the same wherever it is read."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sifmod.errors import FetchError, OptionError
from sifmod.image.packages.asked import asked_by_recipe
from sifmod.image.packages.image_python import Distribution
from sifmod.image.packages.package_lock import pinned
from sifmod.image.packages.wanted import Wanted, name_of, read_lock
from sifmod.module.plan import BuildPlan


def packages_of(build: BuildPlan) -> tuple[Wanted, str]:
    """What is asked for, and the text of a lock in its place. Raises FetchError for a file that names anything else."""
    path = build.requirements
    try:
        if path.endswith(".toml"):
            return Wanted(), read_lock(Path(path))
        wanted = asked_by_recipe(Path(path))[0] if path else Wanted()
    except OptionError as error:
        raise FetchError(error.message, error.hint) from error
    if build.pip and wanted.digests:
        raise FetchError(
            f"{path} has digests, and what `pip` names has none: {', '.join(build.pip)}", "name all of it in the file"
        )
    return replace(wanted, requirements=(*build.pip, *wanted.requirements)), ""


def package_files(build: BuildPlan) -> Iterator[str]:
    """The files that decide about the packages: that of `requirements`, and those that it names."""
    if build.requirements:
        yield build.requirements
        if not build.requirements.endswith(".toml"):
            try:
                yield from map(str, asked_by_recipe(Path(build.requirements))[1])
            except OptionError:
                return  # who builds it says so


def said_of(wanted: Wanted) -> dict[str, object]:
    """What decides about the packages, in a recipe."""
    return {
        "requirements": wanted.requirements,
        "constraints": wanted.constraints,
        "digests": dict(wanted.digests),
        "indexes": wanted.lasting,
    }


def compiling(python: str, place: str) -> str:
    """The commands that install what has no wheel, and write down what there is then."""
    program, place = shlex.quote(python), f"/{place}"
    install = f"{program} -m pip install --no-cache-dir --constraint {place}/kept.txt"
    return f"{install} --requirement {place}/requirements.txt\n{program} -m pip freeze >{place}/installed.txt\n"


def compiled_from(wanted: Wanted, lock: str, kept: dict[str, Distribution]) -> Iterator[tuple[str, bytes]]:
    """The files that these commands read: what stays as it is, and what is installed, as pip takes it."""
    pins = (*(f"{key}=={one.version}" for key, one in kept.items()), *(wanted.constraints or ()))
    yield "kept.txt", "".join(f"{line}\n" for line in pins).encode()
    words = ("--pre" if word == "--prerelease=allow" else word for word in wanted.lasting)
    lines = "".join(f"{line}\n" for line in (*words, *_with_digests(wanted)))
    yield "requirements.txt", (pinned(lock) if lock else lines).encode()


def _with_digests(wanted: Wanted) -> Iterator[str]:
    digests = dict(wanted.digests)
    for text in wanted.requirements:
        yield " ".join((text, *(f"--hash=sha256:{digest}" for digest in digests.get(name_of(text), ()))))
