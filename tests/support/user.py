"""An ordinary user: `sifmod-tester` when the tests run as root, else the user who runs them."""

import os
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import pytest

from support.command import Result, User, run
from support.runtime import RUNTIME

NAME = "sifmod-tester"
ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk, and make what is another user's")
"""For one parameter of a test; a test as a whole has the fixture `needs_root`."""


@dataclass(frozen=True)
class OrdinaryUser:
    """Runs commands as somebody who is not root."""

    user: User
    home: Path

    def run(
        self,
        args: Sequence[str | PathLike[str]],
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        stdin: str = "",
    ) -> Result:
        """Run `args` with `env` over a clean environment; every path must be open to the user (see `shared_tmp`)."""
        as_user = self.user if os.geteuid() == 0 else None
        return run(args, env={**self.environment(), **(env or {})}, cwd=cwd or self.home, stdin=stdin, user=as_user)

    def own(self, path: Path) -> Path:
        """Give the user `path` and all below it."""
        if os.geteuid() == 0:
            for directory, directories, files in os.walk(path):
                for name in (*directories, *files):
                    os.chown(Path(directory, name), self.user.uid, self.user.gid, follow_symlinks=False)
            os.chown(path, self.user.uid, self.user.gid, follow_symlinks=False)
        return path

    def environment(self) -> dict[str, str]:
        """What the user has at login; not RUNTIME.userns, which an ordinary user does not need."""
        return {"HOME": str(self.home), "PATH": RUNTIME.search_path, "USER": NAME, "LANG": "C.UTF-8"}


def ordinary_user(home: Path) -> OrdinaryUser:
    """The user, made once on the machine when root asks; `home` becomes the user's."""
    if os.geteuid() != 0:
        return OrdinaryUser(User(os.geteuid(), os.getegid()), home)
    try:
        entry = pwd.getpwnam(NAME)
    except KeyError:
        made = run(("useradd", "--system", "--create-home", "--shell", "/bin/bash", NAME))
        entry = pwd.getpwnam(NAME)  # two test processes may have tried at once
        assert made.code in (0, 9), made
    user = OrdinaryUser(User(entry.pw_uid, entry.pw_gid), home)
    user.own(home)
    return user
