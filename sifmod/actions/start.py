"""The start of a use case: the current site, the tree in its prefix, and the module of a name."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sifmod.config.name import ModuleName
from sifmod.errors import ModuleError, OptionError, PermissionsError
from sifmod.module.quote import shell
from sifmod.tree.explain import check_readable
from sifmod.tree.layout import RECEIPT, Layout

if TYPE_CHECKING:
    from sifmod.config.load_site import LoadedSite
    from sifmod.config.site import Site
    from sifmod.tree.receipt import Installation


def site_in_force(given: Mapping[str, str]) -> "LoadedSite":
    """The site in force with the options `given`, by key of option.KEYS; its limits hold in this process from now on.

    Raises ConfigError, OptionError.
    """
    from sifmod.config.limits import use_limits
    from sifmod.config.load_site import load_site

    loaded = load_site(given, os.environ)
    use_limits(loaded.site.limits)
    return loaded


def layout_at(prefix: Path, *, named: bool = False) -> Layout:
    """The tree of a prefix. Raises OptionError as `Layout` does, or if a file is in its place or in its way.

    Raises PermissionsError if this user may not read it, unless the caller only names it (`named`).
    """
    in_the_way = next((place for place in (prefix, *prefix.parents) if place.exists()), prefix)
    if in_the_way.exists() and not in_the_way.is_dir():
        raise OptionError(f"the prefix {prefix} cannot be a directory: {in_the_way} is a file")
    if not named:
        check_readable(prefix)
    return Layout(prefix)


def layout_for(prefix: str | None) -> Layout:
    """The tree of the prefix given or configured; reads configuration files only when they decide the prefix."""
    from sifmod.config.prefix import quick_prefix

    if quick := quick_prefix(prefix, os.environ):
        return layout_at(Path(quick))
    return layout_at(site_in_force({"prefix": prefix} if prefix is not None else {}).site.prefix)


def trees_for(prefix: str | None, *, named: bool = False) -> tuple[Layout, ...]:
    """The tree of `layout_for`, then the other trees whose modules this user loads (`trees` of the settings)."""
    from sifmod.config.prefix import other_places, quick_prefix, quick_trees

    quick, others = quick_prefix(prefix, os.environ), quick_trees(os.environ)
    if quick and others is not None:
        return (layout_at(Path(quick), named=named), *map(Layout, other_places(others, Path(quick))))
    site = site_in_force({"prefix": prefix} if prefix is not None else {}).site
    return (layout_at(site.prefix, named=named), *map(Layout, site.trees))


def unreadable(trees: Iterable[Layout]) -> dict[Layout, str]:
    """The trees in which no command finds a module: missing, without modules or closed to this user; and why."""
    found = {}
    for one in trees:
        try:
            check_readable(one.prefix)
            if not is_readable(one):
                found[one] = (
                    f"the tree {one.prefix} of the settings (`trees`) is not there, has no modules, or is closed to "
                    "this user"
                )
        except PermissionsError as error:
            found[one] = error.message
    return found


def is_readable(tree: Layout) -> bool:
    """Whether this user can read the modules of a tree."""
    return os.access(tree.software, os.R_OK | os.X_OK)


def live_names(layout: Layout) -> list[ModuleName]:
    """The modules with a live generation, sorted by name, retired ones included."""
    from sifmod.tree.receipt import live_modules

    return [module for module, _ in live_modules(layout)]


def installed(layout: Layout, module: ModuleName) -> "Installation":
    """The live installation; raises ModuleError if there is none or its receipt cannot be read."""
    from sifmod.tree.receipt import live_number, read_receipt

    number = live_number(layout, module)
    if number is None:
        raise ModuleError(f"{module} is not installed in {layout.prefix}", "`sifmod list` shows what is installed")
    root = layout.generation(module, number)
    installation = read_receipt(root)
    if installation is None:
        raise ModuleError(
            f"the receipt of {module}, {root / RECEIPT}, is missing or cannot be read",
            "`sifmod install --rebuild` with its easyconfig creates a new generation",
        )
    return installation


def resolve_own(name: str, known: Iterable[ModuleName], site: "Site") -> ModuleName:
    """Like `resolve`, for a command that changes the site's prefix; the error says if another of its trees is meant."""
    try:
        return resolve(name, known)
    except ModuleError as error:
        raise _elsewhere(name, site) or error from None


def _elsewhere(name: str, site: "Site") -> ModuleError | None:
    for other in filter(is_readable, map(Layout, site.trees)):
        with suppress(ModuleError):
            message = f"{resolve(name, live_names(other))} is in {other.prefix}, and this command changes {site.prefix}"
            return ModuleError(message, f"`--prefix {shell(str(other.prefix))}` names the other tree")
    return None


def resolve(name: str, known: Iterable[ModuleName], look: str = "`sifmod list` shows what is installed") -> ModuleName:
    """The module called `name`: in full (`PyTorch/2.2.0-…`), or any beginning that only one module has.

    The spelling of an easyconfig's file (`PyTorch-2.2.0-….yaml`) is understood too. Raises ModuleError, whose hint is
    `look` if there are no similar names.
    """
    modules = sorted(known)
    wanted = name.removesuffix(".yaml")
    exact = [module for module in modules if wanted in (str(module), f"{module.name}-{module.version}")]
    begins = [m for m in modules if str(m).startswith(wanted) or f"{m.name}-{m.version}".startswith(wanted)]
    found = exact or (begins if wanted else [])  # an empty variable of a script names none
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        listed = "\n".join(f"  {module}" for module in found)
        raise ModuleError(f"`{name}` can be any of\n{listed}", "give more of the name")
    import difflib

    from sifmod.config.redact import shown

    close = difflib.get_close_matches(name, [str(module) for module in modules], n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(close)}?" if close else look
    raise ModuleError(f"no module is called `{shown(name)}`", hint)
