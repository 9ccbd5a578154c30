"""diff: what changed between two generations, modules or images: packages, variables, binds, commands, sources."""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NamedTuple

from sifmod.actions.install.reapply import planned
from sifmod.actions.subject import Subject
from sifmod.errors import ModuleError, SifmodError
from sifmod.image.inspect.package import Package, PackageKind
from sifmod.image.inspect.python_environments import normalized
from sifmod.module.plan import LAYER_TARGET
from sifmod.module.variables import host_variables
from sifmod.result import Described, Notes
from sifmod.tree.durable import content
from sifmod.tree.receipt import Installation

_WORD = r"""(?:[^\s'"\\;]|'[^']*'|"[^"]*"|\\.)+"""
_INSIDE = re.compile(rf"^  sifmod_set ENV_(\w+) ({_WORD})(?: ({_WORD}))?$", re.MULTILINE)
_PATH = re.compile(rf"^  sifmod_set_path ({_WORD})(?: ({_WORD}))?$", re.MULTILINE)
_HOST = re.compile(rf"^  (?:if \[ -z .*?\]; then )?export ([A-Za-z_]\w*)=({_WORD})", re.MULTILINE)
_BIND = re.compile(rf"^  sifmod_bind(_if_there)? {_WORD} ({_WORD})", re.MULTILINE)
_GPU = re.compile(r"then sifmod_set _([A-Z]+) 1; fi$", re.MULTILINE)
_START = re.compile(r"^launch (.*) \"\$@\"$", re.MULTILINE)
_LAUNCHER = "share/launch.sh"
_PLACES = ("bin/", "runscripts/")  # the directories of commands
_WITH_A_LAYER = f"${{sifmod_layer:+{LAYER_TARGET}/bin:}}"
_OF_THE_PLACE = '"$sifmod_image"'


class ScriptSettings(NamedTuple):
    """The settings of a module: host and container variables, bind paths by target, and commands."""

    variables: Mapping[str, str]
    variables_inside: Mapping[str, str]
    binds: Mapping[str, str]
    commands: Mapping[str, str]


def read_scripts(root: str, paths: Iterable[str]) -> ScriptSettings | None:
    """The settings in the launcher and scripts of the generation at `root`; None without a readable launcher.

    `PATH` inside has the prepended directories only; the runtime's GPU flags are variables of the host. Raises OSError
    if the disk fails.
    """
    if not (text := _script(root, _LAUNCHER)):
        return None
    path = [("PATH", *words) for words in _PATH.findall(text)[:1]]
    inside = {name: _plain(plain or value) for name, value, plain in (*path, *_INSIDE.findall(text))}
    found = _HOST.findall(text.partition("\nsifmod_set_host() {")[2].partition("\n}\n")[0])
    host = {f"SINGULARITY_{flag}": "1" for flag in _GPU.findall(text)}
    host |= {name: _plain(value) for name, value in found if value != _OF_THE_PLACE}
    binds = {}
    for optional, word in _BIND.findall(text):
        source, _, rest = (bind := _plain(word)).partition(":")
        binds[rest.partition(":")[0] or source] = f"{bind} (optional)" if optional else bind
    scripts = {path: _START.findall(_script(root, path)) for path in paths}
    commands = {path.removeprefix("bin/"): starts[-1] if starts else "" for path, starts in scripts.items()}
    return ScriptSettings(host, inside, binds, commands)


def _script(root: str, path: str) -> str:
    return (content(Path(root, path)) or b"").decode("utf-8", "replace")


def _plain(word: str) -> str:
    """A word without shell quotes, and without the parts that only apply with a layer."""
    try:
        plain = "".join(shlex.split(word))
    except ValueError:
        plain = word
    return re.sub(r"\$sifmod_(root|prefix)", r"$\1", plain.replace(_WITH_A_LAYER, ""))


@dataclass(frozen=True)
class Change:
    """One difference; `old` or `new` is null if that side lacks the entry."""

    name: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class PackageChange:
    """A package with different versions on the two sides; an image with several Pythons may have several versions."""

    kind: PackageKind
    name: str
    old_versions: Annotated[tuple[str, ...], Described("each version that is somewhere in the image")]
    new_versions: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """What changed between two generations, modules or images; sorted by name, packages first by kind."""

    old: Annotated[str, Described("a module with @ and its generation, a digest, or a path")]
    new: str
    origin_changes: Annotated[tuple[Change, ...], Described("image, source, easyconfig and the like")]
    loaded_modules: Annotated[tuple[Change, ...], Described("modules that views load, by name, with their versions")]
    packages: tuple[PackageChange, ...]
    variables: Annotated[tuple[Change, ...], Described("variables that a load sets on the host")]
    variables_inside: Annotated[tuple[Change, ...], Described("variables in the container; PATH: what is prepended")]
    binds: Annotated[tuple[Change, ...], Described("bind paths by their targets")]
    commands: Annotated[tuple[Change, ...], Described("commands and their command lines")]
    notes: Notes  # comparisons that were skipped, and why


def diff(old: Subject, new: Subject) -> Difference:
    """Compare two subjects; packages are not read if both have the same image, or are views.

    Raises ImageError for an unreadable image. A missing image gives a note.
    """
    notes: list[str] = []
    one, other = _sets(old, notes), _sets(new, notes)
    pairs = zip(one, other, strict=True) if one and other else [({}, {})] * len(ScriptSettings._fields)
    variables, inside, binds, commands = (changes(before, after) for before, after in pairs)
    same = old.sha256 == new.sha256 and (old.sha256 or (old.view and new.view))
    packages = () if same else _packages(old, new, notes)
    if not (same or packages) and old.sha256 and new.sha256:
        notes.append("the images have different SHA-256 digests; of their files only packages are compared")
    sources, modules = changes(*_sources(old, new)), changes(_modules(old), _modules(new))
    return Difference(
        old.name, new.name, sources, modules, packages, variables, inside, binds, commands, tuple(dict.fromkeys(notes))
    )


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    """The entries that differ, sorted by name."""
    names = sorted(before.keys() | after.keys())
    return tuple(Change(name, old, new) for name in names if (old := before.get(name)) != (new := after.get(name)))


def _sources(*subjects: Subject) -> list[dict[str, str]]:
    """The known origins of each subject; for a module compared with an image, only those that images have."""
    alike = all(subject.installation for subject in subjects)
    found = [_of_image(subject) | (_of_module(subject.installation) if alike else {}) for subject in subjects]
    return [{name: value for name, value in facts.items() if value} for facts in found]


def _of_image(subject: Subject) -> dict[str, str]:
    origin = subject.origin
    return {"image": subject.sha256, "source": subject.source, "index": origin.index, "manifest": origin.manifest}


def _of_module(installation: Installation | None) -> dict[str, str]:
    if installation is None:
        return {}
    made = installation.provenance
    return {
        "easyconfig": made.easyconfig,
        "easyconfig's SHA-256": _digest(installation, made.easyconfig),
        "version": made.version,
        "variant": made.variant or "",
        "site": made.site,
        "accelerator": made.accelerator,
        "mpi": made.image.mpi.text if made.image.mpi else "",
        "sifmod": made.sifmod,
    }


def _digest(installation: Installation, path: str) -> str:
    found = (seen.sha256 for seen in installation.provenance.inputs if seen.path == path)
    return next(found, None) or ""


def _sets(subject: Subject, notes: list[str]) -> ScriptSettings | None:
    installation = subject.installation
    if installation is None:
        return None
    if installation.image is None:
        return _of_view(installation, notes)
    paths = (file.path for file in installation.files if file.path.startswith(_PLACES))
    found = read_scripts(installation.root, (path for path in paths if path != "runscripts/README"))
    if found is None:
        notes.append(f"{subject.name} has no readable launcher: skipped variables and binds")
    return found


def _of_view(view: Installation, notes: list[str]) -> ScriptSettings | None:
    """The settings from the generation's easyconfig, as a view has no scripts; None, with a note, if it is invalid."""
    own = replace(view, provenance=view.provenance._replace(easyconfig=f"{view.root}/easyconfig.yaml"))
    try:
        plan, _ = planned(own)
    except (SifmodError, OSError) as error:
        notes.append(f"{view.module}@{view.generation}: skipped variables and binds: {error}")
        return None
    path = {"PATH": ":".join(plan.path)} if plan.path else {}
    binds = {bind.target: f"{bind} (optional)" if bind.optional else str(bind) for bind in plan.binds}
    host = dict((*host_variables(plan, "$root"), *plan.default_env))
    return ScriptSettings(host, {**path, **dict(plan.plain_env)}, binds, {})


def _modules(subject: Subject) -> dict[str, str]:
    """The version of each module that a view loads, by its name; any version: the name again."""
    words = (one.partition("/") for one in (subject.view.modules if subject.view else ()))
    return {name: version or name for name, _, version in words}


def _packages(before: Subject, after: Subject, notes: list[str]) -> tuple[PackageChange, ...]:
    found = []
    for subject in (before, after):
        try:
            inventory = subject.inventory
        except ModuleError as error:
            notes.append(f"{error.message}: skipped packages")
            return ()
        notes += [f"{subject.name}: {note}" for note in inventory.notes]
        found.append(_versions(inventory.packages))
    one, other = found
    return tuple(
        PackageChange(kind, name, old, new)
        for kind, name in sorted(one.keys() | other.keys())
        if (old := one.get((kind, name), ())) != (new := other.get((kind, name), ()))
    )


def _versions(packages: Iterable[Package]) -> dict[tuple[PackageKind, str], tuple[str, ...]]:
    found: dict[tuple[PackageKind, str], set[str]] = {}
    for one in packages:
        name = normalized(one.name) if one.kind == "python" else one.name
        found.setdefault((one.kind, name), set()).add(one.version)
    return {key: tuple(sorted(versions)) for key, versions in found.items()}
