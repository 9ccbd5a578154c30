"""A store of one file: an image that goes where the user said, with what is not complete beside it."""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sifmod.errors import FetchError
from sifmod.image.disk import writing
from sifmod.module.origin import NO_ORIGIN, ImageOrigin


class Beside:
    """An artifact.Store for `target` alone; a file that is there is replaced, whole, only with `replace`.

    What a run that failed had received stays in a hidden directory beside the target, and the next one goes on with it.
    """

    def __init__(self, target: Path, *, replace: bool = False) -> None:
        self._target = target
        self._replace = replace
        if target.is_dir():
            raise FetchError(f"{target} is a directory", "name the file: -o DIRECTORY/NAME.sif")
        if target.exists() and not target.is_file():
            raise FetchError(f"{target} is a device, a pipe or a socket, which a file would replace", "name a file")
        self._check_way()

    def find(self, sha256: str) -> Path | None:  # noqa: ARG002
        """None: nothing is kept here."""
        return None

    def find_made(self, manifest: str, compression: str) -> str | None:  # noqa: ARG002
        """None: nothing is kept here."""
        return None

    @contextmanager
    def incoming(self) -> Iterator[Path]:
        """A fresh path beside the target; what is left there at exit is removed."""
        path = self._hidden(f"incoming-{secrets.token_hex(4)}")
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A fresh directory beside the target, removed at exit."""
        path = self._hidden(f"workspace-{secrets.token_hex(4)}")
        with writing(path):
            path.mkdir(mode=0o700)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def partial(self, key: str) -> Iterator[Path]:
        """A directory beside the target that stays for the next run, locked against another one for the same target."""
        path = self._hidden(f"partial-{key}")
        with writing(path):
            path.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _lock(descriptor, self._target)
            yield path
        finally:
            os.close(descriptor)
            with suppress(OSError):  # it holds something to go on with
                path.rmdir()

    def finished(self, partial: Path) -> None:
        """Remove what `partial` gave."""
        shutil.rmtree(partial, ignore_errors=True)

    def add(self, incoming: Path, sha256: str, origin: ImageOrigin = NO_ORIGIN) -> Path:  # noqa: ARG002
        """Put a complete file in the target's place (fsync, rename) and return its path."""
        with writing(self._target):
            descriptor = os.open(incoming, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if self._replace:
                incoming.replace(self._target)
            else:
                try:
                    os.link(incoming, self._target)  # fails where somebody was faster; rename would not
                except FileExistsError:
                    self._check_way()
                except OSError:  # a file system without hard links
                    self._check_way()
                    incoming.rename(self._target)
        return self._target

    def _check_way(self) -> None:
        if os.path.lexists(self._target) and not self._replace:
            raise FetchError(f"{self._target} exists already; nothing was fetched", "give --force to replace it")

    def _hidden(self, kind: str) -> Path:
        return self._target.with_name(f".{self._target.name}.{kind}")


def _lock(directory: int, target: Path) -> None:
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FetchError(f"another sifmod is fetching {target} at the moment", "wait for it to end") from None
    except OSError:  # a file system without locks
        return
