"""Collect the catalogue's entries: installed modules, and those that easyconfigs can install."""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path

from sifmod.actions.catalogue.entry import Entry, LastTest, Pairs, Status
from sifmod.actions.install.how_to_load import commands_to_load
from sifmod.actions.inventory import image_of, image_path, inventory_at
from sifmod.actions.jobscript import jobscript
from sifmod.actions.search import offered as described
from sifmod.actions.sources import check_sources
from sifmod.actions.stack.stack_plan import StackPlan
from sifmod.config.find import is_path, name_of, own_path
from sifmod.config.load_easyconfig import LoadedEasyconfig, all_variants
from sifmod.config.load_site import LoadedSite
from sifmod.config.partition import SlurmKeys
from sifmod.config.site import Site
from sifmod.errors import ConfigError, ModuleError, SifmodError
from sifmod.module.jobscript import JOB, JobOptions, about_from_json, job_of, job_script
from sifmod.module.make_plan import Choices, make_plan
from sifmod.module.plan import Help
from sifmod.module.quote import shell
from sifmod.tree.durable import read
from sifmod.tree.history import in_utc, read_history
from sifmod.tree.layout import Layout
from sifmod.tree.life import Life, NameLife, read_life, today
from sifmod.tree.log import TEST_FAILED, TEST_PASSED, read_log
from sifmod.tree.receipt import Installation, live_modules, read_receipt

Say = Callable[[str], None]
_PYTHON = ("bin/python", "bin/python3")  # required by layers of packages
_NOTHING = Help("", "", (), (), (), "")
_AGAIN = "`sifmod install --module-only --installed` renders it again"


def installed(layout: Layout, say: Say) -> tuple[Entry, ...]:
    """The live, visible modules of a tree; unreadable parts are reported and left out.

    Raises InstallError if a life-cycle file is damaged.
    """
    found: list[Entry] = []
    packages: dict[str, Pairs] = {"": ()}  # by image: each is read once, however many modules use it
    life_of = cache(lambda name: read_life(layout, name))
    for module, number in live_modules(layout):
        of_name: NameLife = life_of(module.name)
        life = of_name.of(module.version)
        installation = read_receipt(layout.generation(module, number))
        if installation is None:
            say(f"warning: {module} is left out: its receipt cannot be read")
        elif not life.hidden:
            image = os.path.realpath(image_of(installation)) if installation.image else ""
            if image not in packages:
                packages[image] = _packages(installation, say)
            entry = replace(_installed(layout, installation, say), packages=packages[image])
            entry = replace(entry, default=of_name.default == module.version, labels=life.labels)
            found.append(_ending(entry, life))
    return tuple(found)


def _packages(installation: Installation, say: Say) -> Pairs:
    """Names and versions of all known packages of the image, sorted; () with a warning on failure."""
    try:
        packages = inventory_at(image_path(installation)).packages
    except (SifmodError, OSError) as error:
        say(f"warning: the packages in the image of {installation.module} are not known: {error}")
        return ()
    return tuple(sorted({(one.name, one.version) for one in packages}))


def _ending(entry: Entry, life: Life) -> Entry:
    said = life.retired or life.deprecated
    if said is None:
        return entry
    until = str(life.refused_from - timedelta(days=1)) if life.refused_from else ""
    status: Status = "retired" if life.retired else "deprecated"
    successor = life.retired.successor if life.retired else ""
    if life.retired or (life.refused_from and life.refused_from <= today()):
        entry = replace(entry, load=(), job_script="", add="", install="")
    since = str(said.since)
    return replace(entry, status=status, until=until, since=since, message=said.message, successor=successor)


def _installed(layout: Layout, installation: Installation, say: Say) -> Entry:
    module, made, image = installation.module, installation.provenance, installation.image
    try:
        about = about_from_json(read(Path(installation.root, JOB)))
        job = jobscript(installation, JobOptions(), SlurmKeys(), (layout,)) if image else ""
    except (OSError, ValueError, KeyError, TypeError, RecursionError, ModuleError):
        about, job = _NOTHING, ""
        say(f"warning: {module} has no description: {JOB} of its generation cannot be read; {_AGAIN}")
    load = commands_to_load(installation, {})
    if image is None:
        loads = f"{about.description}\n\nLoads {', '.join(installation.modules)}.".strip()
        about = replace(about, description=loads)
        return Entry(module, made.version, made.accelerator, arch="", site=made.site, about=about, source="", load=load)
    adds = any(file.path in _PYTHON for file in installation.files)
    since = next((in_utc(event.time) for event in reversed(read_history(layout, module))), "")
    return Entry(
        module=module,
        version=made.version if module.version.startswith(made.version) else module.version,
        accelerator=made.accelerator,
        arch=image.arch,
        site=made.site,
        about=about,
        source=image.source,
        load=load,
        add=f"sifmod add {module} PACKAGE" if adds else "",
        job_script=job,
        sha256=image.sha256,
        size=image.size,
        installed_at=since,
        last_test=_last_test(layout, installation),
    )


def _last_test(layout: Layout, installation: Installation) -> LastTest | None:
    outcomes = {TEST_PASSED: True, TEST_FAILED: False}
    for one in reversed(read_log(layout, installation.module).entries):
        if one.done.what in outcomes and one.done.generation == installation.generation:
            return LastTest(one.time, one.host, outcomes[one.done.what])
    return None


def installable(
    paths: Iterable[Path], site: LoadedSite, environ: Mapping[str, str], on_problem: Callable[[ConfigError], None]
) -> tuple[Entry, ...]:
    """Every variant of these easyconfigs; `on_problem` gets the error of each unusable easyconfig."""
    found: list[Entry] = []
    for path in paths:
        try:
            variants = all_variants(path, site, environ)
            for loaded in variants:
                check_sources(loaded)
        except ConfigError as error:
            on_problem(error)
            continue
        found += [_installable(loaded, site, environ) for loaded in variants]
    return tuple(found)


def fits(entry: Entry, site: Site) -> bool:
    """Whether a module that is not installed suits this site's accelerator, architecture and driver.

    A site without an accelerator accepts modules for any accelerator.
    """
    wanted = entry.accelerator in ("none", site.accelerator) or site.accelerator == "none"
    return wanted and entry.arch in ("", site.arch) and not entry.about.driver


def of_stack(plan: StackPlan, environ: Mapping[str, str], say: Say) -> tuple[Entry, ...]:
    """The visible modules of a stack, installed or not, with its labels; errors are reported."""
    here = {entry.module: entry for entry in installed(plan.layout, say)}
    found: list[Entry] = []
    for step in plan.steps:
        said = step.member.entry
        if step.module in here:
            found.append(replace(here[step.module], labels=said.labels))
        elif step.todo and not said.hidden:
            request = plan.decide(step)
            entry = _installable(request.loaded, request.site, environ)
            found.append(replace(entry, labels=said.labels))
        elif step.error:
            say(f"warning: {step} is left out: {step.error.short}")
    return tuple(found)


def _installable(loaded: LoadedEasyconfig, site: LoadedSite, environ: Mapping[str, str]) -> Entry:
    path = loaded.path
    name = name_of(path, site.site.robot_paths)
    words = ["sifmod", "install", own_path(name) if is_path(name) else name]
    words += ["--variant", loaded.variant] if loaded.variant else []
    plan = make_plan(loaded.easyconfig, site.site, Choices(path.stem, site.site.link), loaded.quirks, loaded.bases)
    modules = _for_anyone(Layout(site.site.prefix).modules, environ)
    job = job_of(plan) if plan.image else None
    return Entry(
        module=plan.module,
        version=plan.version,
        accelerator=plan.accelerator,
        arch=plan.image.arch if plan.image else "",
        site="",
        about=plan.help,
        source=described(loaded).where,
        load=(f"module use {modules}", f"module load {plan.module}"),
        install=shlex.join(words),
        add=f"sifmod add {plan.module} PACKAGE" if plan.layers else "",
        job_script=job_script(job, JobOptions(), modules) if job else "",
        status="not installed",
    )


def _for_anyone(directory: Path, environ: Mapping[str, str]) -> str:
    """A directory as a shell word, relative to `$HOME` if possible."""
    home = environ.get("HOME", "")
    below = os.path.relpath(directory, home) if home.startswith("/") else ".."
    plain = re.fullmatch(r"(?!\.\.)[A-Za-z0-9._+/-]+", below)
    return f'"$HOME/{below}"' if plain else shell(str(directory))
