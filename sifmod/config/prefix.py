"""The prefix, and whether it can be known without reading any file. Imports neither pydantic nor a YAML parser."""

import json
import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from sifmod.errors import OptionError

SITE_FILES = "/etc/sifmod.d"
OPTION_KEYS = (
    *("site", "prefix", "image_dirs", "robot_paths", "accelerator", "runtime", "module_syntax", "link"),
    *("lock_lease", "umask", "group", "stores", "arch", "compression", "connections", "processors", "memory"),
)
"""The keys that `SIFMOD_<KEY>` and an option of the command line can give; lists are separated by `:`."""
BUNDLE = "SIFMOD_BUNDLE"
"""The directory of the bundle whose settings decide; `stack apply --bundle` sets it for itself and its workers."""
_OUTSIDE = "_SIFMOD_OUTSIDE_BUNDLE"
VARIABLES = (
    BUNDLE,
    "SIFMOD_CONFIG_DIR",
    # what a module reads or sets when it is loaded, started or asked for pip
    *("SIFMOD_LAYER", "SIFMOD_LAYERS", "SIFMOD_STALE_LAYER", "SIFMOD_PIP", "SIFMOD_CONTAINER", "SIFMOD_ANY_CONTAINER"),
    *(f"SIFMOD_{key.upper()}" for key in OPTION_KEYS),
)


def bundle_variables(variables: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a bundle for its easyconfigs, and one that says what they are in this environment."""
    return {**variables, _OUTSIDE: json.dumps({name: environ.get(name) for name in variables})}


def outside_bundle(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment as it was before a bundle has set anything: local settings mean that one."""
    before = json.loads(environ.get(_OUTSIDE, "{}"))
    local = {name: text for name, text in environ.items() if name not in (BUNDLE, _OUTSIDE, *before)}
    return local | {name: text for name, text in before.items() if text is not None}


def home(environ: Mapping[str, str]) -> str:
    """The user's home directory; raises OptionError where there is none."""
    if (found := environ.get("HOME", "")).startswith("/"):
        return found
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError as error:
        raise OptionError("this user has no home directory: HOME is not set", "set HOME or SIFMOD_PREFIX") from error


def config_home(environ: Mapping[str, str]) -> Path:
    """`${XDG_CONFIG_HOME:-~/.config}`; a relative value is ignored, as the XDG specification says."""
    given = environ.get("XDG_CONFIG_HOME", "")
    return Path(given) if given.startswith("/") else Path(home(environ)) / ".config"


def data_home(environ: Mapping[str, str]) -> Path:
    """`${XDG_DATA_HOME:-~/.local/share}`, likewise."""
    given = environ.get("XDG_DATA_HOME", "")
    return Path(given) if given.startswith("/") else Path(home(environ)) / ".local" / "share"


def default_prefix(environ: Mapping[str, str]) -> tuple[Path, str]:
    """Where things go without a configured prefix, and why: `$EBU_USER_PREFIX/sifmod`, else the XDG data directory."""
    easybuild = environ.get("EBU_USER_PREFIX", "")
    if easybuild.startswith("~/"):
        easybuild = home(environ) + easybuild[1:]
    if easybuild:
        if not easybuild.startswith("/"):
            raise OptionError(f"EBU_USER_PREFIX: expected an absolute path, got {easybuild!r}")
        return Path(easybuild) / "sifmod", "EBU_USER_PREFIX"
    return data_home(environ) / "sifmod", "no prefix is configured: the XDG data directory"


def quick_prefix(option: str | None, environ: Mapping[str, str]) -> str | None:
    """The prefix where the command line, a variable or the default decides it; None where files have to be read."""
    if misspelt(environ):
        return None  # which is then refused
    if option:
        return os.path.abspath(option)  # noqa: PTH100 (a link stays a link)
    if given := environ.get("SIFMOD_PREFIX"):
        return given if given.startswith("/") and "$" not in given else None
    if environ.get("SIFMOD_SITE") or has_settings(environ):
        return None
    return str(default_prefix(environ)[0])


def misspelt(environ: Mapping[str, str]) -> bool:
    return any(name.startswith("SIFMOD_") and name not in VARIABLES for name in environ)


def has_settings(environ: Mapping[str, str]) -> bool:
    """Tell whether the machine or the user may have settings files."""
    return any(directory.exists() for directory in settings_directories(environ))


def settings_directories(environ: Mapping[str, str]) -> tuple[Path, Path]:
    """Of the machine and of the user; those of a bundle while its stack is applied."""
    if bundle := environ.get(BUNDLE):
        return Path(bundle) / "settings", Path(bundle) / "settings"
    return Path(environ.get("SIFMOD_CONFIG_DIR") or SITE_FILES), config_home(environ) / "sifmod"


def in_full(name: str, text: str) -> str:
    """An option's value with its relative paths made absolute, as loading takes them."""
    if name in ("prefix", "robot_paths", "image_dirs"):
        return ":".join(os.path.abspath(part) for part in text.split(":") if part)  # noqa: PTH100 (a link stays a link)
    if (name == "site" and ("/" in text or text.endswith(".yaml"))) or (name == "source" and Path(text).exists()):
        return os.path.abspath(text)  # noqa: PTH100 (likewise)
    return text
