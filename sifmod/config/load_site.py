"""The site in force: command line > SIFMOD_* > the user's file > /etc/sifmod.d > the site's file > defaults."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from sifmod.config.detect import (
    EXPANDED,
    FALLBACK,
    BaseSite,
    detected_site,
    kept_site,
    named_site,
    read_site_file,
    site_directories,
)
from sifmod.config.expand import names_in, texts, variables_read
from sifmod.config.find import settings_in, shipped
from sifmod.config.hook import hooks_of
from sifmod.config.input import DEVICES, OWN_FILES, OWN_VARIABLES, Input, current_facts, read_input
from sifmod.config.kinds import RUNTIMES
from sifmod.config.option import KEYS
from sifmod.config.option_layers import option_layers
from sifmod.config.origin import Origin, of_default, of_tree
from sifmod.config.prefix import BUNDLE, DECIDED, is_from_bundle, may_install, outside_bundle, settings_directories
from sifmod.config.quirk import Quirk, read_quirks
from sifmod.config.resolve_site import Resolved, resolve
from sifmod.config.site import DECIDING, Site, SiteFile, keys_in_order
from sifmod.config.yaml.node import Node, merge, problem_at
from sifmod.config.yaml.validate import build
from sifmod.errors import ConfigError, OptionError, Problem

_NOT_OF_SETTINGS = "only a site file extends another; here `site: NAME` says over which site these settings are"


@dataclass(frozen=True)
class LoadedSite:
    """The site, the origin of each value, and all inputs that were read."""

    site: Site
    origins: tuple[Origin, ...]
    inputs: tuple[Input, ...]
    facts: tuple[tuple[str, str], ...]  # input.current_facts
    tree: Node  # the settings merged
    left_out: tuple[Problem, ...]  # about unreadable site files, one of which may be for this machine
    quirk_directories: tuple[Path, ...]  # a later one hides a file of an earlier one
    said: Node  # settings that decide a module's files, except those in the site file
    file: str  # of the site

    @cached_property
    def quirks(self) -> tuple[Quirk, ...]:
        """All quirks, for any site; read on first use.

        Raises ConfigError with every problem of every quirk, and if the site is uncertain.
        """
        return self._read_quirks[0]

    @property
    def quirk_inputs(self) -> tuple[Input, ...]:
        """The inputs that were read to find the quirks."""
        return self._read_quirks[1]

    @cached_property
    def _read_quirks(self) -> tuple[tuple[Quirk, ...], tuple[Input, ...]]:
        if self.left_out:
            raise ConfigError(self.left_out)
        return read_quirks(self.quirk_directories, os.environ)

    @property
    def says_accelerator(self) -> bool:
        """Whether the accelerator is known: it is set, found, or that of a site which was named or recognised."""
        said = self.tree.at("accelerator")
        if said.text == "auto":
            facts = dict(self.facts)
            return any(facts[f"device {accelerator}"] for accelerator, _ in DEVICES)
        fallback = str(shipped() / "sites" / f"{FALLBACK}.yaml")
        return self.tree.at("site").value is not None or said.mark.file != fallback

    def without_quirks(self) -> "LoadedSite":
        """The site without quirks, for callers that do not need them; it may be uncertain."""
        return replace(self, left_out=(), quirk_directories=())


@dataclass(frozen=True)
class Kept:
    """The site and facts that a module was installed with; options, variables and settings files override them."""

    site: str  # a name or a path
    facts: Mapping[str, str]  # facts about its machine


def load_site(overrides: Mapping[str, str], environ: Mapping[str, str], kept: Kept | None = None) -> LoadedSite:
    """The site in force. `overrides` are the command line's, by key (option.KEYS).

    Raises OptionError for invalid options or SIFMOD_* variables, ConfigError with every problem of every settings file.
    Runs no program; reads settings files, and looks for what detection, bind paths and facts name.
    """
    bundle, local = environ.get(BUNDLE), outside_bundle(environ)
    options = option_layers(overrides, local)  # of the variables, and of the command line
    files, inputs = _settings_files(local)
    try:
        base = _base_site((*files, *options), local, kept)
    except OptionError:
        if not bundle:
            raise
        base = None
    if base is None or (bundle and is_from_bundle(Path(base.node.mark.file))):
        base = _base_site((*files, options[0]), local, kept)  # an entry names a site that only the bundle has
    if is_from_bundle(Path(base.node.mark.file)):
        base = replace(base, node=_only(base.node, deciding=True))  # its hooks and places are those of another machine
    if bundle:  # its settings and the command line decide about a module's files, those here only about other keys
        settings, read_settings = read_site_file(Path(bundle, DECIDED), environ)
        its_base = _base_site((settings, options[1]), environ, None)
        its = (_only(its_base.node, deciding=True), _only(settings, deciding=True))
        files = tuple(_only(node, deciding=False) for node in files)
        options = (_only(options[0], deciding=False), options[1])
        node = merge((_only(base.node, deciding=False), *its), base.node.mark)
        base = replace(its_base, node=node)
        inputs = (read_settings,)
    users = str(settings_directories(local)[1] / "config.yaml")
    machines = tuple(node for node in files if node.mark.file != users)
    # of the machine with its site, the user's file, the variables, the command line; `user_prefix` follows the first
    levels = ((base.node, *machines), files[len(machines) :], *((option,) for option in options))
    layers, hidden = about_this_prefix((levels[0], _user_prefix(levels), *levels[1:]))
    merged = merge(layers, base.node.mark)
    robot_paths = _robot_paths(layers)
    _refuse_unset(merged, robot_paths)
    file = build(SiteFile, merged)
    if isinstance(file, tuple):
        raise ConfigError(file)
    directories = (*dict.fromkeys(Path(str(node.value)) for node in robot_paths), shipped())
    facts = _facts(environ, kept, _names_site((*files, *options)), file.runtime)
    resolved = resolve(file, directories, environ, dict(facts), hidden)
    site = replace(resolved.site, hooks=hooks_of(file.hooks, merged))
    read = dict.fromkeys((*inputs, *base.inputs, *variables_read(layers, local), *resolved.inputs))
    origins = _origins(merged, robot_paths, resolved, base)
    quirks = tuple(directory / "quirks" for directory in (shipped(), *settings_directories(environ)))
    said = merge(tuple(_only(layer, deciding=True) for layer in layers[1:]), base.node.mark)
    return LoadedSite(site, origins, tuple(read), facts, merged, base.left_out, quirks, said, base.node.mark.file)


def _only(node: Node, *, deciding: bool) -> Node:
    """The settings that decide a module's files, or the other ones."""
    entries = {key: one for key, one in node.entries.items() if (key.removesuffix("+") in DECIDING) == deciding}
    return replace(node, value=entries)


def _names_site(layers: tuple[Node, ...]) -> Node | None:
    """The name of the site in the last layer that has one, or None."""
    return next((node for layer in reversed(layers) if (node := layer.at("site")).value is not None), None)


def _facts(
    environ: Mapping[str, str], kept: Kept | None, named: Node | None, runtime: str
) -> tuple[tuple[str, str], ...]:
    """Facts about this machine, or the machine of the install: devices, runtime, module tool.

    The runtime is searched again if there was none, or another one is wanted. Variables (except one that named the
    site) and sifmod's files are the current ones.
    """
    now = dict(current_facts(environ))
    if kept is None:
        return tuple(now.items())
    before = {name: value for name, value in kept.facts.items() if not name.startswith((OWN_VARIABLES, OWN_FILES))}
    programs = [f"program {name}" for name in RUNTIMES if runtime in (name, "auto")]
    if not any(before.get(name) for name in programs):
        before |= {name: now[name] for name in programs}
    site = {f"{OWN_VARIABLES}SIFMOD_SITE": kept.site} if named is None and "/" in kept.site else {}
    return tuple(sorted({**now, **before, **site}.items()))


def _settings_files(environ: Mapping[str, str]) -> tuple[tuple[Node, ...], tuple[Input, ...]]:
    """The settings of the machine's files, sorted by name, then of the user's; and the inputs. Raises ConfigError."""
    directory, user = settings_directories(environ)
    inputs = [read_input(f"{directory}/", environ)]
    nodes: list[Node] = []
    problems: list[Problem] = []
    for path in (*settings_in(directory), user / "config.yaml"):
        if not os.path.lexists(path):
            inputs.append(Input(str(path), None))
            continue
        try:
            node, read = read_site_file(path, environ)
        except ConfigError as error:
            problems += error.problems
            continue
        if extends := node.entries.get("extends"):
            problems.append(problem_at(extends.key, "extends", _NOT_OF_SETTINGS))
        else:
            nodes.append(node)
            inputs.append(read)
    if problems:
        raise ConfigError(tuple(problems))
    return tuple(nodes), tuple(inputs)


def _base_site(layers: tuple[Node, ...], environ: Mapping[str, str], kept: Kept | None) -> BaseSite:
    directories = site_directories(environ)
    if (named := _names_site(layers)) is not None:
        return named_site(str(named.value), str(named.mark), directories, environ)
    return detected_site(directories, environ) if kept is None else kept_site(kept.site, directories, environ)


def _robot_paths(layers: tuple[Node, ...]) -> tuple[Node, ...]:
    """A search path: directories from settings closer to the user come first; none is dropped."""
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
        problem_at(text.mark, key, f"the variable {name} is empty or not set: {text.raw}")
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
    for key, field in keys_in_order().items():
        if key in ("site", "extends", "detect"):
            continue
        if key == "robot_paths":
            origins += [Origin(key, str(node.value), str(node.mark)) for node in robot_paths]
            origins.append(Origin(key, str(shipped()), "shipped"))
        elif key in resolved.how:
            origins.append(Origin(key, resolved.found(key), resolved.how[key]))
        elif key == "accelerator" and key in entries:  # not as typed: `cpu` and `none` are the same accelerator
            origins.append(Origin(key, resolved.site.accelerator, str(entries[key].mark)))
        elif key in entries:
            origins += of_tree(entries[key], key)
        else:
            origins += of_default(key, field.get_default())
    return tuple(origins)


_SHARING = ("sharing", "group", "umask")


def about_this_prefix(levels: Sequence[Sequence[Node]]) -> tuple[tuple[Node, ...], dict[str, str]]:
    """The layers without the `sharing` of any prefix but the last, and the prefixes that the last one replaces.

    A level is the machine's files, the user's, the variables or the command line. Where the `sharing` of a level is
    left out, its `group` and `umask` are left out too; a level without `sharing` keeps them. Each replaced prefix comes
    with the place that names it.
    """
    named = [_prefix(level) for level in levels]
    last = next((node.text for node in reversed(named) if node), "")
    kept: list[Node] = []
    before = ""
    for level, node in zip(levels, named, strict=True):
        before = node.text if node else before
        foreign = before not in ("", last) and any("sharing" in layer.entries for layer in level)
        for layer in level:
            rest = {key: node for key, node in layer.entries.items() if not (foreign and key in _SHARING)}
            kept.append(replace(layer, value=rest))
    others = (node for node in named if node and node.text != last)
    return tuple(kept), {
        node.text: str(node.mark) for node in others if node.text.startswith("/") and "$" not in node.text
    }


def _user_prefix(levels: Sequence[Sequence[Node]]) -> tuple[Node, ...]:
    """A layer with `user_prefix` as the prefix, if the user names no prefix and may not install in the machine's."""
    machine, *nearer = levels
    merged = merge(tuple(machine), machine[0].mark)
    own, prefix = merged.at("user_prefix"), merged.at("prefix").text
    if not own.text or any(map(_prefix, nearer)) or (prefix and may_install(prefix, merged.at("group").text)):
        return ()
    return (Node({"prefix": own}, own.mark, own.mark),)


def _prefix(level: Sequence[Node]) -> Node | None:
    return next((node for layer in reversed(level) if (node := layer.at("prefix")).text), None)


class Sites:
    """The sites of one run, each read once together with its quirks."""

    def __init__(self) -> None:
        self._loaded: dict[object, LoadedSite] = {}

    def of(self, given: Mapping[str, str], kept: Kept | None = None) -> LoadedSite:
        """The site in force, with the `given` options that are keys of a site. Raises ConfigError, OptionError."""
        about = {name: text for name, text in given.items() if name in KEYS}
        key = (frozenset(about.items()), kept and (kept.site, frozenset(kept.facts.items())))
        if key not in self._loaded:
            self._loaded[key] = load_site(about, os.environ, kept)
        return self._loaded[key]
