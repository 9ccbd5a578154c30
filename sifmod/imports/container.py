"""Convert a container runtime's variables and command lines, as other tools write them, to keys of an easyconfig."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from sifmod.config.text import is_root
from sifmod.imports.result import Value
from sifmod.secret import cut

MOST = 4096  # letters of a command line
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_SHELL = re.compile(r"[$`;&|<>()*?\n]|\\$")
_BIND = re.compile(r"/[^,:\"\\$`\x00-\x1f\x7f\ue000-\uf8ff]*(:/[^,:\"\\$`\x00-\x1f\x7f\ue000-\uf8ff]*(:(ro|rw))?)?")
_BIND_OPTIONS = ("-B", "--bind")
_WITH_VALUE = ("-H", "--home", "--env", "--pwd", "--cwd", "-W", "--workdir", "-o", "--overlay", "-S", "--scratch")
_TAKES_VALUE = (*_WITH_VALUE, "--mount", "--env-file", "--hostname", "--network", "--app")
_INSIDE = re.compile("(?:SINGULARITYENV|APPTAINERENV)_(.+)")
_BINDS = re.compile("(?:SINGULARITY|APPTAINER)_BIND(?:PATH)?")
_FLAGS = re.compile("(?:SINGULARITY|APPTAINER)_(NV|NVCCLI|ROCM)")
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_LONGEST = 255  # letters of a name; YAML reads keys of up to 1024
_OWN = re.compile("(SIF|RUNSCRIPTS|EBROOT|EBVERSION|EBDEVEL)[A-Z0-9_]*|CONTAINERROOT")
_ACTIVATES = re.compile(r"(?:source|\.) (/[A-Za-z0-9_./-]+)/bin/activate(?: ([A-Za-z0-9]+(?:[._-][A-Za-z0-9_]+)*))?")
_EVALUATED = re.compile(r"[$`]")
_OFF = ("", "0", "false", "False", "no")
NOT_A_BIND = "is not imported: it has a variable, or is not `/source[:/target[:ro|rw]]` with a target below /"
OPTIONAL = "binds: all are optional here, skipped if their source is missing"
_CONDA = ("CONDA_DEFAULT_ENV", "CONDA_EXE", "CONDA_PREFIX")


def is_for_a_shell(command: str) -> bool:
    """Whether a command line contains shell syntax outside single quotes."""
    return bool(_SHELL.search(re.sub(r"'[^']*'", "", command)))


def without_arguments(command: str) -> str:
    """A command line without the user's arguments (`"$@"` or `$*`) at its end."""
    command = command.strip()
    ending = next((words for words in ('"$@"', "$@", '"$*"', "$*") if command.endswith(words)), "")
    return command.removesuffix(ending).rstrip()


def wrapper(name: str, command: str) -> Value:
    """The item of `wrappers`; raises ValueError for an unclosed quotation mark, or without a command at the start."""
    words = shlex.split(command)
    if not words or not words[0] or words[0].startswith("-"):
        raise ValueError("it does not start with a command")
    return name if words == [name] else {name: " ".join(command.split()) if "'" not in command else command}


def binds_of(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The bind paths of `a,b:c,d`, and the parts that are not valid bind paths."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    good = [part for part in parts if _BIND.fullmatch(part) and not is_root((*part.split(":"), part)[1])]
    return tuple(good), tuple(part for part in parts if part not in good)


@dataclass
class Found:
    """The keys of an easyconfig that were collected so far."""

    binds: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    host_env: dict[str, str] = field(default_factory=dict)
    default_env: dict[str, str] = field(default_factory=dict)
    path: list[str] = field(default_factory=list)
    gpus: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    user_software: bool = False
    activate: str = ""  # the command of WITH_CONDA

    def options(self, words: list[str], where: str = "") -> int:
        """Add the options of singularity or apptainer at the start of `words`; returns how many words these are.

        `where` begins the notes about them.
        """
        rest = list(words)
        while rest and rest[0].startswith("-"):
            name, equals, value = rest.pop(0).partition("=")
            if not equals and (name in _BIND_OPTIONS or name in _TAKES_VALUE) and rest:
                value = rest.pop(0)
            key, assigned, text = value.partition("=")
            if name in ("--nv", "--nvccli", "--rocm"):
                self.gpus.add("rocm" if name == "--rocm" else "cuda")
            elif name in _BIND_OPTIONS:
                self.bind(value, where)
            elif name == "--env" and self.env.get(key, text) != text:
                self.notes.append(
                    f"{where}the option --env {key[:60]} is not imported: the variable has another value in this module"
                )
            elif name == "--env" and assigned and not re.search("[$`,\ue000-\uf8ff]", text):
                self.set(f"SINGULARITYENV_{key}", text)
            else:
                self.notes.append(f"{where}the option {name[:40]} is not imported")
        return len(words) - len(rest)

    def bind(self, text: str, where: str = "") -> None:
        """Add the bind paths of a comma-separated list, except sifmod's own; an invalid one gives a note."""
        good, bad = binds_of(text)
        for one in good:
            if one.endswith(":/runscripts"):
                continue
            if ":/user-software" in one:
                self.user_software = True
            elif one not in self.binds:
                self.binds.append(one)
        shown = (re.sub("[\ue000-\uf8ff]", "?", cut(one, 80)) for one in bad)
        self.notes.extend(f"{where}the bind path {one!r} {NOT_A_BIND}" for one in shown)

    def search(self, text: str) -> None:
        """Add directories to prepend to PATH inside; a relative one, or one with `$` or a backtick, gives a note."""
        for directory in text.split(":"):
            if not directory.startswith("/") or _EVALUATED.search(directory):
                self.notes.append(
                    f"PATH inside: skipped {cut(directory, 80)!r}, which is not absolute, or needs a shell"
                )
            elif directory not in ("/runscripts", *self.path):
                self.path.append(directory)

    def set(self, name: str, value: str) -> None:
        """Add a variable that the module sets, under the matching key."""
        if _OWN.fullmatch(name):
            return  # every module of sifmod sets these
        if name.removeprefix("SINGULARITYENV_").removeprefix("APPTAINERENV_") == "WITH_CONDA":
            self.activate = "" if value.strip() in ("", "true", ":") else value.strip()
        elif _BINDS.fullmatch(name):
            self.bind(value)
        elif flag := _FLAGS.fullmatch(name):
            self.gpus |= set() if value in _OFF else {"rocm" if flag[1] == "ROCM" else "cuda"}
        elif inside := _INSIDE.fullmatch(name):
            if inside[1] in ("PREPEND_PATH", "PATH", "APPEND_PATH"):
                self.search(value)
                if inside[1] == "APPEND_PATH":
                    self.notes.append(f"APPEND_PATH {cut(value, 80)!r}: an easyconfig can only prepend to PATH inside")
            elif _EVALUATED.search(value):
                self.notes.append(
                    f"variable {inside[1][:60]}: {cut(value, 80)!r} is evaluated inside, and is not imported"
                )
            else:
                self._into(self.env, inside[1], value)
        else:
            self._into(self.host_env, name, value)

    def default(self, name: str, value: str) -> None:
        """Add a variable that the module sets unless the user has set it."""
        self._into(self.default_env, name, value)

    def _into(self, env: dict[str, str], name: str, value: str) -> None:
        if not _NAME.fullmatch(name) or len(name) > _LONGEST:
            self.notes.append(f"variable {name[:60]!r} is not imported: its name is invalid or too long")
        else:
            env[name] = value

    def keys(self) -> dict[str, Value]:
        """The result, as keys of an easyconfig."""
        keys: dict[str, Value] = {}
        conda, path = self._conda()
        if conda:
            keys["conda"] = conda
        elif self.activate:
            keys |= self._activated()
        if path:
            keys["path+"] = tuple(path)
        if self.user_software:
            keys["user_software"] = True
        env = {name: value for name, value in self.env.items() if not (conda and name in _CONDA)}
        keys |= {"env": env} if env else {}
        keys |= {"host_env": dict(self.host_env)} if self.host_env else {}
        keys |= {"default_env": dict(self.default_env)} if self.default_env else {}
        if self.binds:  # without a source, the runtimes would refuse to start
            keys["binds"] = tuple(optional(bind) for bind in self.binds)
            self.notes.append(OPTIONAL)
        return keys

    def _activated(self) -> Mapping[str, Value]:
        """The key for WITH_CONDA: `conda` if it activates a named environment, else `activate`; or {}, with a note."""
        found = _ACTIVATES.fullmatch(self.activate)
        if found and found[2]:
            return {"conda": {"prefix": found[1], "env": found[2]}}
        if not self.activate.isprintable():
            self.notes.append("WITH_CONDA: a value with a line break or another control character is not imported")
            return {}
        self.notes.append(
            "activate: WITH_CONDA, unchanged; if it activates conda or a venv, prefer `conda` or `venv`, which start "
            "no shell"
        )
        return {"activate": self.activate}

    def _conda(self) -> tuple[Mapping[str, Value], list[str]]:
        """`conda: {prefix, env}` if the three variables of an activation mean that, else {}; and the rest of PATH."""
        env, executable, home = (self.env.get(name, "") for name in _CONDA)
        prefix = executable.removesuffix("/bin/conda")
        if not env or prefix == executable or home != (prefix if env == "base" else f"{prefix}/envs/{env}"):
            return {}, self.path
        rest = [directory for directory in self.path if directory not in (f"{home}/bin", f"{prefix}/condabin")]
        return {"prefix": prefix, "env": env}, rest


def optional(bind: str) -> Value:
    """A bind path as an optional item of the key `binds`; OPTIONAL is the note that explains it."""
    source, target, options = (*bind.split(":"), "", "")[:3]
    spelled: dict[str, Value] = {"source": source}
    spelled |= {"target": target} if target not in ("", source) else {}
    return spelled | ({"options": options} if options else {}) | {"optional": True}


def vendor(source: str) -> str:
    """The accelerator that an image's name indicates: cuda, rocm, or ""."""
    if re.search(r"rocm|amdih|\bamd\b", source):
        return "rocm"
    return "cuda" if re.search(r"nvcr\.io|nvidia|cuda", source) else ""
