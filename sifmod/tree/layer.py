"""Layers: packages that a user has added to a module's image. Each is a squashfs file or a directory.

A layer is switched like a module's generation:

    <layers>/<Name>/<version>/<layer>/<image>/live → <number>
    <layers>/<Name>/<version>/<layer>/<image>/<number>/   layer.squashfs, or the directory `tree`; layer.json;
        pylock.toml, the lock; bin/, the commands of the layer on the host; module, a link to the module's stable path

`<image>` is the start of the digest of the SIF that the layer was made for: a module with another image never uses it.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from sifmod.config.name import ModuleName, is_part
from sifmod.digest import sha256_file
from sifmod.result import Described, Internal, Named, OrNull, PathText, Sha256, Size
from sifmod.tree.change import Change, change
from sifmod.tree.durable import (
    READ_ONLY,
    is_directory,
    is_refused,
    move,
    names,
    parsed,
    read,
    sync_directory,
    sync_file,
    write,
)
from sifmod.tree.layout import Layout, LockRoot
from sifmod.tree.locking import HeldLock, Tree
from sifmod.tree.receipt import is_number
from sifmod.tree.removal import remove_tree

DEFAULT = "default"
IMAGE = "layer.squashfs"
TREE = "tree"
LOCK = "pylock.toml"
LIVE = "live"
MODULE = "module"
RECEIPT = "layer.json"
_FORMAT = 1
_KEY = re.compile("[0-9a-f]{16}")
Pairs = tuple[tuple[str, str], ...]


def image_key(sha256: str) -> str:
    return sha256[:16]


@dataclass(frozen=True)
class Layers(LockRoot):
    """The layers in one directory, with their locks.

    `tree` is the prefix of their modules. `named`: the user has named the directory, which may then be behind a link;
    any other is in a prefix, where other members may put one.
    """

    tree: Path
    named: bool = False

    @property
    def top(self) -> Path:
        """The directory below which no link is followed."""
        return self.prefix if self.named else self.prefix.parent

    def place(self, module: ModuleName, layer: str, image: str) -> Path:
        """The directory of the generations of a layer for an image with this digest."""
        return self.prefix / module.name / module.version / layer / image_key(image)

    def switch(self, module: ModuleName) -> Path:
        """The module's stable path; relative if the layers are within its prefix, so that both can be moved."""
        inside = self.prefix.is_relative_to(self.tree)
        above = Path(os.path.relpath(self.tree, self.prefix)) if inside else self.tree
        return above / "software" / module.name / module.version


def layers_in(layout: Layout) -> Layers:
    """The layers in a prefix."""
    return Layers(layout.prefix / "layers", layout.prefix)


def layers_lock(layers: Layers, module: ModuleName, tree: Tree) -> AbstractContextManager[HeldLock]:
    """Hold the lock of a module's layers in the directory of `layers`, waiting as for a lock of `tree`."""
    return tree.lock(str(module), f"the layers of {module}", layers)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One generation of a layer, from its receipt. Sizes in bytes."""

    module: ModuleName
    name: Annotated[str, Named("layer")]
    image: Annotated[
        OrNull[Sha256], Named("sha256"), Described("SHA-256 of the SIF that the layer is for; null: unreadable")
    ]
    number: Internal[int]  # 0 until it is published
    python: Internal[str]  # the prefix of the image's Python, inside
    version: Annotated[str, Named("python"), Described("version of the image's Python: 3.11")]
    requirements: Annotated[tuple[str, ...], Described("requirements, as requested")]
    editable: Annotated[tuple[str, ...], Described("directories of editable projects")]
    places: Internal[tuple[str, ...]]  # places to search for packages in addition to the index
    added: Annotated[Pairs, Described("distributions that the layer adds, with versions")]
    kept: Annotated[Pairs, Described("distributions of the image that stay as they are")]
    packed: Annotated[bool, Described("whether the layer is one file; false: a directory")]
    files: Annotated[int, Named("file_count")] = 0
    size: Size = 0
    digest: Internal[str] = ""  # SHA-256 of the squashfs; "" for a directory
    root: Annotated[PathText, Named("path")] = ""
    words: Internal[tuple[str, ...]]  # options of uv: indexes, and which files and versions are used
    constraints: Internal[tuple[str, ...]]
    digests: Internal[tuple[tuple[str, tuple[str, ...]], ...]]  # SHA-256 of the allowed files, by normalized name
    made: Internal[Pairs] = ()  # SHA-256 of its lock and commands, by path

    @property
    def top(self) -> Path:
        """The directory of layers that holds this one."""
        return Path(self.root).parents[4]

    @property
    def lock(self) -> str:
        """The layer's PEP 751 lock, "" if it cannot be read."""
        with suppress(OSError, UnicodeDecodeError):
            return read(Path(self.root, LOCK)).decode()
        return ""


def live_layer(layers: Layers, module: ModuleName, name: str, image: str) -> Layer | None:
    """The live layer of this name and image digest; None without a readable one. Raises OSError if the disk fails."""
    return _live(layers.place(module, name, image))


def live_generation(place: Path) -> str:
    """The number of the live generation in `place`, as text; "" without one. Raises OSError if the disk fails."""
    try:
        number = os.readlink(place / LIVE)  # noqa: PTH115 (a number)
        return number if is_number(number) else ""
    except OSError as error:
        if not is_refused(error):
            raise
        return ""


def _live(place: Path) -> Layer | None:
    number = live_generation(place)
    return parsed(place / number / RECEIPT, lambda data: _layer(place / number, data)) if number else None


def _layer(root: Path, data: bytes) -> Layer:
    """Parse a receipt of any user; the path gives what it can, types are checked. Raises ValueError or KeyError."""
    from pydantic import TypeAdapter

    fields = json.loads(data)
    if fields["format"] != _FORMAT or image_key(fields["image"]) != root.parts[-2]:
        raise ValueError("it is the receipt of another layer")
    place = {"module": ModuleName(*root.parts[-5:-3]), "name": root.parts[-3], "number": root.name, "root": str(root)}
    return TypeAdapter(Layer).validate_python(fields | place)


def all_layers(top: Path, module: ModuleName | None = None) -> Iterator[Layer]:
    """Every live layer in a directory of layers, or those of one module, sorted by module, name and image.

    For an unreadable receipt only the place is known, and `image` is "".
    """
    for place in places(top, module):
        if found := _live(place):
            yield found
        elif os.path.exists(place / LIVE / LOCK):  # noqa: PTH110 (as the wrappers; False behind a closed directory)
            module, root = ModuleName(*place.parts[-4:-2]), place / LIVE
            none: tuple[()] = ()
            packed = (root / IMAGE).exists()
            yield Layer(
                module=module,
                name=place.parts[-2],
                image="",
                number=0,
                python="",
                version="",
                requirements=none,
                editable=none,
                places=none,
                added=none,
                kept=none,
                packed=packed,
                words=none,
                constraints=none,
                digests=none,
                root=str(root),
            )


def kept_layers(top: Path, module: ModuleName) -> Iterator[Layer]:
    """Every generation of a module's layers, the live ones first, whose receipt can be read."""
    for place in places(top, module):
        live = live_generation(place)
        for root in sorted(generations(place), key=lambda one: one.name != live):
            if found := parsed(root / RECEIPT, partial(_layer, root)):
                yield found


def places(top: Path, only: ModuleName | None = None) -> Iterator[Path]:
    """The directories of the generations of each layer, except closed ones.

    `only`: of one module; raises PermissionError for a closed one.
    """
    look = _parts if only else _open_parts
    for name in (only.name,) if only else look(top):
        for version in (only.version,) if only else look(top / name):
            for layer in look(top / name / version):
                for key in look(top / name / version / layer):
                    if _KEY.fullmatch(key):
                        yield top / name / version / layer / key


def generations(place: Path) -> list[Path]:
    return [place / str(number) for number in _numbers(place)]


def _numbers(place: Path) -> list[int]:
    return sorted(int(name) for name in _parts(place) if is_number(name))


def _open_parts(directory: Path) -> list[str]:
    with suppress(PermissionError):
        return _parts(directory)
    return []


def _parts(directory: Path) -> list[str]:
    return [name for name in names(directory) if is_part(name) and is_directory(directory / name)]


def publish_layer(layers: Layers, layer: Layer, directory: Path, held: HeldLock) -> Layer:
    """Move a complete directory to its place, and switch to it: durably, with the old or the new layer at any time.

    Returns the published layer. Raises LockError, InstallError or PermissionsError; then the live layer is unchanged.
    """
    place = layers.place(layer.module, layer.name, layer.image)
    made = (LOCK, *(f"bin/{name}" for name in names(directory / "bin")))
    digests = tuple((name, sha256_file(directory / name)) for name in made)
    layer = replace(layer, number=1 + max(_numbers(place), default=0), made=digests)
    root = place / str(layer.number)
    switch = layers.switch(layer.module)
    fields = asdict(layer) | {"format": _FORMAT}
    for in_the_path in ("module", "name", "number", "root"):
        del fields[in_the_path]
    with held.changing(f"cannot publish the layer {layer.name} of {layer.module}"):
        text = json.dumps(fields, ensure_ascii=False, indent=1) + "\n"
        write(directory / RECEIPT, text.encode(), layers.top)
        (directory / MODULE).symlink_to(
            switch if switch.is_absolute() else os.path.relpath(layers.prefix / switch, root)
        )
        if layer.packed:
            os.chmod(directory / IMAGE, (directory / IMAGE).stat().st_mode & READ_ONLY)  # noqa: PTH101
        for name in (*made, *((IMAGE,) if layer.packed else ())):
            sync_file(directory / name)
        for below, _, files in os.walk(directory / TREE, topdown=False):
            for path in (Path(below, name) for name in files):
                if not path.is_symlink():
                    sync_file(path)
            sync_directory(below)
        if is_directory(directory / "bin"):
            sync_directory(directory / "bin")
        sync_directory(directory)
        held.check()
        _make_live(layers, directory, root, held)
    return replace(layer, root=str(root))


def _make_live(layers: Layers, directory: Path, root: Path, held: HeldLock) -> None:
    """Move a complete directory to `root`, and switch to it. After an error it is in neither place. Raises OSError."""
    try:
        move(directory, root, layers.top)
        steps = Change(held)
        steps.link(root.parent / LIVE, root.name)
        steps.apply()
    except BaseException:
        if live_generation(root.parent) != root.name:
            remove_generation(layers, root, held)
        raise


def withdraw_layer(layers: Layers, layer: Layer, held: HeldLock) -> None:
    """Take a layer out of use; its generations stay until `gc`, for running programs."""
    place = layers.place(layer.module, layer.name, layer.image)
    with change(held, f"cannot remove the layer {layer.name} of {layer.module}") as steps:
        steps.remove(place / LIVE)


def remove_generation(layers: Layers, root: Path, held: HeldLock) -> None:
    """Remove a generation that is not live, and directories that become empty. Errors are ignored."""
    gone = held.path("removed")
    with suppress(OSError):
        move(root, gone, layers.top)
        remove_tree(gone, layers.top)
        for above in root.parents[:4]:
            above.rmdir()


def remove_old(layers: Layers, layer: Layer, keep: int, held: HeldLock) -> None:
    """Remove the generations of a layer except the `keep` newest and the live one. Errors are ignored."""
    place = layers.place(layer.module, layer.name, layer.image)
    for root in generations(place)[:-keep]:
        if root.name != str(layer.number):
            remove_generation(layers, root, held)
