"""Choose an image's commands for wrappers: those of its software, unless they would hide host commands."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from sifmod.config.limits import bound, limits
from sifmod.errors import ImageError
from sifmod.image.guess import Guess, make_guess
from sifmod.image.inspect.description import ImageDescription
from sifmod.image.inspect.host_commands import is_host_command
from sifmod.image.inspect.python_environments import PythonEnvironment, activated_environment
from sifmod.image.inspect.rootfs import PYTHON_COMMANDS, Rootfs, search_path
from sifmod.image.reference import Reference

SCRIPTS = ("start-shell", "list-packages")  # sifmod's own; the second is for an image with Python
_BASE = ("/bin", "/usr/bin", "/sbin", "/usr/sbin")  # the distribution's
_NOT_OF_THE_IMAGE = re.compile(r"/runscripts|/user-software(/.*)?|.*/condabin")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_DIRECTORY = re.compile(r"/[A-Za-z0-9_@+./-]{0,200}")  # without characters that a script must quote
_TOOLCHAIN = re.compile(r".*-(linux-gnu|linux-musl|conda)-.*")  # x86_64-conda-linux-gnu-ld
_LABELS = ("org.opencontainers.image.title", "org.label-schema.name", "software", "name")
_EXEC = re.compile(r"^[ \t]*exec[ \t]+([^\s\"'$;&|]+)", re.MULTILINE)
_BEFORE_A_COMMAND = ("tini", "dumb-init", "env", "--", "-g", "-s")  # words of an entrypoint


@dataclass(frozen=True)
class Search:
    """What decides the search for wrappers before the image is read."""

    image: Reference  # the image's name
    path: tuple[str, ...]  # prepended to the image's PATH, in this order
    activate: str  # a command that activates an environment; "" if `path` suffices
    named: frozenset[str]  # named in the easyconfig; not searched


class Found(NamedTuple):
    """Commands, each with its path in the image if PATH does not find it (else ""); and names left to the host."""

    commands: tuple[tuple[str, str], ...]
    refused: tuple[str, ...]
    unusable: tuple[str, ...] = ()  # programs whose names no wrapper can have


def find_wrappers(rootfs: Rootfs, described: ImageDescription, search: Search) -> Found:
    """The commands in the environment, else in the image's PATH, those that the image itself names, and sifmod's own.

    The environment is that of `search`, else that of the image's software. The image names commands in entrypoint,
    command, runscript and labels. Other programs of the distribution are left out, except Python; names of common host
    commands are never included. Raises ImageError for a damaged image, and for too many commands.
    """

    @cache
    def names_in(directory: str) -> frozenset[str]:
        return frozenset(rootfs.programs(directory) if _DIRECTORY.fullmatch(directory) else ())

    def first_with(name: str, directories: Iterable[str]) -> str:
        """The first directory that has the command, or ""."""
        return next((directory for directory in directories if name in names_in(directory)), "")

    front = _front(rootfs, search)
    path = (*front, *search_path(dict(described.config.environment).get("PATH", "")))
    guess = make_guess(search.image, described, rootfs)
    places = _places(front, path, guess.python)
    spoken = [word.rpartition("/") for word in _spoken_of(described)]
    elsewhere = [directory for directory, _, _ in spoken if directory.startswith("/")]
    distribution = {name for place in _BASE for name in names_in(place)}
    software = sorted({name for place in places for name in names_in(place)} - distribution)
    wanted = [
        *_of_python(first_with, guess, places),
        *(name for _, _, name in spoken if not is_host_command(name)),
        *software,
    ]
    names = [name for name in dict.fromkeys(wanted) if _is_name(name, search)]
    if len(names) > limits().wrappers:
        raise ImageError(
            f"the image has {len(names)} commands for wrappers, more than {bound('wrappers')}",
            "list the wanted commands in `wrappers` instead of auto",
        )
    found = [(name, place) for name in names if (place := first_with(name, (*places, *path, *_BASE, *elsewhere)))]
    commands = [
        (name, "" if first_with(name, path) == place else f"{place}/{name}")
        for name, place in found
        if not is_host_command(name)
    ]
    scripts = SCRIPTS if {"pip", "pip3", "python", "python3"} & {name for name, _ in commands} else SCRIPTS[:1]
    return Found(
        (*commands, *((name, "") for name in scripts if name not in search.named)),
        tuple(name for name, _ in found if is_host_command(name)),
        tuple(name for name in software if not _NAME.fullmatch(name)),
    )


def _places(front: tuple[str, ...], path: tuple[str, ...], python: PythonEnvironment | None) -> tuple[str, ...]:
    """The directories of the image's own software, without those of the distribution."""
    if given := tuple(place for place in front if place not in _BASE):
        return given
    if python and python.kind != "system":
        return (f"{python.directory}/bin",)
    return tuple(place for place in path if place not in _BASE)


def _of_python(first_with: Callable[[str, Iterable[str]], str], guess: Guess, places: tuple[str, ...]) -> list[str]:
    """All guessed wrappers if the guessed Python is the system's or in `places`; else Python's tools in `places`."""
    python = guess.python
    if python and (python.kind == "system" or f"{python.directory}/bin" in places):
        return list(guess.wrappers)
    return [name for name in PYTHON_COMMANDS if first_with(name, places)]


def _front(rootfs: Rootfs, search: Search) -> tuple[str, ...]:
    """The image's directories to prepend to its PATH: first that of the activated environment, then the plan's."""
    given = [place.rstrip("/") for place in search.path if not _NOT_OF_THE_IMAGE.fullmatch(place)]
    activated = activated_environment(search.activate)
    front = ([f"{activated}/bin"] if activated else []) + given
    return tuple(place for place in dict.fromkeys(front) if rootfs.is_directory(place))


def _spoken_of(described: ImageDescription) -> Iterator[str]:
    """The commands that entrypoint, command, runscript and labels name, by name or path."""
    config = described.config
    for words in (config.entrypoint, config.cmd, tuple(_EXEC.findall(described.runscript)[:1])):
        command = (word for word in words if word.rpartition("/")[2] not in _BEFORE_A_COMMAND and "=" not in word)
        if first := next(command, ""):
            yield first
    labels = dict(config.labels)
    for name in _LABELS:
        called = labels.get(name, "").strip().rpartition("/")[2]
        yield from (called, called.lower())


def _is_name(name: str, search: Search) -> bool:
    is_one = _NAME.fullmatch(name) and not _TOOLCHAIN.fullmatch(name)
    return bool(is_one) and name not in search.named and name not in SCRIPTS and "entrypoint" not in name
