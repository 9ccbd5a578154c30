"""What a verb starts from: the site, and the tree in its prefix."""

import os
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sifmod.cli.output import ask, say
from sifmod.cli.shared_options import SITE_KEYS, Given
from sifmod.config.name import ModuleName
from sifmod.config.shown import shown
from sifmod.errors import ModuleError, OptionError
from sifmod.tree.durable import check_readable
from sifmod.tree.layout import Layout

if TYPE_CHECKING:
    from sifmod.actions.reporter import Reporter
    from sifmod.config.load_site import LoadedSite
    from sifmod.image.artifact import Progress


def typed() -> str:
    """The command line as it was typed, for the log: without the passwords and signatures of sources."""
    words = ["sifmod"]
    for word in click.get_current_context().obj.words:
        option, sign, value = word.partition("=")
        words.append(f"{option}={shown(value)}" if sign and option.startswith("--") else shown(word))
    return shlex.join(words)


def reporter(speak: Callable[[str], None] = say, progress: "Progress | None" = None) -> "Reporter":
    """What an action tells by; with a progress it may ask too."""
    from sifmod.actions.reporter import Reporter

    return Reporter(speak, progress, ask, typed()) if progress else Reporter(speak, command=typed())


def load_context(options: Given) -> "LoadedSite":
    """The site with the command line's options on top (docs/design.md, section 10), whose limits hold from now on.

    Raises ConfigError, OptionError.
    """
    from sifmod.config.limits import use_limits
    from sifmod.config.load_site import load_site

    loaded = load_site({name: options[name] for name in SITE_KEYS if options.get(name) is not None}, os.environ)
    use_limits(loaded.site.limits)
    return loaded


def load_facts(options: Given) -> "LoadedSite":
    """The same for a verb that installs nothing: quirks are not read, and a site file that cannot be is a warning."""
    loaded = load_context(options)
    for problem in loaded.left_out:
        say(f"warning: {problem}")
    return loaded.without_quirks()


def tree(prefix: Path, *, named: bool = False) -> Layout:
    """The tree of a prefix. Raises OptionError where a file is in its place or in its way.

    Raises PermissionsError where this user may not read it, unless it is only `named`.
    """
    in_the_way = next((place for place in (prefix, *prefix.parents) if place.exists()), prefix)
    if in_the_way.exists() and not in_the_way.is_dir():
        raise OptionError(f"the prefix {prefix} cannot be a directory: {in_the_way} is a file")
    if not named:
        check_readable(prefix)
    return Layout(prefix)


def layout_for(prefix: str | None, *, named: bool = False) -> Layout:
    """The tree of the prefix given or configured; reads configuration files only when they decide the prefix."""
    from sifmod.config.prefix import quick_prefix

    quick = quick_prefix(prefix, os.environ)
    return tree(Path(quick if quick else load_context({"prefix": prefix}).site.prefix), named=named)


def live(layout: Layout) -> list[ModuleName]:
    """The modules that can be loaded."""
    from sifmod.tree.receipt import live_modules

    return [module for module, _ in live_modules(layout)]


def resolve(name: str, known: Iterable[ModuleName], look: str = "`sifmod list` shows what is installed") -> ModuleName:
    """The module called `name`: in full (`PyTorch/2.2.0-…`), or any beginning that only one module has.

    The spelling of an easyconfig's file (`PyTorch-2.2.0-….yaml`) is understood too. Raises ModuleError,
    whose hint is `look` where nothing is like it.
    """
    modules = sorted(known)
    wanted = name.removesuffix(".yaml")
    exact = [module for module in modules if wanted in (str(module), f"{module.name}-{module.version}")]
    begins = [m for m in modules if str(m).startswith(wanted) or f"{m.name}-{m.version}".startswith(wanted)]
    found = exact or begins
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        listed = "\n".join(f"  {module}" for module in found)
        raise ModuleError(f"`{name}` can be any of\n{listed}", "give more of the name")
    import difflib

    close = difflib.get_close_matches(name, [str(module) for module in modules], n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(close)}?" if close else look
    raise ModuleError(f"no module is called `{shown(name)}`", hint)
