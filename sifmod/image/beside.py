"""A store of one file: an image that goes where the user said, with what is not complete beside it."""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sifmod.errors import FetchError, PermissionsError
from sifmod.image.disk import writing
from sifmod.module.origin import NO_ORIGIN, ImageOrigin


class Beside:
    """An artifact.Store for `target` alone; a file that is there is replaced, whole, only with `replace`.

    What is not complete lies in a hidden directory beside the target, under its lock: what a run that failed had
    received, with which the next one goes on, and until the next run what one that was killed had begun.
    Raises FetchError or PermissionsError where the target cannot be written, before anything is.
    """

    def __init__(self, target: Path, *, replace: bool = False) -> None:
        self._target = target
        self._replace = replace
        self._hidden = target.with_name(f".{target.name}.fetching")
        self._users = 0
        self._lock = -1
        if target.is_dir():
            raise FetchError(f"{target} is a directory", "name the file: -o DIRECTORY/NAME.sif")
        if target.exists() and not target.is_file():
            raise FetchError(f"{target} is a device, a pipe or a socket, which a file would replace", "name a file")
        if not target.parent.is_dir():
            raise FetchError(f"there is no directory {target.parent}", "make it first, or choose another")
        self._check_way()
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise PermissionsError(f"cannot write into {target.parent}", "choose another place with -o")

    def find(self, sha256: str) -> Path | None:  # noqa: ARG002
        """None: nothing is kept here."""
        return None

    def find_made(self, source: str, digest: str) -> tuple[tuple[Path, ImageOrigin], ...]:  # noqa: ARG002
        """None: nothing is kept here."""
        return ()

    def gave(self, path: Path, origin: ImageOrigin, source: str) -> None:
        """Nothing is noted: nothing is kept here."""

    @contextmanager
    def incoming(self) -> Iterator[Path]:
        """A fresh path in the hidden directory; what is left there at exit is removed."""
        with self._within() as hidden:
            path = hidden / f"incoming-{secrets.token_hex(4)}"
            try:
                yield path
            finally:
                path.unlink(missing_ok=True)

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A fresh directory in the hidden one, removed at exit."""
        with self._within() as hidden:
            path = hidden / f"workspace-{secrets.token_hex(4)}"
            with writing(path):
                path.mkdir(mode=0o700)
            try:
                yield path
            finally:
                shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def partial(self, key: str) -> Iterator[Path]:
        """A directory in the hidden one that stays for the next run."""
        with self._within() as hidden:
            path = hidden / key
            with writing(path):
                path.mkdir(mode=0o700, exist_ok=True)
            try:
                yield path
            finally:
                with suppress(OSError):  # it holds something to go on with
                    path.rmdir()

    def finished(self, partial: Path) -> None:
        """Remove what `partial` gave."""
        shutil.rmtree(partial, ignore_errors=True)

    def add(
        self,
        incoming: Path,
        sha256: str,  # noqa: ARG002
        origin: ImageOrigin = NO_ORIGIN,  # noqa: ARG002
        source: str = "",  # noqa: ARG002
    ) -> Path:
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

    @contextmanager
    def _within(self) -> Iterator[Path]:
        """The hidden directory, locked against another run for the same target."""
        if not self._users:
            self._open()
        self._users += 1
        try:
            yield self._hidden
        finally:
            self._users -= 1
            if not self._users:
                with suppress(OSError):  # something is left to go on with
                    self._hidden.rmdir()
                os.close(self._lock)

    def _open(self) -> None:
        """Lock the hidden directory, and remove what a run that was killed had begun in it."""
        with writing(self._hidden):
            while True:
                self._hidden.mkdir(mode=0o700, exist_ok=True)
                self._lock = os.open(self._hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                _lock(self._lock, self._target)
                if self._hidden.exists() and os.path.samestat(os.fstat(self._lock), self._hidden.stat()):
                    break  # not the one that another run has just removed
                os.close(self._lock)
        for path in self._hidden.glob("incoming-*"):
            path.unlink(missing_ok=True)
        for path in self._hidden.glob("workspace-*"):
            shutil.rmtree(path, ignore_errors=True)


def _lock(directory: int, target: Path) -> None:
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(directory)
        raise FetchError(f"another sifmod is fetching {target} at the moment", "wait for it to end") from None
    except OSError:  # a file system without locks
        return
