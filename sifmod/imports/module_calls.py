"""What the calls of a Lua modulefile do, by reading them, without a run: commands, variables, images."""

import re
import shlex
from dataclasses import dataclass, field

from sifmod.config.easyconfig import can_be_set
from sifmod.imports.container import MOST, NAME, Found, is_for_a_shell, without_arguments
from sifmod.imports.lua_values import HOLE, MAYBE, Default, Made, Read, text_of

SOURCE = re.compile(r"(?:docker|oras|library|https?|oci|shub|file):.+|[^\s]+\.(?:sif|simg)")
_RUNTIME = re.compile(rf"(?:\S*/)?(?:singularity|apptainer)|{HOLE}")
_ASSIGNED = re.compile("(?:SINGULARITYENV_|APPTAINERENV_)?([A-Za-z_][A-Za-z0-9_]*=.*)", re.DOTALL)
MODULES = ("load", "depends_on", "prereq", "always_load")
_ENVIRONMENT = ("setenv", "pushenv", "prepend_path", "append_path")
# functions that set nothing themselves
_SILENT = (
    *("LmodMessage", "LmodWarning", "LmodError", "capture", "table.insert", "table.concat", "pairs", "ipairs"),
    *("mode", "isloaded", "isFile", "isDir", "os.getenv", "pathJoin", "myModuleName", "myModuleVersion"),
    *("myModuleFullName", "myModuleUsrName", "tostring", "string.lower", "string.format", "string.gsub", "unpack"),
    *("help", "whatis", "add_property"),
)
_INVALID = f"its name is invalid for a wrapper, or its command is longer than {MOST} letters"
_STARTS = "start a container with `run` or `exec` of singularity or apptainer"
_TAKEN = (*_ENVIRONMENT, "set_shell_function", "set_alias", "conflict", "family")


@dataclass
class Module(Found):
    """The effects of a modulefile's calls, collected so far."""

    wrappers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sources: dict[str, None] = field(default_factory=dict)
    verbs: set[str] = field(default_factory=set)
    tested: set[str] = field(default_factory=set)  # cuda, rocm: the GPUs that it looks for


def take_command(module: Module, name: str, text: str) -> None:
    """Convert a shell function or alias that starts a container to a wrapper; any other gives a note."""
    command = without_arguments(text)
    if len(command) > MOST or not NAME.fullmatch(name) or ".." in name:
        module.notes.append(f"command {name[:60].replace(HOLE, '?')!r} is not imported: {_INVALID}")
        return
    try:
        before, words = _start(shlex.split(command))
    except ValueError:
        before, words = [], []
    if words and words[0] in module.wrappers:  # another name for a command that is a wrapper already
        module.wrappers[name] = (*before, *module.wrappers[words[0]], *words[1:])
        return
    if len(words) < 3 or not _RUNTIME.fullmatch(words[0]) or words[1] not in ("run", "exec"):
        module.notes.append(f"command {name} is not imported: it does not just {_STARTS}")
        return
    if is_for_a_shell(re.sub(r"\$\w+(?=[/:])", "", command.replace('"$@"', ""))):
        module.notes.append(f"command {name} is not imported: its command line needs a shell")
        return
    tested, certain = Found(), set(module.gpus)
    tested.options([word.lstrip(MAYBE) for word in words[2:] if word.startswith(MAYBE)])
    words = [word.lstrip(MAYBE).partition(MAYBE)[0] for word in words]
    rest = words[2 + module.options(words[2:]) :]
    module.verbs.add(words[1])
    module.tested |= tested.gpus
    module.gpus = certain | (module.gpus - tested.gpus)
    if not rest or HOLE in "".join(rest[1:]):
        module.notes.append(f"command {name} is not imported: it names no image, or is only known at load time")
        return
    if SOURCE.fullmatch(rest[0]):
        module.sources[rest[0]] = None
    if len(rest) == 1:
        module.notes.append(f"{name} starts the image without a command; the wrapper runs {name} in the image")
    if not (rest[1:] or [name])[0] or rest[-1:] == [""] or "".join(rest[1:2]).startswith("-"):
        module.notes.append(
            f"function {name}: cannot be a wrapper: no command after the image, or an empty word at its end"
        )
        return
    words = rest[1:] or [name]
    if "$@" in words:  # the user's arguments are not at the end
        script = " ".join('"$@"' if word == "$@" else shlex.quote(word) for word in words)
        words = ["sh", "-c", script, name]
    module.wrappers[name] = (*before, *words)


def _start(words: list[str]) -> tuple[list[str], list[str]]:
    """A leading `env` of a command line, for inside the container, and the rest."""
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


def read_calls(read: Read) -> Module:
    """The effects of a file's calls, with a note for each skipped branch."""
    module = Module()
    for call in read.calls:
        _take(module, call)
    for left in read.untaken:
        functions = [name for name in left.functions if name not in _SILENT]
        why = " and ".join(map(str, left.asked))
        where = f"line {left.line}: " if left.line else ""
        if functions:
            module.notes.append(f"{where}{', '.join(functions)[:80]} is not imported: {why}")
        values = {name: read.variables.get(name) for name in left.names}
        names = [name for name, value in values.items() if value != "" and not SOURCE.fullmatch(text_of(value))]
        if names:
            module.notes.append(f"{where}another value of {', '.join(names)[:80]} is not imported: {why}")
    return module


def _take(module: Module, call: Made) -> None:
    """Convert one call; a condition that only a run could decide is assumed to be true, with a note."""
    texts = tuple(text_of(value) for value in call.arguments)
    unset = {one.name for one in call.asked if one.is_set}
    because = [str(one) for one in call.asked if not (one.is_set and call.function in ("setenv", "pushenv"))]
    match call.function:
        case "set_shell_function" | "set_alias" if len(texts) >= 2:
            take_command(module, texts[0].strip(f"{MAYBE} "), texts[1])
        case "setenv" | "pushenv" if len(texts) >= 2:
            if HOLE in "".join(texts[:2]):
                what = f"{call.function} {texts[0].replace(HOLE, '?')}"
                module.notes.append(f"{what} is not imported: it is only known at load time")
                return
            because += _set(module, texts[0], texts[1], unset)
        case "prepend_path" | "append_path" if len(texts) >= 2:
            _add(module, call.function, texts)
        case function if function not in (*_SILENT, *_TAKEN, *MODULES):
            module.notes.append(f"line {call.line}: {function[:60]} is not imported")
    if call.function in _TAKEN:
        if not call.sure:
            module.notes.append(f"line {call.line}: {call.function} depends on a condition, and is read as if it held")
        elif because:
            module.notes.append(
                f"line {call.line}: {call.function} is read without its condition: {' and '.join(because)}"
            )


def _add(module: Module, function: str, texts: tuple[str, ...]) -> None:
    """Add an item to a list inside, or to a default on the host; else a note. A third text is the separator."""
    name, value, separator = (*texts, ":")[:3]
    inside = re.match("(?:SINGULARITY|APPTAINER)(?:ENV_(.*)|_BIND)", name)
    appended = function == "append_path"
    values = module.env if inside else module.default_env
    before = values.get(inside[1] or "" if inside else name)
    if before and HOLE not in value + separator:
        value = f"{before}{separator}{value}" if appended else f"{value}{separator}{before}"
    if inside and HOLE not in value:
        module.set(name, value)
    elif appended and HOLE not in "".join(texts) and not name.endswith("PATH"):
        module.default(name, value)
        module.notes.append(f"append_path {name}: only set if you have not set it, not appended to yours")
    else:
        why = "it is only known at load time" if HOLE in "".join(texts) else "lists of the host are not changed"
        module.notes.append(f"{function} {name.replace(HOLE, '?')} is not imported: {why}")


def _set(module: Module, name: str, value: str, unset: set[str]) -> list[str]:
    """Convert a variable, or its default; returns the other assumptions, as texts."""
    inside = name.removeprefix("SINGULARITYENV_").removeprefix("APPTAINERENV_")
    own = {name, inside} & unset
    if isinstance(value, Default):
        own |= {name, inside} & {value.variable} if value.whole else set()
        unset = {*unset, value.variable}
    if own and can_be_set(inside):
        module.default(inside, str(value))
    else:
        module.set(name, str(value))
        own = set()
    return [f"{one} counts as unset" for one in sorted(unset - own)]
