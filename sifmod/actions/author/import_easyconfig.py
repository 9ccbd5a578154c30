"""import: other tools' files to easyconfigs that are checked before they are written."""

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sifmod.actions.author.check import check
from sifmod.actions.author.import_text import easyconfig_text
from sifmod.config.settings import LoadedSite
from sifmod.config.shown import shown
from sifmod.errors import ConfigError, EasyconfigNotFoundError, OptionError, SifmodError
from sifmod.image.disk import writing
from sifmod.image.inspect.host_commands import HOST_COMMANDS
from sifmod.imports.easybuild import read_easybuild
from sifmod.imports.imported import CannotImportError, Imported, Value
from sifmod.imports.modulefile import read_modulefile
from sifmod.imports.shpc import read_shpc
from sifmod.tree.disk import sync_directory

_READERS: Mapping[str, Callable[[Path], Imported]] = {
    ".eb": read_easybuild,
    ".lua": read_modulefile,
    ".yaml": read_shpc,
    ".yml": read_shpc,
}
_SHPC = "container.yaml"
_MOST_LETTERS = 1 << 20


@dataclass(frozen=True)
class Converted:
    """What became of one file: an easyconfig's text and the module's name, or why there is none."""

    source: Path
    module: str = ""
    text: str = ""
    notes: tuple[str, ...] = ()
    problem: str = ""

    @property
    def filename(self) -> str:
        """`<Name>-<version><versionsuffix>.yaml`."""
        return f"{self.module.replace('/', '-', 1)}.yaml"


def find_sources(given: tuple[Path, ...]) -> tuple[Path, ...]:
    """The files given, and every .eb, .lua and container.yaml in the directories given; sorted within each.

    Raises EasyconfigNotFoundError for what does not exist, OptionError for what is of no kind that is known, or is a
    directory without such files.
    """
    found: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = sorted(_inside(path))
            if not inside:
                raise OptionError(f"there is no .eb, no {_SHPC} and no .lua file in {path}")
            found += inside
        elif not path.exists():
            raise EasyconfigNotFoundError(f"no such file: {shown(str(path))}")
        elif path.suffix not in _READERS:
            raise OptionError(f"{path}: expected an EasyBuild .eb, a {_SHPC} or a .lua modulefile")
        else:
            found.append(path)
    return tuple(dict.fromkeys(found))


def _inside(directory: Path) -> Iterator[Path]:
    for place, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if not name.startswith(".")]
        for name in names:
            path = Path(place) / name
            if (path.suffix in (".eb", ".lua") and not name.startswith(".")) or name == _SHPC:
                yield path


def convert(sources: tuple[Path, ...], site: LoadedSite) -> Iterator[Converted]:
    """What each file gives, in order; no file is run, nothing is written.

    Each easyconfig has been checked and rendered for this site. A module that an earlier file gave gets its
    publisher's name as (a part of) its versionsuffix.
    """
    taken: dict[str, Path] = {}
    for source in sources:
        try:
            converted = _convert(source, site, taken)
        except (CannotImportError, ConfigError) as error:
            reason = "; ".join(_reasons(error))
            yield Converted(source, problem=reason)
            continue
        taken[converted.module] = source
        yield converted


def _reasons(error: SifmodError) -> Iterator[str]:
    if not isinstance(error, ConfigError):
        yield error.message
        return
    for problem in error.problems:
        yield f"{problem.key}: {problem.message}" if problem.key else problem.message


def _convert(source: Path, site: LoadedSite, taken: Mapping[str, Path]) -> Converted:
    imported = _READERS[source.suffix](source)
    if hidden := sorted(HOST_COMMANDS & set(_wrapper_names(imported))):
        note = f"wrappers: {', '.join(hidden)} will stand in front of the host's own while the module is loaded"
        imported = replace(imported, notes=(*imported.notes, note))
    if (module := _module(imported)) in taken and imported.publisher:
        suffix = f"{imported.keys.get('versionsuffix', '')}-{imported.publisher}"
        note = f"versionsuffix: {suffix} is ours, for {taken[module]} gives {module} too"
        imported = replace(imported, keys={**imported.keys, "versionsuffix": suffix}, notes=(*imported.notes, note))
    if (module := _module(imported)) in taken:
        raise CannotImportError(f"{taken[module]} gives the module {module} too: import one of them")
    if _letters(imported.keys) > _MOST_LETTERS:
        raise CannotImportError(f"makes an easyconfig of more than {_MOST_LETTERS} letters")
    text = easyconfig_text(imported, str(source))
    with tempfile.TemporaryDirectory(prefix="sifmod-") as directory:
        path = Path(directory) / "imported.yaml"
        path.write_text(text, encoding="utf-8")
        check(path, site)
    return Converted(source, module, text, imported.notes)


def _letters(value: Value) -> int:
    """Of all texts, each as often as it is used: a small file may use one text often."""
    if isinstance(value, Mapping):
        return sum(len(key) + _letters(inner) for key, inner in value.items())
    return sum(map(_letters, value)) if isinstance(value, tuple) else len(str(value))


def _module(imported: Imported) -> str:
    keys = imported.keys
    return f"{keys['name']}/{keys['version']}{keys.get('versionsuffix', '')}"


def _wrapper_names(imported: Imported) -> Iterator[str]:
    wrappers = imported.keys.get("wrappers", ())
    for item in wrappers if isinstance(wrappers, tuple) else ():
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            yield from item


def write(converted: Converted, directory: Path, force: bool) -> Path:
    """Put an easyconfig into a directory, whole or not at all, and give its path.

    Raises OptionError where there is one of its name and not `force`, PermissionsError or NoSpaceError where it cannot
    be written.
    """
    target = directory / converted.filename
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    with writing(target):
        if os.path.lexists(target) and not force:
            raise OptionError(f"{target} exists already, and is left as it is", "--force replaces it")
        try:
            with unfinished.open("xb") as file:
                file.write(converted.text.encode())
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(target)
            sync_directory(directory)
        finally:
            unfinished.unlink(missing_ok=True)
    return target
