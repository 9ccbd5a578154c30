"""The settings of this machine that uv gets: indexes, logins, certificates, proxies, timeouts and its cache.

uv gets its variables for these subjects, and the user's and the system's uv.toml, but never one in a parent directory:
the image and the request decide the resolution. uv reads the file of `--config-file` instead of all others
(https://docs.astral.sh/uv/concepts/configuration-files/).
"""

import base64
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date, time
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from sifmod.config.limits import NotReadError, read_bounded
from sifmod.config.redact import secret_parameter
from sifmod.errors import OptionError
from sifmod.image.packages.foreign_toml import read_toml

_VARIABLE = re.compile(
    "UV_(?:(?:DEFAULT_)?INDEX(?:_.*)?|EXTRA_INDEX_URL|NO_INDEX|KEYRING_PROVIDER|CREDENTIALS_DIR|AUTH_.*"
    "|SYSTEM_CERTS|NATIVE_TLS|INSECURE_HOST|HTTP_.*|(?:HTTPS|ALL|NO)_PROXY|REQUEST_TIMEOUT|CONCURRENT_.*|OFFLINE"
    "|CACHE_DIR|NO_CACHE)"
)
# names of variables that uv in a container gets only from this user, and not from the image: its own, and those of git
# and keyring, which it starts; GitPython's are the image's
NOT_OF_IMAGE = (
    "(?:UV|PIP|SSL|XDG_CONFIG|XDG_DATA)_.*|GIT_(?!PYTHON_).*|(?i:(?:https?|ftp|all|no)_proxy)"
    "|NETRC|(?:REQUESTS|CURL)_CA_BUNDLE"
)
# would name another Python, or packages of one, here or in the container; these variables of uv count only as they are
_OTHERS = re.compile("(?:(?:SINGULARITY|APPTAINER)ENV_)?(?:UV_|PIP_|PYTHON|VIRTUAL_ENV|CONDA_|SIFMOD_LAYER)")
_KEYS = frozenset(
    ("index", "index-url", "extra-index-url", "find-links", "no-index", "index-strategy", "keyring-provider")
)
_TOP = _KEYS | {
    "allow-insecure-host", "concurrent-builds", "concurrent-downloads", "concurrent-installs", "http-proxy",
    "https-proxy", "native-tls", "no-cache", "no-proxy", "offline", "system-certs",
}  # fmt: skip
_NAME = "uv.toml"
_LOGIN = re.compile(r"//([^/?#\n]*)@")
_SHORTEST = 4  # characters of a part of a login that is no word of a message
_SHORTEST_IN_LINK = 8  # of one that is no word of a file's name
_FIND_LINKS = "UV_FIND_LINKS"


def uv_environment() -> dict[str, str]:
    """The environment for uv: of the variables of uv, pip, Python and conda only those that `_VARIABLE` matches."""
    return {
        name: value
        for name, value in os.environ.items()
        if name != _FIND_LINKS
        if _VARIABLE.fullmatch(name) or not _OTHERS.match(name)
    }


def find_links() -> tuple[str, ...]:
    """The URLs and absolute directories to search for wheels, of UV_FIND_LINKS and of the files that uv would read.

    Raises OptionError for an invalid file.
    """
    settings = _settings()
    found = (table.get("find-links") for table in (settings, settings.get("pip", {})) if isinstance(table, dict))
    return tuple(place for places in found if isinstance(places, list) for place in places if isinstance(place, str))


def _settings() -> dict[str, Any]:
    given = filter(None, re.split("[ ,]", os.environ.get(_FIND_LINKS, "")))
    places = [_absolute(Path.cwd(), place) for place in given]
    # sifmod's --find-links would hide the variable; its URLs may have logins, which all users see in a command line
    settings: dict[str, Any] = {"find-links": places} if places else {}
    for path in _files():
        _merge(settings, _read(path))
    return settings


def _absolute(directory: Path, place: str) -> str:
    return place if "://" in place else str(directory / place)


def check_indexes(project: Path) -> None:
    """Raise OptionError if a project names an index as the user's, at another place, so that it would get the login.

    uv takes `UV_INDEX_NAME_…` for each index with that name: of its settings, and of the projects that it reads.
    """
    try:
        text = read_bounded(project / "pyproject.toml", "requirements_size").decode()
        found = read_toml(text)["tool"]["uv"]["index"]
        named = [(one["name"], one["url"]) for one in found]
    except (NotReadError, OSError, ValueError, KeyError, TypeError):  # uv reports what is wrong
        return
    own = _settings().get("index")
    known = {one.get("url", "") for one in own if isinstance(one, dict)} if isinstance(own, list) else set[str]()
    for name, url in named:
        if url not in known and (variable := _login_variable(str(name))):
            raise OptionError(
                f"{project} names another index {name}, which would get your login of {variable}_USERNAME",
                f"unset {variable}_USERNAME and {variable}_PASSWORD for this command, or rename the index",
            )


def write_config(directory: Path) -> None:
    """Write `uv.toml` in `directory`, from UV_FIND_LINKS and the files that uv would read itself.

    These are the one in UV_CONFIG_FILE, else the user's and the system's. Raises OptionError for an invalid file.
    """
    write_private(directory / _NAME, "".join(f"{key} = {toml_value(value)}\n" for key, value in _settings().items()))


def write_private(path: Path, text: str) -> None:
    """Write a file for uv that nobody else may read."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123
        file.write(text)


@contextmanager
def closed_to_others(directory: Path) -> Iterator[None]:
    """Let nobody else into a directory while uv writes there: its files are as open as the umask says."""
    mode = stat.S_IMODE(directory.stat().st_mode)
    directory.chmod(mode & ~0o077)
    try:
        yield
    finally:
        directory.chmod(mode)


def without_own_logins(output: bytes) -> bytes:
    """Output of uv without the logins in its settings, which an index may repeat."""
    for part in sorted(_parts_of_logins(), key=len, reverse=True):
        if len(part) >= _SHORTEST:
            output = output.replace(os.fsencode(part), b"...")
    return output


def has_own_login(url: str) -> bool:
    """Whether an index has put a login of uv's settings into a link; a short password may be a word of it."""
    ways = (url, unquote(url))
    return any(len(part) >= _SHORTEST_IN_LINK and any(part in way for way in ways) for part in _parts_of_logins())


def _parts_of_logins() -> set[str]:
    parts = set[str]()
    for login in _own_logins():
        password = login.partition(":")[2]
        encoded = base64.b64encode(login.encode(errors="surrogateescape")).decode().rstrip("=")
        # uv takes a login with a blank or a comma for several
        parts |= {*re.split(r"[\s,]+", login), password, quote(password, safe="", errors="surrogateescape"), encoded}
    return parts


def _own_logins() -> Iterator[str]:
    """USER:PASSWORD of each login that uv may send: as in a URL, and decoded."""
    given = [value for name, value in os.environ.items() if name == _FIND_LINKS or _VARIABLE.fullmatch(name)]
    for login in _LOGIN.findall("\n".join((*given, *map(toml_value, _settings().values())))):
        yield from (login, unquote(login))
    for name, user in os.environ.items():
        if name.startswith("UV_INDEX_") and name.endswith("_USERNAME"):
            yield f"{user}:{os.environ.get(name.removesuffix('_USERNAME') + '_PASSWORD', '')}"
    yield from (f"{user}:{password}" for user, _, password in _netrc().values())


def has_login_for(host: str) -> bool:
    """Whether uv and git would send this host a login of `~/.netrc`, over http as well."""
    return not {host, "default"}.isdisjoint(_netrc())


def would_send_login(place: str) -> bool:
    """Whether uv may send a login to an index or page: of its URL, a variable, or a file of this user.

    `place` may have dots instead of its login. Other URLs of the same host count too, as for uv.
    """
    if "@" in place or "..." in place or secret_parameter(place):
        return True
    host, home = urlsplit(place).hostname or "", os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    stored = Path(os.environ.get("UV_CREDENTIALS_DIR") or Path(home, "uv/credentials"), "credentials.toml")
    with suppress(OSError):
        if host in stored.read_text("utf-8", "replace").lower():
            return True
    return has_login_for(host) or any(
        one.get("authenticate") == "always" or _login_variable(one.get("name", ""))
        for one in _indexes()
        if urlsplit(one.get("url", "")).hostname == host
    )


def _indexes() -> Iterator[dict[str, Any]]:
    """The indexes of the variables and files, of which some have a name."""
    for word in " ".join(os.environ.get(name, "") for name in ("UV_INDEX", "UV_DEFAULT_INDEX")).split():
        yield {"name": word.partition("=")[0], "url": re.sub("^[^:/?]*=", "", word)}
    settings = _settings()
    yield from (one for table in (settings, settings.get("pip", {})) for one in table.get("index", []))


def _login_variable(name: str) -> str:
    """What a variable of this environment with a part of the login for the index of this name begins with, or ""."""
    begin = f"UV_INDEX_{re.sub('[^A-Z0-9]', '_', name.upper())}"
    return begin if any(os.environ.get(f"{begin}_{what}") for what in ("USERNAME", "PASSWORD")) else ""


def names_default_index() -> bool:
    """Whether a variable or file names another default index than uv's own."""
    settings = _settings()
    return bool(
        any(os.environ.get(name) for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"))
        or any("index-url" in table for table in (settings, settings.get("pip", {})))
        or any(one.get("default") for one in _indexes())
    )


def takes_newest_of_all() -> bool:
    """Whether uv takes the newest version from any index, as pip does, and not from the first that has the package."""
    settings = _settings()
    said = (os.environ.get("UV_INDEX_STRATEGY"), settings.get("pip", {}).get("index-strategy"))
    return next(filter(None, (*said, settings.get("index-strategy"))), "") == "unsafe-best-match"


def _netrc() -> dict[str, tuple[str, str, str]]:
    with suppress(OSError, NetrcParseError, UnicodeDecodeError):
        return netrc(os.environ.get("NETRC") or Path.home() / ".netrc").hosts
    return {}


def config_words(place: str) -> tuple[str, ...]:
    """The arguments that make uv read `uv.toml` in the directory `place`, and no other file."""
    return ("--config-file", f"{place}/{_NAME}")


def _files() -> Iterator[Path]:
    """The files to read: none with UV_NO_CONFIG, that in UV_CONFIG_FILE, or the user's and the system's, if there."""
    if os.environ.get("UV_NO_CONFIG", "").lower() in ("1", "true", "yes", "on"):
        return
    if named := os.environ.get("UV_CONFIG_FILE"):
        yield Path(named)
        return
    own = os.environ.get("XDG_CONFIG_HOME", "")
    user = Path(own) if own.startswith("/") else Path.home() / ".config"
    shared = (os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    system = [each for place in (*shared, "/etc") if (each := Path(place, "uv", _NAME)).is_file()]
    yield from (each for each in (user / "uv" / _NAME, *system[:1]) if each.is_file())


def _read(path: Path) -> dict[str, Any]:
    try:
        said = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise OptionError(
            f"{path}, which uv reads, cannot be read: {error}", "repair it, or set UV_NO_CONFIG=1"
        ) from error
    pip = said.get("pip")
    chosen = {key: value for key, value in said.items() if key in _TOP}
    if isinstance(pip, dict):
        chosen["pip"] = {key: value for key, value in pip.items() if key in _KEYS}
    for table in (chosen, chosen.get("pip", {})):
        if isinstance(places := table.get("find-links"), list):  # relative to the file
            here = path.absolute().parent
            table["find-links"] = [_absolute(here, each) if isinstance(each, str) else each for each in places]
    return chosen


def _merge(settings: dict[str, Any], later: Mapping[str, Any]) -> None:
    """Add a file of lower precedence: lists are appended, other values only fill gaps."""
    for key, value in later.items():
        before = settings.setdefault(key, value)
        if isinstance(before, dict) and isinstance(value, dict):
            _merge(before, value)
        elif before is not value and isinstance(before, list) and isinstance(value, list):
            settings[key] = [*before, *value]


def toml_value(value: object) -> str:
    """A value of a uv.toml or a lock, in TOML on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, date | time):
        return value.isoformat()
    return json.dumps(value, ensure_ascii=False)  # TOML spells a text, a number, true and false alike
