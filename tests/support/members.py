"""Two users of one group on one prefix, Ann and Bob; for an ordinary user who runs the tests, both are that user."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from support.command import User
from support.identity import call_as
from support.user import OrdinaryUser

T = TypeVar("T")


@dataclass(frozen=True)
class Members:
    """The users, Ann's home, and the prefix that she has made for the group."""

    ann: User
    bob: User
    home: Path  # of Ann, closed to Bob; .bashrc, .profile and a directory with work of years are in it
    prefix: Path

    @property
    def alone(self) -> bool:
        """Whether both are the one ordinary user who runs the tests."""
        return self.ann == self.bob

    @property
    def three(self) -> tuple[User, User, User]:
        """Both, and one more of their group."""
        return self.ann, self.bob, User(self.bob.uid + 1, self.bob.gid)

    def by(self, user: User, do: Callable[[], T], umask: int = 0o002) -> T:
        """What `do` returns, called by this user with this umask."""

        def under() -> T:
            os.umask(umask)
            return do()

        return call_as(user, under)


def make_members(directory: Path, ordinary_user: OrdinaryUser, mode: int = 0o2775) -> Members:
    """The group in a directory that all can reach."""
    ann = ordinary_user.user
    bob = User(ann.uid + 50_000 if os.geteuid() == 0 else ann.uid, ann.gid)
    members = Members(ann, bob, directory / "home" / "ann", directory / "prefix")
    ordinary_user.own(directory)

    def make() -> None:
        (members.home / "work" / "2024").mkdir(parents=True)
        for name in (".bashrc", ".profile", "work/results.csv", "work/2024/results.csv"):
            (members.home / name).write_text(f"Ann's {name}\n")
        members.home.chmod(0o700)
        members.prefix.mkdir()
        members.prefix.chmod(mode)

    members.by(ann, make)
    return members
