"""search: the modules that easyconfigs on the easyconfig path can install, and those that match a search."""

import os.path
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from sifmod.config.find import easyconfigs
from sifmod.config.index import IndexEntry, read_index
from sifmod.config.name import ModuleName, fits
from sifmod.config.redact import shown
from sifmod.config.version import matches_version, release_key, version_key
from sifmod.errors import ConfigError, Problem
from sifmod.result import IfAny, Internal, Named
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live_modules

if TYPE_CHECKING:
    from sifmod.config.load_easyconfig import LoadedEasyconfig
    from sifmod.config.load_site import LoadedSite


class InstalledIn(NamedTuple):
    """A module that is installed, and the prefix of its tree."""

    module: ModuleName
    prefix: Path


@dataclass(frozen=True)
class Found:
    """An easyconfig and its variants, for any site; no variants if the file has problems."""

    path: Path
    variants: tuple[IndexEntry, ...]
    problems: Internal[tuple[Problem, ...]] = ()
    installed: tuple[InstalledIn, ...] = ()

    @property
    def faults(self) -> Annotated[IfAny[tuple[Problem, ...]], Named("problems")]:
        return self.problems or None


def find_all(
    robot_paths: tuple[Path, ...], load_site: Callable[[], "LoadedSite"], environ: Mapping[str, str]
) -> tuple[Found, ...]:
    """Every easyconfig on the easyconfig path; `load_site` is called if one is not in the index.

    Raises the errors of `load_site`.
    """
    index = read_index(robot_paths, environ)
    return tuple(
        Found(path, index[path]) if path in index else describe(path, load_site(), environ)
        for path in easyconfigs(robot_paths)
    )


def with_installed(found: Iterable[Found], trees: Iterable[Layout]) -> tuple[Found, ...]:
    """These easyconfigs, with the trees in which their modules are installed, in the order of `trees`."""
    there = [InstalledIn(module, one.prefix) for one in trees for module, _ in live_modules(one)]
    names = {str(one.module) for one in there}

    def known(one: Found) -> Found:
        own = names & {each.module for each in one.variants}
        return replace(one, installed=tuple(each for each in there if str(each.module) in own)) if own else one

    return tuple(map(known, found))


def describe(path: Path, site: "LoadedSite", environ: Mapping[str, str]) -> Found:
    """The modules of one easyconfig; problems of an invalid file are returned, not raised."""
    from sifmod.actions.sources import check_sources
    from sifmod.config.load_easyconfig import all_variants

    try:
        loaded = all_variants(path, site, environ)
        for each in loaded:
            check_sources(each)
        return Found(path, tuple(map(offered, loaded)))
    except ConfigError as error:
        return Found(path, (), error.problems)


def offered(loaded: "LoadedEasyconfig") -> IndexEntry:
    """The searchable facts of a loaded easyconfig."""
    made, layers = loaded.easyconfig, loaded.layers
    variant = layers.variants[loaded.variant].presets if loaded.variant is not None else ()
    presets = [Path(node.mark.file).stem for node in (*layers.presets, *variant)]
    image, written = made.image, loaded.tree.entries.get("image")
    sources = image.sources if image else ()
    if image and image.build is not None:
        file = image.build.definition or image.build.dockerfile
        base = (image.build.from_ or "").removeprefix(f"{loaded.path.absolute().parent}/")
        sources = (f"build:{base or os.path.relpath(str(file), loaded.path.parent)}",)
    return IndexEntry(
        variant=loaded.variant,
        name=made.name,
        version=made.version,
        versionsuffix=made.versionsuffix,
        accelerator=made.accelerator,
        description=" ".join(made.description.split()),
        keywords=(*made.whatis, *dict.fromkeys(presets)),
        contents=dict(made.contents),
        sources=tuple(map(shown, sources)),
        available=image.available.strip() if image else f"loads {', '.join(made.modules)}",
        arch=image.arch if image and written and written.entries["arch"].mark.line else "",
    )


_VERSION = re.compile(r"v?([0-9]+(?:\.[a-z0-9+]+)*)")
_BOTH = re.compile(rf"([a-z][a-z0-9_+-]*?)[-=@/:]*{_VERSION.pattern}")  # cuda12.4, torch==2.4, PyTorch/2.2.0
_EXPRESSION = re.compile(r"[\\^$|()?*\[]|\.\+")
_CUDA, _ROCM = ("cuda",), ("rocm",)
_ACCELERATORS = {"cuda": _CUDA, "nvidia": _CUDA, "rocm": _ROCM, "amd": _ROCM, "gpu": (*_CUDA, *_ROCM)}
_ACCELERATORS |= dict.fromkeys(("none", "cpu"), ("none",))


@dataclass(frozen=True)
class Term:
    """A search term in lower case: a word, a version, or a version with the word that it belongs to."""

    word: str
    version: str = ""
    typed: str = ""  # both, if they were typed as one word
    package: bool = False  # the word is a module or package name, and the version belongs to it
    of: Literal["typed", "module", "anything"] = "typed"  # the word that the version may belong to

    def __str__(self) -> str:
        return self.typed or " ".join(filter(None, (self.word, self.version)))


@dataclass(frozen=True)
class Answer:
    """The easyconfigs with their matching modules, and messages about the search."""

    found: tuple[Found, ...]
    note: str = ""  # if no module has exactly these versions
    hint: str = ""  # if nothing was found: the nearest matches


def ask(everything: Sequence[Found], words: Iterable[str]) -> Answer:
    """The modules that match all words, sorted by name and version; all modules without words.

    A version belongs to the word before it, or to the module. If no module matches, a version after a word may also be
    the module's (`cuda 2.4` finds PyTorch 2.4 for CUDA), or else that of any package in the image. A file with problems
    matches by its file name.
    """
    modules = [each for found in everything for each in found.variants]
    packages = {name for each in modules for name in (each.name.lower(), *(name for name, _ in each.components))}
    terms = tuple(replace(term, package=term.word in packages) for term in parse(words))
    if found := _answering(everything, terms):
        return Answer(found)
    versions = " and ".join(term.version for term in terms if term.version)
    typed = " and ".join(str(term) if term.word else f"the version {term}" for term in terms if term.version)
    looser: tuple[tuple[Literal["module", "anything"], str], ...] = (
        ("module", f"have version {versions}"),
        ("anything", f"have a package of version {versions}"),
    )
    for of, have in looser:
        if found := _answering(everything, tuple(replace(term, of=of) if term.version else term for term in terms)):
            return Answer(found, f"no module matches {typed} exactly; these {have}")
    return Answer((), hint=_nearest(everything, terms))


def parse(words: Iterable[str]) -> tuple[Term, ...]:
    """The search terms in these words; a quoted word may hold several."""
    terms: list[Term] = []
    for word in " ".join(words).lower().replace(",", " ").split():
        if len(word) > 100:  # longer than any version
            terms.append(Term(word))
        elif version := _VERSION.fullmatch(word):
            before = terms.pop().word if terms and not terms[-1].version else ""
            terms.append(Term(before, version[1]))
        elif both := _BOTH.fullmatch(word):
            terms.append(Term(both[1], both[2], word))
        else:
            terms.append(Term(word))
    return tuple(terms)


def order(module: IndexEntry) -> tuple[object, ...]:
    """The sort key of a module: name, version, versionsuffix."""
    return module.name.casefold(), release_key(module.version), version_key(module.versionsuffix), module.module


def _answering(everything: Iterable[Found], terms: tuple[Term, ...]) -> tuple[Found, ...]:
    answers: list[Found] = []
    broken: list[Found] = []
    for found in everything:
        stem = found.path.stem.lower()
        if found.problems:
            broken += [found] if all(term.word in stem and term.version in stem for term in terms) else []
        elif modules := [each for each in found.variants if all(_fits(each, stem, term) for term in terms)]:
            answers.append(replace(found, variants=tuple(sorted(modules, key=order))))
    return (*sorted(answers, key=lambda found: order(found.variants[0])), *broken)


def _fits(module: IndexEntry, stem: str, term: Term) -> bool:
    if term.typed:
        names = f"{module.module} {stem} {' '.join(module.keywords)}".lower()
        plain = re.search(rf"\b{re.escape(term.typed)}(?![0-9])", names) is not None
        if plain or not term.package:  # lumi-g2 is a name, not a version
            return plain
    if term.word and not _has_word(module, stem, term):
        return False
    return not term.version or any(matches_version(version, term.version) for version in _versions(module, term))


def _has_word(module: IndexEntry, stem: str, term: Term) -> bool:
    word, name = term.word, module.name.lower()
    if any(sign in word for sign in "*?["):
        return fits(module.module, word) or fits(stem, word)
    if word in _ACCELERATORS:
        repositories = {part.lower() for source in module.sources for part in source.split("/")[:-1]}
        has = module.accelerator in _ACCELERATORS[word]
        return has or word in repositories or word in (name, *map(str.lower, module.contents))
    if word in name or any(part == word for part, _ in module.components):
        return True
    if term.package:  # keywords may belong to a whole kind of images
        return _begins(word, module.description)
    described = (module.description, *module.keywords, module.available, module.where, *module.sources)
    return _begins(word, " ".join((module.module, stem, module.variant or "", *described)))


def _begins(word: str, text: str) -> bool:
    """Whether the text has `word` at the start of a word, ignoring the text's case."""
    return re.search(rf"(?<![a-z0-9]){re.escape(word)}", text.lower()) is not None


def _versions(module: IndexEntry, term: Term) -> tuple[str, ...]:
    if term.of == "module":
        return (module.version,)
    stated = tuple(version for name, version in module.components if term.of == "anything" or name == term.word)
    own = term.of == "anything" or not term.package or term.word == module.name.lower()
    return (*stated, module.version) if own else stated


def _nearest(everything: Iterable[Found], terms: tuple[Term, ...]) -> str:
    modules = [(each, found.path.stem.lower()) for found in everything for each in found.variants]

    def hits(wanted: Iterable[Term]) -> list[IndexEntry]:
        wanted = tuple(wanted)
        return [each for each, stem in modules if all(_fits(each, stem, term) for term in wanted)]

    unknown = [term.word for term in terms if term.word and not hits((replace(term, version="", typed=""),))]
    if close := [name for word in unknown for name in _spelled_like(word, [each for each, _ in modules])]:
        return f"did you mean {' or '.join(dict.fromkeys(close))}?"
    for number, term in enumerate(terms):
        bare = replace(term, version="", typed="")
        if (
            term.version
            and (term.package or not term.typed)
            and (others := hits((*terms[:number], bare, *terms[number + 1 :])))
        ):
            named = [each for each in others if term.word in each.name.lower()]
            known = {version for each in named or others for version in _versions(each, term)}
            return f"the nearest versions: {', '.join(_around(term.version, known))}"
    fewer = [(term, hits(other for other in terms if other is not term)) for term in terms]
    counts = [
        f"without `{shown(str(term))}` there {'is 1 module' if len(left) == 1 else f'are {len(left)} modules'}"
        for term, left in fewer
        if left and len(terms) > 1
    ]
    if any(_EXPRESSION.search(term.word) for term in terms):
        return "regular expressions do not work here: use `*` and `?` to match a whole name, as in `*torch*`"
    return ", ".join(counts) or "`sifmod search` lists all modules"


def _spelled_like(word: str, modules: Iterable[IndexEntry]) -> list[str]:
    import difflib

    known = {name: name for name in _ACCELERATORS}
    for module in modules:
        known |= {part: part for text in module.keywords for part in re.findall("[a-z][a-z0-9-]{2,}", text.lower())}
        known |= {name: name for name, _ in module.components}
    known |= {module.name.lower(): module.name for module in modules}
    return [known[name] for name in difflib.get_close_matches(word, known, n=2, cutoff=0.7)]


def _around(version: str, known: Iterable[str]) -> list[str]:
    """The two known versions next below `version`, and the two lowest that are not below it."""
    versions = sorted(known, key=version_key)
    older = [each for each in versions if version_key(each) < version_key(version)]
    return [*older[-2:], *versions[len(older) :][:2]]
