"""A lock: a record of what is installed, to reproduce it exactly elsewhere."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import PlainValidator, StrictInt, TypeAdapter, ValidationError

from sifmod import __version__
from sifmod.config.find import SUFFIXES, shipped
from sifmod.config.input import Input
from sifmod.config.limits import check_json, read_bounded
from sifmod.config.name import ModuleName
from sifmod.config.prefix import settings_directories
from sifmod.config.redact import shown, without_directory
from sifmod.digest import sha256_bytes, sha256_file
from sifmod.errors import InstallError, OptionError
from sifmod.image.sources.source_kinds import references
from sifmod.module.image_origin import ImageOrigin, from_fields
from sifmod.module.plan import File, ImagePlan, Plan
from sifmod.module.render import render
from sifmod.result import Sha256
from sifmod.system import abbreviated, one_line
from sifmod.tree.provenance import FoundCommands, FoundMpi
from sifmod.tree.receipt import Installation
from sifmod.tree.stored_image import StoredImage

_FORMAT = 1
# prefixes of file paths: shipped with sifmod, from settings, or on the easyconfig path
_SHIPPED, _SETTINGS, _ROBOT = "sifmod:", "settings:", "robot:"
_BUNDLED = "robot/"  # a bundle's directory for files on the easyconfig path
_SHOWN = 5


class LockedImage(NamedTuple):
    """The image of a module."""

    sha256: Sha256
    source: str  # where the image was fetched from
    origin: Annotated[ImageOrigin, PlainValidator(from_fields)]
    commands: FoundCommands | None = None  # what was found in it, which decides files
    mpi: FoundMpi | None = None


class LockedModule(NamedTuple):
    """A module as it was installed."""

    module: ModuleName
    sifmod: str  # version
    words: str  # arguments of `sifmod install` in the module's reinstall hint
    generation: StrictInt  # named in its files
    inputs: Mapping[str, Sha256]  # of its input files
    image: LockedImage | None  # None for a view
    files: Mapping[str, Sha256]  # of the generated files
    layers: Mapping[str, str]  # digests of the packed layers over it in its own tree, by layer name
    contents: Mapping[str, str]  # digests of these layers with receipt, lock and commands, by layer name

    @property
    def digest(self) -> str:
        """The SHA-256 of the image; "" for a view."""
        return self.image.sha256 if self.image else ""


class Lock(NamedTuple):
    """A lock and its path; relative input paths start at its directory."""

    path: Path
    modules: Mapping[ModuleName, LockedModule]


def locked_module(
    installation: Installation, plan: Plan, inputs: Mapping[str, str], layers: Mapping[str, tuple[str, str]]
) -> LockedModule:
    """The lock entry of a module installed from this plan, with inputs from `spelled_inputs`."""
    image, choice = installation.image, installation.provenance.image
    mpi = choice.mpi and choice.mpi._replace(text="")
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


def lock_path(easyconfig: str | Path, output: Path | None = None) -> Path:
    """The absolute path of a lock, without `..`: `output`, or else beside the easyconfig or stack."""
    return Path(os.path.abspath(output or lock_beside(easyconfig)))  # noqa: PTH100 (a link stays one)


def lock_beside(easyconfig: str | Path) -> Path:
    """The lock's path for an easyconfig or stack: beside its file; for a NAME, in this directory.

    Raises OptionError for a path without a name, such as `.`.
    """
    path = Path(easyconfig)
    if not path.name:
        raise OptionError(f"{str(easyconfig)!r} is not the path of a file")
    stem = path.stem if path.suffix in SUFFIXES else path.name  # the dots in PyTorch-2.2.0 belong to the version
    return path.with_name(f"{stem}.lock")


def images_of(modules: Iterable[LockedModule]) -> tuple[str, ...]:
    """The digests of the modules' images, sorted, without duplicates."""
    return tuple(sorted({one.digest for one in modules} - {""}))


def spelled_inputs(inputs: Iterable[Input], directory: Path, robot_paths: tuple[Path, ...]) -> dict[str, str]:
    """The files among `inputs` with their digests, by their names in a lock in `directory`.

    General settings files are left out, because they depend on the machine. Their effect on a module shows in its
    files.
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
    """The name of an input file in a lock: the same on every machine, or the path if only this machine has it."""
    roots = [(_SHIPPED, shipped()), *((_SETTINGS, settings) for settings in settings_directories(os.environ))]
    roots += [("", directory), *((_ROBOT, robot) for robot in robot_paths)]
    return next((f"{name}{path.relative_to(root)}" for name, root in roots if path.is_relative_to(root)), str(path))


def differing_inputs(locked: LockedModule, inputs: Iterable[Input], directory: Path, robot: tuple[Path, ...]) -> str:
    """The first names of the input files that changed since the lock was written; "" if none.

    A file of sifmod that is not read now, such as a site under the settings of a bundle, is compared too.
    """
    now = spelled_inputs(inputs, directory, robot)
    for name in [name for name in now if name.startswith(_BUNDLED)]:
        rest = name.removeprefix(_BUNDLED)
        same = (one for one, sha256 in locked.inputs.items() if sha256 == now[name])
        there = next((one for one in same if f"/{one.removeprefix(_ROBOT)}".endswith(f"/{rest}")), name)
        now[there] = now.pop(name)
    for name in locked.inputs.keys() - now.keys():
        own = shipped() / name.removeprefix(_SHIPPED)
        if name.startswith(_SHIPPED) and ".." not in own.parts and own.is_file():
            now[name] = sha256_file(own)
    names = sorted(name for name in {*now, *locked.inputs} if now.get(name) != locked.inputs.get(name))
    return abbreviated(names, _SHOWN)


def files_of(lock: Lock, robot_paths: tuple[Path, ...]) -> dict[str, Path]:
    """The paths of the input files of a lock's modules, by their names in it, except sifmod's own.

    Raises InstallError for a file that is gone or differs from the lock, or that lies where no other machine looks.
    """
    found: dict[str, Path] = {}
    for name, sha256 in {pair for one in lock.modules.values() for pair in one.inputs.items()}:
        if name.startswith(_SHIPPED):
            continue
        roots = {_SETTINGS: settings_directories(os.environ), _ROBOT: robot_paths, "": (lock.path.parent,)}
        root = next(each for each in roots if name.startswith(each))  # a path may have a colon too
        rest, places = name.removeprefix(root), roots[root]
        path = next((place / rest for place in places if (place / rest).is_file()), None)
        if path is None or sha256_file(path) != sha256:
            raise InstallError(
                f"{name} was changed or removed after {lock.path} was written", "restore it, or write the lock again"
            )
        if rest.startswith("/") or ".." in Path(rest).parts:
            raise InstallError(f"{rest} is neither beside the stack nor in `robot_paths`", "move it beside the stack")
        found[name] = path
    return found


def check_files(locked: LockedModule, plan: Plan, own: Iterable[File], differing: str) -> None:
    """Raise InstallError unless the files of the plan, with the install's `own`, match the lock.

    `differing`: the inputs that differ from the lock, which may be the reason.
    """
    files = (*render(_spelled_as(locked, plan), locked.generation), *own)
    now = {file.path: sha256_bytes(file.text.encode()) for file in files}
    wanted = {path: sha256 for path, sha256 in locked.files.items() if not path.startswith("share/modules/")}
    if names := sorted(name for name in {*now, *wanted} if now.get(name) != wanted.get(name)):
        by = (
            f"; the lock is from sifmod {locked.sifmod}, and this is {__version__}"
            if locked.sifmod != __version__
            else ""
        )
        inputs = f"; changed since the lock was written: {differing}" if differing else ""
        raise InstallError(
            f"{locked.module}: does not match the lock: {abbreviated(names, _SHOWN)} would differ{by}{inputs}",
            "the machine, its settings, the input files or sifmod are not those of the lock",
        )


def _spelled_as(locked: LockedModule, plan: Plan) -> Plan:
    """The plan with the paths of the lock in the module's help: of the easyconfig, and of a local image or base."""
    plan, image = replace(plan, easyconfig=locked.words), plan.image
    if image is None or locked.image is None:
        return plan
    here, there = str(image.build or shown(image.sources[0])), locked.image.source.removeprefix("build:")
    if without_directory(here) != without_directory(there):
        return plan
    return replace(plan, help=replace(plan.help, origin=plan.help.origin.replace(here, there)))


def check_image(locked: LockedModule, image: ImagePlan | None, stored: Iterable[StoredImage]) -> None:
    """Raise InstallError if the image's origin in the lock contradicts its easyconfig, or a record in `stored`.

    `image`: None for a view, which has none. The conversion tools are not compared: other versions may give the same
    bytes.
    """
    if image is None or locked.image is None:
        if image is None and locked.image is None:
            return
        what = "it has no image, and the lock names one" if locked.image else "it has an image, and the lock names none"
        raise InstallError(f"{locked.module}: does not match the lock: {what}", "write the lock again")
    source, origin = locked.image.source, locked.image.origin
    known = [one for one in stored if one.origin.manifest and origin.manifest]
    given = {(one.index, one.manifest): one.source for each in known for one in each.given}
    made = next((one.origin for one in known if one.origin.manifest == origin.manifest), origin)
    wrong = ""
    if not image.build and without_directory(source) not in [
        without_directory(reference.shown) for reference in references(image)
    ]:
        wrong = f"{source} is not a source of its image"
    elif given and (origin.index, origin.manifest) not in given:
        (index, manifest), gave = next(iter(given.items()))
        wrong = f"its image came from {gave}@{index or manifest}, not from {origin.index or origin.manifest}"
    elif (origin.layers, origin.compression) != (made.layers, made.compression):
        wrong = "its image has different layers or a different compression"
    if wrong:
        raise InstallError(f"{locked.module}: does not match the lock: {wrong}", "write the lock again")


class WrittenLock(NamedTuple):
    """A lock that was written."""

    path: Path
    locked: tuple[ModuleName, ...]


def to_json(modules: Iterable[LockedModule]) -> str:
    """The text of a lock: the same modules give the same text, and a changed module changes only its own lines."""
    rows = []
    for one in sorted(modules):
        image = one.image and {**one.image._asdict(), "origin": one.image.origin.as_data()}
        for name in ("commands", "mpi"):
            if image and (found := image.pop(name)):
                image[name] = found._asdict()
        rows.append({**one._asdict(), "module": str(one.module), "image": image})
    return json.dumps({"format": _FORMAT, "modules": rows}, indent=1) + "\n"


def check_replaceable(path: Path) -> None:
    """Raise OptionError if there is another file than a lock, also of another version, at `path`."""
    try:
        fields = json.loads(read_bounded(path, "lock_size"))
    except (FileNotFoundError, IsADirectoryError, PermissionError):  # also a lock that another member has closed
        return
    except (OSError, ValueError, RecursionError):
        fields = None
    if not (isinstance(fields, dict) and {"format", "modules"} <= fields.keys()):
        raise OptionError(f"{path} exists already, and is not a lock; it was not changed", "remove it, or give -o")


def read_lock(path: Path) -> Lock:
    """The lock at `path`. Raises OptionError if the file is missing or is not a lock."""
    try:
        data = read_bounded(path, "lock_size")
        check_json(data, str(path))
        fields = json.loads(data)
        if fields["format"] != _FORMAT:
            raise OptionError(
                f"{path} has format {one_line(str(fields['format']))}, and this sifmod reads format {_FORMAT}"
            )
        modules = TypeAdapter(tuple[LockedModule, ...]).validate_python(fields["modules"])
    except FileNotFoundError as error:
        hint = "create it where the modules are installed: sifmod lock, or sifmod stack lock"
        raise OptionError(f"there is no lock {path}", hint) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = one_line(".".join(map(str, ("modules", *first["loc"]))))
        raise OptionError(f"{path} is not a readable lock: {where}: {first['msg']}") from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise OptionError(f"{path} is not a readable lock: {error}") from error
    if twice := [module for module, times in Counter(one.module for one in modules).items() if times > 1]:
        raise OptionError(f"{path} is not a readable lock: it names {twice[0]} twice")
    if odd := [one.module for one in modules if one.layers.keys() != one.contents.keys()]:
        raise OptionError(f"{path} is not a readable lock: {odd[0]} has a layer without its contents")
    if forged := [text for one in modules for text in _told(one) if "\n" in text]:
        raise OptionError(f"{path} is not a readable lock: {forged[0]!r} has a line break")
    return Lock(path, {one.module: one for one in modules})


def _told(locked: LockedModule) -> Iterator[str]:
    """The texts of a lock that messages quote."""
    yield from (locked.sifmod, *locked.inputs, *locked.files, *locked.layers)
    if image := locked.image:
        yield from (image.source, image.origin.index, image.origin.manifest)
