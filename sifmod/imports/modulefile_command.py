"""The shell functions and aliases of a Lua modulefile: those that start a container, as wrappers."""

import re
import shlex
from dataclasses import dataclass, field

from sifmod.imports.container import MOST, NAME, Found, is_for_a_shell, options, without_arguments
from sifmod.imports.lua_value import HOLE, MAYBE

SOURCE = re.compile(r"(?:docker|oras|library|https?|oci|shub|file):.+|[^\s]+\.(?:sif|simg)")
_RUNTIME = re.compile(rf"(?:\S*/)?(?:singularity|apptainer)|{HOLE}")
_ASSIGNED = re.compile("(?:SINGULARITYENV_|APPTAINERENV_)?([A-Za-z_][A-Za-z0-9_]*=.*)", re.DOTALL)


@dataclass
class Module:
    """What the calls of a modulefile do, in the making."""

    found: Found = field(default_factory=Found)
    wrappers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sources: dict[str, None] = field(default_factory=dict)
    verbs: set[str] = field(default_factory=set)
    tested: set[str] = field(default_factory=set)  # whose GPUs it looks for: of cuda, rocm

    def note(self, text: str) -> None:
        """A note for the person who imports the file, told once."""
        if text not in self.found.notes:
            self.found.notes.append(text)


def take_command(module: Module, name: str, text: str) -> None:
    """A shell function or alias that starts a container becomes a wrapper."""
    command = without_arguments(text)
    if len(command) > MOST or not NAME.fullmatch(name) or ".." in name:
        module.note(f"function {name[:60].replace(HOLE, '?')!r}: cannot be a wrapper")
        return
    try:
        before, words = _start(shlex.split(command))
    except ValueError:
        before, words = [], []
    if words and words[0] in module.wrappers:  # another of its commands, by a name of its own
        module.wrappers[name] = (*before, *module.wrappers[words[0]], *words[1:])
        return
    if len(words) < 3 or not _RUNTIME.fullmatch(words[0]) or words[1] not in ("run", "exec"):
        module.note(f"function {name} does not just start a container: not carried over")
        return
    if is_for_a_shell(re.sub(r"\$\w+(?=[/:])", "", command.replace('"$@"', ""))):
        module.note(f"function {name} is a script of its own: not carried over")
        return
    tested = options([word.lstrip(MAYBE) for word in words[2:] if word.startswith(MAYBE)], name)
    words = [word.lstrip(MAYBE).partition(MAYBE)[0] for word in words]
    given = options(words[2:], name)
    rest = words[2 + given.count :]
    module.verbs.add(words[1])
    module.tested |= set(tested.gpus)
    module.found.gpus |= set(given.gpus) - set(tested.gpus)
    for bind in given.binds:
        module.found.bind(bind)
    for variable, value in given.env:
        module.found.set(f"SINGULARITYENV_{variable}", value)
    for note in given.notes:
        module.note(note.replace(f"{name}: ", "", 1).replace(HOLE, "?"))
    if not rest or HOLE in "".join(rest[1:]):
        module.note(f"function {name}: its command is known only when it is loaded")
        return
    if SOURCE.fullmatch(rest[0]):
        module.sources[rest[0]] = None
    if len(rest) == 1:
        module.note(f"{name} hands its arguments to the image's entrypoint; the wrapper runs {name} in the image")
    if not (rest[1:] or [name])[0] or rest[-1:] == [""] or "".join(rest[1:2]).startswith("-"):
        module.note(f"function {name}: no command for a wrapper: it does not begin with a command")
        return
    words = rest[1:] or [name]
    if "$@" in words:  # with words behind the user's own
        script = " ".join('"$@"' if word == "$@" else shlex.quote(word) for word in words)
        words = ["sh", "-c", script, name]
    module.wrappers[name] = (*before, *words)


def _start(words: list[str]) -> tuple[list[str], list[str]]:
    """A command line without the `env` that starts it, and that `env` for within the container."""
    if words[:1] != ["env"]:
        return [], words
    before, rest = ["env"], words[1:]
    while rest:
        if rest[0] in ("-u", "--unset") and len(rest) > 1:
            before += ["-u", rest[1]]
            rest = rest[2:]
        elif assigned := _ASSIGNED.fullmatch(rest[0]):
            before.append(assigned[1])
            rest = rest[1:]
        else:
            break
    return (before if len(before) > 1 else []), rest
