"""Writing the life of modules: the file that keeps it, then all that is made of it."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import NamedTuple

from sifmod.config.kinds import SYNTAXES, Syntax
from sifmod.config.name import is_part
from sifmod.errors import SifmodError
from sifmod.tree.change import Change
from sifmod.tree.disk import is_refused, opened, read
from sifmod.tree.layout import Layout
from sifmod.tree.life import NameLife, notices, read_life, to_json
from sifmod.tree.lock import Held, lock
from sifmod.tree.modulerc import LUA, TCL, is_ours, modulercs
from sifmod.tree.remove import prune

_PLAIN = re.compile(r"[A-Za-z0-9/._+@%=-]+")  # a path that a shell takes as one word
LOCK = "life."  # and the name: the lock under which these files are written


class Kept(NamedTuple):
    """A file of a modulerc that sifmod did not write, or that was changed since; `text` is what it would have had."""

    path: Path
    text: str


class Written(NamedTuple):
    """What a life was before and is now, and the files that are not as it says."""

    before: NameLife
    after: NameLife
    kept: tuple[Kept, ...]
    changed: bool  # any file


class _File(NamedTuple):
    path: Path
    text: str  # empty: no such file
    replaced: Callable[[bytes], bool]  # whether a file with this content is replaced


def life_lock(layout: Layout, name: str, lease: float, on_wait: Callable[[str], None]) -> AbstractContextManager[Held]:
    """Hold the lock under which all that follows from the life of this name is written."""
    return lock(layout, f"{LOCK}{name}", lease, on_wait)


def written(layout: Layout, name: str, change: Callable[[NameLife], NameLife]) -> Written | None:
    """What `write_life` would give where it has nothing to write; None where it has."""
    before = read_life(layout, name)
    after = change(before)
    if after == NameLife() and not os.path.lexists(layout.lives(name)):  # of most names
        return Written(before, after, (), changed=False)
    wrong, kept = _compared(layout, name, after)
    return None if wrong else Written(before, after, kept, changed=False)


def write_life(layout: Layout, name: str, change: Callable[[NameLife], NameLife], held: Held) -> Written:
    """Make the life of this name what `change` makes of it, and each file what follows from that. Idempotent.

    Killed on the way, the first file has it, and the next run writes the others. On an error all is as before.
    Raises InstallError, PermissionsError or LockError, and what `change` raises.
    """
    with held.changing(f"cannot write what is decided about {name}"):
        before = read_life(layout, name)
        after = change(before)
        wrong, kept = _compared(layout, name, after)
        steps = Change(held, layout.prefix)
        for file in wrong:
            if file.text:
                steps.file(file.path, file.text)
            else:
                steps.remove(file.path)
        steps.apply()
        prune(layout.lives(name), layout.prefix)
    return Written(before, after, kept, changed=bool(wrong))


def renew_life(layout: Layout, name: str, lease: float) -> None:
    """Write what follows from modulefiles that came or went; one look where nothing is decided about this name."""
    if any(map(os.path.lexists, (layout.life(name), layout.modules / name / LUA, layout.modules / name / TCL))):
        complete_life(layout, name, lease, lambda _who: None)


def complete_life(layout: Layout, name: str, lease: float, on_wait: Callable[[str], None]) -> None:
    """Write what a run that died has not; the next change tells of what cannot be written now."""
    with suppress(SifmodError, OSError), life_lock(layout, name, lease, on_wait) as held:
        write_life(layout, name, lambda life: life, held)


def _compared(layout: Layout, name: str, life: NameLife) -> tuple[list[_File], tuple[Kept, ...]]:
    """The files that are not as this life says, and those of others that stay so."""
    wrong, kept = [], []
    for file in _files(layout, name, life):
        there = _content(file.path, layout.prefix)
        if there == (file.text.encode() or None):
            continue
        if there is None or file.replaced(there):
            wrong.append(file)
        elif file.text:
            kept.append(Kept(file.path, file.text))
    return wrong, tuple(kept)


def _files(layout: Layout, name: str, life: NameLife) -> Iterator[_File]:
    """Every file that there is to be, or was to be before, the one that the others are made of first."""
    yield _File(layout.life(name), to_json(life), _any)
    told = dict(notices(name, life))
    for version in sorted(told.keys() | _names(layout.lives(name), layout)):
        yield _File(layout.lives(name) / version, told.get(version, ""), _any)
    places = {file: layout.modules / name / file for file in (LUA, TCL)}
    there = [file for file, path in places.items() if is_ours(_content(path, layout.prefix) or b"")]
    for file, text in modulercs(name, life, _syntaxes(layout, name), there).items():
        yield _File(places[file], text, is_ours)


def _syntaxes(layout: Layout, name: str) -> tuple[Syntax, ...]:
    """Those of the modulefiles that are there; Lua alone where Lmod could not read what is for the others."""
    files = _names(layout.modules / name, layout)
    if any(file.endswith(".lua") for file in files):
        only_lua = all(file.endswith(".lua") for file in files) or not _PLAIN.fullmatch(str(layout.prefix))
        return ("lua",) if only_lua else SYNTAXES
    return ("tcl",) if files else ()


def _names(directory: Path, layout: Layout) -> set[str]:
    """The files that are named as versions are."""
    try:
        with opened(directory, layout.prefix) as place:
            return set(filter(is_part, os.listdir(place)))  # noqa: PTH208 (a descriptor)
    except FileNotFoundError:
        return set()


def _any(_data: bytes) -> bool:
    return True


def _content(path: Path, top: Path) -> bytes | None:
    """What is in a file; None where there is none, and nothing of sifmod's for what is no file."""
    try:
        return read(path, top=top)
    except FileNotFoundError:
        return None
    except OSError as error:
        if is_refused(error):
            return b"\0"
        raise
