"""The site a machine is: named, or recognised by the paths that exist there. Never runs a program."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sifmod.config.check import check_layer, did_you_mean
from sifmod.config.find import shipped
from sifmod.config.input import Input, read_input
from sifmod.config.node import Node, tree
from sifmod.config.site import SiteFile
from sifmod.config.variables import expand_paths, texts
from sifmod.config.yaml import load_yaml
from sifmod.errors import ConfigError, OptionError

FALLBACK = "generic"
EXPANDED = ("site", "prefix", "image_dirs", "robot_paths", "runtime", "binds", "signatures", "detect")
"""The keys in which `${NAME}` and `~/` are replaced."""


@dataclass(frozen=True)
class BaseSite:
    """The site file that all other settings go over, and what was looked at to choose it."""

    node: Node
    inputs: tuple[Input, ...]
    how: str  # `named by …`, `recognised by …`


def site_directories(*config_directories: Path) -> tuple[Path, ...]:
    """Where site files are looked up: `sites/` of the user's and the machine's settings, then the shipped ones."""
    return (*(directory / "sites" for directory in config_directories), shipped() / "sites")


def read_site_file(path: Path, environ: Mapping[str, str]) -> tuple[Node, Input]:
    """A checked site or settings file, its paths expanded; raises ConfigError with all of its problems."""
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
    """The site file called `name`, or at the path `name`; raises OptionError when there is none."""
    if "/" in name or name.endswith(".yaml"):
        candidates = [Path(name)]
    else:
        candidates = [directory / f"{name}.yaml" for directory in directories]
    for candidate in candidates:
        if candidate.exists():
            node, read = _read_site(candidate, environ)
            return BaseSite(node, (read,), f"named by {by}")
    known = sorted({path.stem for directory in directories for path in directory.glob("*.yaml")})
    raise OptionError(f"{by}: no site is called {name!r}{did_you_mean(name, known)}", f"known are {', '.join(known)}")


def detected_site(directories: tuple[Path, ...], environ: Mapping[str, str]) -> BaseSite:
    """The site with the most detection paths, all of which exist; the directories' order decides between equals."""
    inputs: list[Input] = []
    best: tuple[int, Node, str] | None = None
    fallback: Node | None = None
    for directory in directories:
        inputs.append(read_input(f"{directory}/", environ))
        for path in sorted(directory.glob("*.yaml")):
            node, read = _read_site(path, environ)
            inputs.append(read)
            if path.stem == FALLBACK and fallback is None:
                fallback = node
            paths = _detection_paths(node)
            seen = [read_input(f"?{place}", environ) for place in paths]
            inputs += seen
            if paths and all(look.sha256 for look in seen) and (best is None or len(paths) > best[0]):
                best = (len(paths), node, f"recognised by {', '.join(paths)}")
    if best is not None:
        return BaseSite(best[1], tuple(inputs), best[2])
    if fallback is None:
        raise OptionError(f"no site is called {FALLBACK!r} in {shipped() / 'sites'}", "is sifmod installed completely?")
    return BaseSite(fallback, tuple(inputs), "no other site was recognised")


def _read_site(path: Path, environ: Mapping[str, str]) -> tuple[Node, Input]:
    """A site file, which is called like its file where it does not say otherwise."""
    node, read = read_site_file(path, environ)
    return replace(node, value={"name": tree(path.stem, node.mark), **node.entries}), read


def _detection_paths(node: Node) -> tuple[str, ...]:
    detect = node.entries.get("detect")
    paths = detect.entries.get("paths") if detect else None
    return tuple(text.text for text in texts(paths)) if paths else ()
