"""`.modulerc.lua` for Lmod and `.modulerc` for Environment Modules: what the life of modules is for each of them.

Lmod 8.6 knows defaults and hidden modules. Later ones also know `forbid`, and Environment Modules knows all three. Days
are compared when the file is read, so that nothing has to run on the day that a module retires. Lmod reads `.modulerc`
too, by a process of Tcl for each, and stops at one below a path that a shell would take apart.
"""

import re
from collections.abc import Collection

from sifmod.config.kinds import SYNTAXES, Syntax
from sifmod.config.name import ModuleName
from sifmod.digest import sha256_bytes
from sifmod.module import quote
from sifmod.tree.life import NameLife, begins, retirement

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
