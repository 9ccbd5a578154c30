"""stack bundle: everything that a stack needs without a network, in one directory or tar file.

A bundle holds, in this order, `bundle.json` (a `Head`), the files that the stack includes, `stack.yaml`, its lock, the
files that its modules were made from (of other easyconfig directories below `robot/`, of settings below `settings/`),
sifmod's own wheels below `wheels/`, layers below `layers/`, and the images as `images/sha256/<digest>.sif`. The same
stack gives the same bytes, so that an interrupted tar file can be continued.
"""

import errno
import hashlib
import json
import os
import re
import stat
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Annotated, Any, Literal, NamedTuple

from sifmod import __version__
from sifmod.actions.author.new_file import check_not_of_others
from sifmod.actions.layer.places import check_packed
from sifmod.actions.layer_commands import command, commands_of, contents, lock_of
from sifmod.actions.lock import LockedModule, files_of, lock_beside, read_lock
from sifmod.actions.stack.own_wheels import own_digest, write_own_wheels
from sifmod.actions.stack.settings import DecidingSettings, deciding_settings
from sifmod.actions.stack.stack_options import Planned
from sifmod.config.site import Site
from sifmod.config.stack import Stack
from sifmod.errors import ImageError, InstallError, OptionError
from sifmod.image.artifact import Progress
from sifmod.image.disk import writing
from sifmod.result import Described, Size, in_json
from sifmod.system import scratch_directory
from sifmod.tree.durable import is_refused, new_file, opened, read, regular, sync_directory
from sifmod.tree.layer import IMAGE as LAYER
from sifmod.tree.layer import LOCK as LAYER_LOCK
from sifmod.tree.layer import RECEIPT, Layer, all_layers
from sifmod.tree.layout import Layout
from sifmod.tree.stored_image import has_its_size, read_stored

HEAD, STACK, LOCK = "bundle.json", "stack.yaml", "stack.lock"
IMAGES = "images/sha256"
IMAGE = re.compile(rf"{IMAGES}/([0-9a-f]{{64}})\.sif")
_DIGEST = re.compile("[0-9a-f]{64}")
_CHUNK = 1 << 20


class Own(NamedTuple):
    """The sifmod that made a bundle."""

    version: str
    sha256: str  # of its files


class Head(NamedTuple):
    """The metadata of a bundle."""

    stack: str
    sifmod: Own
    settings: Mapping[str, Any]
    variables: Mapping[str, str]
    format: Literal[1] = 1


class WrittenBundle(NamedTuple):
    """A bundle that was written."""

    path: Path
    size: Annotated[Size, Described("bytes of the bundle's content")]


class Item(NamedTuple):
    """A file of a bundle: its path in the bundle, and its source path or content.

    `sha256`: of its content, where that is known. `top`: below it, others may be able to replace the source.
    """

    name: str
    source: Path | bytes
    size: int  # bytes
    sha256: str = ""
    top: Path | None = None

    def open(self) -> IO[bytes]:
        """The content, open for reading. Raises OSError, also for a link or a pipe below `top`."""
        if isinstance(self.source, bytes):
            return BytesIO(self.source)
        if self.top is None:
            return self.source.open("rb")
        with regular(self.source, self.top) as descriptor:
            return open(os.dup(descriptor), "rb")  # noqa: PTH123 (a descriptor)


def _data(name: str, data: bytes) -> Item:
    return Item(name, data, len(data))


def _file(name: str, path: Path) -> Item:
    return Item(name, path, path.stat().st_size)


def bundle_stack(planned: Planned, output: Path, without: str, progress: Progress, *, wheels: bool) -> int:
    """Write the bundle of an installed and locked stack; returns its bytes. Continues an interrupted run.

    The images whose digests are in the text `without` stay out. Raises what `items`, `deciding_settings` and
    `write_bundle` raise.
    """
    stack, site = planned.stack, planned.site
    decided = deciding_settings(site, read_lock(lock_beside(stack.path)), stack.path.parent, os.environ)
    with own_wheels(wanted=wheels) as built:
        found = tuple(items(stack, site.site, built, without, decided))
        write_bundle(output, iter(found), progress)
        return sum(item.size for item in found)


def items(stack: Stack, site: Site, wheels: Path | None, there: str, decided: DecidingSettings) -> Iterator[Item]:
    """The files of the bundle of a locked stack, without the images whose digests are in `there`.

    Raises OptionError if there is no lock, InstallError if a file differs from the lock or an image is gone.
    """
    lock, layout = read_lock(lock_beside(stack.path)), Layout(site.prefix)
    head = Head(stack.name, Own(__version__, own_digest()), *decided)
    yield _data(HEAD, (json.dumps(in_json(head)) + "\n").encode())
    for seen in stack.inputs:
        path = Path(seen.path)
        if seen.path.startswith("/") and path != stack.path:
            yield _file(str(path.relative_to(stack.path.parent)), path)
    yield _file(STACK, stack.path)
    yield _file(LOCK, lock.path)
    seen_before = {seen.path for seen in stack.inputs}
    for name, path in sorted(files_of(lock, site.robot_paths).items()):
        if str(path) not in seen_before:
            yield _file(name.replace("robot:", "robot/").replace("settings:", "settings/"), path)
    if wheels:
        yield from (_file(f"wheels/{path.name}", path) for path in sorted(wheels.glob("*.whl")))
    for module in lock.modules.values():
        yield from _layers(layout, module)
    known = set(_DIGEST.findall(there))
    for sha256 in sorted({one.image.sha256 for one in lock.modules.values() if one.image} - known):
        stored = read_stored(layout, sha256)
        if stored is None or not has_its_size(stored):
            raise InstallError(
                f"the image {sha256[:12]}… of the lock is not in {layout.images}", "apply the stack first"
            )
        yield Item(f"{IMAGES}/{sha256}.sif", stored.path, stored.size, sha256)


def _layers(layout: Layout, locked: LockedModule) -> Iterator[Item]:
    """The locked layers of a module, at their paths in a tree.

    Raises InstallError for one that differs or is gone, and errors of `check_packed`.
    """
    check_packed(layout, locked.module, locked.digest)
    found = all_layers(layout.prefix / "layers", locked.module) if locked.layers else ()
    here = {layer.name: layer for layer in found if layer.image == locked.digest}
    for name, digest in locked.layers.items():
        layer = here.get(name)
        if layer is None or (made := _locked_files(layer, layout.prefix, digest, locked.contents[name])) is None:
            raise InstallError(
                f"the layer {name} of {locked.module} in {layout.prefix / 'layers'} does not match the lock",
                "apply the stack first, or lock it as it is now",
            )
        yield from made


def _locked_files(layer: Layer, prefix: Path, digest: str, whole: str) -> tuple[Item, ...] | None:
    """The files of a layer; None if it is another one than was locked. Its commands are made from their names."""
    root = Path(layer.root)
    place, image = root.relative_to(prefix), root / LAYER
    try:
        receipt, lock, commands = read(root / RECEIPT, top=prefix), lock_of(layer, prefix), commands_of(layer)
        with regular(image, prefix) as descriptor:
            size = os.fstat(descriptor).st_size
    except OSError:
        return None
    if (layer.digest, layer.size, contents(layer, lock, commands)) != (digest, size, whole):
        return None
    scripts = (_data(f"{place}/bin/{name}", command(name, layer.name).encode()) for name in commands)
    beside = (_data(f"{place}/{RECEIPT}", receipt), _data(f"{place}/{LAYER_LOCK}", lock))
    return (*beside, *scripts, Item(f"{place}/{LAYER}", image, size, digest, prefix))


def write_bundle(bundle: Path, files: Iterator[Item], progress: Progress) -> None:
    """Write a directory, or a tar file if `bundle` ends in .tar; continues the output of an interrupted run.

    Raises OptionError if something else is there, ImageError for a damaged source, NoSpaceError, PermissionsError.
    """
    with writing(bundle):
        if bundle.suffix == ".tar":
            _write_tar(bundle, files, progress)
            return
        if bundle.is_file() or (bundle.is_dir() and any(bundle.iterdir()) and not (bundle / HEAD).is_file()):
            raise OptionError(f"{bundle} exists and is not a bundle", "give another name with -o")
        check_not_of_others(bundle)
        for item in files:
            _write_file(bundle, item, progress)


def _write_file(bundle: Path, item: Item, progress: Progress) -> None:
    """Write one file below `bundle`, where others may be able to write: no link there is followed."""
    target = bundle / item.name
    with opened(target.parent, bundle, make=True) as directory:
        if _has(target, bundle, item):
            return
        unfinished = target.with_name(f".{target.name}.part")
        with suppress(FileNotFoundError):
            os.unlink(unfinished.name, dir_fd=directory)
        with open(new_file(directory, unfinished, b"", 0o666), "wb") as file, item.open() as source:  # noqa: PTH123
            copy_checked(source, file, item, progress)
            file.flush()
            os.fsync(file.fileno())
        os.rename(unfinished.name, target.name, src_dir_fd=directory, dst_dir_fd=directory)
        sync_directory(directory)


def _has(target: Path, bundle: Path, item: Item) -> bool:
    """Whether `target` is a file with the content of `item`."""
    try:
        with regular(target, bundle) as descriptor, open(os.dup(descriptor), "rb") as file:  # noqa: PTH123
            if os.fstat(descriptor).st_size != item.size:
                return False
            if item.sha256:
                return hashlib.file_digest(file, "sha256").hexdigest() == item.sha256
            with item.open() as source:
                return _agrees(file, source)
    except FileNotFoundError:
        return False
    except OSError as error:
        if not is_refused(error):
            raise
        return False


def _write_tar(bundle: Path, files: Iterator[Item], progress: Progress) -> None:
    """Write a tar file, named when complete, continuing a partial one. Raises OptionError if the file exists."""
    if bundle.exists():
        raise OptionError(f"{bundle} exists already and was not changed", "give another name with -o")
    unfinished = bundle.with_name(f".{bundle.name}.part")
    with _begun(unfinished) as file:
        for item in files:
            header = tarfile.TarInfo(item.name)
            header.size, header.mode = item.size, 0o644
            start, block = file.tell(), header.tobuf(tarfile.PAX_FORMAT)
            end = start + len(block) + -(-item.size // 512) * 512
            with item.open() as source:
                if file.read(len(block)) == block and os.fstat(file.fileno()).st_size >= end and _agrees(file, source):
                    file.seek(end)
                    continue
                source.seek(0)
                file.seek(start)
                file.truncate()
                file.write(block)
                copy_checked(source, file, item, progress)
                file.write(b"\0" * (end - file.tell()))
        file.truncate()
        file.write(b"\0" * 1024)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(bundle)
    sync_directory(bundle.parent)


def _begun(path: Path) -> IO[bytes]:
    """Open this user's partial file, or a new one. Raises OptionError for a file that others may have put there."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = open(os.open(path, flags, 0o666), "r+b")  # noqa: PTH123, SIM115 (a descriptor, which the caller closes)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    else:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid == os.geteuid():
            return file
        file.close()
    raise OptionError(f"{path} was not created by you", "remove it, or give another name with -o")


def _agrees(file: IO[bytes], source: IO[bytes]) -> bool:
    while chunk := source.read(_CHUNK):
        if file.read(len(chunk)) != chunk:
            return False
    return True


def copy_checked(source: IO[bytes], target: IO[bytes], item: Item, progress: Progress) -> None:
    """Copy a file of a bundle. Raises ImageError if its size or digest is not that of `item`."""
    digest, done = hashlib.sha256(), 0
    while chunk := source.read(min(_CHUNK, item.size - done)):
        target.write(chunk)
        done += len(chunk)
        if item.sha256:
            digest.update(chunk)
            progress(f"{item.name[:5]} {item.sha256[:12]}", done, item.size)
    if item.sha256 and digest.hexdigest() != item.sha256:
        raise ImageError(f"{item.name} is damaged: its SHA-256 is {digest.hexdigest()}", "create the bundle again")
    if done != item.size or source.read(1):
        raise ImageError(f"{item.name} has changed while it was read", "repeat the command")


@contextmanager
def own_wheels(*, wanted: bool) -> Iterator[Path | None]:
    """A directory with wheels of sifmod and its dependencies; None if not `wanted`. Raises what making them raises."""
    if not wanted:
        yield None
        return
    with scratch_directory() as place:
        write_own_wheels(place)
        yield place
