"""The site in force: command line > SIFMOD_* > the user's file > /etc/sifmod.d > the shipped site > defaults."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sifmod.config.check import build
from sifmod.config.detect import EXPANDED, BaseSite, detected_site, named_site, read_site_file, site_directories
from sifmod.config.find import shipped
from sifmod.config.input import Input, current_facts, read_input
from sifmod.config.merge import merge
from sifmod.config.node import Node, problem_at
from sifmod.config.option import option_layers
from sifmod.config.origin import Origin, of_default, of_tree
from sifmod.config.prefix import SITE_FILES, config_home
from sifmod.config.resolve import Resolved, resolve
from sifmod.config.site import Site, SiteFile
from sifmod.config.variables import names_in, texts, variables_read
from sifmod.errors import ConfigError, OptionError, Problem


@dataclass(frozen=True)
class LoadedSite:
    """The site, where each value comes from, and everything that was looked at to find it."""

    site: Site
    origins: tuple[Origin, ...]
    inputs: tuple[Input, ...]
    facts: tuple[tuple[str, str], ...]  # input.current_facts


def load_site(overrides: Mapping[str, str], environ: Mapping[str, str]) -> LoadedSite:
    """The site in force. `overrides` are the command line's, by key of option.OPTION_KEYS.

    Raises OptionError for what the command line or a SIFMOD_* variable says, ConfigError for every problem of every
    settings file. Runs no program; reads only settings files and looks whether detection paths exist.
    """
    facts = current_facts(environ)
    options = option_layers(overrides, environ)
    files, inputs = _settings_files(environ)
    base = _base_site((*files, *options), environ)
    layers = (base.node, *files, *options)
    merged = merge(layers, base.node.mark)
    robot_paths = _robot_paths(layers)
    _refuse_unset(merged, robot_paths)
    file = build(SiteFile, merged)
    if isinstance(file, tuple):
        raise ConfigError(file)
    directories = (*dict.fromkeys(Path(str(node.value)) for node in robot_paths), shipped())
    resolved = resolve(file, directories, environ, dict(facts))
    read = (*inputs, *base.inputs, *variables_read(layers, environ))
    return LoadedSite(resolved.site, _origins(merged, robot_paths, resolved, base), tuple(dict.fromkeys(read)), facts)


def _settings_files(environ: Mapping[str, str]) -> tuple[tuple[Node, ...], tuple[Input, ...]]:
    """The machine's files in the order of their names, then the user's."""
    directory, user = _directories(environ)
    inputs = [read_input(f"{directory}/", environ)]
    nodes: list[Node] = []
    problems: list[Problem] = []
    for path in (*sorted(directory.glob("*.yaml")), user / "config.yaml"):
        if not os.path.lexists(path):
            inputs.append(Input(str(path), None))
            continue
        try:
            node, read = read_site_file(path, environ)
        except ConfigError as error:
            problems += error.problems
        else:
            nodes.append(node)
            inputs.append(read)
    if problems:
        raise ConfigError(tuple(problems))
    return tuple(nodes), tuple(inputs)


def _directories(environ: Mapping[str, str]) -> tuple[Path, Path]:
    return Path(environ.get("SIFMOD_CONFIG_DIR") or SITE_FILES), config_home(environ) / "sifmod"


def _base_site(layers: tuple[Node, ...], environ: Mapping[str, str]) -> BaseSite:
    machine, user = _directories(environ)
    directories = site_directories(user, machine)
    for layer in reversed(layers):
        named = layer.entries.get("site")
        if named is not None and named.value is not None:
            return named_site(str(named.value), str(named.mark), directories, environ)
    return detected_site(directories, environ)


def _robot_paths(layers: tuple[Node, ...]) -> tuple[Node, ...]:
    """A search path: what is said nearer to the user is looked at first, and hides nothing of what was said before."""
    found: list[Node] = []
    for layer in reversed(layers):
        for key in ("robot_paths", "robot_paths+"):
            if key in layer.entries:
                found += texts(layer.entries[key])
    return tuple(found)


def _refuse_unset(merged: Node, robot_paths: tuple[Node, ...]) -> None:
    entries = merged.entries
    in_force = (key for key in EXPANDED if key in entries and key not in ("robot_paths", "detect"))
    places = [(key, text) for key in in_force for text in texts(entries[key])]
    places += [("robot_paths", text) for text in robot_paths]
    problems = {
        problem_at(text.mark, key, f"the variable {name} is not set: {text.raw}")
        for key, text in places
        for name in names_in(str(text.value))
    }
    if in_options := sorted(problem for problem in problems if not problem.line):
        raise OptionError("\n".join(f"{problem.file}: {problem.message}" for problem in in_options))
    if problems:
        raise ConfigError(tuple(sorted(problems)))


def _origins(merged: Node, robot_paths: tuple[Node, ...], resolved: Resolved, base: BaseSite) -> tuple[Origin, ...]:
    entries = merged.entries
    origins = [Origin("site", resolved.site.name, base.how)]
    for key, field in SiteFile.model_fields.items():
        if key in ("site", "detect"):
            continue
        if key == "robot_paths":
            origins += [Origin(key, str(node.value), str(node.mark)) for node in robot_paths]
            origins.append(Origin(key, str(shipped()), "shipped"))
        elif key in resolved.how:
            origins.append(Origin(key, resolved.found(key), resolved.how[key]))
        elif key in entries:
            origins += of_tree(entries[key], key)
        else:
            origins += of_default(key, field.get_default())
    return tuple(origins)
