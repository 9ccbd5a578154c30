"""install --module-only --installed: apply a changed site, preset or quirk to everything that is installed."""

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from sifmod.actions.author.site import detect
from sifmod.actions.batch import Ended, run_batch
from sifmod.actions.fetch_settings import fetch_settings
from sifmod.actions.install.choose_image import ChosenImage, recorded_image, released
from sifmod.actions.install.current import difference
from sifmod.actions.install.decision import Decision, bundle_named, decide, with_image
from sifmod.actions.install.found_in_image import find_in_image
from sifmod.actions.install.hold import check_hold
from sifmod.actions.install.install import install
from sifmod.actions.install.install_easyconfigs import InstallOptions
from sifmod.actions.reporter import Reporter
from sifmod.actions.workers import OrderedWorkers, SendEvent, in_order, reporter_in_worker
from sifmod.config.detect import KEPT
from sifmod.config.find import is_there
from sifmod.config.input import OWN_VARIABLES, read_input
from sifmod.config.load_site import Kept, LoadedSite, Sites
from sifmod.config.name import ModuleName
from sifmod.config.site import Site
from sifmod.digest import sha256_bytes
from sifmod.errors import (
    EasyconfigNotFoundError,
    HeldError,
    InstallError,
    ModuleError,
    PermissionsError,
    SifmodError,
    error_of,
)
from sifmod.module.plan import Plan
from sifmod.system import planted_by
from sifmod.tree.history import read_past
from sifmod.tree.layout import Layout
from sifmod.tree.provenance import CommandLine, ImageChoice, Provenance
from sifmod.tree.receipt import Installation, live_modules, read_receipt

Options = Mapping[str, str]
Generation = tuple[int, bool] | None
"""The generation of a module, and whether it is new; None if there was nothing to do."""


class Rerendered(NamedTuple):
    """An installed module, and what a new install of it would change."""

    module: ModuleName
    number: int  # the live generation
    decided: str = ""  # a digest of the decision, for `rerender`; "" after an error
    changes: bool = False
    diff: str = ""  # of its files, like `diff -u`; "" if they stay the same, even for a different site
    note: str = ""  # that its content is held, or about its site, if it changes or is unexpected; "" otherwise
    error: SifmodError | None = None
    counts: tuple[int, int, int] = (0, 0, 0)  # files that change, lines added, lines removed


Found = tuple[Rerendered, ...]


@dataclass(frozen=True)
class RerenderContext:
    """The context that all modules of a tree share.

    `given` are options of this command line by key of the site (option.KEYS). A module keeps the properties of
    the machine of its install, and its site, unless an option, variable or settings file names one.
    """

    layout: Layout
    given: Options
    sanity: bool
    detected: str = field(default_factory=lambda: _detected())  # the detected site; "" if unknown
    sites: Sites = field(default_factory=Sites)

    @property
    def processors(self) -> int:
        """The number of modules to handle at a time; one if the site has an error, which each module reports."""
        with suppress(SifmodError):
            site = self.sites.of({**self.given, "prefix": str(self.layout.prefix)})
            return fetch_settings(site.site).processors
        return 1


def rerender_all(asked: RerenderContext) -> Iterator[Rerendered]:
    """Decide what every installed module would be now, with its own and the given options; changes nothing."""
    modules = live_modules(asked.layout)

    def shown(number: int) -> Rerendered:
        try:
            installation, decision = _decided(*modules[number], asked)
            return _rerendered(installation, decision, asked)._replace(decided=_digest(decision))
        except (SifmodError, OSError) as error:
            return Rerendered(*modules[number], error=error_of(error))

    yield from in_order(shown, len(modules), asked.processors)


def rerender(
    module: ModuleName, number: int, decided: str, asked: RerenderContext, reporter: Reporter
) -> tuple[Rerendered | None, Generation | SifmodError]:
    """Decide what a module would be now, and install it if it changed.

    Returns what would change, None if `decided` shows that the user saw it, and the outcome: the generation and whether
    it is new, or the error, or None if nothing was to do or deciding failed. `decided` is the digest of the decision
    that was shown, "" if none was. The module is decided again, because thousands of decisions would not fit into
    memory. With `decided`, raises the errors of `planned`, and InstallError if the digest differs.
    """
    one: Rerendered | None = None
    try:
        installation, decision = _decided(module, number, asked)
        one = None if decided else _rerendered(installation, decision, asked)
    except (SifmodError, OSError) as error:
        if decided:
            raise
        return Rerendered(module, number, error=error_of(error)), None
    if decided and _digest(decision) != decided:
        raise InstallError(f"{module}: its site, easyconfig or receipt changed meanwhile", "repeat the command")
    if one and not one.changes:
        return one, None
    try:
        outcome = install(decision, reporter.tree(decision.site.site), reporter)
    except (SifmodError, OSError) as error:
        return one, error_of(error)
    return one, (outcome.installation.generation, outcome.changed)


@dataclass(frozen=True)
class ReapplyRun:
    """The request, and the callbacks for each module: its preview, and its outcome."""

    asked: RerenderContext
    show: Callable[[Rerendered], None]
    ended: Callable[[ModuleName, Ended[Generation]], None]
    agree: Callable[[Found], bool] | None = None  # is asked before anything is changed
    only_shown: bool = False
    fail_fast: bool = False


def reapply_all(run: ReapplyRun, reporter: Reporter) -> Found:
    """Show the preview of every installed module, in order, and change those that differ unless `only_shown`.

    If confirmation is needed, or with `fail_fast`, which lists modules that are not tried, everything is shown before
    anything is changed. A module's failure is reported, and without `fail_fast` the others go on.
    """
    asked = run.asked
    found: list[Rerendered] = []

    def keep(one: Rerendered) -> None:
        run.show(one)
        found.append(one._replace(diff=""))  # the diffs of thousands of modules would not fit into memory

    if not (run.agree or run.only_shown or run.fail_fast):
        next(rerender_all(asked), None)  # read what all modules share before the workers are forked
        _apply([(*one, "") for one in live_modules(asked.layout)], run, keep, reporter)
        return tuple(found)
    for one in rerender_all(asked):
        keep(one)
    if (run.agree is None or run.agree(tuple(found))) and not run.only_shown:
        _apply([(one.module, one.number, one.decided) for one in found if one.changes], run, keep, reporter)
    return tuple(found)


def _apply(
    modules: Sequence[tuple[ModuleName, int, str]],
    run: ReapplyRun,
    keep: Callable[[Rerendered], None],
    reporter: Reporter,
) -> None:
    """Change modules, each given by its name, its generation and the digest of its preview ("" if it is shown now).

    All are reported in order. With `fail_fast` each one starts after the one before it has finished.
    """
    warned: set[str] = set()  # of one worker, which says a warning about all modules once

    def in_worker(number: int, tell: SendEvent) -> object:
        own_reporter = replace(reporter_in_worker(number, tell, reporter.command), warned=warned)
        return rerender(*modules[number], run.asked, own_reporter)

    def done(number: int) -> Generation:
        one: Rerendered | None
        result: Generation | SifmodError
        one, result = ahead.result(number, reporter.say)
        if one:
            keep(one)
        if isinstance(result, SifmodError):
            raise result
        return result

    jobs = 1 if run.fail_fast else 2 * run.asked.processors  # a worker waits for the disk much of its time
    with closing(OrderedWorkers(in_worker, len(modules), jobs)) as ahead:
        for number, end in run_batch(range(len(modules)), done, fail_fast=run.fail_fast):
            run.ended(modules[number][0], end)
    # after an interruption: modules that finished while another one was waited for
    for number, end in run_batch(sorted(ahead.finished), done):
        run.ended(modules[number][0], end)


def planned(installation: Installation) -> tuple[Plan, Site]:
    """The plan and site that the easyconfig of an installation gives now, with its own options; changes nothing.

    If the easyconfig is gone or unreadable, the copy in the module is used, which may lack the files that it extends.
    Raises OSError, ModuleError if the image is gone or the easyconfig is now another module's, PermissionsError as
    `check_not_planted`, and the errors of `decide` and `find_in_image`.
    """
    made = installation.provenance
    if not os.access(made.easyconfig, os.R_OK):
        made = made._replace(easyconfig=f"{installation.root}/easyconfig.yaml")
        installation = replace(installation, provenance=made)
    prefix = str(installation.prefix)
    decision = _decision(installation, RerenderContext(Layout(Path(prefix)), {}, sanity=True, detected=""))
    return _plan(installation, decision), decision.site.site


def _plan(installation: Installation, decision: Decision) -> Plan:
    """The plan, completed with the results from the existing image. Raises the errors of `find_in_image`."""
    if decision.plan.image is None:
        return decision.plan
    image = ChosenImage(recorded_image(installation), ImageChoice(""))
    return decision.plan_with(find_in_image(decision.plan, installation, image)[0])


def _detected() -> str:
    try:
        return detect(os.environ).name
    except SifmodError:
        return ""  # load_site reports it if it matters


def _digest(decision: Decision) -> str:
    return sha256_bytes(repr((decision.plan, decision.site.site)).encode())


def _decided(module: ModuleName, number: int, asked: RerenderContext) -> tuple[Installation, Decision]:
    root = asked.layout.generation(module, number)
    if (installation := read_receipt(root)) is None:
        raise InstallError(
            f"{module}: the receipt in {root} is missing or cannot be read",
            "`sifmod install --rebuild` of its easyconfig creates a new generation",
        )
    return installation, _decision(installation, asked)


def _rerendered(installation: Installation, decision: Decision, asked: RerenderContext) -> Rerendered:
    made, diff = installation.provenance, difference(installation, _plan(installation, decision))
    changes = bool(diff.text) or made.site != decision.site.site.name
    try:
        if changes:
            check_hold(read_past(asked.layout, installation.module), decision)
    except HeldError as held:
        note = f"{held.message}; {held.hint}"
        return Rerendered(installation.module, installation.generation, note=note)
    note = _note(made, decision.site, asked.detected)
    module, generation, counts = installation.module, installation.generation, diff[1:]
    return Rerendered(module, generation, "", changes, diff.text, note, counts=counts)


def _decision(installation: Installation, asked: RerenderContext) -> Decision:
    """Decide the original install again, with the installed image. Raises the errors of `decide`, ModuleError."""
    made = installation.provenance
    path = Path(made.easyconfig)
    if not is_there(path):
        copy = shlex.join(("cp", f"{installation.root}/easyconfig.yaml", str(path)))
        raise EasyconfigNotFoundError(
            f"{installation.module}: its easyconfig {path} is gone",
            f"restore it from the copy in the module: {shlex.join(('mkdir', '-p', str(path.parent)))} && {copy}",
        )
    given, options = _options(installation, asked)
    facts = dict(made.facts)
    variable = facts.get(f"{OWN_VARIABLES}SIFMOD_SITE", "")  # for a site file outside the site directories
    known = os.path.abspath(variable) if "/" in variable else made.site  # noqa: PTH100 (a link stays one)
    with bundle_named(path):
        site = asked.sites.of(given, Kept(known, facts))
    check_not_planted(installation, path, site.site.robot_paths)
    decision = decide(str(path), site, options)
    if decision.plan.image:
        artifact = recorded_image(installation)
        decision = with_image(decision, artifact)
        if not artifact.path.is_file() and not released(installation, decision.plan):
            raise ModuleError(
                f"{installation.module}: its image {artifact.path} is gone, and this command fetches nothing",
                f"`sifmod install {path}` fetches it again",
            )
    if decision.plan.module != installation.module:
        raise ModuleError(
            f"{installation.module}: its easyconfig {path} now gives {decision.plan.module}",
            f"sifmod install {path}; then sifmod uninstall {installation.module}",
        )
    return decision


def check_not_planted(installation: Installation, easyconfig: Path, trusted: tuple[Path, ...]) -> None:
    """Raise PermissionsError if another user has replaced an easyconfig, or a file that an install read, as in /tmp.

    One with the recorded content may be anybody's, and so may one below the `trusted` directories, the site's.
    """
    owner = owner_of(installation)
    seen = {one.path: one.sha256 for one in installation.provenance.inputs if one.path.startswith("/")}
    for path in dict.fromkeys((str(easyconfig), *seen)):
        ours = any(Path(path).is_relative_to(one) for one in trusted)
        who = "" if ours else planted_by(Path(path), owner)
        if who and os.path.isfile(path) and read_input(path, os.environ).sha256 != seen.get(path):  # noqa: PTH113 (a text)
            raise PermissionsError(
                f"{installation.module}: {path} is now a file of {who}, who may not be its author",
                f"if you trust it, install {easyconfig} by its path",
            )


def owner_of(installation: Installation) -> int:
    """The id of the user who installed a generation, -1 if it is gone."""
    with suppress(OSError):
        return os.stat(installation.root).st_uid  # noqa: PTH116 (a text)
    return -1


def _options(installation: Installation, asked: RerenderContext) -> tuple[dict[str, str], InstallOptions]:
    """The site options, and the install options: the module's own, overridden by the given ones."""
    made = installation.provenance
    recorded = {name[2:].replace("-", "_"): value for name, value in made.asked.options}
    texts = {**recorded, **{key: value for key, value in asked.given.items() if key != "prefix"}}
    named = tuple((f"--{key.replace('_', '-')}", value) for key, value in texts.items())
    options = InstallOptions(
        variant=made.variant,
        source=recorded.get("source"),
        rebuild=True,
        if_different=installation.generation,
        module_only=True,
        asked=CommandLine(options=named, checked=asked.sanity and made.asked.checked),
    )
    return {**texts, "prefix": str(asked.layout.prefix)}, options


def _note(made: Provenance, site: LoadedSite, detected: str) -> str:
    """A note about the module's site: it changes, or it stays although this machine looks different."""
    name = site.site.name
    how = next(origin.origin for origin in site.origins if origin.key == "site")
    if name != made.site:
        return f"its site changes from {made.site} to {name}, {how}"
    if how == KEPT and detected not in ("", name):
        return f"its site stays {name}, though this machine looks like {detected}; --site NAME changes it"
    return ""
