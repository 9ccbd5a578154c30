"""The store: verified images by digest, shared by every module that names them, kept while used.

Beside each image lies `<digest>.json`, the store's own receipt of it, written first: an image without one was not put
there by sifmod and is never removed. While a run uses an image it holds a pin, an empty file in its own directory, so
that a gc at the same time leaves the image alone although no receipt names it yet.
"""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from sifmod.digest import sha256_file
from sifmod.errors import InstallError
from sifmod.tree.disk import move, remove_tree, sync_directory, take, write
from sifmod.tree.layout import Layout
from sifmod.tree.lock import Held
from sifmod.tree.use import all_used_images

_PIN = ".pin"


class StoredImage(NamedTuple):
    """An image that the store has a receipt of."""

    sha256: str
    size: int  # bytes, as it was put in
    added: float  # seconds since 1970
    path: Path  # it may have been removed by hand


class Store:
    """The store for one run; what it finds or adds stays until `held`, a lock of the run, is given up."""

    def __init__(self, layout: Layout, held: Held) -> None:
        self._layout = layout
        self._held = held

    def find(self, sha256: str) -> Path | None:
        """The stored image of this digest, or None; its content is not read (`verify` does), its size is checked."""
        with self._held.changing("cannot use the store"):
            # The pin comes first: either gc sees it, or the image is gone before it is looked for.
            self._pin(sha256)
            known = _read(self._layout, sha256)
            path = self._layout.image(sha256)
            return path if known and path.is_file() and path.stat().st_size == known.size else None

    @contextmanager
    def incoming(self) -> Iterator[Path]:
        """A fresh path on the store's file system; what is left there at exit is removed."""
        with self._temporary("incoming") as path:
            yield path

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A fresh directory inside the prefix for the runtime's cache and temporary files, removed at exit."""
        with self._temporary("workspace") as path:
            with self._held.changing("cannot make a workspace"):
                path.mkdir()
            yield path

    @contextmanager
    def _temporary(self, kind: str) -> Iterator[Path]:
        path = self._held.path(kind)
        try:
            yield path
        except Exception:
            self._held.check()  # whatever failed, it did because the lock was lost
            raise
        finally:
            with suppress(OSError):  # else it goes with the holder's directory
                remove_tree(path)

    def add(self, incoming: Path, sha256: str) -> Path:
        """Put a complete file under its digest (fsync, read-only, rename) and return its path.

        Idempotent: an image that is there already stays, and `incoming` goes. Nothing is hashed: that the file has this
        digest is for the caller to know. Raises InstallError when a file that is not ours is in the way.
        """
        path = self._layout.image(sha256)
        with self._held.changing("cannot put the image into the store"):
            if self.find(sha256) is not None:
                incoming.unlink()
                return path
            self._check_way(path, sha256)
            size = _seal(incoming)
            record = self._held.path("record")
            write(record, json.dumps({"sha256": sha256, "size": size}).encode())
            move(record, path.with_suffix(".json"))
            move(incoming, path)
        return path

    def _pin(self, sha256: str) -> None:
        (self._held.directory / (sha256 + _PIN)).touch()

    def _check_way(self, path: Path, sha256: str) -> None:
        if os.path.lexists(path) and _read(self._layout, sha256) is None and sha256_file(path) != sha256:
            raise InstallError(
                f"{path} was not put there by sifmod and is not what its name says, so it is not replaced",
                "move it away, then repeat the command",
            )


def entries(layout: Layout) -> tuple[StoredImage, ...]:
    """Every image that the store has a receipt of, sorted by digest."""
    found = (_read(layout, path.stem) for path in sorted(layout.images.glob("*.json")))
    return tuple(image for image in found if image is not None)


def discard(layout: Layout, image: StoredImage, held: Held) -> bool:
    """Remove an image from the store; False when it had gone before, or when it is used and stays."""
    if image.sha256 in all_used_images(layout):
        return False
    with held.changing(f"cannot remove {image.path}"):
        gone = held.path("discarded")
        with suppress(FileNotFoundError):
            take(image.path, gone)
        # In this order: a run that used it meanwhile has its pin still, or its link already.
        if image.sha256 in pinned(layout) or image.sha256 in all_used_images(layout):
            if os.path.lexists(gone):
                move(gone, image.path)
            return False
        try:
            take(image.path.with_suffix(".json"), held.path("discarded"))
        except FileNotFoundError:
            return os.path.lexists(gone)
    return True


def pinned(layout: Layout) -> frozenset[str]:
    """The digests of images that runs use just now."""
    return frozenset(path.name.removesuffix(_PIN) for path in layout.staging.glob(f"*/*{_PIN}"))


def _read(layout: Layout, sha256: str) -> StoredImage | None:
    path = layout.image(sha256)
    record = path.with_suffix(".json")
    try:
        fields = json.loads(record.read_text(encoding="utf-8"))
        return StoredImage(fields["sha256"], fields["size"], record.stat().st_mtime, path)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _seal(path: Path) -> int:
    """Make a file durable and read-only: its size. A mode that is shared with another name is left as it is."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if status.st_nlink == 1:
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & 0o444)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_directory(path.parent)
    return status.st_size
