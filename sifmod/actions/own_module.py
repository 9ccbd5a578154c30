"""self module: write modulefiles for the sifmod that runs, wherever and however it is installed."""

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import sifmod
from sifmod import __version__
from sifmod.actions.author.new_file import check_below, check_not_of_others, write_below
from sifmod.config.kinds import Syntax
from sifmod.errors import InstallError, OptionError
from sifmod.module.own import Own, modulefile
from sifmod.result import Described
from sifmod.tree.durable import content
from sifmod.tree.umask import decided_umask

_PYTHONS = ("python", "python3")


class WrittenModule(NamedTuple):
    """The modulefiles of sifmod itself."""

    module: str
    paths: tuple[Path, ...]
    bin: Annotated[Path, Described("directory that the module puts into PATH")]
    first: Annotated[bool, Described("whether `bin` is first in PATH; else last, because it has a Python")]
    man: Annotated[str, Described("directory for MANPATH; empty without man pages")]


def own_installation(environ: Mapping[str, str]) -> Own:
    """Where the sifmod that runs is installed. Raises InstallError if its command is not found.

    A directory without a Python is preferred: after `uv tool install` UV_TOOL_BIN_DIR, not the tool's own directory.
    """
    places = [place for place in _places(environ) if _is_there(place / "sifmod")]
    if not places:
        raise InstallError(
            f"the command `sifmod` of {Path(sifmod.__file__).parent} is not in {sysconfig.get_path('scripts')}",
            "run this by the installed command, not by `python -m sifmod`",
        )
    best = next((place for place in places if _is_alone(place)), places[0])
    packages = Path(sifmod.__file__).absolute().parents[1]
    on_path = {os.path.realpath(place) for place in environ.get("PYTHONPATH", "").split(":") if place}
    man = next((str(place) for place in _man_pages(packages) if _is_there(place / "man1" / "sifmod.1")), "")
    needed = str(packages) if os.path.realpath(packages) in on_path else ""
    return Own(str(best), _is_alone(best), man, needed)


def _places(environ: Mapping[str, str]) -> Iterator[Path]:
    """Directories of the command: as it was typed or as PATH has it, and of this Python."""
    program = sys.argv[0]
    found = program if "/" in program else shutil.which(program, path=environ.get("PATH")) or ""
    if Path(found).name == "sifmod":
        yield Path(os.path.abspath(found)).parent  # noqa: PTH100 (a link stays a link)
    yield Path(sysconfig.get_path("scripts"))


def _is_alone(place: Path) -> bool:
    return not any(_is_there(place / name) for name in _PYTHONS)


def _is_there(path: Path) -> bool:
    """Whether a path exists; True where this user may not look."""
    try:
        return path.exists()
    except PermissionError:
        return True


def _man_pages(packages: Path) -> Iterator[Path]:
    yield Path(sys.prefix, "share", "man")
    yield from (above / "share" / "man" for above in packages.parents[:4])  # pip --prefix, --user, --target


def write_modules(
    directory: Path, syntaxes: tuple[Syntax, ...], environ: Mapping[str, str], *, force: bool = False
) -> WrittenModule:
    """Write `sifmod/VERSION.lua`, `sifmod/VERSION` or both below a directory that users give to `module use`.

    A file that already has the right text is kept; raises OptionError for another file there, unless `force`.
    """
    own = own_installation(environ)
    texts = {directory / "sifmod" / _NAMES[syntax]: modulefile(own, syntax) for syntax in syntaxes}
    check_not_of_others(directory)
    check_below(directory / "sifmod", directory)
    with decided_umask(directory):
        (directory / "sifmod").mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        if not force and content(path) != text.encode() and os.path.lexists(path):
            raise OptionError(
                f"{path} exists already and was not changed", "--force replaces it, or name another directory"
            )
    for path, text in texts.items():
        write_below(text, path, directory)
    return WrittenModule(f"sifmod/{__version__}", tuple(texts), Path(own.bin), own.alone, own.man)


_NAMES: Mapping[Syntax, str] = {"lua": f"{__version__}.lua", "tcl": __version__}
