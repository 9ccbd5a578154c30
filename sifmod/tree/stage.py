"""A Stage: a generation under construction, invisible until it is placed."""

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from sifmod.config.name import ModuleName
from sifmod.digest import sha256_bytes
from sifmod.errors import InstallError
from sifmod.tree.durable import (
    READ_ONLY,
    READ_ONLY_EXECUTABLE,
    move,
    new_file,
    opened,
    sync_directory,
    sync_file,
    write,
)
from sifmod.tree.layout import RECEIPT, Layout
from sifmod.tree.locking import HeldLock
from sifmod.tree.provenance import Provenance
from sifmod.tree.receipt import FileRecord, ImageRecord, Installation, LinkRecord, live, to_json
from sifmod.tree.state import Carried, carry_over

if TYPE_CHECKING:
    from sifmod.module.plan import File


STUBS = "share/modules"  # a generation's copy of its stubs, for publishing it again
PLACED = ".placed"  # `N.placed` in the holder's directory: generation N was placed, but perhaps not published
USER_SOFTWARE = ("user-software", "user-software.squashfs")


class Stage:
    """A generation under construction; every method raises LockError, InstallError or PermissionsError.

    `number` and `root` are final: `root` is the path it will have in this prefix. `directory` is where it is now.
    """

    def __init__(self, layout: Layout, module: ModuleName, number: int, held: HeldLock) -> None:
        self.module = module
        self.number = number
        self.root = str(layout.generation(module, number))
        self.directory = held.path("generation")
        self._layout = layout
        self._held = held
        self._written: list[str] = []  # but not durable yet
        self._files: list[FileRecord] = []
        self._links: list[LinkRecord] = []
        self._stubs: list[FileRecord] = []
        self._directories = {""}
        self._claimed: set[str] = set()
        with held.changing(f"cannot stage {module}"):
            self.directory.mkdir()

    def write(self, files: Iterable["File"]) -> None:
        """Write read-only files; raises InstallError for duplicate paths and paths outside of the generation."""
        self._files += self._write(files)

    def write_stubs(self, files: Iterable["File"]) -> None:
        """Keep the module's stubs (paths relative to `<prefix>/modules`) for `publish`."""
        records = self._write([replace(file, path=f"{STUBS}/{file.path}") for file in files])
        self._files += records
        self._stubs += [FileRecord(path.removeprefix(f"{STUBS}/"), sha256, 0o644) for path, sha256, _ in records]

    def link(self, path: str, target: Path) -> None:
        """Create a symlink to the absolute path `target`; its text is relative if that is inside the prefix."""
        inside = target.is_relative_to(self._layout.prefix)
        here = Path(self.root, path).parent
        text = os.path.relpath(target, here) if inside else str(target)
        target = self.directory / path
        self._claim(path)
        with self._held.changing(f"cannot stage {self.module}"), self._opened(target.parent) as directory:
            os.symlink(text, target.name, dir_fd=directory)
        self._links.append(LinkRecord(path, text))

    def unlink(self, path: str) -> None:
        """Remove a symlink that the user had removed; the receipt keeps it, so that `restore` can create it again."""
        with self._held.changing(f"cannot stage {self.module}"):
            (self.directory / path).unlink()

    def link_user_software(self) -> None:
        """Create the links to the user's additions, a directory and a squashfs, which every reinstall keeps."""
        for name in USER_SOFTWARE:
            self.link(name, self._layout.user_software(self.module) / name)

    def carry_over(self) -> Carried:
        """Carry over the user's additions in the live generation; nothing without one with a readable receipt."""
        previous = live(self._layout, self.module)
        if previous is None:
            return Carried((), ())
        with self._held.changing(f"cannot carry over what was added to {previous.root}"):
            return carry_over(previous, self.directory)

    def record(self, provenance: Provenance, image: ImageRecord | None, modules: tuple[str, ...] = ()) -> Installation:
        """Write the receipt, the last file of a generation; `modules` are those of a view."""
        ours = (tuple(self._files), tuple(self._links), tuple(self._stubs))
        installation = Installation(self.module, self.number, self.root, provenance, image, *ours, modules=modules)
        with self._held.changing(f"cannot stage {self.module}"):
            receipt = to_json(installation).encode()
            write(self.directory / RECEIPT, receipt, self._layout.prefix, READ_ONLY, durable=False)
        self._written.append(RECEIPT)
        return installation

    def place(self) -> None:
        """Move the complete generation to its final path, durably; it is not live yet. Idempotent.

        Afterwards `root` and its links are valid, for a sanity check.
        """
        final = Path(self.root)
        if self.directory == final:
            return
        with self._held.changing(f"cannot place generation {self.number} of {self.module}"):
            # The top stays writable, so that a user may remove the image's link; in a group-writable prefix the rest
            # stays writable too, so that other members can remove everything.
            writable = self._layout.prefix.stat().st_mode & 0o022
            for name in sorted(self._directories - {""}, reverse=True):
                directory = self.directory / name
                directory.chmod(directory.stat().st_mode & (0o7555 | writable))
            # Everything is written by now, so that syncing is cheap after the first file.
            for path in self._written:
                sync_file(f"{self.directory}/{path}")
            for name in self._directories:
                sync_directory(f"{self.directory}/{name}")
            write(self._held.directory / f"{self.number}{PLACED}", b"", self._layout.prefix, durable=False)
            self._held.check()
            move(self.directory, final, self._layout.prefix)
        self.directory = final

    def _write(self, files: Iterable["File"]) -> list[FileRecord]:
        new = tuple(files)
        for file in new:
            self._claim(file.path)
            self._written.append(file.path)
        records: dict[str, FileRecord] = {}
        with self._held.changing(f"cannot stage {self.module}"):
            for parent, together in groupby(sorted(new, key=_parent), key=_parent):
                with self._opened(self.directory / parent) as directory:
                    for file in together:
                        data, mode = file.text.encode(), READ_ONLY_EXECUTABLE if file.executable else READ_ONLY
                        descriptor = new_file(directory, f"{self.directory}/{file.path}", data, mode)
                        mode = os.fstat(descriptor).st_mode & 0o777
                        os.close(descriptor)
                        records[file.path] = FileRecord(file.path, sha256_bytes(data), mode)
        return [records[file.path] for file in new]

    def _opened(self, directory: Path) -> AbstractContextManager[int]:
        """A descriptor of a directory of the generation, created if missing; the generation itself must exist."""
        return opened(directory, self._layout.prefix, make=True, inside=self.directory)

    def _claim(self, path: str) -> None:
        parts = path.split("/")
        if {"", ".", ".."}.intersection(parts) or path == RECEIPT:
            raise InstallError(f"{path!r} cannot be the path of a file in a generation")
        self._directories.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
        if path in self._claimed:
            raise InstallError(f"two files of {self.module} have the path {path}")
        self._claimed.add(path)


def _parent(file: "File") -> str:
    return file.path.rpartition("/")[0]
