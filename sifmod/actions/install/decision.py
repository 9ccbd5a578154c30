"""A Decision: everything about an install that is decided before it changes anything."""

import json
import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from sifmod import __version__
from sifmod.actions.hooks import OfInstall, of_image
from sifmod.actions.install.install_easyconfigs import InstallOptions
from sifmod.actions.lock import Lock, LockedImage, LockedModule, check_image, differing_inputs
from sifmod.actions.search import find_all
from sifmod.actions.sources import check_sources
from sifmod.config.bind import lint_binds
from sifmod.config.find import is_path, name_of, own_path, places_before
from sifmod.config.input import Input, read_input
from sifmod.config.kinds import syntax_of
from sifmod.config.load_easyconfig import LoadedEasyconfig, load_easyconfig, with_digests
from sifmod.config.load_site import LoadedSite
from sifmod.config.mpi_profile import wanted_mpi
from sifmod.config.prefix import BUNDLE, is_from_bundle
from sifmod.config.variants import Overrides, variants_for
from sifmod.config.word import resolve_easyconfig
from sifmod.digest import sha256_bytes, sha256_file
from sifmod.errors import ConfigError, InstallError, OptionError
from sifmod.image.artifact import Artifact
from sifmod.image.sources.source_kinds import local_files, references
from sifmod.module.deciding import FORMAT, deciding_data, image_data
from sifmod.module.image_origin import ImageOrigin
from sifmod.module.make_plan import NOT_LOOKED, Choices, InImage, make_plan
from sifmod.module.plan import Plan
from sifmod.module.quote import shell
from sifmod.module.render import render, render_stub
from sifmod.tree.explain import check_readable
from sifmod.tree.layout import Layout
from sifmod.tree.provenance import FileState, ImageChoice, Provenance, file_state, has_state
from sifmod.tree.receipt import live, matches, numbers, read_receipt
from sifmod.tree.stored_image import stored_at


@dataclass(frozen=True)
class Decision:
    """A decided install: the plan, its easyconfig and its inputs.

    Derived values are computed once, at their first use; a copy (`replace`) computes them again.
    """

    loaded: LoadedEasyconfig
    site: LoadedSite
    options: InstallOptions
    choices: Choices
    plan: Plan  # without the results from the image: see `plan_with`
    inputs: tuple[Input, ...]  # every file and variable that was read
    locked: LockedModule | None = None  # the install gives exactly this, or fails
    differing: str = ""  # inputs that differ from the lock, for a note; only rendered files must match

    @cached_property
    def image(self) -> ImageChoice:
        """The request for the image; its local files are read at the first use. Raises FetchError, OptionError."""
        return image_request(self.plan, self._states_of_locked(), self.locked.digest if self.locked else "")

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of all that decides the installation."""
        return plan_digest(self.plan, self.image.request)

    @cached_property
    def provenance(self) -> Provenance:
        """The provenance for the receipt of an installation made now."""
        return Provenance(
            sifmod=__version__,
            easyconfig=own_path(self.loaded.path),
            version=self.plan.version,
            variant=self.loaded.variant,
            site=self.site.site.name,
            accelerator=self.plan.accelerator,
            inputs=self.inputs,
            facts=self.site.facts,
            asked=self.options.asked,
            image=self.image,
            plan_digest=self.digest,
        )

    @cached_property
    def hooked(self) -> OfInstall:
        """The payload for hooks before image and generation exist."""
        plan = self.plan
        return {
            "module": str(plan.module),
            "easyconfig": str(self.loaded.path.absolute()),
            "variant": self.loaded.variant,
            "accelerator": plan.accelerator,
            "module_only": self.options.module_only,
            "loads": list(plan.modules),
            "image": of_image(plan.image) if plan.image else None,
            "wrappers": [wrapper.name for wrapper in plan.wrappers],
            "binds": [str(bind) for bind in plan.binds],
            "env": dict(plan.env),
            "host_env": dict(plan.host_env),
            "license": self.loaded.easyconfig.license,
            "contents": dict(plan.help.contents),
            "generation": None,
            "path": None,
        }

    def _states_of_locked(self) -> Iterator[tuple[FileState, ...]]:
        """The states of the locked image's local files, as recorded by each generation with it, also in `stores`."""
        module = self.plan.module
        for layout in map(Layout, (self.site.site.prefix, *self.stores) if self.locked else ()):
            for number in numbers(layout, module):
                made = read_receipt(layout.generation(module, number))
                if made and self.locked and made.image_sha256 == self.locked.digest:
                    yield made.provenance.image.states

    @property
    def stores(self) -> tuple[Path, ...]:
        """Other prefixes that may have the image: those of the options, then those of the site."""
        return (*self.options.stores, *self.site.site.stores)

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings for the easyconfig's author: skipped sources, inputs unlike the lock's, and questionable binds."""
        problems = (*lint_binds(self.site.tree), *lint_binds(self.loaded.tree))
        since = "the module is installed if all of its files match the lock"
        other = (f"note: changed since the lock was written: {self.differing}; {since}",) if self.differing else ()
        return (*self.loaded.notes, *other, *(f"warning: {problem}" for problem in problems))

    @cached_property
    def offered(self) -> dict[str, tuple[str, ...]]:
        """For each module that a view loads, the commands that install it from the local easyconfigs."""
        robot_paths = self.site.site.robot_paths
        commands: dict[str, tuple[str, ...]] = dict.fromkeys(self.plan.modules, ())
        for found in find_all(robot_paths, lambda: self.site, os.environ):
            for one in found.variants:
                if one.fits(self.site.site.accelerator, self.site.site.arch):
                    variant = f" --variant {shell(one.variant)}" if one.variant else ""
                    command = f"sifmod install {shell(name_of(found.path, robot_paths))}{variant}"
                    commands |= {
                        name: (*known, command) for name, known in commands.items() if matches(name, one.module)
                    }
        return commands

    def plan_with(self, found: InImage) -> Plan:
        """The plan, completed with the results from its image."""
        choices = replace(self.choices, found=found)
        return make_plan(self.loaded.easyconfig, self.site.site, choices, self.loaded.quirks, self.loaded.bases)


def decide(easyconfig: str, site: LoadedSite, options: InstallOptions) -> Decision:
    """Find and load an easyconfig by its path or name, and plan its install. Reads the live receipt, writes nothing.

    Raises OSError, EasyconfigNotFoundError, ConfigError, VariantError, OptionError, PermissionsError.
    """
    path = resolve_easyconfig(easyconfig, site.site)
    options = replace(options, asked=options.asked._replace(name="" if is_path(easyconfig) else easyconfig))
    source: Overrides = {"image.sources": (options.source,)} if options.source is not None else {}
    with bundle_named(path):
        loaded = load_easyconfig(path, site, options.variant, source, os.environ)
    check_sources(loaded)
    layout = Layout(site.site.prefix)  # an unusable prefix is refused before anything is done
    check_readable(layout.prefix)
    before = live(layout, loaded.easyconfig.module)
    if before is not None and before.image:  # probably the image of this install too
        loaded = with_digests(loaded, site, _digests(before.image.sha256, before.image.origin))
    path, robot_paths = Path(os.path.realpath(loaded.path)), site.site.robot_paths
    found = any(path.is_relative_to(os.path.realpath(directory)) for directory in robot_paths)
    given = {"--variant": loaded.variant, **dict(options.asked.options)}
    # without --prefix: a module finds its prefix when it is used
    words = [path.name if found else str(path)]
    for name, value in given.items():
        words += [name, value] if value else []
    mpi, mpi_inputs = wanted_mpi(loaded.easyconfig, site.site, os.environ)
    choices = Choices(
        shlex.join(words),
        site.site.link,
        options.offline,
        # keep installed syntaxes, so that a shell that loaded the module can unload it after a reinstall
        frozenset(syntax_of(stub.path) for stub in before.stubs) if before else frozenset(),
        mpi,
    )
    plan = make_plan(loaded.easyconfig, site.site, choices, loaded.quirks, loaded.bases)
    # files that do not exist now, but would take precedence over this easyconfig for the typed name
    nearer = places_before(loaded.path, options.asked.name, robot_paths)
    looked_at = [read_input(str(place), os.environ) for place in nearer]
    inputs = (*site.inputs, *site.quirk_inputs, *loaded.inputs, *mpi_inputs, *looked_at)
    return Decision(loaded, site, options, choices, plan, tuple(dict.fromkeys(inputs)))


@contextmanager
def bundle_named(easyconfig: Path) -> Iterator[None]:
    """Say in an error about settings or variables how the easyconfig of a bundle is installed again."""
    try:
        yield
    except (ConfigError, OptionError) as error:
        if BUNDLE not in os.environ and is_from_bundle(easyconfig):
            again = "`sifmod stack apply --bundle FILE` installs it again, with the bundle's settings and variables"
            error.hint = f"{easyconfig} is from a bundle: {again}{error.hint and f'; {error.hint}'}"
        raise


def with_image(decision: Decision, image: Artifact | LockedImage) -> Decision:
    """The decision with the quirks for the digests of this image, which `decide` may not have known."""
    loaded = with_digests(decision.loaded, decision.site, _digests(image.sha256, image.origin))
    if loaded is decision.loaded:
        return decision
    decision = replace(decision, loaded=loaded)
    return replace(decision, plan=decision.plan_with(NOT_LOOKED))


def pin_to_lock(decision: Decision, lock: Lock) -> Decision:
    """The decision with the lock's entry for its module. Raises InstallError without one, or if it does not match."""
    module, loaded, site = decision.plan.module, decision.loaded, decision.site.site
    locked = lock.modules.get(module)
    if locked is None:
        raise InstallError(f"the lock {lock.path} does not name {module}", "write the lock again")
    easyconfig = sha256_bytes(loaded.path.read_text(encoding="utf-8").encode())
    if locked.files.get("easyconfig.yaml", easyconfig) != easyconfig:
        raise InstallError(
            f"{module}: does not match the lock: {loaded.path.name} changed after {lock.path} was written",
            "restore the easyconfig as it was when the lock was written, or install without --locked and write the "
            "lock again",
        )
    differing = differing_inputs(locked, decision.inputs, lock.path.parent, site.robot_paths)
    places = (site.prefix, *decision.stores)
    check_image(locked, decision.plan.image, filter(None, (stored_at(one, locked.digest) for one in places)))
    return replace(decision, locked=locked, differing=differing)


def variants_here(easyconfig: str, site: LoadedSite) -> tuple[str | None, ...]:
    """The meaning of `--variant all`: every variant for this site's architecture; only None without variants.

    Raises EasyconfigNotFoundError, ConfigError; VariantError if none is for this architecture.
    """
    return variants_for(resolve_easyconfig(easyconfig, site.site), site.site)


def image_request(plan: Plan, locked: Iterable[tuple[FileState, ...]] = (), sha256: str = "") -> ImageChoice:
    """The image that the plan requests: a digest of all that decides which image that is, and its local files' states.

    The digest is "" for a view. Computed before a fetch, so that the next install notices changes during the fetch.
    `locked`: states of these files when the locked image was made from them, so that an install without the lock
    notices that they have changed; where none is recorded, a SIF that is not the locked one (`sha256`) has changed.
    """
    if plan.image is None:
        return ImageChoice("")
    linked = plan.image.link == "hardlink" and plan.image.build is None
    states = tuple(file_state(path, linked=linked) for path in local_files(plan.image))
    then = [each for each in locked if [path for path, _ in each] == [path for path, _ in states]] if states else []
    if then and not any(all(map(has_state, each)) for each in then):
        states = then[0]
    if sha256 and not then and plan.image.build is None:
        found = (one for one in references(plan.image) if one.kind.is_local and one.kind.ready_made)
        sifs = {path for one in found for path in one.kind.watched(one, plan.image.image_dirs)}
        states = tuple(s._replace(state="") if s.path in sifs and not _has(s.path, sha256) else s for s in states)
    request = sha256_bytes(json.dumps([FORMAT, image_data(plan.image), states], sort_keys=True).encode())
    return ImageChoice(request, states=states, directories=plan.image.image_dirs)


def _has(path: str, sha256: str) -> bool:
    with suppress(OSError):
        return sha256_file(Path(path)) == sha256
    return False


def plan_digest(plan: Plan, image: str) -> str:
    """The SHA-256 of everything that decides an installation: the rendered files of the plan, and `deciding_data`.

    `image` is the digest of `image_request`. The prefix is not part of it, so that the modules of a moved tree count as
    unchanged.
    """
    files = [(file.path, file.text, file.executable) for file in (*render(plan, 0), *render_stub(plan))]
    return sha256_bytes(json.dumps({"image": image, "files": files, **deciding_data(plan)}, sort_keys=True).encode())


def _digests(sha256: str, origin: ImageOrigin) -> tuple[str, ...]:
    return tuple(filter(None, (f"sha256:{sha256}", origin.manifest, origin.index)))
