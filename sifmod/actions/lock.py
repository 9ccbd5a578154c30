"""A lock: what was installed, so exactly that the same is installed elsewhere or not at all."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from sifmod import __version__
from sifmod.config.bounded_file import read_bounded
from sifmod.config.find import SUFFIXES, shipped
from sifmod.config.input import Input
from sifmod.config.name import ModuleName
from sifmod.config.prefix import settings_directories
from sifmod.digest import sha256_bytes, sha256_file
from sifmod.errors import InstallError, OptionError
from sifmod.image.sources.source_kinds import references
from sifmod.module.image_origin import ImageOrigin, from_fields
from sifmod.module.plan import File, ImagePlan, Plan
from sifmod.module.render import render
from sifmod.system import some
from sifmod.tree.provenance import FoundCommands, FoundMpi
from sifmod.tree.receipt import Installation
from sifmod.tree.store import StoredImage

_FORMAT = 1
# before the path of a file: it comes with sifmod, is of settings, or is on the easyconfig path
_SHIPPED, _SETTINGS, _ROBOT = "sifmod:", "settings:", "robot:"
_SHOWN = 5


class LockedImage(NamedTuple):
    """The image of a module."""

    sha256: str
    source: str  # that gave it
    origin: ImageOrigin
    commands: FoundCommands | None = None  # what was found in it, which decides files
    mpi: FoundMpi | None = None


class LockedModule(NamedTuple):
    """A module as it was installed."""

    module: ModuleName
    sifmod: str  # version
    words: str  # after `sifmod install`, by which the module says that it comes back
    generation: int  # which its files name
    inputs: Mapping[str, str]  # digests of the files that it was made from
    image: LockedImage | None  # None: a view
    files: Mapping[str, str]  # digests of the generated files
    layers: Mapping[str, str]  # digests of the packages that the site has put over it, by the layers' names
    contents: Mapping[str, str]  # and of all of those layers

    @property
    def digest(self) -> str:
        """The SHA-256 of the image; "" of a view."""
        return self.image.sha256 if self.image else ""


class Lock(NamedTuple):
    """A lock and where it lies: relative paths of inputs are relative to that directory."""

    path: Path
    modules: Mapping[ModuleName, LockedModule]


def locked_module(
    installation: Installation, plan: Plan, inputs: Mapping[str, str], layers: Mapping[str, tuple[str, str]]
) -> LockedModule:
    """What a lock says of a module that is installed as this plan says, from inputs as `spelled_inputs` gives them."""
    image, choice = installation.image, installation.provenance.image
    mpi = choice.mpi and choice.mpi._replace(told="")
    return LockedModule(
        installation.module,
        installation.provenance.sifmod,
        plan.easyconfig,
        installation.generation,
        inputs,
        LockedImage(image.sha256, image.source, image.origin, choice.commands, mpi) if image else None,
        {file.path: file.sha256 for file in installation.files},
        {name: digest for name, (digest, _) in layers.items()},
        {name: whole for name, (_, whole) in layers.items()},
    )


def lock_beside(easyconfig: str | Path) -> Path:
    """Where the lock of an easyconfig or a stack is: beside its file, for a NAME in this directory."""
    path = Path(easyconfig)
    stem = path.stem if path.suffix in SUFFIXES else path.name  # the dots of PyTorch-2.2.0 are its version's
    return path.with_name(f"{stem}.lock")


def images_of(modules: Iterable[LockedModule]) -> tuple[str, ...]:
    """The digests of their images, sorted, each once."""
    return tuple(sorted({one.digest for one in modules} - {""}))


def spelled_inputs(inputs: Iterable[Input], directory: Path, robot_paths: tuple[Path, ...]) -> dict[str, str]:
    """The files among `inputs` by their names in a lock, which is in `directory`, and their digests.

    Files of settings that name no site, quirk or profile are left out: they say where a tree is. What they say of a
    module shows in its files.
    """
    found = {}
    for seen in inputs:
        if seen.sha256 is None or not seen.path.startswith("/") or seen.path.endswith("/"):
            continue
        name = _spelled(Path(seen.path), directory, robot_paths)
        if not (name.startswith(_SETTINGS) and "/" not in name):
            found[name] = seen.sha256
    return dict(sorted(found.items()))


def _spelled(path: Path, directory: Path, robot_paths: tuple[Path, ...]) -> str:
    """The same on every machine, wherever it keeps such files."""
    roots = [(_SHIPPED, shipped()), *((_SETTINGS, settings) for settings in settings_directories(os.environ))]
    roots += [("", directory), *((_ROBOT, robot) for robot in robot_paths)]
    return next((f"{name}{path.relative_to(root)}" for name, root in roots if path.is_relative_to(root)), str(path))


def differing_inputs(locked: LockedModule, inputs: Iterable[Input], directory: Path, robot: tuple[Path, ...]) -> str:
    """What is another file than when the lock was written, for people; "" where nothing is."""
    now = spelled_inputs(inputs, directory, robot)
    names = sorted(name for name in {*now, *locked.inputs} if now.get(name) != locked.inputs.get(name))
    return some(names, _SHOWN)


def files_of(lock: Lock, robot_paths: tuple[Path, ...]) -> dict[str, Path]:
    """Where the files are that the modules of a lock were made from, by their names in it, but for those of sifmod.

    Raises InstallError for one that is gone, is not as the lock says, or has no place in other trees.
    """
    found: dict[str, Path] = {}
    for name, sha256 in {pair for one in lock.modules.values() for pair in one.inputs.items()}:
        if name.startswith(_SHIPPED):
            continue
        root, _, rest = name.rpartition(":")
        places = {_SETTINGS: settings_directories(os.environ), _ROBOT: robot_paths}.get(f"{root}:", (lock.path.parent,))
        path = next((place / rest for place in places if (place / rest).is_file()), None)
        if path is None or sha256_file(path) != sha256:
            raise InstallError(f"{name} is not as it was when {lock.path} was written", "write the lock anew")
        if rest.startswith("/"):
            raise InstallError(f"{rest} is neither beside the stack nor on the easyconfig path", "move it there")
        found[name] = path
    return found


def check_files(locked: LockedModule, plan: Plan, own: Iterable[File], differing: str) -> None:
    """Raise InstallError unless the files of the plan, with those of the install's `own`, are those of the lock.

    `differing`: the inputs that are not as the lock says, which may be why.
    """
    files = (*render(replace(plan, easyconfig=locked.words), locked.generation), *own)
    now = {file.path: sha256_bytes(file.text.encode()) for file in files}
    wanted = {path: sha256 for path, sha256 in locked.files.items() if not path.startswith("share/modules/")}
    if names := sorted(name for name in {*now, *wanted} if now.get(name) != wanted.get(name)):
        by = f"; sifmod {locked.sifmod} made them, and this is {__version__}" if locked.sifmod != __version__ else ""
        inputs = f"; not as when the lock was written: {differing}" if differing else ""
        raise InstallError(
            f"{locked.module}: not what the lock says: {some(names, _SHOWN)} would be other files{by}{inputs}",
            "this machine, or its settings, is another one than that of the lock",
        )


def check_image(locked: LockedModule, image: ImagePlan, stored: Iterable[StoredImage]) -> None:
    """Raise InstallError where the lock names another origin than the easyconfig and the stores that have the image.

    With which tools it was made is not compared: others may make the same bytes.
    """
    if locked.image is None:
        return
    source, origin = locked.image.source, locked.image.origin
    known = [one for one in stored if one.origin.manifest and origin.manifest]
    given = {(one.index, one.manifest): one.source for each in known for one in each.given}
    made = next((one.origin for one in known if one.origin.manifest == origin.manifest), origin)
    wrong = ""
    if not image.build and source not in [reference.shown for reference in references(image)]:
        wrong = f"no source of its image is {source}"
    elif given and (origin.index, origin.manifest) not in given:
        (index, manifest), gave = next(iter(given.items()))
        wrong = f"its image came from {gave}@{index or manifest}, not from {origin.index or origin.manifest}"
    elif (origin.layers, origin.compression) != (made.layers, made.compression):
        wrong = "its image has other layers, or another compression"
    if wrong:
        raise InstallError(f"{locked.module}: not what the lock says: {wrong}", "write the lock anew")


class WrittenLock(NamedTuple):
    """A lock that was written."""

    path: Path
    locked: tuple[ModuleName, ...]


def to_json(modules: Iterable[LockedModule]) -> str:
    """The text of a lock: the same modules give the same text, and a change of one shows in its lines alone."""
    rows = []
    for one in sorted(modules):
        image = one.image and {**one.image._asdict(), "origin": one.image.origin.as_data()}
        for name in ("commands", "mpi"):
            if image and (found := image.pop(name)):
                image[name] = found._asdict()
        rows.append({**one._asdict(), "module": str(one.module), "image": image})
    return json.dumps({"format": _FORMAT, "modules": rows}, indent=1) + "\n"


def read_lock(path: Path) -> Lock:
    """Raises OptionError where there is none, or another file."""
    try:
        fields = json.loads(read_bounded(path, "lock_size"))
        if fields["format"] != _FORMAT:
            raise OptionError(f"{path} is of format {fields['format']}, and this sifmod reads {_FORMAT}")
        modules = tuple(_module(row) for row in fields["modules"])
    except FileNotFoundError as error:
        hint = "write it where the modules are installed: sifmod lock, or sifmod stack lock"
        raise OptionError(f"there is no lock {path}", hint) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise OptionError(f"{path} is no lock that can be read: {error}") from error
    return Lock(path, {one.module: one for one in modules})


def _module(row: dict[str, Any]) -> LockedModule:
    image = row["image"] and dict(row["image"])
    seen = {name: image.pop(name, None) if image else None for name in ("commands", "mpi")}
    commands = FoundCommands(**seen["commands"]) if seen["commands"] else None
    mpi = FoundMpi(**{**seen["mpi"], "found": tuple(seen["mpi"]["found"])}) if seen["mpi"] else None
    texts = (row["sifmod"], row["words"], *((image["source"], image["sha256"]) if image else ()))
    texts += (*row["inputs"].keys(), *row["inputs"].values(), *row["files"].keys(), *row["files"].values())
    texts += (*row["layers"].keys(), *row["layers"].values(), *row["contents"].values())
    texts += (*(commands or ()), *((mpi.question, mpi.told, mpi.used, *mpi.found) if mpi else ()))
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a text that is none")
    digests = (*row["inputs"].values(), *row["files"].values(), *((image["sha256"],) if image else ()))
    if not all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests):
        raise ValueError("a digest that is none")
    if row["layers"].keys() != row["contents"].keys():
        raise ValueError("a layer without its contents")
    if type(row["generation"]) is not int:
        raise ValueError("a number that is none")
    locked = image and LockedImage(
        **{**image, "origin": from_fields(image["origin"])},
        commands=commands,
        mpi=mpi,
    )
    return LockedModule(**{**row, "module": ModuleName.parse(row["module"]), "image": locked})
