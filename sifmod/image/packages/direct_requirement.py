"""Requirements with a location (a local file or project, a URL, a repository), as in PEP 508, with absolute paths."""

import configparser
import os
import re
from pathlib import Path
from urllib.parse import unquote

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename

from sifmod.config.limits import read_bounded
from sifmod.errors import OptionError
from sifmod.image.packages.foreign_toml import read_toml
from sifmod.image.packages.git_tree import git_source
from sifmod.image.packages.request import check_path, directory

RECIPE = "a recipe takes packages from an index, by name"
_ARCHIVE = (".whl", ".tar.gz", ".zip", ".tgz", ".tar.bz2", ".tar.xz")
_OTHERS = ("hg+", "svn+", "bzr+")


def direct_requirement(name: str, spelled: str, *, recipe: bool) -> str:
    """A requirement with its location, absolute; only the location if its name is unknown; "" without a location.

    Raises OptionError for an unusable location, or any location if `recipe`.
    """
    is_url = re.match(r"[a-z+]+://", spelled) is not None
    target, separator, marker = spelled.partition(" ;" if is_url else ";")
    target, marker = target.strip(), f" ; {marker.strip()}" if separator else ""
    if target.startswith(_OTHERS):
        raise OptionError(f"{target} is not in a git repository", "clone it, and name its directory")
    place_here = target.startswith("file:") or (not is_url and _is_path(target))
    if recipe and (is_url or place_here):
        raise OptionError(f"{target} names a path or URL", f"{RECIPE}; for others use `files` and `post`")
    if target.startswith("git+"):
        source = git_source(target)
        egg = re.search(r"[#&]egg=([A-Za-z0-9][\w.-]*(?:\[[^\]&]*\])?)", target)
        where = re.sub(r"[#&]egg=[^&#]*", "", target)
        where = where if "#" in where or not (source and source.subdirectory) else where.replace("&", "#", 1)
        return f"{name or (egg[1] if egg else '')} @ {where}{marker}"
    if place_here:
        return f"{_here(name, target)}{marker}"
    if not is_url:
        return ""
    known = name or _name_of_file(target.partition("#")[0].rpartition("/")[2])
    if not known:
        raise OptionError(f"the package of {target} is unknown", "write NAME @ URL")
    return f"{known} @ {target}{marker}"


def _is_path(text: str) -> bool:
    plain = re.sub(r"\[[^\[\]]*\]$", "", text)
    return plain.startswith((".", "/", "~/")) or "/" in plain or plain.endswith(_ARCHIVE)


def _here(name: str, text: str) -> str:
    """`NAME[EXTRAS] @ file:///…` for a local file or project. Raises OptionError if it is unusable."""
    found = re.fullmatch(r"(.+?)(\[[^\[\]]*\])?", text, re.DOTALL)
    plain, extras = (found[1], found[2] or "") if found else (text, "")
    if plain.startswith("file:"):
        plain = unquote(plain.removeprefix("file:").removeprefix("//").removeprefix("localhost").partition("#")[0])
    path = Path(os.path.abspath(os.path.expanduser(plain)))  # noqa: PTH100, PTH111 (as pip does)
    check_path(path)
    if path.is_file():
        known = _name_of_file(path.name)
    elif not path.is_dir():
        raise OptionError(f"there is no file or directory {path}", "paths start at the working directory, as for pip")
    elif not any((path / one).is_file() for one in ("pyproject.toml", "setup.py")):
        raise OptionError(f"{path} is not a project: it has neither pyproject.toml nor setup.py")
    else:
        known = static_name(path)
    if path.is_file() and not (known or name):
        raise OptionError(f"the package of {path} is unknown", "write NAME @ PATH")
    named = name or (f"{known}{extras}" if known else extras)
    return f"{named} @ {path.as_uri()}"


def _name_of_file(name: str) -> str:
    """The package of a file, by its file name; "" if unknown."""
    try:
        if name.endswith(".whl"):
            return str(parse_wheel_filename(name)[0])
        return str(parse_sdist_filename(name)[0])
    except (InvalidWheelFilename, InvalidSdistFilename):
        return ""


def static_name(directory: Path) -> str:
    """The name of a project from its files; "" if only its build knows it."""
    try:
        said = read_toml(_text(directory / "pyproject.toml"))
        return str(said["project"]["name"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    read = configparser.ConfigParser(interpolation=None)
    try:
        read.read_string(_text(directory / "setup.cfg"))
        return read.get("metadata", "name").strip()
    except (configparser.Error, ValueError, OSError):
        return ""


def _text(path: Path) -> str:
    """The text of a project's file, which may come from any repository. Raises OSError and ValueError."""
    return read_bounded(path, "build_text_size").decode("utf-8")


def editable(text: str) -> str:
    """The absolute path of a project, with the requested extras. Raises OptionError unless it is a directory."""
    found = re.fullmatch(r"(.+?)(\[[^\[\]]*\])?", text.removeprefix("file://"), re.DOTALL)
    plain, extras = (found[1], found[2] or "") if found else (text, "")
    if "+" in plain.partition("://")[0] and "://" in plain:
        raise OptionError(
            f"-e {text}: only a local directory can be edited", "clone it, and name its directory; or leave -e out"
        )
    return f"{directory(plain, '--editable')}{extras}"
