"""Prefix, home and settings directories, found without reading a file. Imports neither pydantic nor a YAML parser."""

import grp
import json
import os
import pwd
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from sifmod.config.option import VARIABLES, absolute
from sifmod.errors import OptionError

SITE_FILES = "/etc/sifmod.d"
BUNDLE = "SIFMOD_BUNDLE"
"""The directory of the bundle whose settings decide; `stack apply --bundle` sets it for itself and its workers."""
DECIDED = "settings/decided.yaml"  # its settings, which `stack apply --bundle` writes in its tree
_OUTSIDE = "_SIFMOD_OUTSIDE_BUNDLE"


def bundle_variables(variables: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a bundle for its easyconfigs, and one that keeps what they were in this environment."""
    return {**variables, _OUTSIDE: json.dumps({name: environ.get(name) for name in variables})}


def outside_bundle(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment before a bundle changed it, which local settings refer to."""
    before = json.loads(environ.get(_OUTSIDE, "{}"))
    local = {name: text for name, text in environ.items() if name not in (BUNDLE, _OUTSIDE, *before)}
    return local | {name: text for name, text in before.items() if text is not None}


def is_from_bundle(file: Path) -> bool:
    """Whether `stack apply --bundle` has copied the file into its tree."""
    there = (above for above in file.absolute().parents if above.parent.name == "stacks")
    return any((above / "bundle.json").is_file() and (above / DECIDED).is_file() for above in there)


def home(environ: Mapping[str, str]) -> str:
    """The user's home directory; raises OptionError if there is none."""
    if (found := environ.get("HOME", "")).startswith("/"):
        return found
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError as error:
        raise OptionError("this user has no home directory: HOME is no absolute path", "set HOME") from error


def config_home(environ: Mapping[str, str]) -> Path:
    """`${XDG_CONFIG_HOME:-~/.config}`; a relative value is ignored, as the XDG specification says."""
    given = environ.get("XDG_CONFIG_HOME", "")
    return Path(given) if given.startswith("/") else Path(home(environ)) / ".config"


def data_home(environ: Mapping[str, str]) -> Path:
    """`${XDG_DATA_HOME:-~/.local/share}`; a relative value is ignored too."""
    given = environ.get("XDG_DATA_HOME", "")
    return Path(given) if given.startswith("/") else Path(home(environ)) / ".local" / "share"


def default_prefix(environ: Mapping[str, str]) -> tuple[Path, str]:
    """The default prefix and its reason: `$EBU_USER_PREFIX/sifmod`, else the XDG data directory. Raises OptionError."""
    easybuild = environ.get("EBU_USER_PREFIX", "")
    if easybuild.startswith("~/"):
        easybuild = home(environ) + easybuild[1:]
    if easybuild:
        if not easybuild.startswith("/"):
            raise OptionError(f"EBU_USER_PREFIX: expected an absolute path, got {easybuild!r}")
        return Path(easybuild) / "sifmod", "EBU_USER_PREFIX"
    return data_home(environ) / "sifmod", "no prefix is configured: the XDG data directory"


def quick_prefix(option: str | None, environ: Mapping[str, str]) -> str | None:
    """The prefix if options, variables or the default decide it; None if settings must be read. Raises OptionError."""
    if misspelt(environ):
        return None  # reading the settings refuses the variable
    if option:
        return absolute(option)
    if given := environ.get("SIFMOD_PREFIX"):
        return given if given.startswith("/") and "$" not in given else None
    if environ.get("SIFMOD_SITE") or has_settings(environ):
        return None
    return str(default_prefix(environ)[0])


def may_install(prefix: str, group: str) -> bool:
    """Whether this user may publish in a prefix: root, the members of `group`, or, if that is "", the prefix's owner.

    Before the prefix exists, the owner of the directory above it. Write permission is not asked: a tree that is
    read-only on this node still belongs to the same users.
    """
    if os.geteuid() == 0 or not prefix.startswith("/") or "$" in prefix:  # an unset variable is reported elsewhere
        return True
    if group:
        with suppress(KeyError):
            return grp.getgrnam(group).gr_gid in {os.getegid(), *os.getgroups()}
        return False
    there = prefix
    while not os.path.exists(there):  # noqa: PTH110 (False behind a closed directory)
        there = os.path.dirname(there)  # noqa: PTH120
    return os.stat(there).st_uid == os.geteuid()  # noqa: PTH116


def quick_trees(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """The `trees` beside the prefix if a variable alone decides them; None if files must be read."""
    given = tuple(filter(None, environ.get("SIFMOD_TREES", "").split(":")))
    plain = all(place.startswith("/") and "$" not in place for place in given)
    if not plain or misspelt(environ) or environ.get("SIFMOD_SITE") or has_settings(environ):
        return None
    return given


def other_places(places: Iterable[str], prefix: Path) -> tuple[Path, ...]:
    """The prefixes among these that are not `prefix`, each once, also where several paths lead to one."""
    found = {_directory(prefix): prefix}
    for place in map(Path, places):
        found.setdefault(_directory(place), place)
    return tuple(found.values())[1:]


def _directory(path: Path) -> object:
    """What is the same for all paths to a directory, through links and bind mounts."""
    try:
        status = path.stat()
    except OSError:  # missing, or closed to this user
        return path
    return status.st_dev, status.st_ino


def misspelt(environ: Mapping[str, str]) -> bool:
    return any(name.startswith("SIFMOD_") and name not in VARIABLES for name in environ)


def has_settings(environ: Mapping[str, str]) -> bool:
    """Whether the machine or the user may have settings files."""
    return any(directory.exists() for directory in settings_directories(environ))


def settings_directories(environ: Mapping[str, str]) -> tuple[Path, Path]:
    """The settings directories of the machine and the user; twice the bundle's while its stack is applied."""
    if bundle := environ.get(BUNDLE):
        return Path(bundle) / "settings", Path(bundle) / "settings"
    return Path(environ.get("SIFMOD_CONFIG_DIR") or SITE_FILES), config_home(environ) / "sifmod"
