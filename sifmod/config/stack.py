"""A stack: the easyconfigs of a machine in one file, each with its own options."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from itertools import count
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, model_validator
from pydantic_core import PydanticCustomError

from sifmod import __version__
from sifmod.config.find import SUFFIXES
from sifmod.config.input import Input, read_input
from sifmod.config.kinds import accelerator_of
from sifmod.config.limits import bound, found_within_limits, limits, raised
from sifmod.config.pattern import Searched
from sifmod.config.private import closed_to_author
from sifmod.config.text import Items, Line, ModuleSpec, Name, NotEmpty, OpenLine, OwnFile, Pairs
from sifmod.config.version import is_range, within
from sifmod.config.yaml.node import Mark, Node, Number, join_key, problem_at, tree
from sifmod.config.yaml.parse import Bounds
from sifmod.config.yaml.validate import Model, build, load_model
from sifmod.errors import ConfigError, OptionError, Problem, SifmodError


def _date(value: object) -> object:
    text = value.text if isinstance(value, Number) else value
    try:
        return day(text) if isinstance(text, str) else value
    except ValueError:
        raise ValueError(f"expected a date of 2000 to 2999, such as 2026-10-01, got {text!r}") from None


def day(text: str) -> date:
    """A day of 2000 to 2999, because notices compare seconds since 1970. Raises ValueError for other texts."""
    found = date.fromisoformat(text)
    if not 2000 <= found.year < 3000:
        raise ValueError("out of range")
    return found


def _versions(text: str) -> str:
    if not all(is_range(one.strip()) for one in text.split(",")):
        raise ValueError(f"expected versions such as '>=0.2' or '>=0.2, <1', got {text!r}")
    return text


Date = Annotated[date, BeforeValidator(_date, json_schema_input_type=str)]


class DeprecatedKeys(Model):
    """Since when a module is deprecated, until when it loads, and what to use instead."""

    since: Date
    """The day from which a load warns."""
    until: Date | None = None
    """The last day on which the module can be loaded."""
    message: OpenLine = ""
    """What to use instead."""

    @model_validator(mode="after")
    def _in_order(self) -> "DeprecatedKeys":
        if self.until and self.until < self.since:
            raise PydanticCustomError("combination", "`until` comes before `since`")
        return self


class RetiredKeys(Model):
    """Since when a retired module cannot be loaded, and what to use instead."""

    since: Date
    """The day from which the module cannot be loaded."""
    successor: ModuleSpec | None = None
    """The module to use instead."""
    message: OpenLine = ""
    """A message for the module's users."""


def _entry(value: object) -> object:
    return {"easyconfig": value} if isinstance(value, str) else value


class Entry(Model):
    """A stack's entry for one easyconfig, or for all that match a pattern."""

    easyconfig: OwnFile
    """A name, a path, or a pattern such as `easyconfigs/*.yaml`, relative to the stack's directory."""
    variants: Literal["all"] | tuple[Name, ...] = ()
    """The variants; `all`: every one for this architecture; default: the one for the site's accelerator."""
    default: Name | bool = False
    """The variant that loads without a version; `true` if there is only one."""
    site: Line | None = None
    """A site other than the machine's, by name or file."""
    accelerator: Annotated[Literal["rocm", "cuda", "none"] | None, BeforeValidator(accelerator_of)] = None
    """An accelerator other than the site's."""
    source: Line | None = None
    """Another source for the image."""
    labels: Annotated[Pairs, Items(Name, OpenLine)] = ()
    """Labels for filtering the catalogue."""
    hidden: bool = False
    """Whether `module avail` hides the module."""
    deprecated: DeprecatedKeys | None = None
    retired: RetiredKeys | None = None

    @model_validator(mode="after")
    def _listed(self) -> "Entry":
        if self.default and (self.hidden or self.retired):
            raise PydanticCustomError("combination", "the default cannot be hidden or retired")
        return self


class StackFile(Model):
    """The keys of a stack file."""

    name: Name | None = None
    """The name of the stack (default: the file's name)."""
    sifmod: Annotated[NotEmpty, AfterValidator(_versions)] = ">=0"
    """The versions of sifmod that the stack supports."""
    include: tuple[OwnFile, ...] = ()
    """Other stack files, relative to this one; their easyconfigs come first."""
    easyconfigs: tuple[Annotated[Entry, BeforeValidator(_entry, json_schema_input_type=str | Entry)], ...] = ()


class Member(NamedTuple):
    """An easyconfig of a stack, and its entry."""

    easyconfig: str  # an absolute path, or a name as on the command line
    entry: Entry
    mark: Mark
    found: bool = False  # by a pattern

    @property
    def site(self) -> str | None:
        """The site of the entry: a name, or a file's path with the directory of the stack's file; None without one."""
        site = self.entry.site
        return str(Path(self.mark.file).parent / site) if site and _is_file(site) else site


def _is_file(site: str) -> bool:
    return "/" in site or site.endswith(".yaml")


@dataclass(frozen=True)
class Stack:
    """A stack file and its includes, with patterns expanded; easyconfigs are not read."""

    path: Path
    name: str
    members: tuple[Member, ...]
    inputs: tuple[Input, ...]


def load_stack(path: Path, *, whole: bool = False) -> Stack:
    """The stack at `path`, with its includes and the matches of its patterns.

    Raises ConfigError with every problem of every file, SifmodError for a reserved name or another version of sifmod.

    A `whole` stack, such as a bundle's, may only name files below its own directory; nothing else is read.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100 (a link stays one)
    read = _read(path, (), _Reading(count(1), Searched(), path.parent if whole else Path("/")))
    problems = [*read.problems, *_twice(read.members)]
    if problems:
        raise ConfigError(tuple(sorted(set(problems))))
    inputs = tuple(dict.fromkeys(read.inputs))
    name = read.name or path.stem
    if is_reserved(name):
        raise SifmodError(
            f"{path}: a stack cannot be named {name!r}: the name is not printable, or a tree uses it for other files",
            "give it another `name:`",
        )
    return Stack(path, name, _named_first(read.members), inputs)


def is_reserved(name: str) -> bool:
    """Whether no stack may have this name: it is unprintable, or `stacks/NAME` is for other files of a tree."""
    return name in ("jobs", ".", "..") or name.endswith(".json") or not name.isprintable()


def stack_of(easyconfigs: tuple[str, ...], variants: tuple[str, ...]) -> Stack:
    """A stack of the easyconfigs on the command line. Raises OptionError for what cannot be one."""
    only: Literal["all"] | tuple[str, ...] = "all" if "all" in variants else variants
    mark = Mark(os.path.abspath("the command line"), 0, 0)  # noqa: PTH100 (paths are relative to this directory)
    members: list[Member] = []
    for word in easyconfigs:
        entry = build(Entry, tree({"easyconfig": word, "variants": only}, mark))
        if isinstance(entry, tuple):
            raise OptionError("\n".join(f"{problem.key}: {problem.message}" for problem in entry))
        members.append(Member(word, entry, mark))
    return Stack(Path(), "the command line", tuple(members), ())


class _Reading(NamedTuple):
    included_files: Iterator[int]  # the next value is the number of the next included file
    searched: Searched
    top: Path  # only files below it are read

    def place(self, directory: Path, word: str) -> Path:
        """The path of a word in a file of `directory`; a bundle has no directory that only a `..` leaves again."""
        path = directory / word
        return path if self.top == Path("/") else Path(os.path.normpath(path))

    def outside(self, path: str | Path, word: str) -> str:
        """What is wrong with a path that is not below the top; "" if it is."""
        if Path(os.path.normpath(path)).is_relative_to(self.top):
            return ""
        return f"{word} is not below {self.top}; a bundle can only name files below the stack's directory"


class _Read(NamedTuple):
    name: str | None
    members: tuple[Member, ...]
    inputs: tuple[Input, ...]
    problems: tuple[Problem, ...]


def bounds() -> Bounds:
    """The bounds of a stack file: ten thousand modules with all keys are about 200 000 values."""
    size = limits().stack_size
    return Bounds(size, size // 5, raised("stack_size"))


def _read(path: Path, above: tuple[Path, ...], reading: _Reading) -> _Read:
    try:
        file, document = load_model(StackFile, path, bounds())
    except ConfigError as error:
        return _Read(None, (), (), error.problems)
    node = document.node
    if not within(__version__, tuple(one.strip() for one in file.sifmod.split(","))):
        raise SifmodError(
            f"{path} needs sifmod {file.sifmod}, but this is {__version__}", "install a matching version of sifmod"
        )
    members: list[Member] = []
    inputs: list[Input] = [document.input]
    found: list[Problem] = []
    for number, word in enumerate(file.include):
        included, mark = reading.place(path.parent, word), node.entries["include"].items[number].mark
        depth, wrong = len(above) + 1, reading.outside(included, word)
        if included in above or included == path:
            wrong = f"{word} includes itself"
        elif why := closed_to_author(included, path):
            wrong = why
        elif depth > limits().include_depth:
            wrong = f"{word} is included at depth {depth}, which is more than {bound('include_depth')}"
        elif next(reading.included_files) > limits().included_files:
            what = f"with {word}, more files are included than {bound('included_files')}"
            raise ConfigError((problem_at(mark, f"include[{number}]", what),))
        if wrong:
            found.append(problem_at(mark, f"include[{number}]", wrong))
            continue
        inner = _read(included, (*above, path), reading)
        members, inputs, found = [*members, *inner.members], [*inputs, *inner.inputs], [*found, *inner.problems]
    items = node.at("easyconfigs").items
    for number, (entry, item) in enumerate(zip(file.easyconfigs, items, strict=True)):
        try:
            members += _members(path.parent, entry, item, inputs, reading)
        except ValueError as error:
            found.append(problem_at(item.mark, join_key("easyconfigs", number), str(error)))
    return _Read(file.name, tuple(members), tuple(inputs), tuple(found))


def _members(directory: Path, entry: Entry, item: Node, inputs: list[Input], reading: _Reading) -> Iterator[Member]:
    """The easyconfigs of an entry; adds to `inputs`. Raises ValueError for an entry that cannot be used."""
    word = entry.easyconfig
    if isinstance(entry.default, str) and entry.variants != "all" and entry.default not in entry.variants:
        raise ValueError(f"the default {entry.default} is not among this entry's `variants`")
    for name in (word, entry.site if entry.site and _is_file(entry.site) else word):
        if wrong := reading.outside(directory / name, name):
            raise ValueError(wrong)
    if not any(sign in word for sign in "*?["):
        beside = reading.place(directory, word)
        yield Member(str(beside) if beside.is_file() or "/" in word else word, entry, item.mark)
        return
    pattern = reading.place(directory, word)
    names = sorted(map(os.path.normpath, found_within_limits(str(pattern), word, reading.searched, recursive=True)))
    inputs.append(read_input(f"*{pattern}", {}))
    stacks = {seen.path for seen in inputs}
    easyconfigs = [name for name in names if name.endswith(SUFFIXES) and name not in stacks]
    if not easyconfigs:
        raise ValueError(f"{word} matches no easyconfig")
    for name in easyconfigs:
        yield Member(name, entry, item.mark, found=True)


def _named_first(members: tuple[Member, ...]) -> tuple[Member, ...]:
    """The members without a pattern's matches that have an entry of their own, which takes precedence."""
    named = {member.easyconfig for member in members if not member.found}
    return tuple(member for member in members if not (member.found and member.easyconfig in named))


def _twice(members: tuple[Member, ...]) -> Iterator[Problem]:
    seen: dict[tuple[object, ...], Mark] = {}
    for member in members:
        entry = member.entry
        for variant in entry.variants if isinstance(entry.variants, tuple) and entry.variants else (entry.variants,):
            key = (member.easyconfig, variant, entry.site, entry.accelerator, member.found)
            if key in seen:
                message = f"{member.easyconfig} is named twice, first at {seen[key]}"
                yield problem_at(member.mark, "easyconfigs", message)
            seen.setdefault(key, member.mark)
