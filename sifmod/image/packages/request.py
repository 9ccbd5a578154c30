"""The packages to add to a layer or an image: requirements and locks, as users write them."""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from packaging.requirements import InvalidRequirement, Requirement

from sifmod.config.limits import bound, limits
from sifmod.config.private import closed_to_author
from sifmod.config.redact import has_login, secret_parameter, without_logins
from sifmod.errors import OptionError
from sifmod.image.inspect.python_environments import normalized
from sifmod.image.packages.foreign_toml import TooManyValuesError, read_toml
from sifmod.image.packages.requirement_lines import read_text
from sifmod.image.packages.uv_settings import has_login_for
from sifmod.image.reference import is_loopback
from sifmod.secret import cut

_CLEAR = re.compile(r"""(?i)\bhttp:/+([^/\s:?#"'\\]+)""")  # the host
_FILE = re.compile(r"(?i)\bfile:/{0,2}(?:localhost)?(/[^#]*)")
FIND_LINKS = "--find-links="
NO_INDEX = "--no-index"
INDEXES = ("--index-url=", "--extra-index-url=")
_LASTING = (*INDEXES, NO_INDEX, "--prerelease=", "--no-binary=", "--only-binary=")
KEEP_LOGIN = (
    "put it in ~/.netrc; for an index NAME of uv.toml also in UV_INDEX_NAME_USERNAME and UV_INDEX_NAME_PASSWORD"
)
LOCK_AGAIN = "create it again: `uv pip compile --generate-hashes --format pylock.toml -o pylock.toml requirements.txt`"


@dataclass(frozen=True)
class PackageRequest:
    """A request: requirements in PEP 508, directories of projects, and the places to search for packages.

    A path in a requirement is absolute (`NAME @ file:///…`). `words` are for uv: --no-index, --find-links=PLACE, …
    """

    requirements: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()  # requirements without the name, for projects whose name only their build knows
    editable: tuple[str, ...] = ()  # absolute paths, with extras
    words: tuple[str, ...] = ()
    constraints: tuple[str, ...] | None = None  # None: the request does not mention constraints
    digests: tuple[tuple[str, tuple[str, ...]], ...] = ()  # SHA-256 of the accepted files, by normalized name

    @property
    def places(self) -> tuple[str, ...]:
        """The directories and pages to search for wheels, in addition to the index or instead of it."""
        return tuple(word.removeprefix(FIND_LINKS) for word in self.words if word.startswith(FIND_LINKS))

    @property
    def lasting(self) -> tuple[str, ...]:
        """The arguments that later changes of a layer keep: its indexes, and the rules for files and versions."""
        return tuple(word for word in self.words if word.startswith(_LASTING))

    @property
    def local(self) -> tuple[str, ...]:
        """What uv reads besides indexes: the paths of files and projects, and the `places`, of which some are URLs."""
        named = (path for text in (*self.requirements, *self.unnamed) if (path := path_of(text)))
        return tuple(dict.fromkeys((*map(project, self.editable), *self.places, *map(str, named))))

    @property
    def texts(self) -> tuple[str, ...]:
        """Everything that may name a path."""
        words = (word.partition("=")[2] for word in self.words)
        return (*self.requirements, *self.unnamed, *map(project, self.editable), *words)

    @property
    def projects(self) -> tuple[tuple[str, str], ...]:
        """The directories that requirements name, installed in their current state: normalized name and path."""
        named = ((name_of(text), path) for text in self.requirements if (path := path_of(text)))
        return tuple((name, str(path)) for name, path in named if path.is_dir())


def words_of(
    find_links: Iterable[str] = (), index_url: str | None = None, extra_index_url: Iterable[str] = (), **options: bool
) -> tuple[str, ...]:
    """The arguments for uv: indexes, search places and the set options; UV_NO_INDEX sets `no_index`.

    Raises OptionError for an unusable index or place.
    """
    options["no_index"] = options.get("no_index") or bool(os.environ.get("UV_NO_INDEX"))
    pre = ("--prerelease=allow",) if options.pop("pre", False) else ()
    named = (f"--{name.replace('_', '-')}" for name, given in options.items() if given)
    indexes = (("--index-url", index_url), *(("--extra-index-url", text) for text in extra_index_url))
    urls = (index_word(name, text) for name, text in indexes if text)
    return (*named, *pre, *urls, *(f"{FIND_LINKS}{place(text)}" for text in find_links))


def kept_words(before: tuple[str, ...], now: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the lasting arguments `before` that the arguments `now` do not replace."""
    indexes = {word.partition("=")[0] for word in now if word.startswith(INDEXES)}
    return tuple(
        word
        for word in before
        if not (word.startswith("--index-url=") and "--index-url" in indexes) and not (word == NO_INDEX and indexes)
    )


def place(text: str) -> str:
    """A place of --find-links: a URL without a login, or an existing directory. Raises OptionError for any other."""
    if "://" not in text:
        return directory(text, "--find-links")
    _check_url(text, "--find-links")
    return text


def index_word(name: str, text: str) -> str:
    """The argument for an index. Raises OptionError if it is not a URL, or has a login."""
    _check_url(text, name)
    if not re.match(r"(https?|file)://", text):
        raise OptionError(f"{name}: {text} is not a URL", "give the URL of the index's `simple` pages")
    return f"{name}={text}"


def project(editable: str) -> str:
    """The directory of an editable project, without its extras."""
    return re.sub(r"\[[^\[\]]*\]$", "", editable)


def path_of(requirement: str) -> Path | None:
    """The local path of a requirement; None if it has none."""
    found = re.search(r"@ file://(/[^\s;#]*)", requirement)
    return Path(unquote(found[1])) if found else None


def _check_url(text: str, what: str) -> None:
    """As `check_login`, for one URL: white space in it would hide a login."""
    check_login(text, what)
    if re.search(r"\s", text):
        raise OptionError(f"{what}: the URL has white space", "write a blank as %20")


def check_login(text: str, what: str) -> None:
    """Raise OptionError if a URL in the text has a login or a parameter with a secret's name.

    The text is stored where other users may read it. Also raised for a host that would get a login in clear text.
    """
    text = re.sub(r"[\t\r\n]", "", text)  # as parsers of URLs do
    if has_login(text):
        raise OptionError(
            f"{what}: {cut(without_logins(text), 200)} contains a login, which would be stored where other users can "
            "read it",
            KEEP_LOGIN,
        )
    if name := secret_parameter(text):
        raise OptionError(
            f"{what}: {re.split('[?;#]', text, maxsplit=1)[0][:200]} has the parameter {name[:60]!r}, which would be "
            "stored where other users can read it",
            f"{KEEP_LOGIN}; or download the file, and give its path",
        )
    for host in map(str.lower, _CLEAR.findall(text)):
        if not is_loopback(host) and has_login_for(host):
            raise OptionError(
                f"{what}: http://{host} would get your login of ~/.netrc in clear text",
                "use https, or set NETRC=/dev/null to send no login",
            )


def directory(text: str, option: str) -> str:
    """The absolute path of an existing directory that can be bound. Raises OptionError for any other."""
    path = Path(text).absolute()
    if not path.is_dir():
        raise OptionError(f"{option}: there is no directory {path}", "relative paths start at the working directory")
    check_path(path, f"{option}: ")
    return str(path)


def check_path(path: Path, what: str = "") -> None:
    """Raise OptionError for a path that cannot be bound, or that uv would take for a part of it, or several lines."""
    if set(str(path)) & set(",:"):
        raise OptionError(f"{what}{path} contains a comma or a colon, which bind paths cannot express")
    if set(str(path)) & set("#\n\r"):
        raise OptionError(f"{what}{str(path)!r} contains a # or a line break, which requirements cannot express")


def name_of(requirement: str) -> str:
    """The normalized package name of a requirement. Raises OptionError if it is invalid, or has a login."""
    check_login(requirement, "the requirement")
    try:
        return normalized(Requirement(requirement).name)
    except InvalidRequirement as error:
        raise OptionError(
            f"{cut(requirement, 200)!r}{'…' * (len(requirement) > 200)} is not a requirement",
            "write it as for pip: transformers==4.57.1, 'torchmetrics>=1.4', ./wheel.whl, git+https://host/project.git",
        ) from error


def check_open(texts: Iterable[str], by: Path, way_out: str = "") -> None:
    """Raise OptionError if the `texts` of the file `by` name a path that is closed to its owner: `closed_to_author`."""
    for text in texts:
        urls = _FILE.findall(text)
        named = {part for url in urls for part in (url, re.split(r"[\s;]", url, maxsplit=1)[0], url.rpartition("@")[0])}
        for path in (*(text,) * text.startswith("/"), *map(unquote, filter(None, named))):
            if why := closed_to_author(path, by):
                way_out = way_out or f"if you want that, use a copy of {by}"
                raise OptionError(why, f"its content would be in the layer, for all who read that; {way_out}")


def texts_of(lock: str) -> Iterator[str]:
    """All texts in a lock, including keys. Raises ValueError for a text that is not TOML."""
    return _texts(tomllib.loads(lock))


def read_lock(path: Path) -> str:
    """The text of a lock. Raises OptionError if it is unreadable, empty, too large or too deep, or has a login."""
    if text := read_text(path, "lock_size").strip():
        for line in text.splitlines() if has_login(text) or secret_parameter(text) else ():
            check_login(line.strip(), str(path))
        try:
            for number, value in enumerate(_texts(read_toml(text))):
                if number == limits().lock_values:
                    raise OptionError(f"{path} has more texts than {bound('lock_values')}")
                if len(value) > limits().requirement_size:
                    raise OptionError(f"{path}: {cut(value, 60)}… has more characters than {bound('requirement_size')}")
                check_login(value, str(path))  # an escape may hide a login: "me\\u0040host"
        except TooManyValuesError as error:
            raise OptionError(f"{path} has {error}") from error
        except tomllib.TOMLDecodeError:
            pass  # the caller that parses the lock reports it
        except ValueError as error:  # nested too deep, or a number with more digits than Python converts
            raise OptionError(f"{path} is not a PEP 751 lock: {error}", LOCK_AGAIN) from error
        return f"{text}\n"
    raise OptionError(f"{path} is empty, so it is not a lock", LOCK_AGAIN)


def _texts(value: object) -> Iterator[str]:
    """All texts in a TOML value, including keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from (key, *_texts(each))
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
