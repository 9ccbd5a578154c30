"""The commands of an EasyBuild easyconfig: which scripts they write, as wrappers and runscripts of sifmod."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import get_args

from sifmod.config.easyconfig import Runscript

_WRITES = re.compile(r"cat >\s*%\(installdir\)s/(bin|runscripts)/(\S+) <<\s*'?EOF'?(.*)", re.DOTALL)
_LINKS = re.compile(r"ln -s\s+(?:\./)?(\S+)\s+%\(installdir\)s/bin/(\S+)\s*")
_BUILDS = re.compile(r"\b(?:singularity|apptainer)\s+build\b([^<;|&]*)")
_WRITES_ANY = re.compile(r"cat >\s*(\S+) <<\s*'?EOF'?(.*)", re.DOTALL)
_BASE = re.compile(r"^[ \t]*From:[ \t]*(\S+)", re.MULTILINE)
_FILES = re.compile(r"^%files[^\n]*\n(.*?)(?=^%|\Z)", re.MULTILINE | re.DOTALL)
_ACTIVATES = re.compile(r"^[ \t]*source (/\S+)/bin/activate (\w+)[ \t]*$", re.MULTILINE)
_PASSES_ON = re.compile(r"^[ \t]*(?:exec )?singularity exec \\?\"?\\?\$SIF\w*\"? \\?\$\w+ ", re.MULTILINE)
_SILENT = re.compile(r"(mkdir|chmod|rm) ")
_ANNOUNCED = re.compile(r"\A\s*echo \"[^\"]*\"\s*;\s*")
_ON_HOST = re.compile(r"(?:singularity|apptainer) exec \"?\$SIF\w*\"?\s+")
_SIFMODS = ("start-shell", "list-packages")
_PACKERS = ("make-squashfs", "unmake-squashfs")  # which every module with user_software has
_RENAMED = {name.replace("conda-python", "python-conda"): name for name in get_args(Runscript)}


@dataclass
class Scripts:
    """What the commands install."""

    wrappers: list[str] = field(default_factory=list)
    runscripts: list[str] = field(default_factory=list)
    conda: tuple[str, str] | None = None  # prefix and environment
    uses_conda: bool = False
    user_software: bool = False


def take_commands(commands: Iterable[str], notes: list[str]) -> Scripts:
    """What `postinstallcmds` installs; notes are added to for what has no counterpart."""
    scripts = Scripts()
    for command in commands:
        scripts.uses_conda = scripts.uses_conda or "$WITH_CONDA" in command
        if activated := _ACTIVATES.search(command):
            scripts.conda = (activated[1], activated[2])
        if written := _WRITES.match(command):
            _script(scripts, written[1], written[2], written[3], notes)
        elif linked := _LINKS.fullmatch(command):
            if linked[1] in scripts.wrappers:
                scripts.wrappers.append(linked[2])
            else:
                notes.append(f"bin/{linked[2]}: a link to {linked[1]}, which is no wrapper")
        elif "-m venv" in command or "user-software" in command:
            notes.append("user-software: what EasyBuild puts into it (a venv) is the user's to make once installed")
        elif not _SILENT.match(command):
            notes.append(f"postinstallcmds: {' '.join(command.split())[:80]!r} is not carried over")
    scripts.wrappers = list(dict.fromkeys(scripts.wrappers))
    scripts.runscripts = list(dict.fromkeys(scripts.runscripts))
    return scripts


def build_needs(commands: tuple[str, ...]) -> str:
    """What `image.build` would need instead of commands that build an image of their own; empty for all others."""
    built = next((found[1] for one in commands if (found := _BUILDS.search(one.partition("<<")[0]))), None)
    if built is None:
        return ""
    path = (built.split() or [""])[-1]
    definition = path.rpartition("/")[2] or "a definition"
    body = next((found[2] for one in commands if (found := _WRITES_ANY.match(one)) and found[1] == path), "")
    if not body:
        return f"{definition}, in a file beside the easyconfig"
    lines = (line.split() for section in _FILES.findall(body) for line in section.splitlines())
    copied = [words[0] for words in lines if words and not words[0].startswith("#")]
    written = [one.rpartition("/")[2] for one in copied if one.startswith("%(installdir)s/")]
    needs = [f"the text of {definition} in postinstallcmds, in a file beside the easyconfig"]
    needs += [f"{base[1]}, which it begins with (From)"] if (base := _BASE.search(body)) else []
    needs += [f"what postinstallcmds writes for its %files: {', '.join(written)}"] if written else []
    if theirs := [one for one in copied if one.startswith("/")]:
        more = f" and {len(theirs) - 1} more of its %files" if theirs[1:] else ""
        needs.append(f"a machine with {theirs[0]}{more}")
    return "; ".join(needs)


def _script(scripts: Scripts, place: str, name: str, body: str, notes: list[str]) -> None:
    if place == "runscripts":
        ours = name if name in get_args(Runscript) else _RENAMED.get(name, "")
        if ours:
            scripts.runscripts.append(ours)
        if ours != name:
            notes.append(f"runscript {name}: {f'here it is {ours}' if ours else 'sifmod has none of this name'}")
    elif name in _SIFMODS or _PASSES_ON.search(body):
        scripts.wrappers.append(name)
    elif name in _PACKERS:
        scripts.user_software = True
    else:
        notes.append(f"bin/{name}: a script of its own, not carried over")


def sanity_commands(commands: Iterable[str], scripts: Scripts, notes: list[str]) -> tuple[str, ...]:
    """The commands that mean something inside the container, where sifmod runs them."""
    found: list[str] = []
    for command in commands:
        inside = _ANNOUNCED.sub("", command, count=1)
        if inside.startswith("bash -n "):
            continue  # the syntax of scripts that sifmod writes itself
        inside, on_host = _ON_HOST.subn("", inside, count=1)
        first = inside.split(maxsplit=1)[0] if inside.split() else ""
        if (on_host or first in scripts.wrappers) and first not in _SIFMODS and "\n" not in inside:
            found.append(inside)
        elif first not in _SIFMODS:
            notes.append(f"sanity_check_commands: {' '.join(inside.split())[:80]!r} is not carried over")
    return tuple(dict.fromkeys(found))
