"""The shell commands of an EasyBuild easyconfig that installs a container: what they install, build and check."""

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from posixpath import basename
from typing import get_args

from sifmod.config.easyconfig import Runscript
from sifmod.imports.result import CannotImportError, Value
from sifmod.secret import cut

_WRITES = re.compile(r"cat >\s*%\(installdir\)s/(bin|runscripts)/(\S+) <<\s*'?EOF'?(.*)", re.DOTALL)
_LINKS = re.compile(r"ln -s\s+(?:\./)?(\S+)\s+%\(installdir\)s/bin/(\S+)\s*")
_BUILDS = re.compile(r"\b(?:singularity|apptainer)\s+build\b([^<;|&]*)")
_WRITES_ANY = re.compile(r"cat >\s*(\S+) <<\s*'?EOF'?(.*)", re.DOTALL)
_BASE = re.compile(r"^[ \t]*From:[ \t]*(\S+)", re.MULTILINE)
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
    """What the commands of an easyconfig install: wrappers and runscripts, and how they start Python."""

    wrappers: list[str] = field(default_factory=list)
    runscripts: list[str] = field(default_factory=list)
    conda: tuple[str, str] | None = None  # prefix and environment
    uses_conda: bool = False
    user_software: bool = False


def take_commands(commands: Iterable[str], notes: list[str]) -> Scripts:
    """The files that `postinstallcmds` installs; `notes` gets commands without a counterpart, but mkdir, chmod, rm."""
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
                notes.append(f"bin/{linked[2]} is not imported: a link to {linked[1]}, which is not a wrapper")
        elif "-m venv" in command or "user-software" in command:
            notes.append("a command for user-software or a venv is not imported: run it after the installation")
        elif not _SILENT.match(command):
            notes.append(f"postinstallcmds: {cut(' '.join(command.split()), 80)!r} is not imported")
    scripts.wrappers = list(dict.fromkeys(scripts.wrappers))
    scripts.runscripts = list(dict.fromkeys(scripts.runscripts))
    return scripts


def read_build(commands: tuple[str, ...], notes: list[str]) -> tuple[dict[str, Value], tuple[str, ...]]:
    """The key `image.build` if commands build an image on another one, else {}; and the other commands.

    Files that they write for the definition's %files are written by `post`, with the same shell's rules. Raises
    CannotImportError if the definition is not a text in the file, or does not name its base.
    """
    builds = next((one for one in commands if _BUILDS.search(one.partition("<<")[0])), None)
    if builds is None:
        return {}, commands
    built = _BUILDS.search(builds)
    path = (built[1].split() if built else [])[-1:]
    written = {found[1]: one for one in commands if (found := _WRITES_ANY.match(one))}
    definition = written.get("".join(path))
    if definition is None:
        name = "".join(path).rpartition("/")[2] or "a definition"
        raise CannotImportError(
            f"builds its own image, for which image.build would need {name} in a file beside the easyconfig"
        )
    body = definition.partition("\n")[2].replace("%%", "%")
    if "'EOF'" not in definition.partition("\n")[0]:
        body = re.sub(r"\\([$`\\])", r"\1", body)
    body = re.sub(r"\nEOF\s*\Z", "\n", body)
    sections = re.split(r"(?m)^%(\w+)[^\n]*\n", body)
    said = dict(zip(sections[1::2], sections[2::2], strict=True))
    base = _BASE.search(sections[0])
    if base is None:
        raise CannotImportError("builds its own image, but from a definition without a line `From:`")
    post, used = [], {builds, definition}
    for line in said.pop("files", "").splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        source, target = words[0], words[-1]
        if source in written:
            used.add(written[source])
            text = written[source].replace(source, '"$to"', 1).rstrip("\n")
            into = f'if [ -d "$to" ]; then to=$to/{shlex.quote(basename(source))}; fi'  # as %files copies
            post.append(f'to={shlex.quote(target)}\n{into}\nmkdir -p "$(dirname "$to")"\n{text}\nchmod a+rx "$to"\n')
        else:
            notes.append(f"%files {source}: copy it beside the easyconfig: `files: {{…: {target}}}` of image.build")
    post.append(said.pop("post", ""))
    build: dict[str, Value] = {"from": base[1].removeprefix("%(installdir)s/")}
    # with blanks at the end of a line, YAML would write the text as one line
    build["post"] = re.sub(r"(?m)(?<![ \t])[ \t]+$", "", "".join(post)).rstrip("\n") + "\n"
    if test := said.pop("test", "").strip():
        build["test"] = f"{test}\n"
    notes.extend(f"%{name} of its definition is not imported" for name, text in said.items() if text.strip())
    return build, tuple(one for one in commands if one not in used)


def _script(scripts: Scripts, place: str, name: str, body: str, notes: list[str]) -> None:
    if place == "runscripts":
        ours = name if name in get_args(Runscript) else _RENAMED.get(name, "")
        if ours:
            scripts.runscripts.append(ours)
        if ours != name:
            notes.append(f"runscript {name}: {f'called {ours} here' if ours else 'sifmod has no such runscript'}")
    elif name in _SIFMODS or _PASSES_ON.search(body):
        scripts.wrappers.append(name)
    elif name in _PACKERS:
        scripts.user_software = True
    else:
        notes.append(f"bin/{name}: a separate script, not imported")


def sanity_commands(commands: Iterable[str], scripts: Scripts, notes: list[str]) -> tuple[str, ...]:
    """The commands that work inside the container, where sifmod runs them."""
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
            notes.append(f"sanity_check_commands: {cut(' '.join(inside.split()), 80)!r} is not imported")
    return tuple(dict.fromkeys(found))
