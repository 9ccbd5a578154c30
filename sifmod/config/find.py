"""Find easyconfigs, and resolve a name to one of them. Imports neither pydantic nor a YAML parser."""

# os.path.exists is false for a name that is too long for the file system, and in an unreadable directory:
# ruff: noqa: PTH110, PTH112, PTH113

import os
import re
from collections.abc import Iterator, Mapping
from os.path import exists, isdir, isfile
from pathlib import Path

from sifmod.config.prefix import has_settings, misspelt
from sifmod.config.redact import shown
from sifmod.errors import EasyconfigNotFoundError, PermissionsError
from sifmod.system import one_line

SUFFIXES = (".yaml", ".yml")
_BARE = re.compile(r"[A-Za-z](?!.*-v?[0-9])[A-Za-z0-9_+-]*")
_NOT_EASYCONFIGS = ("presets", "sites", "quirks", "mpi")


def shipped() -> Path:
    """The easyconfigs that come with sifmod: packed into the package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    packed = package / "easyconfigs"
    return packed if packed.is_dir() else package.parent / "easyconfigs"


def find_easyconfig(name: str, robot_paths: tuple[Path, ...]) -> Path:
    """The file for `name`: a path, or a name (with or without an ending) on the easyconfig path.

    A name is looked up in each directory of `robot_paths` and in its `<Name>/`; the first file found is used. Raises
    EasyconfigNotFoundError, which lists the searched places; word.py adds suggestions. Raises PermissionsError as
    `is_there`.
    """
    given = Path(name)
    if is_path(name):
        if is_there(given):
            return given
        raise EasyconfigNotFoundError(f"no such file: {one_line(shown(name))}")
    if name:
        for directory in robot_paths:
            for candidate in _candidates(directory, name):
                if exists(candidate):
                    return candidate
    places = "\n".join(f"  {directory}" for directory in robot_paths)
    short = f"no easyconfig is called {shown(name)!r}"
    raise EasyconfigNotFoundError(f"{short}; looked in\n{places}", short=short)


def is_there(path: Path) -> bool:
    """Whether there is a file. Raises PermissionsError if it is in a directory that is closed to this user."""
    try:
        return bool(path.stat())
    except PermissionError as error:
        raise PermissionsError(f"{one_line(shown(str(path)))} is closed to you", "ask its owner to open it") from error
    except (OSError, ValueError):
        return False


def is_path(name: str) -> bool:
    """Whether `name` is a path, rather than a name on the easyconfig path."""
    return "/" in name or (name.endswith(SUFFIXES) and exists(Path(name)))


def is_bare(name: str) -> bool:
    """Whether `name` may be that of a program, without a version: `pytorch`."""
    return _BARE.fullmatch(name) is not None


def ours(name: str) -> str:
    """`name` without the ending of EasyBuild's names (`PyTorch-2.2.0.eb`), unless a file with this name exists."""
    return name.removesuffix(".eb") if name.endswith(".eb") and not exists(Path(name)) else name


def name_of(path: Path, robot_paths: tuple[Path, ...]) -> str:
    """The argument for an easyconfig: its name if that is enough, else its path."""
    found = (place for directory in robot_paths for place in _candidates(directory, path.stem) if exists(place))
    return path.stem if next(found, None) == path else str(path)


def own_path(path: Path | str) -> str:
    """A file's absolute path with its directory resolved.

    A link stays a link: files that it refers to are looked for beside it.
    """
    directory, name = os.path.split(os.path.abspath(path))  # noqa: PTH100 (a link stays one)
    return f"{os.path.realpath(directory).rstrip('/')}/{name}"


def places_before(found: Path, name: str, robot_paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """The paths that `find_easyconfig` tried for the bare `name` before `found`: a file there would hide it."""
    places = [candidate for directory in robot_paths for candidate in _candidates(directory, name)]
    return tuple(places[: places.index(found)]) if "/" not in name and found in places else ()


def easyconfigs(robot_paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Every easyconfig on the easyconfig path.

    Sorted by name within each directory, the directories in order; a second file with the same name is hidden by the
    first, as in `find_easyconfig`.
    """
    found: dict[str, Path] = {}
    for directory in robot_paths:
        for path in _easyconfigs(directory):
            found.setdefault(path.stem, path)
    return tuple(found.values())


def quick_robot_paths(site: str | None, given: str | None, environ: Mapping[str, str]) -> tuple[Path, ...] | None:
    """The easyconfig path if options and variables decide it; None if settings files must be read.

    `site` and `given` are the values of --site and --robot-paths. Shipped sites have no easyconfig path of their own.
    """
    if misspelt(environ) or has_settings(environ):
        return None
    named = site or environ.get("SIFMOD_SITE")
    if named and ("/" in named or not exists(shipped() / "sites" / f"{named}.yaml")):
        return None
    variable = [part for part in environ.get("SIFMOD_ROBOT_PATHS", "").split(":") if part]
    if "$" in (given or "") or not all(part.startswith("/") and "$" not in part for part in variable):
        return None
    option = [os.path.abspath(part) for part in (given or "").split(":") if part]  # noqa: PTH100 (a link stays a link)
    return (*dict.fromkeys(Path(part) for part in (*option, *variable)), shipped())


def may_limit_driver() -> bool:
    """Whether this machine may be that of a shipped site with `driver_runs`; searches the text, parses no YAML."""
    for path in sorted((shipped() / "sites").glob("*.yaml")):
        text = path.read_text("utf-8")
        paths = re.search(r"^  paths: \[(.*)\]$", text, re.MULTILINE) if "\ndriver_runs:" in text else None
        if paths and all(exists(Path(place.strip())) for place in paths[1].split(",")):
            return True
    return False


def _candidates(directory: Path, name: str) -> Iterator[Path]:
    """`PyTorch-2.2.0` → `PyTorch-2.2.0.yaml`, `PyTorch/PyTorch-2.2.0.yaml`; a name may hold `-` itself."""
    stem = ours(name).removesuffix(".yaml").removesuffix(".yml")
    parts = stem.split("-")
    names = [stem] if len(parts) == 1 else ["-".join(parts[:count]) for count in range(1, len(parts))]
    for parent in (directory, *(directory / part for part in names if part not in ("", ".", ".."))):
        for suffix in SUFFIXES:
            yield parent / f"{stem}{suffix}"


def settings_in(directory: Path) -> list[Path]:
    """The `.yaml` files of a directory, sorted; none if it is missing. Raises OSError for one that is closed."""
    try:
        names = os.listdir(directory)  # noqa: PTH208 (pathlib's glob takes a closed directory for an empty one)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(directory / name for name in names if name.endswith(".yaml"))


def _easyconfigs(directory: Path) -> Iterator[Path]:
    """Every easyconfig in a directory and its subdirectories (not _NOT_EASYCONFIGS), one level deep, sorted."""
    try:
        entries = sorted(directory.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.suffix in SUFFIXES and isfile(entry):
            yield entry
        elif isdir(entry) and entry.name not in _NOT_EASYCONFIGS:
            try:
                yield from sorted(path for path in entry.iterdir() if path.suffix in SUFFIXES and isfile(path))
            except OSError:
                continue
