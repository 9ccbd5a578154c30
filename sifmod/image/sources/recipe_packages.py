"""The packages of a recipe: by name and from an index, so that every machine builds the same."""

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from sifmod.errors import FetchError, OptionError
from sifmod.image.packages.image_python import Distribution
from sifmod.image.packages.package_lock import pinned
from sifmod.image.packages.request import INDEXES, NO_INDEX, PackageRequest, name_of, read_lock
from sifmod.image.packages.requirements import parse_recipe_requests
from sifmod.module.plan import BuildPlan


def packages_of(build: BuildPlan) -> tuple[PackageRequest, str]:
    """The requirements of a recipe, or the text of a lock instead. Raises FetchError for a file with anything else."""
    path = build.requirements
    try:
        if path.endswith(".toml"):
            return PackageRequest(), read_lock(Path(path))
        wanted = parse_recipe_requests(Path(path))[0] if path else PackageRequest()
    except OptionError as error:
        raise FetchError(error.message, error.hint) from error
    if build.pip and wanted.digests:
        raise FetchError(
            f"{path} has digests, but the packages under `pip` have none: {', '.join(build.pip)}",
            "move them to the file",
        )
    return replace(wanted, requirements=(*build.pip, *wanted.requirements)), ""


def package_files(build: BuildPlan) -> Iterator[str]:
    """The files that decide the packages: `requirements`, and those that it includes."""
    if build.requirements:
        yield build.requirements
        if not build.requirements.endswith(".toml"):
            try:
                yield from map(str, parse_recipe_requests(Path(build.requirements))[1])
            except OptionError:
                return  # the build reports it


def said_of(wanted: PackageRequest) -> dict[str, object]:
    """The inputs that decide the packages of a recipe."""
    return {
        "requirements": wanted.requirements,
        "constraints": wanted.constraints,
        "digests": dict(wanted.digests),
        "indexes": wanted.lasting,
    }


def compiling(python: str, place: str) -> str:
    """The commands that install packages without a wheel, and list the installed ones.

    Settings of the image would add indexes, also to those that a build searches for what it needs.
    """
    program, place = shlex.quote(python), f"/{place}"
    install = f"{program} -m pip install --no-cache-dir --no-input --constraint {place}/kept.txt"
    return (
        "(unset PIP_INDEX_URL PIP_PYPI_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS PIP_NO_INDEX\n"
        "export PIP_CONFIG_FILE=/dev/null PIP_BREAK_SYSTEM_PACKAGES=1 PIP_DISABLE_PIP_VERSION_CHECK=1\n"
        f"{install} --requirement {place}/requirements.txt)\n{program} -m pip freeze >{place}/installed.txt\n"
    )


def compiled_from(
    wanted: PackageRequest, lock: str, kept: dict[str, Distribution], places: Iterable[str]
) -> Iterator[tuple[str, bytes]]:
    """The files that the commands of `compiling` read, in pip's format: protected packages, and those to install.

    `places`: the lines about where to search, instead of those of the request.
    """
    pins = (*(f"{key}=={one.version}" for key, one in kept.items()), *(wanted.constraints or ()))
    yield "kept.txt", "".join(f"{line}\n" for line in pins).encode()
    own = (word for word in wanted.lasting if not word.startswith((*INDEXES, NO_INDEX)))
    words = ("--pre" if word == "--prerelease=allow" else word for word in own)
    hashes = {name: "".join(f" --hash=sha256:{one}" for one in digests) for name, digests in wanted.digests}
    requirements = (f"{text}{hashes.get(name_of(text), '')}" for text in wanted.requirements)
    lines = "".join(f"{line}\n" for line in (*places, *words))
    packages = pinned(lock) if lock else "".join(f"{line}\n" for line in requirements)
    yield "requirements.txt", f"{lines}{packages}".encode()
