"""The inputs of an installation: files, variables and facts that a later run compares cheaply.

Imports neither pydantic nor a YAML parser, so that an unchanged module is recognised quickly.
"""

import os
from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, NamedTuple

from sifmod.config.bind_paths import tops_of_links
from sifmod.config.kinds import RUNTIMES, Syntax, accelerator_of
from sifmod.config.pattern import Most, TooMuchError, found_by
from sifmod.digest import sha256_bytes, sha256_file
from sifmod.result import Described, PathText, Sha256

PRESENT = "present"
OWN_FILES = "files of sifmod"  # one of the facts
OWN_VARIABLES = "variable "  # in front of the names of the variables among the facts
DEVICES = (("cuda", "/dev/nvidiactl"), ("rocm", "/dev/kfd"))
# Lmod sets MODULESHOME too, so its own variables are checked first.
_SYNTAX_VARIABLES: tuple[tuple[str, Syntax], ...] = (
    ("LMOD_CMD", "lua"),
    ("LMOD_VERSION", "lua"),
    ("MODULES_CMD", "tcl"),
    ("MODULESHOME", "tcl"),
)
_SYNTAX_PLACES: tuple[tuple[str, Syntax], ...] = (
    ("/usr/share/lmod", "lua"),
    ("/opt/ohpc/admin/lmod", "lua"),
    ("/usr/share/modules", "tcl"),
    ("/usr/share/Modules", "tcl"),
)
_LARGEST = 1 << 26  # bytes; the paths may be those of a receipt that another user wrote, and lead to a huge file
_VARIABLES = ("EBU_USER_PREFIX", "HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")


class Input(NamedTuple):
    """A file, directory, variable, path or pattern that was read, or looked for.

    `path` is a file's path (digest: of its content), a directory's path with a `/` at its end (digest: of the names in
    it), `$NAME` (digest: of the variable's value), `?` and a path whose existence alone counts (the word `present`),
    `*` and a pattern (digest: of its matches), or `@` and a directory (digest: of where its links lead, see
    bind_paths.tops_of_links). `sha256` is None for an input that was missing or unreadable.
    """

    path: PathText  # in JSON, which has files alone
    sha256: Annotated[Sha256 | None, Described("SHA-256 of the content; null if missing or unreadable")]


def read_input(path: str, environ: Mapping[str, str]) -> Input:
    """Read the current state of `path` (spelled as in `Input`)."""
    if path.startswith("$"):
        value = environ.get(path[1:])
        return Input(path, None if value is None else sha256_bytes(os.fsencode(value)))
    if path.startswith(("*", "@")):
        try:
            found = found_by(path[1:], path[1:], Most()) if path.startswith("*") else tops_of_links(path[1:])
        except TooMuchError:
            return Input(path, None)  # never unchanged: decided again, within the limits of the settings
        return Input(path, sha256_bytes(os.fsencode("\n".join(sorted(found)))))
    try:
        if path.endswith("/"):
            return Input(path, sha256_bytes(os.fsencode("\n".join(sorted(os.listdir(path))))))  # noqa: PTH208 (plain names)
        if path.startswith("?"):
            return Input(path, PRESENT if Path(path[1:]).exists() else None)
        return Input(path, sha256_file(path, _LARGEST))
    except OSError:
        return Input(path, None)


class HostFacts:
    """The current state of the machine, the environment and the files; each is read once."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self._inputs: dict[str, str | None] = {}

    @cached_property
    def facts(self) -> tuple[tuple[str, str], ...]:
        return current_facts(self.environ)

    def unchanged(self, inputs: Iterable[Input]) -> bool:
        """Whether no input has changed."""
        return all(self._look(seen.path) == seen.sha256 for seen in inputs)

    def _look(self, path: str) -> str | None:
        if path not in self._inputs:
            self._inputs[path] = read_input(path, self.environ).sha256
        return self._inputs[path]


def find_program(name: str, environ: Mapping[str, str]) -> str:
    """The absolute path of an executable on PATH; "" if there is none."""
    for directory in environ.get("PATH", "").split(":"):
        candidate = f"{directory}/{name}"
        if directory.startswith("/") and os.access(candidate, os.X_OK) and Path(candidate).is_file():
            return candidate
    return ""


def module_tools(environ: Mapping[str, str]) -> tuple[Syntax, ...]:
    """The syntaxes of the module tools found here (Lmod, Environment Modules), the one in use first."""
    named = [syntax for variable, syntax in _SYNTAX_VARIABLES if environ.get(variable)][:1]
    there = [syntax for place, syntax in _SYNTAX_PLACES if Path(place).exists()]
    return tuple(dict.fromkeys((*named, *there)))


def module_syntax(environ: Mapping[str, str]) -> Syntax:
    """The syntax of the module tool in use: `lua` for Lmod, `tcl` for Environment Modules, `lua` if none is found."""
    return next(iter(module_tools(environ)), "lua")


@cache
def _own_files() -> str:
    """The SHA-256 of the running sifmod's files, which distinguishes versions between two releases."""
    top, found = Path(__file__).parent.parent, []
    for directory, below, names in os.walk(top):
        below[:] = [name for name in below if name != "__pycache__"]
        found += [f"{directory}/{name}" for name in names]
    return sha256_bytes(
        b"".join(os.fsencode(path[len(str(top)) :]) + Path(path).read_bytes() for path in sorted(found))
    )


def accelerator_found(said: str | None) -> str:
    """The accelerator in a setting; without a setting, or for `auto`, that of this machine's devices."""
    if said not in (None, "", "auto"):
        return str(accelerator_of(said))
    return next((accelerator for accelerator, device in DEVICES if Path(device).exists()), "none")


def current_facts(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """All deciding facts about this machine, environment and sifmod, as sorted (name, value) pairs.

    The prefix is not among them: a receipt is found in its prefix, wherever that was configured.
    """
    facts = {f"device {accelerator}": PRESENT if Path(device).exists() else "" for accelerator, device in DEVICES}
    for runtime in RUNTIMES:
        found = find_program(runtime, environ)
        facts[f"program {runtime}"] = f"{found}\t{os.path.realpath(found)}" if found else ""
    facts[OWN_FILES] = _own_files()
    facts["machine"] = os.uname().machine
    facts["module syntax"] = module_syntax(environ)
    for name, value in environ.items():
        if name in _VARIABLES or (name.startswith("SIFMOD_") and name != "SIFMOD_PREFIX"):
            facts[f"{OWN_VARIABLES}{name}"] = value
    return tuple(sorted(facts.items()))
