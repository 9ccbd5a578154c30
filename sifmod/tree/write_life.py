"""Writing the life of modules: the file that keeps it, then all that is made of it.

`.modulerc.lua` is for Lmod, `.modulerc` for Environment Modules. Lmod 8.6 knows defaults and hidden modules. Later ones
also know `forbid`, and Environment Modules knows all three. Days are compared when the file is read, so that nothing
has to run on the day that a module retires. Lmod reads `.modulerc` too, by a process of Tcl for each, and stops at one
below a path that a shell would take apart.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import NamedTuple

from sifmod.config.kinds import SYNTAXES, Syntax
from sifmod.config.name import ModuleName, is_part
from sifmod.digest import sha256_bytes
from sifmod.errors import SifmodError
from sifmod.module import quote
from sifmod.tree.change import change as changed
from sifmod.tree.durable import content, is_there, names
from sifmod.tree.layout import Layout
from sifmod.tree.life import NameLife, begins, notices, read_life, retirement, to_json
from sifmod.tree.locking import Held, Tree
from sifmod.tree.removal import prune

LUA, TCL = ".modulerc.lua", ".modulerc"
_MARK = "{} sifmod wrote this file; edited by hand it is kept. What follows has the SHA-256 {}\n"
_OURS = re.compile(rb"(?:#%Module1\.0\n)?(?:--|#) sifmod wrote this file; .* the SHA-256 ([0-9a-f]{64})\n")


def modulercs(
    name: str, life: NameLife, syntaxes: Collection[Syntax] = SYNTAXES, there: Collection[str] = ()
) -> dict[str, str]:
    """The text of each file, by its name; empty where there is nothing to say, or no modulefile of its syntax.

    A file that is `there` stays, without a command: Lmod fails a load when one goes while it reads the directory.
    """
    texts = {LUA: "", TCL: ""}
    if "lua" in syntaxes:
        texts[LUA] = _marked("", "--", _lua(name, life), stays=LUA in there)
    if "tcl" in syntaxes:
        texts[TCL] = _marked("#%Module1.0\n", "#", _tcl(name, life), stays=TCL in there)
    return texts


def is_ours(data: bytes) -> bool:
    """Whether sifmod wrote the file, and nobody has changed it since."""
    found = _OURS.match(data)
    return found is not None and sha256_bytes(data[found.end() :]).encode() == found[1]


def commands(text: str) -> tuple[str, ...]:
    """The lines of such a file without those that only say what it is."""
    return tuple(line for line in text.splitlines() if not line.startswith(("#", "--")))


def _marked(head: str, comment: str, lines: tuple[str, ...], *, stays: bool) -> str:
    body = "".join(f"{line}\n" for line in lines)
    return f"{head}{_MARK.format(comment, sha256_bytes(body.encode()))}{body}" if body or stays else ""


def _lua(name: str, life: NameLife) -> tuple[str, ...]:
    lines = []
    for version, one in sorted(life.versions.items()):
        module = ModuleName(name, version)
        spelled = quote.lua(str(module))
        if one.hidden or one.retired:
            lines.append(f"hide_version({spelled})")
        if day := one.refused_from:
            message = quote.lua(retirement(module, one))
            lines.append(f"if os.time() >= {begins(day)} then -- {day}")
            lines.append(f"   hide_version({spelled})")
            lines.append(f"   if forbid then forbid{{name = {spelled}, message = {message}}} end")
            lines.append("end")
    if life.default:
        default = f'module_version({quote.lua(f"{name}/{life.default}")}, "default")'
        day = life.of(life.default).refused_from
        lines.append(f"if os.time() < {begins(day)} then {default} end -- {day}" if day else default)
    return tuple(lines)


def _tcl(name: str, life: NameLife) -> tuple[str, ...]:
    lines = [
        "if {![llength [info commands module-forbid]]} {proc module-forbid args {}}",
        "if {![llength [info commands module-hide]]} {",
        "    proc module-hide module {if {[llength [info commands hide-version]]} {hide-version $module}}",
        "}",
    ]
    begin = len(lines)
    for version, one in sorted(life.versions.items()):
        module = ModuleName(name, version)
        if one.hidden or one.retired:
            lines.append(f"module-hide {module}")
        if day := one.refused_from:
            lines.append(f"if {{[clock seconds] >= {begins(day)}}} {{")
            lines.append(f"    # {day}")
            lines.append(f"    module-hide {module}")
            lines.append(f"    module-forbid --message {quote.tcl(retirement(module, one))} {module}")
            lines.append("}")
    if life.default:
        default = f"module-version {name}/{life.default} default"
        day = life.of(life.default).refused_from
        lines.append(f"if {{[clock seconds] < {begins(day)}}} {{{default}}} ;# {day}" if day else default)
    return tuple(lines) if lines[begin:] else ()


_PLAIN = re.compile(r"[A-Za-z0-9/._+@%=-]+")  # a path that a shell takes as one word
LOCK = "life."  # and the name: the lock under which these files are written


class LifeFile(NamedTuple):
    """A file that follows from a life; an empty `text`: it is not to be there."""

    path: Path
    text: str


class Written(NamedTuple):
    """What a life was before and is now, and the files that are not as it says."""

    before: NameLife
    after: NameLife
    kept: tuple[LifeFile, ...]  # of a modulerc, which sifmod did not write, or which were changed since
    changed: bool  # any file


def life_lock(tree: Tree, name: str) -> AbstractContextManager[Held]:
    """Hold the lock under which all that follows from the life of this name is written."""
    return tree.lock(f"{LOCK}{name}", name)


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
    with changed(held, f"cannot write what is decided about {name}") as steps:
        before = read_life(layout, name)
        after = change(before)
        wrong, kept = _compared(layout, name, after)
        for file in wrong:
            if file.text:
                steps.file(file.path, file.text)
            else:
                steps.remove(file.path)
    prune(layout.lives(name), layout.prefix)
    return Written(before, after, kept, changed=bool(wrong))


def renew_life(layout: Layout, name: str, lease: float) -> None:
    """Write what follows from modulefiles that came or went; one look where nothing is decided about this name."""
    if any(map(os.path.lexists, (layout.life(name), layout.modules / name / LUA, layout.modules / name / TCL))):
        complete_life(Tree(layout, lease, lambda _what: lambda _who: None), name)


def complete_life(tree: Tree, name: str) -> None:
    """Write what a run that died has not; the next change tells of what cannot be written now."""
    with suppress(SifmodError, OSError), life_lock(tree, name) as held:
        write_life(tree.layout, name, lambda life: life, held)


def _compared(layout: Layout, name: str, life: NameLife) -> tuple[list[LifeFile], tuple[LifeFile, ...]]:
    """The files that are not as this life says, and those of others that stay so."""
    wrong, kept = [], []
    for file in _files(layout, name, life):
        there = _content(file.path, layout.prefix)
        if there == (file.text.encode() or None):
            continue
        if there is None or file.path.name not in (LUA, TCL) or is_ours(there):
            wrong.append(file)
        elif file.text:
            kept.append(file)
    return wrong, tuple(kept)


def _files(layout: Layout, name: str, life: NameLife) -> Iterator[LifeFile]:
    """Every file that there is to be, or was to be before, the one that the others are made of first."""
    yield LifeFile(layout.life(name), to_json(life))
    told = dict(notices(name, life))
    for version in sorted({*told, *filter(is_part, names(layout.lives(name), layout.prefix))}):
        yield LifeFile(layout.lives(name) / version, told.get(version, ""))
    places = {file: layout.modules / name / file for file in (LUA, TCL)}
    there = [file for file, path in places.items() if is_ours(_content(path, layout.prefix) or b"")]
    for file, text in modulercs(name, life, _syntaxes(layout, name), there).items():
        yield LifeFile(places[file], text)


def _syntaxes(layout: Layout, name: str) -> tuple[Syntax, ...]:
    """Those of the modulefiles that are there; Lua alone where Lmod could not read what is for the others."""
    files = [*filter(is_part, names(layout.modules / name, layout.prefix))]
    if any(file.endswith(".lua") for file in files):
        only_lua = all(file.endswith(".lua") for file in files) or not _PLAIN.fullmatch(str(layout.prefix))
        return ("lua",) if only_lua else SYNTAXES
    return ("tcl",) if files else ()


def _content(path: Path, top: Path) -> bytes | None:
    """What is in a file; None where there is none, and nothing of sifmod's for what is no file."""
    data = content(path, top=top)
    return b"\0" if data is None and is_there(path) else data
