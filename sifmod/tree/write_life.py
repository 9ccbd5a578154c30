"""Write the lifecycle of modules: the file that keeps it, then all files derived from it.

`.modulerc.lua` is for Lmod, `.modulerc` for Environment Modules. Lmod 8.6 knows defaults and hidden modules. Later
versions also know `forbid`, and Environment Modules knows all three. Days are compared when the file is read, so that
nothing has to run on the day of retirement. Lmod reads `.modulerc` too, with a Tcl process for each, and fails for
paths that need shell quoting.
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
from sifmod.tree.locking import HeldLock, Tree
from sifmod.tree.removal import prune

LUA, TCL = ".modulerc.lua", ".modulerc"
_MARK = "{} sifmod wrote this file; edited by hand it is kept. What follows has the SHA-256 {}\n"
_OURS = re.compile(rb"(?:#%Module1\.0\n)?(?:--|#) sifmod wrote this file; .* the SHA-256 ([0-9a-f]{64})\n")


def modulercs(
    name: str, life: NameLife, syntaxes: Collection[Syntax] = SYNTAXES, there: Collection[str] = ()
) -> dict[str, str]:
    """The text of each modulerc file, by file name; "" without decisions or without modulefiles of its syntax.

    An existing file (`there`) stays, without commands: Lmod fails if one disappears while it reads the directory.
    """
    texts = {LUA: "", TCL: ""}
    if "lua" in syntaxes:
        texts[LUA] = _marked("", "--", _lua(name, life), stays=LUA in there)
    if "tcl" in syntaxes:
        texts[TCL] = _marked("#%Module1.0\n", "#", _tcl(name, life), stays=TCL in there)
    return texts


def is_ours(data: bytes) -> bool:
    """Whether sifmod wrote the file and it was not changed since."""
    found = _OURS.match(data)
    return found is not None and sha256_bytes(data[found.end() :]).encode() == found[1]


def commands(text: str) -> tuple[str, ...]:
    """The lines of a modulerc file without its comments."""
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


_PLAIN = re.compile(r"[A-Za-z0-9/._+@%=-]+")  # a path that needs no shell quoting
LOCK = "life."  # followed by a name: the lock for the files of its lifecycle


class LifeFile(NamedTuple):
    """A file of a lifecycle, with its wanted text; an empty `text`: the file must not exist."""

    path: Path
    text: str


class Written(NamedTuple):
    """The lifecycle before and after a change, and the files that should be different now but are kept."""

    before: NameLife
    after: NameLife
    kept: tuple[LifeFile, ...]  # paths of modulerc files that sifmod did not write, or that were changed
    changed: bool  # whether any file was written or removed


def life_lock(tree: Tree, name: str) -> AbstractContextManager[HeldLock]:
    """Hold the lock for all files of this name's lifecycle."""
    return tree.lock(f"{LOCK}{name}", name)


def written(layout: Layout, name: str, change: Callable[[NameLife], NameLife]) -> Written | None:
    """The result of `write_life` if it has nothing to write; None otherwise."""
    before = read_life(layout, name)
    after = change(before)
    if after == NameLife() and not os.path.lexists(layout.lives(name)):  # as for most names
        return Written(before, after, (), changed=False)
    wrong, kept = _compared(layout, name, after)
    return None if wrong else Written(before, after, kept, changed=False)


def write_life(layout: Layout, name: str, change: Callable[[NameLife], NameLife], held: HeldLock) -> Written:
    """Change the lifecycle of this name with `change`, and update the derived files, except edited ones. Idempotent.

    If it is killed, the first file has the change, and the next run writes the others. On an error nothing has changed.
    Raises InstallError, PermissionsError or LockError, and the errors of `change`.
    """
    with changed(held, f"cannot write the lifecycle of {name}") as steps:
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
    """Update what is derived from this name's lifecycle after its modulefiles changed; cheap without decisions."""
    if any(map(os.path.lexists, (layout.life(name), layout.modules / name / LUA, layout.modules / name / TCL))):
        complete_life(Tree(layout, lease, lambda _what: lambda _who: None), name)


def complete_life(tree: Tree, name: str) -> None:
    """Update the files derived from this name's lifecycle. Errors are ignored: the next change reports them."""
    with suppress(SifmodError, OSError), life_lock(tree, name) as held:
        write_life(tree.layout, name, lambda life: life, held)


def _compared(layout: Layout, name: str, life: NameLife) -> tuple[list[LifeFile], tuple[LifeFile, ...]]:
    """The files that differ from this lifecycle, and foreign ones that are kept."""
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
    """All files of the lifecycle, before and after, starting with the one that the others derive from."""
    yield LifeFile(layout.life(name), to_json(life))
    by_version = dict(notices(name, life))
    for version in sorted({*by_version, *filter(is_part, names(layout.lives(name), layout.prefix))}):
        yield LifeFile(layout.lives(name) / version, by_version.get(version, ""))
    places = {file: layout.modules / name / file for file in (LUA, TCL)}
    there = [file for file, path in places.items() if is_ours(_content(path, layout.prefix) or b"")]
    for file, text in modulercs(name, life, _syntaxes(layout, name), there).items():
        yield LifeFile(places[file], text)


def _syntaxes(layout: Layout, name: str) -> tuple[Syntax, ...]:
    """The syntaxes of existing modulefiles, () without any; only Lua if Lmod could not read the Tcl file."""
    files = [*filter(is_part, names(layout.modules / name, layout.prefix))]
    if any(file.endswith(".lua") for file in files):
        only_lua = all(file.endswith(".lua") for file in files) or not _PLAIN.fullmatch(str(layout.prefix))
        return ("lua",) if only_lua else SYNTAXES
    return ("tcl",) if files else ()


def _content(path: Path, top: Path) -> bytes | None:
    """The content of a file; None if it is missing, and a NUL if it is not a readable regular file."""
    data = content(path, top=top)
    return b"\0" if data is None and is_there(path) else data
