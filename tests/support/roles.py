"""Each command as each user: what it may do, and what the others can do after it."""

import os
import stat
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

from support.disk_state import State
from support.writing_commands import COMMANDS, MEMBERS, SKIP, USERS, Command, World

UMASKS = (0o022, 0o077, 0o002, 0o007)
SHARING = ("site", "group", "none")
OPTION, CLOSED = 2, 25
NO_LAYER = (0, OPTION, 24, CLOSED)  # 0: none of the user's is stale
NOTHING_TO_DO = {  # by a reader
    "verify --repair-modes": (0,),
    "stack lock {stack} --output {out}/stack.lock": (0,),
}
FOUND_SOMETHING = {"doctor": 1}  # exit codes of commands that have done what they should, but for 0
NEXT = (f"install {{c}} {SKIP} --rebuild", "deprecate Tiny/1.0 --message other", "gc --yes --now --ignore-jobs")


class Row(NamedTuple):
    """One command of one user."""

    command: Command
    who: str
    umask: int
    sharing: str

    def __str__(self) -> str:
        return f"{self.command} by the {self.who} with {self.umask:03o}, sharing: {self.sharing}"

    @property
    def writers(self) -> tuple[str, ...]:
        """Who may change the prefix."""
        return USERS[:1] if self.sharing == "none" else MEMBERS

    @property
    def readers(self) -> tuple[str, ...]:
        """Who may load from it."""
        if self.sharing == "none":
            return USERS[:1] if self.umask & 0o004 else USERS
        return USERS if self.sharing == "site" else MEMBERS

    @property
    def made_with(self) -> int:
        """The umask of the run that made the tree: the least open one, where it does not decide who reads."""
        return 0o077 if self.sharing != "none" or self.umask & 0o004 else 0o022


def every() -> Iterator[Row]:
    """The whole product."""
    yield from (Row(*each) for each in product(COMMANDS, USERS, UMASKS, SHARING))


def pairwise() -> Iterator[Row]:
    """Every command as every user once; any two of command, user, umask and sharing come together in some row."""
    for number, command in enumerate(COMMANDS):
        for place, who in enumerate(USERS):
            umask = UMASKS[(place + number) % len(UMASKS)]
            yield Row(command, who, umask, SHARING[(place + number // len(UMASKS)) % len(SHARING)])


Unchanged = dict[tuple[str, ...], list[str]]


def tried(world: World, row: Row, unchanged: Unchanged) -> list[str]:
    """What was wrong when this user typed the command, in a tree that the publisher had made.

    `unchanged`: what was wrong after a command that had changed nothing, which is the same after any other such.
    """
    world.reset(row.command.start, row.sharing, row.made_with)
    before = state(world)
    done = world.run(row.who, row.umask, row.command.words)
    said = done.stdout + done.stderr
    wrong = [f"a traceback: {done.stderr[-2000:]}"] if "Traceback" in said else []
    if done.code not in codes(row):
        wrong.append(f"ended with {done.code}, not with {codes(row)}: {said[-600:]}")
    if done.code == CLOSED and "hint: " not in done.stderr:
        wrong.append(f"no hint: {done.stderr}")
    changed = differing(before, state(world))
    if changed and (row.who not in row.writers or row.command.writes == "nothing"):
        wrong.append(f"changed {len(changed)} files: {', '.join(changed[:4])}")
    if row.who in row.writers:
        situation = (row.command.start, row.sharing, f"{row.made_with} {row.umask}", row.who)
        if changed or situation not in unchanged:
            found = after(world, row)
            wrong += found
            if not changed:
                unchanged[situation] = found
    return wrong


def codes(row: Row) -> tuple[int, ...]:
    """The exit codes that are right."""
    command, normal = row.command, FOUND_SOMETHING.get(row.command.verb, 0)
    if command.options & {"--modes", "--repair-modes"} and row.sharing == "none":
        return (OPTION,)  # nothing is promised
    if command.needs_no_tree:
        return (normal,)
    if row.who not in row.readers:
        return (CLOSED,)
    if command.own_layer and row.who != "publisher":  # a layer of the user's own, who had none
        return (0,) if command.verb != "layer remove" and "--upgrade" not in command.options else NO_LAYER
    if row.who in row.writers or command.writes != "prefix":
        return (normal,)
    return NOTHING_TO_DO.get(command.words, (CLOSED,))


def after(world: World, row: Row) -> list[str]:
    """What the others cannot do any more: each writer goes on, each reader can load, all has the modes promised."""
    wrong = unreadable(world, row.readers)
    if row.sharing != "none":
        modes = world.run("publisher", row.umask, "verify --modes")
        wrong += [] if modes.code == 0 else [f"verify --modes: {modes.stdout}{modes.stderr}"]
    others = [one for one in row.writers if one != row.who] or [row.who]
    for other in others:
        for words in NEXT:
            done = world.run(other, 0o777 & ~row.umask & 0o077 if row.sharing != "none" else row.umask, words)
            if done.code != 0:
                wrong.append(f"then `{words}` by the {other}: {done.code} {done.stderr}")
    return wrong + unreadable(world, row.readers)


def state(world: World) -> State:
    """All that is no user's own: of a directory mode and owner, of all else that it is the same and has not changed."""
    found: State = {}
    for top in (world.prefix, world.area / "staging tree", world.area / "stacks"):
        for directory, directories, files in os.walk(top):
            for name in (".", *directories, *files):
                path = os.path.normpath(f"{directory}/{name}")
                status = os.lstat(path)
                once = () if stat.S_ISDIR(status.st_mode) else (status.st_ino, status.st_size, status.st_ctime_ns)
                found[path] = (status.st_mode, status.st_uid, *once)
    return found


def differing(before: State, now: State) -> list[str]:
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


def unreadable(world: World, readers: tuple[str, ...]) -> list[str]:
    """What a load, or a command of a module, would open and one of the readers cannot."""
    prefix = world.prefix.resolve()
    needs: dict[Path, int] = {}
    for path in _opened(world):
        for above in path.parents:
            if above.is_relative_to(prefix):
                needs[above] = needs.get(above, 0) | 1
        needs[path] = needs.get(path, 0) | (5 if path.is_dir() else 4)
    found = [(path, path.stat(), need) for path, need in needs.items()]
    return [
        f"the {who} cannot read {path}: {stat.filemode(status.st_mode)}"
        for who in readers
        for path, status, need in found
        if not _has(status, world.users[who], need)
    ]


def _opened(world: World) -> Iterator[Path]:
    live = [path for path in world.prefix.glob("software/*/*") if path.is_symlink()]
    live += world.prefix.glob("layers/*/*/*/*/live")
    for top in (world.prefix / "modules", world.prefix / "life", *live):
        for directory, _, files in os.walk(top.resolve()):
            yield Path(directory)
            for name in files:
                path = Path(directory, name)
                if path.is_symlink():
                    path = path.resolve()
                if not name.startswith((".life.json", ".lock")) and path.exists():
                    yield path


def _has(status: os.stat_result, user: tuple[int, ...], need: int) -> bool:
    uid, *groups = user
    shift = 6 if status.st_uid == uid else 3 if status.st_gid in groups else 0
    return stat.S_IMODE(status.st_mode) >> shift & need == need
