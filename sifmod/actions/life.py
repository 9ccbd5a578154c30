"""default, hide, deprecate, retire: decisions of staff about installed modules."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Annotated, NamedTuple

from sifmod.actions.changing_prefix import changing_prefix
from sifmod.actions.hooks import run_hooks
from sifmod.actions.log import record_beside
from sifmod.actions.reporter import Reporter
from sifmod.actions.spider_cache import refresh_spider_cache
from sifmod.actions.start import layout_at, live_names, resolve, resolve_own
from sifmod.actions.view_modules import broken_views
from sifmod.config.hook import Moment
from sifmod.config.name import ModuleName
from sifmod.config.redact import has_login, secret_parameter
from sifmod.config.site import Site
from sifmod.errors import FullError, ModuleError, OptionError
from sifmod.result import Described, Internal
from sifmod.tree.durable import content
from sifmod.tree.generation import tidy
from sifmod.tree.layout import Layout
from sifmod.tree.life import (
    Deprecated,
    Life,
    ModuleLife,
    NameLife,
    Retired,
    checked_text,
    decided_names,
    read_life,
    retirement,
    today,
)
from sifmod.tree.locking import Tree
from sifmod.tree.log import Done
from sifmod.tree.receipt import live_number
from sifmod.tree.write_life import Written, commands, life_lock, write_life, written


class DecidedModule(NamedTuple):
    """A module about which something was decided."""

    module: ModuleName
    changed: Annotated[bool, Described("whether any file was written")]
    life: ModuleLife
    views: Annotated[tuple[ModuleName, ...], Described("views that load the module, and no longer load")]
    changes: Internal[tuple[tuple[ModuleName, str], ...]]  # of every module with its name


@dataclass(frozen=True)
class Default:
    """A load without a version loads the module `name`; with `none` the module system decides what it loads."""

    name: str
    none: bool = False


@dataclass(frozen=True)
class Hide:
    """The modules are left out of `module avail`; `undo`: they are shown again."""

    names: tuple[str, ...]
    undo: bool = False


@dataclass(frozen=True)
class Deprecate:
    """The modules will be retired: a notice says when, and what to use instead; `undo`: it ends."""

    names: tuple[str, ...]
    undo: bool = False
    since: date | None = None  # None: the earlier date if there is one, or today
    until: date | None = None  # the last day on which they load; None, or no message: the earlier one if there is one
    message: str = ""


@dataclass(frozen=True)
class Retire:
    """From `since` on (by default today, or as before) the modules cannot be loaded; `undo`: they can be again."""

    names: tuple[str, ...]
    undo: bool = False
    since: date | None = None  # None: the earlier date if there is one, or today
    successor: str = ""  # the module to use instead; "", or no message: the earlier one if there is one
    message: str = ""


LifeRequest = Default | Hide | Deprecate | Retire


def decide_lives(
    request: LifeRequest, site: Site, reporter: Reporter, decided: Callable[[DecidedModule], None] = lambda _: None
) -> tuple[DecidedModule, ...]:
    """Decide about the lives of modules, and refresh Lmod's cache if anything changed; `decided` receives each result.

    With `undo` a module need not be installed. Idempotent. Raises ModuleError, OptionError, what `update_life` raises.
    """
    layout = layout_at(site.prefix)
    known = live_names(layout)
    names: tuple[str, ...]
    if isinstance(request, Default):
        names = (_any_of(layout, request.name, known) if request.none else request.name,)
    else:
        names = request.names
    if isinstance(request, Retire) and request.successor:
        request = replace(request, successor=str(resolve(request.successor, known)))
    undo = not isinstance(request, Default) and request.undo
    decidable = (*known, *(_not_installed(layout) if undo else ()))
    modules = [resolve_own(name, decidable, site) for name in names]
    rows: list[DecidedModule] = []
    before = _life_files(layout, modules)
    with changing_prefix(site):
        try:
            for module in modules:
                done = update_life(layout, module.name, partial(_changed, request, module), site, reporter)
                now = done.life.of_module(module.version)
                views = broken_views(layout, module) if done.changed else ()
                rows.append(DecidedModule(module, done.changed, now, views, done.changes))
                decided(rows[-1])
        finally:  # an error does not undo earlier decisions, nor a failed after_retire its own
            if any(row.changed for row in rows) or _life_files(layout, modules) != before:
                refresh_spider_cache(layout, site, reporter)
    return tuple(rows)


def _life_files(layout: Layout, modules: Iterable[ModuleName]) -> tuple[bytes | None, ...]:
    return tuple(content(layout.life(module.name), top=layout.prefix) for module in modules)


def _changed(request: LifeRequest, module: ModuleName, life: NameLife) -> NameLife:
    one = life.of(module.version)
    match request:
        case Default(none=none):
            return life._replace(default=None if none else module.version)
        case Hide(undo=undo):
            one = one._replace(hidden=not undo)
        case Deprecate(undo=True):
            one = one._replace(deprecated=None)
        case Deprecate(_, _, since, until, message):
            was = one.deprecated or Deprecated(today())
            now = Deprecated(since or was.since, until or was.until, message or was.message)
            one = one._replace(deprecated=now)
        case Retire(undo=True):
            if one.deprecated and one.deprecated.until and one.deprecated.until < today():
                one = one._replace(deprecated=one.deprecated._replace(until=None))
            one = one._replace(retired=None)
        case Retire(_, _, since, successor, message):
            before = one.retired or Retired(today())
            then = Retired(since or before.since, successor or before.successor, message or before.message)
            one = one._replace(retired=then)
    return life.with_life(module.version, one)


def _any_of(layout: Layout, name: str, known: list[ModuleName]) -> str:
    """The default module of this name, or else any of this name; the name itself if none is known."""
    there = [module for module in known if module.name == name]
    default = read_life(layout, name).default if there else None
    return next((str(module) for module in there if module.version == default), str(there[0]) if there else name)


def _not_installed(layout: Layout) -> Iterator[ModuleName]:
    """The modules that have decisions and are not installed."""
    for name in decided_names(layout):
        for module in (ModuleName(name, version) for version in read_life(layout, name).versions):
            if live_number(layout, module) is None:
                yield module


class LifeChange(NamedTuple):
    """The result of a change: the new life, the changes by module, and whether any file was written."""

    life: NameLife
    changes: tuple[tuple[ModuleName, str], ...]
    changed: bool


def change_life(layout: Layout, name: str, wanted: NameLife, site: Site, reporter: Reporter) -> LifeChange:
    """Set the life of all modules of this name. Idempotent. See `update_life`."""
    return update_life(layout, name, lambda _life: wanted, site, reporter)


def update_life(
    layout: Layout, name: str, change: Callable[[NameLife], NameLife], site: Site, reporter: Reporter
) -> LifeChange:
    """Change the decisions about the modules of this name, their notices, and the files of the module system.

    If there is nothing to write, no lock is taken. A `.modulerc` that sifmod did not write is kept, with a warning.
    After a kill everything is as before, or the next run completes it. Raises ModuleError for a default that is not
    installed, OptionError for contradictory decisions, InstallError, PermissionsError or LockError.
    """

    def checked(before: NameLife) -> NameLife:
        after = change(before)
        if after.default == before.default and _is_missing(layout, name, after.default):
            after = after._replace(default=None)  # a full disk kept it when its module was uninstalled
        _check(layout, name, before, after)
        return after

    tree = Tree(layout, site.lock_lease, reporter.waiting)
    tidy(tree)
    done = written(layout, name, checked)
    if done is None:
        with life_lock(tree, name) as held:
            before = read_life(layout, name)
            _hooks(site, "before_retire", differences(name, before, checked(before)), reporter)
            done = write_life(layout, name, checked, held)
    _tell(done, reporter)
    changes = tuple(differences(name, done.before, done.after))
    for module, what in changes:
        number = live_number(layout, module)
        record_beside(tree, Done(what, module, number, number), reporter)
    _hooks(site, "after_retire", iter(changes), reporter)
    return LifeChange(done.after, changes, done.changed)


def forget_life(tree: Tree, module: ModuleName, reporter: Reporter) -> bool:
    """Remove an uninstalled module from the decisions; returns whether it was the default. Idempotent."""
    layout = tree.layout

    def without(life: NameLife) -> NameLife:
        return life.without(module.version)

    done = written(layout, module.name, without)
    if done is None:
        try:
            with life_lock(tree, module.name) as held:
                done = write_life(layout, module.name, without, held)
        except FullError as error:
            was = read_life(layout, module.name).default == module.version
            again = f"`sifmod default --none {module.name}`" if was else f"the next decision about {module.name}"
            reporter.say(f"warning: {error.short}; {again} removes its decisions when there is space")
            return was
    _tell(done, reporter)
    return done.before.default == module.version


def _hooks(site: Site, moment: Moment, changes: Iterator[tuple[ModuleName, str]], reporter: Reporter) -> None:
    """Run the site's hooks of this moment for each module that the changes retire."""
    for module in (module for module, what in changes if what == "retired" and site.hooks):
        run_hooks(site, moment, {"module": str(module)}, reporter.say)


def _check(layout: Layout, name: str, before: NameLife, life: NameLife) -> None:
    check_life(name, before, life)
    if _is_missing(layout, name, life.default):
        raise ModuleError(
            f"{name}/{life.default} is not installed, so it cannot be the default",
            "`sifmod list` shows the installed modules",
        )


def _is_missing(layout: Layout, name: str, version: str | None) -> bool:
    return version is not None and live_number(layout, ModuleName(name, version)) is None


def check_life(name: str, before: NameLife, life: NameLife) -> None:
    """Raise OptionError for a message that is none, and for decisions that contradict each other."""
    for version, one in life.versions.items():
        said = [one.deprecated.message] if one.deprecated else []
        said += [one.retired.message, one.retired.successor] if one.retired else []
        try:
            for text in said:
                checked_text(text)
                if has_login(text) or secret_parameter(text):
                    raise ValueError("the message contains a login or token, which all users would read")
        except ValueError as error:
            raise OptionError(f"{name}/{version}: {error}") from error
        if one.retired and one.retired.successor == f"{name}/{version}":
            raise OptionError(f"{name}/{version} cannot be its own successor")
        if one.deprecated and one.deprecated.until and one.deprecated.until < one.deprecated.since:
            raise OptionError(
                f"{name}/{version} cannot be deprecated until {one.deprecated.until}, which is before"
                f" {one.deprecated.since}",
                "`--until` is the last day on which it loads; `sifmod retire` retires it now",
            )
    if life.default is None:
        return
    module, one = ModuleName(name, life.default), life.of(life.default)
    if life.default != before.default and one.refused_from and one.refused_from <= today():
        hint = f"`sifmod retire --undo {module}` makes it loadable again"
        raise OptionError(f"{module} cannot be the default: {retirement(module, one)}", hint)
    if one.hidden or one.retired:
        state, verb = ("retired", "retire") if one.retired else ("hidden", "hide")
        raise OptionError(
            f"{module} cannot be the default and {state}",
            f"run `sifmod {verb} --undo {module}` first, or change the default: `sifmod default --none {name}`",
        )


def differences(name: str, before: NameLife, after: NameLife) -> Iterator[tuple[ModuleName, str]]:
    """Each module whose life changes, and the change in the words of the log."""
    words: tuple[tuple[Callable[[Life], object], str, str], ...] = (
        (lambda life: life.hidden, "hidden", "shown"),
        (lambda life: life.deprecated, "deprecated", "no longer deprecated"),
        (lambda life: life.retired, "retired", "no longer retired"),
        (lambda life: life.labels, "labelled", "no longer labelled"),
    )
    for version in sorted(before.versions.keys() | after.versions.keys()):
        for part, begun, ended in words:
            if (now := part(after.of(version))) != part(before.of(version)):
                yield ModuleName(name, version), begun if now else ended
    if before.default != after.default:
        if after.default:
            yield ModuleName(name, after.default), "made the default"
        elif before.default:
            yield ModuleName(name, before.default), "no longer the default"


def _tell(done: Written, reporter: Reporter) -> None:
    for kept in done.kept:
        reporter.say(f"warning: {kept.path} was edited or not written by sifmod, so it was kept; it needs these lines:")
        for line in commands(kept.text):
            reporter.say(f"  {line}")
