"""An InstallRequest: an install that has been decided."""

import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from sifmod.actions.hooks import OfInstall, of_image
from sifmod.actions.install.options import InstallOptions
from sifmod.actions.lock import Lock, LockedImage, check_image, differing_inputs
from sifmod.actions.sources import check_sources
from sifmod.config.bind import lint_binds
from sifmod.config.find import is_path
from sifmod.config.input import Input
from sifmod.config.kinds import SYNTAXES, syntax_of
from sifmod.config.load_easyconfig import LoadedEasyconfig, Overrides, load_easyconfig, variants_for, with_digests
from sifmod.config.load_site import LoadedSite
from sifmod.config.mpi_profile import wanted_mpi
from sifmod.config.quirk import applicable
from sifmod.config.word import wanted_easyconfig
from sifmod.digest import sha256_bytes
from sifmod.errors import InstallError
from sifmod.image.artifact import Artifact
from sifmod.module.decide import Choices, make_plan
from sifmod.module.image_origin import ImageOrigin
from sifmod.module.plan import Plan
from sifmod.tree.durable import check_readable
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import ImageRecord, Installation, live
from sifmod.tree.store import stored_at


@dataclass(frozen=True)
class InstallRequest:
    """An install that has been decided: what to do, for what, from what."""

    plan: Plan
    loaded: LoadedEasyconfig
    site: LoadedSite
    options: InstallOptions
    mpi_inputs: tuple[Input, ...] = ()  # what was looked at for the host's MPI
    differing: str = ""  # inputs that are not as its lock says, for people; the generated files decide

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (*self.site.inputs, *self.site.quirk_inputs, *self.loaded.inputs, *self.mpi_inputs)

    @property
    def notes(self) -> tuple[str, ...]:
        """What its author should know: what was left out, binds of the site or the easyconfig that are hardly meant."""
        problems = (*lint_binds(self.site.tree), *lint_binds(self.loaded.tree))
        since = "it is installed if every file that it makes is as the lock says"
        other = (f"note: not as when the lock was written: {self.differing}; {since}",) if self.differing else ()
        return (*self.loaded.notes, *other, *(f"warning: {problem}" for problem in problems))


def decide(easyconfig: str, site: LoadedSite, options: InstallOptions) -> InstallRequest:
    """Find, load and plan; `easyconfig` is a path or the name of one. Reads the live receipt and writes nothing.

    Raises OSError, EasyconfigNotFoundError, ConfigError, VariantError, OptionError, PermissionsError.
    """
    path = wanted_easyconfig(easyconfig, site.site)
    options = replace(options, asked=options.asked._replace(name="" if is_path(easyconfig) else easyconfig))
    source: Overrides = {"image.sources": (options.source,)} if options.source is not None else {}
    loaded = load_easyconfig(path, site, options.variant, source, os.environ)
    check_sources(loaded)
    layout = Layout(site.site.prefix)  # a prefix that cannot be one is refused before anything is done
    check_readable(layout.prefix)
    before = live(layout, loaded.easyconfig.module)
    if before is not None and before.image:  # most likely the image that it will be
        loaded = _with_digests(loaded, site, before.image)
    return _request(loaded, site, options, before)


def held_to(request: InstallRequest, lock: Lock) -> InstallRequest:
    """The request held to what the lock says of its module. Raises InstallError where that is another one."""
    module = request.plan.module
    locked = lock.modules.get(module)
    if locked is None:
        raise InstallError(f"the lock {lock.path} does not name {module}", "write the lock anew")
    easyconfig = sha256_bytes(request.loaded.path.read_text(encoding="utf-8").encode())
    if locked.files.get("easyconfig.yaml", easyconfig) != easyconfig:
        raise InstallError(
            f"{module}: not what the lock says: {request.loaded.path.name} is not as it was"
            f" when {lock.path} was written",
            "bring the old state back, or install without --locked and write the lock anew",
        )
    differing = differing_inputs(locked, request.inputs, lock.path.parent, request.site.site.robot_paths)
    if request.plan.image:
        site = request.site.site
        places = (site.prefix, *request.options.stores, *site.stores)
        check_image(locked, request.plan.image, filter(None, (stored_at(one, locked.digest) for one in places)))
    return replace(request, options=replace(request.options, locked=locked), differing=differing)


def variants_here(easyconfig: str, site: LoadedSite) -> tuple[str | None, ...]:
    """What `--variant all` stands for: every variant for this site's architecture; None alone where there are none.

    Raises EasyconfigNotFoundError, ConfigError; VariantError where none is for this architecture.
    """
    return variants_for(wanted_easyconfig(easyconfig, site.site), site.site)


def with_image(request: InstallRequest, artifact: Artifact | LockedImage) -> InstallRequest:
    """The request for this image: quirks may be for its digest, which is known only now."""
    loaded = _with_digests(request.loaded, request.site, artifact)
    if loaded is request.loaded:
        return request
    before = live(Layout(Path(request.plan.prefix)), request.plan.module)
    return _request(loaded, request.site, request.options, before)


def _with_digests(
    loaded: LoadedEasyconfig, site: LoadedSite, image: Artifact | ImageRecord | LockedImage
) -> LoadedEasyconfig:
    """The same where the image's digests call for no other quirks, because to merge its layers again takes long."""
    digests = _digests(image.sha256, image.origin)
    quirks = applicable(site.quirks, loaded.easyconfig, site.site.name, digests)
    return loaded if quirks == loaded.quirks else with_digests(loaded, site, digests, os.environ)


def _digests(sha256: str, origin: ImageOrigin) -> tuple[str, ...]:
    return tuple(filter(None, (f"sha256:{sha256}", origin.manifest, origin.index)))


def _request(
    loaded: LoadedEasyconfig, site: LoadedSite, options: InstallOptions, before: Installation | None
) -> InstallRequest:
    choices = Choices(_again(loaded, site, options), site.site.link, options.offline)
    plan = make_plan(loaded.easyconfig, site.site, choices, loaded.quirks, loaded.bases)
    # also those that are installed, so that a shell can unload after a reinstall what it loaded
    there = {syntax_of(stub.path) for stub in before.stubs} if before else set()
    syntaxes = tuple(syntax for syntax in SYNTAXES if syntax in there or syntax in plan.syntaxes)
    mpi, inputs = wanted_mpi(loaded.easyconfig, site.site, os.environ)
    return InstallRequest(replace(plan, syntaxes=syntaxes, mpi=mpi), loaded, site, options, inputs)


def _again(loaded: LoadedEasyconfig, site: LoadedSite, options: InstallOptions) -> str:
    """The words after `sifmod install` that bring this module back: a name where that finds the file, else its path.

    Without --prefix, which a module finds out when it is used.
    """
    path = Path(os.path.realpath(loaded.path))
    found = any(path.is_relative_to(os.path.realpath(directory)) for directory in site.site.robot_paths)
    given = {"--variant": loaded.variant, **dict(options.asked.options)}
    words = [path.name if found else str(path)]
    for name, value in given.items():
        words += [name, value] if value else []
    return shlex.join(words)


def of_install(request: InstallRequest, found: Artifact | None = None, done: Installation | None = None) -> OfInstall:
    """The plan of an install; with the image that was found, or the generation that came of it."""
    plan = request.plan
    return {
        "module": str(plan.module),
        "easyconfig": str(request.loaded.path.absolute()),
        "variant": request.loaded.variant,
        "accelerator": plan.accelerator,
        "module_only": request.options.module_only,
        "loads": list(plan.modules),
        "image": of_image(plan.image, found or (done.image if done else None)) if plan.image else None,
        "wrappers": [wrapper.name for wrapper in plan.wrappers],
        "binds": [str(bind) for bind in plan.binds],
        "env": dict(plan.env),
        "host_env": dict(plan.host_env),
        "license": request.loaded.easyconfig.license,
        "contents": dict(plan.help.contents),
        "generation": done.generation if done else None,
        "path": done.root if done else None,
    }
