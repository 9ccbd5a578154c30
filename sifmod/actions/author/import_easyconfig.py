"""import: convert other tools' files into easyconfigs, which are checked before they are written."""

import json
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sifmod.actions.author.check import check, visible_files
from sifmod.actions.author.new_file import quoted, write_text
from sifmod.config.load_site import LoadedSite
from sifmod.config.redact import shown
from sifmod.config.yaml.node import base_key, join_key
from sifmod.errors import ConfigError, EasyconfigNotFoundError, Error, OptionError
from sifmod.image.disk import writing
from sifmod.image.inspect.host_commands import is_host_command
from sifmod.image.printable import line
from sifmod.imports.easybuild import read_easybuild
from sifmod.imports.modulefile import Naming, read_modulefile
from sifmod.imports.result import CannotImportError, Imported, Value
from sifmod.imports.shpc import read_shpc
from sifmod.result import Beside, ModuleText, Notes, Source
from sifmod.secret import cut, without_secrets
from sifmod.system import scratch_directory
from sifmod.tree.target_store import check_outside_trees

_ORDER = (
    *("name", "version", "versionsuffix", "description", "homepage", "docurls", "whatis", "moduleclass", "license"),
    *("contents", "accelerator", "image", "verb", "conda", "venv", "activate", "user_software", "binds", "env"),
    *("host_env", "default_env", "path+", "wrappers", "runscripts", "conflict", "depends_on", "family", "sanity_check"),
)
_COMMANDS = ("post", "test")  # keys of image.build: lines without trailing blanks
_NOT_PRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ue000-\uf8ff]")
_READERS: Mapping[str, Callable[[Path, Naming], Imported]] = {
    ".eb": lambda path, _: read_easybuild(path),
    ".lua": read_modulefile,
    ".yaml": lambda path, _: read_shpc(path),
    ".yml": lambda path, _: read_shpc(path),
}
_NEEDED = ("name", "version", "versionsuffix", "image")
_WHOLE = ("image", "conda", "sanity_check")  # their entries belong together
_PLACE = re.compile(r"^\w+(?:\[\d+\])?")  # a key, or an item of a list
_SHPC = "container.yaml"
_MOST_LETTERS = 1 << 20


@dataclass(frozen=True)
class Converted:
    """The result for one file: the easyconfig's text and the module's name, or the reason why there is none.

    A file that gives the same keys as an earlier one names that one in `same_as`.
    """

    source: Path
    module: str = ""
    text: str = ""
    notes: tuple[str, ...] = ()
    problem: str = ""
    line: int | None = None  # of the problem, if known
    same_as: Path | None = None

    @property
    def filename(self) -> str:
        """`<Name>-<version><versionsuffix>.yaml`."""
        return f"{self.module.replace('/', '-', 1)}.yaml"


@dataclass(frozen=True)
class NewEasyconfig:
    """An easyconfig that was written."""

    path: Path
    module: ModuleText


@dataclass(frozen=True)
class ImportedFile:
    """A file of another tool, and the easyconfig that was made from it, or the error if none was made."""

    source: Source
    notes: Notes
    outcome: Beside[NewEasyconfig | Error]


def find_sources(given: tuple[Path, ...]) -> tuple[Path, ...]:
    """The given files, and the visible .eb, .lua and container.yaml files below given directories, sorted within each.

    Raises EasyconfigNotFoundError for missing files, OptionError for files of an unknown kind and for directories
    without such files.
    """
    found: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = sorted(Path(file) for file in visible_files(path) if file.endswith((".eb", ".lua", f"/{_SHPC}")))
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


def convert(sources: tuple[Path, ...], site: LoadedSite, naming: Naming) -> Iterator[Converted]:
    """Convert each file, in order; no file is executed and nothing is written.

    Each easyconfig is checked and rendered for this site; a part that the check rejects is left out, with a note. Files
    that give the same keys are converted once. A second easyconfig for the same module gets its publisher's name in its
    versionsuffix; without a publisher, or for a modulefile, which keeps its name, the second one is an error.
    """
    taken: dict[str, Converted] = {}
    made: dict[str, list[tuple[Mapping[str, Value], Converted]]] = {}  # by module, as the files name it
    for source in sources:
        try:
            imported = _READERS[source.suffix](source, naming)
            module = _module(imported)
            if same := next((one for keys, one in made.get(module, ()) if keys == imported.keys), None):
                yield replace(same, source=source, same_as=same.source)
                continue
            converted = _convert(imported, source, site, taken)
        except CannotImportError as error:
            yield Converted(source, problem=error.message, line=error.line)
            continue
        except ConfigError as error:
            problems = (f"{one.key}: {one.message}" if one.key else one.message for one in error.problems)
            yield Converted(source, problem="; ".join(problems))
            continue
        taken[converted.module] = converted
        made.setdefault(module, []).append((imported.keys, converted))
        yield converted


def _convert(imported: Imported, source: Path, site: LoadedSite, taken: Mapping[str, Converted]) -> Converted:
    if hidden := sorted(filter(is_host_command, set(_wrapper_names(imported)))):
        note = f"wrappers: {', '.join(hidden)} will hide the host's own while the module is loaded"
        imported = replace(imported, notes=(*imported.notes, note))
    if (module := _module(imported)) in taken and imported.publisher and source.suffix != ".lua":
        suffix = f"{imported.keys.get('versionsuffix', '')}-{imported.publisher}"
        note = f"versionsuffix: sifmod added {suffix}, because {taken[module].source} gives {module} too"
        imported = replace(imported, keys={**imported.keys, "versionsuffix": suffix}, notes=(*imported.notes, note))
    if (module := _module(imported)) in taken:
        raise CannotImportError(
            f"{taken[module].source} gives a different module {module}: import each into its own directory"
        )
    if _letters(imported.keys) > _MOST_LETTERS:
        raise CannotImportError(f"the easyconfig would have more than {_MOST_LETTERS} letters")
    imported = replace(imported, notes=tuple(map(without_secrets, imported.notes)))  # the new file has them too
    text = easyconfig_text(imported, str(source))
    with scratch_directory() as directory:
        path = directory / "imported.yaml"
        while True:
            path.write_text(text, encoding="utf-8")
            try:
                check(path, site)
            except ConfigError as error:
                imported = _without(imported, error)
                text = easyconfig_text(imported, str(source))
            else:
                return Converted(source, module, text, imported.notes)


def _without(imported: Imported, error: ConfigError) -> Imported:
    """Remove the rejected parts, each with a note; raises `error` if there are none, or the name or image is one."""
    wrong = {place: problem.message for problem in error.problems for place in _PLACE.findall(problem.key)[:1]}
    wrong |= {problem.key: problem.message for problem in error.problems}
    keys, notes = dict[str, Value](), list[str]()

    def is_good(place: str, key: str, item: object) -> bool:
        if reason := wrong.get(place):
            notes.append(f"{key}: {cut(str(item), 80)!r} was left out: {reason}")
        return not reason

    for key, value in imported.keys.items():
        base = base_key(key)
        kept: Value = value
        if isinstance(value, tuple):
            kept = tuple(item for index, item in enumerate(value) if is_good(join_key(base, index), base, item))
        elif isinstance(value, Mapping) and base not in _WHOLE:
            kept = {name: item for name, item in value.items() if is_good(join_key(base, name), base, f"{name}={item}")}
        elif not is_good(base, base, value):
            continue
        keys |= {key: kept} if kept or not value else {}
    if not notes or {key: keys.get(key) for key in _NEEDED} != {key: imported.keys.get(key) for key in _NEEDED}:
        raise error
    return replace(imported, keys=keys, notes=(*imported.notes, *notes))


def _letters(value: Value) -> int:
    """The number of characters in all texts, counted at each use: a small file may use one text often."""
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
    """Write an easyconfig into a directory, which is created if it is missing; returns its path.

    The file is written completely or not at all.

    Raises OptionError in a tree, and if the file exists and not `force`, PermissionsError or FetchError if it cannot be
    written.
    """
    target = directory / converted.filename
    check_outside_trees(target)
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    if not force and os.path.lexists(target):
        raise OptionError(f"{target} exists already and was not changed", "use --force to replace it")
    write_text(converted.text, target, force=force)
    return target


def easyconfig_text(imported: Imported, source: str) -> str:
    """The YAML of an easyconfig with these keys; the same keys, notes and source give the same text."""
    head = f"Made from {line(source, 300)} by `sifmod import`, which read it and ran nothing."
    lines = textwrap.wrap(head, 118, initial_indent="# ", subsequent_indent="# ", break_long_words=False)
    if imported.notes:
        lines.append("# Not imported, or only approximately:")
        for note in imported.notes:
            lines += textwrap.wrap(line(note, 600), 117, initial_indent="# - ", subsequent_indent="#   ")
    for key in sorted(imported.keys, key=_ORDER.index):
        lines += _entry(key, imported.keys[key], "")
    return "\n".join(lines) + "\n"


def _entry(key: str, value: Value, indent: str) -> Iterator[str]:
    name = f"{indent}{key if key.endswith('+') else _scalar(key)}:"
    if isinstance(value, Mapping):
        yield name if value else f"{name} {{}}"
        for inner, item in value.items():
            yield from _entry(inner, item, f"{indent}  ")
    elif isinstance(value, tuple):
        yield name if value else f"{name} []"
        for item in value:
            yield from _item(item, f"{indent}  ")
    elif isinstance(value, bool):
        yield f"{name} {'true' if value else 'false'}"
    elif key == "description" and "\n" in (text := _paragraphs(value)):
        yield f"{name} |2" if text.startswith(" ") else f"{name} |"
        yield from (f"{indent}  {text}".rstrip() for text in text.split("\n"))
    elif key in _COMMANDS and value.endswith("\n") and not _NOT_PRINTABLE.search(re.sub(r"[\n\t]", "", value)):
        yield f"{name} |2" if value[0] in " \n" else f"{name} |"
        yield from (f"{indent}  {text}".rstrip() for text in value.rstrip("\n").split("\n"))
    else:
        text = " ".join(_paragraphs(value).split()) if key == "description" else value
        yield f"{name} {_scalar(text, always=key == 'version' or indent != '')}"


def _item(item: Value, indent: str) -> Iterator[str]:
    if isinstance(item, Mapping):
        entries = [text for key, value in item.items() for text in _entry(key, value, f"{indent}  ")]
        yield f"{indent}- {entries[0].lstrip()}"
        yield from entries[1:]
    else:
        yield f"{indent}- {_scalar(str(item))}"


def _scalar(text: str, *, always: bool = False) -> str:
    """The text as a YAML scalar on one line."""
    return json.dumps(text) if _NOT_PRINTABLE.search(text) else quoted(text, always=always)


def _paragraphs(text: str) -> str:
    """A description with blanks for tabs and control characters, dedented, without blanks at line ends."""
    lines = (_NOT_PRINTABLE.sub(" ", part).rstrip() for part in text.expandtabs(4).split("\n"))
    return textwrap.dedent("\n".join(lines)).strip("\n")
