"""The site of a machine: named, or recognised by existing paths. Never runs a program."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from glob import iglob
from pathlib import Path

from sifmod.config.expand import expand_paths, texts
from sifmod.config.find import SUFFIXES, settings_in, shipped
from sifmod.config.input import Input, read_input
from sifmod.config.pattern import is_pattern
from sifmod.config.prefix import settings_directories
from sifmod.config.site import SiteFile
from sifmod.config.yaml.node import Node, merge, printable_text, problem_at, tree
from sifmod.config.yaml.parse import load_yaml
from sifmod.config.yaml.validate import check_layer, did_you_mean
from sifmod.errors import ConfigError, OptionError, Problem

FALLBACK = "generic"
KEPT = "the site of the install"
_DEEPEST = 8  # files that extend one another
EXPANDED = (
    *("site", "prefix", "user_prefix", "trees", "stores", "image_dirs", "robot_paths", "runtime", "binds"),
    *("signatures", "detect"),
)
"""The keys in which `${NAME}` and `~/` are replaced."""


@dataclass(frozen=True)
class BaseSite:
    """The site file that other settings override, and the inputs that chose it."""

    node: Node
    inputs: tuple[Input, ...]
    how: str  # `named by …`, `recognised by …`
    left_out: tuple[Problem, ...] = ()  # about unreadable files, one of which may be for this machine

    @property
    def name(self) -> str:
        return self.node.entries["name"].text


def site_directories(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The search path for site files: `sites/` of the user's and the machine's settings, then the shipped ones."""
    machine, user = settings_directories(environ)
    return (user / "sites", machine / "sites", shipped() / "sites")


def read_site_file(path: Path, environ: Mapping[str, str]) -> tuple[Node, Input]:
    """A checked site or settings file, its paths expanded; and its input. Raises ConfigError with all its problems."""
    document = load_yaml(path)
    entries = {
        key: expand_paths(value, environ) if key.removesuffix("+") in EXPANDED else value
        for key, value in document.node.entries.items()
    }
    node = replace(document.node, value=entries)
    if problems := sorted((*document.problems, *check_layer(SiteFile, node))):
        raise ConfigError(tuple(problems))
    return node, document.input


def named_site(name: str, by: str, directories: tuple[Path, ...], environ: Mapping[str, str]) -> BaseSite:
    """The site file named `name`, or at the path `name`. Raises OptionError if it does not exist, ConfigError."""
    if "/" in name or name.endswith(".yaml"):
        candidates = [Path(name)]
    else:
        candidates = [directory / f"{name}.yaml" for directory in directories]
    for candidate in candidates:
        if candidate.exists():
            node, read = read_site(candidate, environ)
            return BaseSite(node, read, f"named by {by}")
    known = sorted({path.stem for directory in directories for path in directory.glob("*.yaml")})
    short = f"there is no site {name!r}{did_you_mean(name, known)}"
    raise OptionError(f"{by}: {short}", f"known sites are {', '.join(known)}", short=short)


def site_names(directories: tuple[Path, ...], environ: Mapping[str, str]) -> tuple[str, ...]:
    """The names of all sites, from file names and contents, sorted."""
    names: set[str] = set()
    for path in (path for directory in directories for path in settings_in(directory)):
        names.add(path.stem)
        with suppress(ConfigError):
            names.add(read_site(path, environ)[0].entries["name"].text)
    return tuple(sorted(names))


def detected_site(directories: tuple[Path, ...], environ: Mapping[str, str]) -> BaseSite:
    """The site with the most detection paths, all of which exist, else the site `generic`.

    Of several the first counts, by directory, then file name. Raises OptionError if `generic` is needed and missing.
    """
    inputs: list[Input] = []
    left_out: list[Problem] = []
    best: tuple[int, Node, str] | None = None
    fallback: Node | None = None
    for directory in directories:
        inputs.append(read_input(f"{directory}/", environ))
        for path in settings_in(directory):
            try:
                node, read = read_site(path, environ)
            except ConfigError as error:
                left_out += error.problems
                inputs.append(read_input(str(path), environ))
                continue
            inputs += read
            if path.stem == FALLBACK and fallback is None:
                fallback = node
            paths = [text.text for text in texts(node.at("detect", "paths"))]
            inputs += (read_input(f"{'*' if is_pattern(place) else '?'}{place}", environ) for place in paths)
            if paths and all(map(_is_there, paths)) and (best is None or len(paths) > best[0]):
                best = (len(paths), node, f"recognised by {', '.join(paths)}")
    if best is not None:
        return BaseSite(best[1], tuple(inputs), best[2], tuple(left_out))
    if fallback is None:
        raise OptionError(
            f"there is no site {FALLBACK!r} in {shipped() / 'sites'}", "is the installation of sifmod complete?"
        )
    return BaseSite(fallback, tuple(inputs), "no other site was recognised", tuple(left_out))


def kept_site(name: str, directories: tuple[Path, ...], environ: Mapping[str, str]) -> BaseSite:
    """The site that a module was installed with: a name or path as for `--site`, or the name in its file.

    Raises OptionError if it no longer exists, ConfigError if it has problems.
    """
    if "/" not in name and not any((directory / f"{name}.yaml").exists() for directory in directories):
        for path in (path for directory in directories for path in settings_in(directory)):
            with suppress(ConfigError):
                node, read = read_site(path, environ)
                if node.entries["name"].text == name:
                    return BaseSite(node, read, KEPT)
    try:
        return replace(named_site(name, KEPT, directories, environ), how=KEPT)
    except OptionError as error:
        raise OptionError(error.message, f"--site NAME chooses another; {error.hint}") from error


def read_site(path: Path, environ: Mapping[str, str], above: tuple[Path, ...] = ()) -> tuple[Node, tuple[Input, ...]]:
    """A site file merged over those that it `extends`, and all files that were read; `above`: those that extend it.

    Its default name is the file's name without the ending. It inherits neither `name` nor, unless it extends the file
    of the same name that it hides, `detect`. Raises ConfigError.
    """
    node, read = read_site_file(path, environ)
    node = replace(node, value={"name": tree(path.stem, node.mark), **node.entries})
    wanted = node.entries.get("extends")
    if wanted is None or not wanted.text:
        return node, (read,)
    chain = (*above, Path(os.path.realpath(path)))
    base, missing = _extended(wanted, path, chain, environ)
    under, inputs = read_site(base, environ, chain)
    own = ("name", "extends", *(() if base.stem == path.stem else ("detect",)))
    under = replace(under, value={key: value for key, value in under.entries.items() if key not in own})
    return merge((under, node), node.mark), (read, *missing, *inputs)


def _extended(
    wanted: Node, path: Path, chain: tuple[Path, ...], environ: Mapping[str, str]
) -> tuple[Path, tuple[Input, ...]]:
    """The file that a site file extends, and the absent ones that would come before it. Raises ConfigError."""
    if "/" in wanted.text or wanted.text.endswith(SUFFIXES):
        places = [path.parent / wanted.text]
    else:  # a file of the same name may extend the one that it hides
        places = [directory / f"{wanted.text}.yaml" for directory in site_directories(environ)]
        places = [place for place in places if Path(os.path.realpath(place)) != chain[-1]]
    there = [place for place in places if place.suffix in SUFFIXES and place.is_file()]
    if not there:
        looked = ", ".join(str(place.parent) for place in places)
        near = did_you_mean(wanted.text, (one.stem for place in places for one in place.parent.glob("*.yaml")))
        raise _refused(wanted, f"there is no site {printable_text(wanted.text)} in {looked}{near}")
    real = Path(os.path.realpath(there[0]))
    if real in chain:
        circle = " → ".join(file.name for file in (*chain[chain.index(real) :], real))
        raise _refused(wanted, f"a site cannot extend itself: {circle}")
    if len(chain) > _DEEPEST:
        raise _refused(wanted, f"more than {_DEEPEST} site files extend one another")
    return there[0], tuple(Input(str(place), None) for place in places[: places.index(there[0])])


def _refused(node: Node, message: str) -> ConfigError:
    return ConfigError((problem_at(node.mark, "extends", message),))


def _is_there(path: str) -> bool:
    """Whether a path exists, or a pattern has a match."""
    return any(iglob(path)) if is_pattern(path) else os.path.exists(path)  # noqa: PTH110, PTH207 (closed directories)
