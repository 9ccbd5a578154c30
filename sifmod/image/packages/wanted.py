"""What is to be added to a layer or an image: requirements and locks, as people write them."""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from sifmod.config.bounded_file import NotReadError, read_bounded
from sifmod.config.shown import has_login, without_logins
from sifmod.errors import OptionError
from sifmod.image.inspect.python_environments import normalized

FIND_LINKS = "--find-links="
LOCK_AGAIN = "make it again: `uv pip compile --generate-hashes --format pylock.toml -o pylock.toml requirements.txt`"


@dataclass(frozen=True)
class Wanted:
    """What is asked for: requirements as people write them, directories of projects, and where packages are looked for.

    `words` are uv's: --no-index, --find-links=PLACE, --no-build-isolation.
    """

    requirements: tuple[str, ...] = ()
    editable: tuple[str, ...] = ()  # absolute paths
    words: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """The directories and pages in which wheels are looked for, beside the index or in its place."""
        return tuple(word.removeprefix(FIND_LINKS) for word in self.words if word.startswith(FIND_LINKS))


def words_of(find_links: Iterable[str] = (), **options: bool) -> tuple[str, ...]:
    """The words of uv for places to look in, as they were typed, and for the options that are set (`no_index`)."""
    options["no_index"] = options.get("no_index") or bool(os.environ.get("UV_NO_INDEX"))
    named = (f"--{name.replace('_', '-')}" for name, given in options.items() if given)
    return (*named, *(f"{FIND_LINKS}{_place(text)}" for text in find_links))


def _place(text: str) -> str:
    if "://" not in text:
        return directory(text, "--find-links")
    check_login(text, "--find-links")
    return text


def check_login(text: str, what: str) -> None:
    """Raise OptionError where a URL in the text has a login: what is written here is kept where others may read it."""
    text = re.sub(r"[\t\r\n]", "", text)  # as parsers of URLs do
    if has_login(text):
        raise OptionError(
            f"{what}: {without_logins(text)[:200]} was given with a login, which would be kept where others read it",
            "put it into ~/.netrc; for an index NAME of uv.toml also UV_INDEX_NAME_USERNAME and UV_INDEX_NAME_PASSWORD",
        )


def directory(text: str, option: str) -> str:
    """The absolute path of a directory that is there, and can be bound. Raises OptionError."""
    path = Path(text).absolute()
    if not path.is_dir():
        raise OptionError(f"{option}: there is no directory {path}")
    if set(str(path)) & set(",:"):
        raise OptionError(f"{option}: {path} holds a comma or a colon, which bind paths cannot express")
    return str(path)


def name_of(requirement: str) -> str:
    """The normalized name of what a requirement asks for. Raises OptionError for what is none, or has a login."""
    check_login(requirement, "the requirement")
    try:
        return normalized(Requirement(requirement).name)
    except InvalidRequirement as error:
        raise OptionError(
            f"{requirement!r} is no requirement", "write it as for pip: transformers==4.57.1, or 'torchmetrics>=1.4'"
        ) from error


def read_requirements(path: Path) -> tuple[str, ...]:
    """The requirements of a requirements.txt, and of those that it names; OptionError for other options."""
    found: list[str] = []
    _take(path, found, 0)
    return tuple(found)


def _take(path: Path, found: list[str], depth: int) -> None:
    if depth > 10:
        raise OptionError(f"{path}: files of requirements name each other")
    for number, line in enumerate(_read(path).replace("\\\n", " ").splitlines(), 1):
        text = re.split(r"\s#", line)[0].strip()
        if not text or text.startswith("#"):
            continue
        option, _, rest = text.partition(" ")
        if option in ("-r", "--requirement"):
            _take(path.parent / rest.strip(), found, depth + 1)
        elif option.startswith("-"):
            raise OptionError(
                f"{path}:{number}: {option} is not read here",
                "uv's own settings (uv.toml, UV_…) say where to look",
            )
        else:
            if "--hash" in text:
                raise OptionError(
                    f"{path}:{number}: digests are not read here",
                    "a lock (pylock.toml) has them, and can stand for this file",
                )
            check_login(text, f"{path}:{number}")
            found.append(text)


def read_lock(path: Path) -> str:
    """The text of a lock. Raises OptionError for one that is empty, which would stand for no lock."""
    if text := _read(path).strip():
        for line in text.splitlines() if has_login(text) else ():
            check_login(line.strip(), str(path))
        try:
            for value in _texts(tomllib.loads(text)):  # whose spelling there may hide it: "me\\u0040host"
                check_login(value, str(path))
        except RecursionError as error:
            raise OptionError(f"{path} is no lock of PEP 751: nested too deep", LOCK_AGAIN) from error
        except tomllib.TOMLDecodeError:
            pass  # who reads it says so
        return f"{text}\n"
    raise OptionError(f"{path} is empty, and no lock", LOCK_AGAIN)


def _texts(value: object) -> Iterator[str]:
    """The texts in what TOML holds, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from (key, *_texts(each))
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _read(path: Path) -> str:
    try:
        return read_bounded(path, "lock_size").decode("utf-8-sig")
    except NotReadError as error:
        raise OptionError(str(error)) from error
    except FileNotFoundError as error:
        raise OptionError(f"there is no file {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} cannot be read: {error}") from error
