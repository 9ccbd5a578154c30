"""The store: verified images by digest, shared by all modules that use them.

Each image has a receipt `<digest>.json`, which is written first: an image without one is not sifmod's and is never
removed. An optional `<digest>.inventory.json` lists the packages in the image. While a run uses an image it holds a
pin, an empty file in its own directory, so that a concurrent gc keeps the image although no receipt names it yet.
"""

import json
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sifmod.digest import sha256_file
from sifmod.errors import InstallError, PermissionsError
from sifmod.module.image_origin import NO_ORIGIN, ImageOrigin
from sifmod.tree import lease as leases
from sifmod.tree.durable import READ_ONLY, closing, is_there, move, names, sync_directory, take, write
from sifmod.tree.layout import Layout
from sifmod.tree.locking import FENCED, HeldLock, lock
from sifmod.tree.mark import in_force
from sifmod.tree.partial import lock_name, open_partial, own_key
from sifmod.tree.removal import prune, remove_tree
from sifmod.tree.stored_image import (
    StoredImage,
    all_used_images,
    entries,
    given_by,
    has_its_size,
    is_whole,
    origin_for,
    read_stored,
    stored_at,
)


def keep_inventory(layout: Layout, sha256: str, text: bytes, held: HeldLock) -> None:
    """Write an inventory beside its image, with the image's read permissions; nothing if the image is gone meanwhile.

    `held`: the lock for removing images.
    """
    image, place = layout.image(sha256), layout.inventory(sha256)
    with held.changing(f"cannot write {place}"):
        if is_there(image):
            unfinished = held.path("inventory")
            write(unfinished, text, layout.prefix)
            os.chmod(unfinished, image.stat().st_mode & READ_ONLY)  # noqa: PTH101
            move(unfinished, place, layout.prefix)


GC = "gc"  # the lock for removing images
_PIN = ".pin"


@dataclass(eq=False)
class Store:
    """The store for one run; images that it finds or adds are kept until `held`, a lock of the run, is released.

    A `fresh` one ignores stored images: everything is fetched again, and `add` compares. `others`: prefixes whose
    stores are searched for images that this one lacks.
    """

    layout: Layout
    held: HeldLock
    on_wait: Callable[[str], None] = lambda who: None  # noqa: ARG005
    fresh: bool = False
    others: tuple[Path, ...] = ()
    brought: list[tuple[str, int]] = field(default_factory=list)  # digest and bytes of each image that this run added

    def __post_init__(self) -> None:
        self._others = tuple(map(Layout, self.others))
        self._damaged: set[str] = set()

    def find(self, sha256: str) -> Path | None:
        """The stored image of this digest, or None; its content is not read (`damaged` does), its size is checked."""
        with self.held.changing("cannot use the store"):
            self._pin(sha256)
            known = read_stored(self.layout, sha256)
            offered = not self.fresh and sha256 not in self._damaged
            return known.path if known and offered and has_its_size(known) else None

    def refetching(self) -> "Store":
        """The same store, ignoring stored images and other stores."""
        return Store(self.layout, self.held, self.on_wait, fresh=True, brought=self.brought)

    def damaged(self, sha256: str) -> bool:
        """Whether the image of this digest, here or elsewhere, is damaged; if so, it is ignored. Reads all of it."""
        known = read_stored(self.layout, sha256) or self._from_other_store(sha256)
        if known is None or not os.path.lexists(known.path) or is_whole(known):
            return False
        self._damaged.add(sha256)
        return True

    def find_made(self, source: str, digest: str) -> tuple[tuple[Path, ImageOrigin], ...]:
        """The stored images from `source` for `digest` (of an index or a manifest), and their origins.

        There can be several, made in different ways or for different architectures. Those of other stores come last.
        """
        made = ((image, origin_for(image, source, digest)) for image in entries(self.layout))
        own = {path: origin for image, origin in made if origin and (path := self.find(image.sha256))}
        there, from_other_store = {path.stem for path in own} | self._damaged, []
        for layout in self._others:
            with suppress(OSError):
                from_other_store += [
                    (image.path, origin)
                    for image in entries(layout)
                    if (origin := origin_for(image, source, digest)) and has_its_size(image)
                ]
        return (*own.items(), *(one for one in from_other_store if one[0].stem not in there))

    def from_other_store(self, sha256: str) -> tuple[Path, ImageOrigin] | None:
        """Path and origin of the image in another store, if its size is right there; else None. Reads no content."""
        known = None if sha256 in self._damaged else self._from_other_store(sha256)
        return (known.path, known.origin) if known else None

    def _from_other_store(self, sha256: str) -> StoredImage | None:
        found = (stored_at(layout.prefix, sha256) for layout in self._others)
        # a link that another user has put there could lead to a private file
        return next((one for one in found if one and not one.path.is_symlink()), None)

    def can_lend(self, path: Path) -> bool:
        """Whether `path` is in another store that this one searches."""
        return any(path.parent == layout.images for layout in self._others)

    @contextmanager
    def incoming(self) -> Iterator[Path]:
        """A fresh path on the store's file system; anything left there at exit is removed."""
        path = self.held.path("incoming")
        try:
            yield path
        except Exception:
            self.held.check()  # a lost lock is the cause, and is raised instead
            raise
        finally:
            with suppress(OSError):  # else it is removed with the holder's directory
                remove_tree(path, self.held.top)

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A fresh directory on the store's file system for temporary files, removed at exit."""
        with self.incoming() as path:
            with self.held.changing("cannot make a workspace"):
                path.mkdir()
            yield path

    def finished(self, partial: Path) -> None:
        """Remove the directory of `partial`; `gc` removes it later if this fails."""
        with suppress(OSError):
            remove_tree(partial, self.held.top)

    @contextmanager
    def partial(self, key: str) -> Iterator[Path]:
        """A directory for the download of `key`; it stays for the next run unless `finished`.

        A key identifies a reference, as hexadecimal digits. Waits while another run uses the key. Downloads of other
        users of the group are continued if possible; else this user gets another one. Raises PermissionsError.
        """
        with ExitStack() as stack:
            if (path := stack.enter_context(self._partial(key))) is None:
                path = stack.enter_context(self._partial(own_key(key)))
            if path is None:
                raise PermissionsError(
                    f"cannot write in {self.layout.partials / own_key(key)}", "remove it, then repeat the command"
                )
            yield path

    @contextmanager
    def _partial(self, key: str) -> Iterator[Path | None]:
        """The directory of `key`, under its lock; None if another user's directory cannot be used."""
        with lock(self.layout, lock_name(key), self.held.lease, self.on_wait) as held:
            path = self.layout.partials / key
            with held.changing(f"cannot make {path}"):
                usable = open_partial(path, self.layout.prefix)
            try:
                yield path if usable else None
            finally:
                with suppress(OSError):  # it has a partial download to resume
                    prune(path, self.layout.prefix)

    def add(self, incoming: Path, sha256: str, origin: ImageOrigin = NO_ORIGIN, source: str = "") -> Path:
        """Add a complete file under its digest (fsync, read-only, rename), with its origin; returns its path.

        `source` is its source, as for `find_made`. Idempotent: an existing image stays, and `incoming` is removed; but
        a damaged one is replaced, so it is read. `incoming` is not hashed: the caller guarantees its digest. Raises
        InstallError if a foreign file is in the way, PermissionsError.
        """
        path = self.layout.image(sha256)
        with self.held.changing("cannot put the image into the store"):
            self._pin(sha256)
            known = read_stored(self.layout, sha256)
            # It is read, because replacing a good one would break jobs on other nodes that use it (NFS).
            if known and has_its_size(known) and (path.samefile(incoming) or is_whole(known)):
                incoming.unlink()
                self.gave(path, origin, source)
                return path
            if is_there(path) and known is None and not (path.is_file() and sha256_file(path) == sha256):
                raise InstallError(
                    f"{path} has no valid receipt of sifmod and does not match its digest, so it is not replaced",
                    "move it away, then repeat the command",
                )
            there = known or self._from_other_store(sha256)
            image = StoredImage(sha256, _seal(incoming), 0, path, given=there.given if there else ())
            self._record(given_by(image, origin, source))
            move(incoming, path, self.layout.prefix)
            self._damaged.discard(sha256)
            self.brought.append((sha256, image.size))
        return path

    def gave(self, path: Path, origin: ImageOrigin, source: str) -> None:
        """Record `source` as another source of the stored image at `path`, with its new origin; idempotent."""
        known = read_stored(self.layout, path.stem)
        if known is None or (noted := given_by(known, origin, source)) == known:
            return
        with self.held.changing("cannot record the source of the image"):
            record = self._record(noted)
            os.utime(record, (known.added, known.added))  # as old as its image

    def _record(self, image: StoredImage) -> Path:
        """Write the receipt of an image; returns its path."""
        made_from = {"origin": image.origin.as_data(), "given": [asdict(one) for one in image.given]}
        fields = {"sha256": image.sha256, "size": image.size, **(made_from if image.origin.manifest else {})}
        unfinished, record = self.held.path("record"), image.path.with_suffix(".json")
        write(unfinished, json.dumps(fields).encode(), self.layout.prefix)
        move(unfinished, record, self.layout.prefix)
        return record

    def _pin(self, sha256: str) -> None:
        """Protect an image from gc; waits for a gc that has already looked, because it may remove the image."""
        (self.held.directory / (sha256 + _PIN)).touch()
        if not leases.newest(self.layout.chain(GC)).vacant:
            with lock(self.layout, GC, self.held.lease, self.on_wait):
                pass


def discard(layout: Layout, image: StoredImage, held: HeldLock, mark_days: float = 0.0) -> bool:
    """Remove an image from the store; False if another run removed it, or it is in use and stays.

    `held`: the lock GC; runs that look for images wait for it. `mark_days`: days for which a mark keeps it.
    """
    if _needed(layout, image.sha256, mark_days):
        return False
    with held.changing(f"cannot remove {image.path}"):
        gone = held.path("discarded")
        for path, to in ((layout.inventory(image.sha256), held.path("discarded")), (image.path, gone)):
            with suppress(FileNotFoundError):
                take(path, to, layout.prefix)
        if _needed(layout, image.sha256, mark_days):  # other nodes may see it late
            with suppress(FileNotFoundError):
                move(gone, image.path, layout.prefix)
            return False
        try:
            take(image.path.with_suffix(".json"), held.path("discarded"), layout.prefix)
        except FileNotFoundError:
            return is_there(gone)
    return True


def _needed(layout: Layout, sha256: str, mark_days: float) -> bool:
    # In this order: a run that used it meanwhile still has its pin, or already its link.
    if sha256 in pinned(layout) or sha256 in all_used_images(layout):
        return True
    try:
        return bool(in_force(layout, (sha256,), mark_days))
    except OSError:  # then it may be needed
        return True


def pinned(layout: Layout, dead: Collection[str] = ()) -> frozenset[str]:
    """The digests of images that runs use now, except runs that lost their lock, or whose lock is among the `dead`."""
    found: set[str] = set()
    for run in names(layout.staging):
        if run.endswith(FENCED) or run.rsplit(".", 2)[0].replace("@", "/") in dead:
            continue
        with suppress(PermissionError):
            found.update(name.removesuffix(_PIN) for name in names(layout.staging / run) if name.endswith(_PIN))
    return frozenset(found)


def foreign_files(layout: Layout) -> tuple[Path, ...]:
    """The images in the store's directory without a receipt, sorted: sifmod did not write them."""
    return tuple(path for path in sorted(layout.images.glob("*.sif")) if read_stored(layout, path.stem) is None)


def _seal(path: Path) -> int:
    """Make a file durable and read-only; returns its size. The mode of a file with another hard link is unchanged."""
    with closing(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
        status = os.fstat(descriptor)
        if status.st_nlink == 1:
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & 0o444)
        os.fsync(descriptor)
    sync_directory(path.parent)
    return status.st_size
