"""Shell completion: installed modules, easyconfigs, their variants, sites and files.

It must answer within a tenth of a second and never raise an error: it does not import pydantic or read receipts, and
parses only settings, site files and, for variants, easyconfigs.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from sifmod.cli.commands import COMMANDS, TOPICS
from sifmod.config.find import SUFFIXES, easyconfigs, find_easyconfig, shipped
from sifmod.config.prefix import default_prefix, quick_prefix, settings_directories
from sifmod.errors import SifmodError
from sifmod.tree.layout import Layout


def completing(command: click.Command, verb: str) -> click.Command:
    """A copy of the command whose parameters have candidates."""
    made = copy(command)
    made.params = [_with_candidates(parameter, verb) for parameter in command.params]
    if isinstance(made, click.Group):
        made.commands = {name: completing(inner, f"{verb} {name}") for name, inner in made.commands.items()}
    return made


def _with_candidates(parameter: click.Parameter, verb: str) -> click.Parameter:
    made, metavar = copy(parameter), parameter.metavar or ""
    find = _WORDS.get(f"{verb} {parameter.name}") or _WORDS.get(parameter.name or "")
    if find := find or (_live if "MODULE" in metavar else None):
        made.type = _Words(find, files="FILE" in metavar)
    elif "FILE" in metavar or "DIR" in metavar:
        made.type = click.Path(file_okay="FILE" in metavar)
    return made


class _Words(click.types.StringParamType):
    """A parameter with candidates from a function, and files if it accepts them."""

    def __init__(self, find: "_Find", *, files: bool) -> None:
        self.find, self.files = find, files

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The candidates with this prefix that were not given yet; if there are none, file names, where allowed."""
        given = ctx.params.get(param.name or "") or ()
        words: list[str] = []
        with suppress(SifmodError, OSError, ValueError):
            # skip names that cannot be typed or that control the terminal
            found = (word for word in self.find(ctx, incomplete) if word.isprintable())
            words = [word for word in found if word.startswith(incomplete)]
            words = [word for word in dict.fromkeys(words) if isinstance(given, str) or word not in given]
        if not words and self.files:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(word) for word in words]


_Find = Callable[[click.Context, str], Iterator[str]]


def _live(ctx: click.Context, incomplete: str) -> Iterator[str]:  # noqa: ARG001
    from sifmod.tree.receipt import live_modules

    trees = dict.fromkeys((_prefix(ctx), *_trees(ctx)))
    return (str(module) for one in trees for module, _ in live_modules(Layout(one)))


def _known(ctx: click.Context, incomplete: str) -> Iterator[str]:  # noqa: ARG001
    from sifmod.tree.receipt import known_modules

    return (str(module) for module in known_modules(Layout(_prefix(ctx))))


def _easyconfigs(ctx: click.Context, incomplete: str) -> Iterator[str]:
    """File names of easyconfigs: those in the working directory, then those on the easyconfig path."""
    here = (entry.name for entry in os.scandir() if entry.name.endswith(SUFFIXES) and entry.is_file())
    yield from sorted(name for name in here if incomplete.startswith(".") or not name.startswith("."))
    yield from (path.name for path in easyconfigs(_robot_paths(ctx)))


def _live_or_easyconfigs(ctx: click.Context, incomplete: str) -> Iterator[str]:
    yield from _live(ctx, incomplete)
    yield from _easyconfigs(ctx, incomplete)


def _variants(ctx: click.Context, incomplete: str) -> Iterator[str]:  # noqa: ARG001
    """The variants of the easyconfigs on the line, and of those that they extend."""
    from sifmod.config.yaml.parse import load_yaml

    paths = _robot_paths(ctx)
    # click does not parse words before an option without its value
    for name in ctx.args or ctx.params.get("easyconfigs") or filter(None, (ctx.params.get("name"),)):
        path = find_easyconfig(name, paths)
        for _ in range(8):  # limit for files that extend each other
            entries = load_yaml(path).node.entries
            yield from entries["variants"].entries if "variants" in entries else ()
            if "extends" not in entries:
                break
            text = str(entries["extends"].value)
            path = beside if (beside := path.parent / text).exists() else find_easyconfig(text, paths)


def _sites(ctx: click.Context, incomplete: str) -> Iterator[str]:  # noqa: ARG001

    for directory in (*settings_directories(os.environ), shipped()):
        yield from sorted(path.stem for path in (directory / "sites").glob("*.yaml"))


def _explained(ctx: click.Context, incomplete: str) -> Iterator[str]:  # noqa: ARG001
    yield from (*COMMANDS, *TOPICS, "exit-codes")


# parameter, or command and parameter → the function for its candidates
_WORDS: dict[str, _Find] = {
    "site": _sites,
    "variant": _variants,
    "variants": _variants,
    "log modules": _known,
    "easyconfigs": _easyconfigs,
    "check files": _easyconfigs,
    "site show name": _sites,
    "show name": _live_or_easyconfigs,
    "list pattern": _live,
    "verify names": _live,
    "uninstall names": _live,
    "add onto": _live,
    "layer add onto": _live,
    "help words": _explained,
    "rollback name": _known,
}


def _prefix(ctx: click.Context) -> Path:
    """The prefix from the command line, a variable, a settings file or the site; else the default."""
    if quick := quick_prefix(ctx.params.get("prefix"), os.environ):
        return Path(quick)
    said = os.environ.get("SIFMOD_PREFIX") or next(iter(_settings(ctx, "prefix")), None)
    return Path(said) if said else default_prefix(os.environ)[0]


def _trees(ctx: click.Context) -> Iterator[Path]:
    """The trees that settings name and this user can read; none with --prefix."""
    if ctx.params.get("prefix"):
        return iter(())
    texts = (*os.environ.get("SIFMOD_TREES", "").split(":"), *_settings(ctx, "user_prefix", "trees", "prefix"))
    return (Path(text) for text in texts if text.startswith("/") and os.access(f"{text}/software", os.R_OK | os.X_OK))


def _robot_paths(ctx: click.Context) -> tuple[Path, ...]:
    said = ctx.params.get("robot_paths") or os.environ.get("SIFMOD_ROBOT_PATHS") or ""
    texts = (*(part for part in said.split(":") if part), *_settings(ctx, "robot_paths"))
    return (*map(Path, texts), shipped())


def _settings(ctx: click.Context, *keys: str) -> tuple[str, ...]:
    """The values of keys in the settings files, the user's first, and then in the site file."""
    machine, user = settings_directories(os.environ)
    paths = [path for path in (user / "config.yaml", *sorted(machine.glob("*.yaml"), reverse=True)) if path.exists()]
    known = [path for directory in (user, machine) for path in sorted((directory / "sites").glob("*.yaml"))]
    if not paths and not known:
        return ()
    from sifmod.config.expand import expand_paths, texts
    from sifmod.config.yaml.parse import load_yaml

    files = [expand_paths(load_yaml(path).node, os.environ).entries for path in paths]
    named = next((str(each["site"].value) for each in files if "site" in each), "")
    site = _site(ctx.params.get("site") or os.environ.get("SIFMOD_SITE") or named, known)
    files += [expand_paths(load_yaml(site).node, os.environ).entries] if site else []
    nodes = [node for each in files for key in keys for name in (key, f"{key}+") if (node := each.get(name))]
    return tuple(str(text.value) for node in nodes for text in texts(node))


def _site(name: str, known: list[Path]) -> Path | None:
    """The site file with this name or path; without a name, the one with the most detection paths, if all exist.

    Only `known` ones, not shipped ones, which have no settings that completion needs.
    """
    if name:
        return Path(name) if "/" in name else next((path for path in known if path.stem == name), None)
    from sifmod.config.expand import texts
    from sifmod.config.limits import matches
    from sifmod.config.yaml.parse import load_yaml

    best: tuple[int, Path | None] = (0, None)
    for path in known:
        places = [text.text for text in texts(load_yaml(path).node.at("detect", "paths"))]
        if len(places) > best[0] and all(map(matches, places)):
            best = (len(places), path)
    return best[1]
