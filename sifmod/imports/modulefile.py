"""A Lua modulefile that starts a container (NGC's, Biocontainers') to an easyconfig: the calls it makes, as keys."""

import re
import shlex
from pathlib import Path

from sifmod.config.easyconfig import variable_problem
from sifmod.imports.budget import CannotImportError, Imported, Value, read_text
from sifmod.imports.container import MOST, vendor, wrapper
from sifmod.imports.lua import read_lua
from sifmod.imports.lua_value import HOLE, MAYBE, SOMEWHERE, Default, Made, Read, text_of
from sifmod.imports.modulefile_command import SOURCE, Module, take_command
from sifmod.imports.modulefile_name import BY_PATH, MODULES, Naming, Place, beside, described

_IMAGE_FILE = re.compile(r"[A-Za-z0-9_][^\s/\x00-\x1f\x7f-\x9f\ue000-\uf8ff]*\.(?:sif|simg)")
_FETCHED = re.compile(r"(?:docker|oras|library|https)://(?!\w+://).+|(?:oci|file):.+|/.+|[^:]+")
_ENVIRONMENT = ("setenv", "pushenv", "prepend_path", "append_path")
# what sets nothing, for itself
_SILENT = (
    *("LmodMessage", "LmodWarning", "LmodError", "io.stderr:write", "capture", "table.insert", "table.concat", "pairs"),
    *("ipairs", "mode", "isloaded", "isFile", "isDir", "os.getenv", "pathJoin", "myModuleName", "myModuleVersion"),
    *("myModuleFullName", "myModuleUsrName", "tostring", "string.lower", "string.format", "string.gsub", "unpack"),
    *("help", "whatis", "add_property"),
)
_TAKEN = (*_ENVIRONMENT, "set_shell_function", "set_alias", "conflict", "family")
_NO_IMAGE = "starts no container, or the image that it starts cannot be known without running it"
NO_COMMAND = "no command of it is known: `wrappers: auto` finds those that are in the image"


def read_modulefile(path: Path, naming: Naming = BY_PATH) -> Imported:
    """The easyconfig of a modulefile; raises CannotImportError with the reason where there is none."""
    text = read_text(path)
    place = Place(path, naming)
    read = read_lua(text, place.full_name, place.version)
    module = _taken(read)
    if not module.sources and (directories := _directories(read)):
        there = read_lua(text, place.full_name, place.version, directories)  # as where the site's image is
        if (found := _taken(there)).sources:
            read, module = there, found
    for what in read.skipped:
        module.note(what)
    sources = _sources(module, read)
    notes = module.found.notes
    keys = described(read, place, notes)
    keys |= beside(read, place, str(keys["name"]), notes)
    keys |= {"image": {"sources": sources}} | _gpus(module, sources) | module.found.keys()
    if module.wrappers:
        keys["wrappers"] = tuple(wrapper(name, shlex.join(command)) for name, command in module.wrappers.items())
    else:
        module.note(NO_COMMAND)
    keys |= {"verb": "run"} if module.verbs == {"run"} else {}
    if module.verbs == {"run", "exec"}:
        module.note("some commands go through the image's entrypoint (run), some do not (exec): all do not here")
    if sources[-1].startswith(("docker:", "oras:")) and "@sha256:" not in sources[-1]:
        module.note("the image has no digest here; install prints one to add")
    return Imported(keys, tuple(dict.fromkeys(notes)), publisher=sources[-1].rpartition("/")[0].rpartition("/")[2])


def _taken(read: Read) -> Module:
    """What the calls of a file do, with a note for each branch that was left out."""
    module = Module()
    for call in read.calls:
        _take(module, call)
    for left in read.untaken:
        functions = [name for name in left.functions if name not in _SILENT]
        why = " and ".join(map(str, left.asked))
        where = f"line {left.line}: " if left.line else ""
        if functions:
            module.note(f"{where}{', '.join(functions)[:80]} is not carried over: {why}")
        names = [name for name in left.names if not _holds_an_image(read, name)]
        if names:
            module.note(f"{where}another value of {', '.join(names)[:80]} is not carried over: {why}")
    return module


def _holds_an_image(read: Read, name: str) -> bool:
    return bool(SOURCE.fullmatch(text_of(read.variables.get(name)))) or read.variables.get(name) == ""


def _directories(read: Read) -> frozenset[str]:
    """The variables of the environment that name a directory of images, as far as conditions can tell."""
    asked = (one for left in read.untaken if left.names for one in left.asked)
    return frozenset(one.name for one in asked if one.name)


def _sources(module: Module, read: Read) -> tuple[str, ...]:
    """The image by its file name, for the site's image directories, and where the commands take it from."""
    texts = [text.strip() for text in read.texts if len(text) < MOST]
    named = [text for text in texts if SOURCE.fullmatch(text) and not _IMAGE_FILE.fullmatch(text)]
    if any(_IMAGE_FILE.fullmatch(text) for text in texts):  # any other URL is that of a page
        named = [text for text in named if not text.startswith("http") or text.endswith((".sif", ".simg"))]
    used = next(iter((*module.sources, *named)), "")
    file = used.rpartition("/")[2] if {HOLE, SOMEWHERE} & set(used) else used
    if not _IMAGE_FILE.fullmatch(file):
        file = next((text for text in texts if _IMAGE_FILE.fullmatch(text)), "")
    if {HOLE, SOMEWHERE} & set(used) or used == file:
        used = ""
    if used and not _FETCHED.fullmatch(used):
        module.note(f"image: {used[:80]} is nothing that sifmod fetches")
        if not file:
            raise CannotImportError(f"its image is {used[:80]}, which sifmod cannot fetch")
        used = ""
    if len(module.sources) > 1:
        module.note(f"the commands are in {len(module.sources)} images, and all are taken for those of {used or file}")
    sources = tuple(dict.fromkeys(source for source in (file, used) if source))
    if not sources:
        raise CannotImportError(_NO_IMAGE)
    return sources


def _gpus(module: Module, sources: tuple[str, ...]) -> dict[str, Value]:
    """Whose GPUs the image is for: what is certain, else what its name says. A test for a device says neither."""
    certain = sorted(module.found.gpus)
    if len(certain) == 1:
        return {"accelerator": certain[0]}
    tested = sorted({*module.tested, *certain})
    if not tested:
        return {"accelerator": "none"}
    if not certain and (said := vendor(sources[-1])):
        return {"accelerator": said}
    whose = " and ".join({"cuda": "NVIDIA's", "rocm": "AMD's"}[one] for one in tested)
    module.note(f"the module looks for {whose} GPUs: without `accelerator` the site's is meant")
    return {}


def _take(module: Module, call: Made) -> None:
    """One call; what only a run could decide is taken as if it were so, with a note."""
    texts = tuple(text_of(value) for value in call.arguments)
    unset = {one.name for one in call.asked if one.is_set}
    because = [str(one) for one in call.asked if not (one.is_set and call.function in ("setenv", "pushenv"))]
    match call.function:
        case "set_shell_function" | "set_alias" if len(texts) >= 2:
            take_command(module, texts[0].strip(f"{MAYBE} "), texts[1])
        case "setenv" | "pushenv" if len(texts) >= 2:
            if HOLE in "".join(texts[:2]):
                what = f"{call.function} {texts[0].replace(HOLE, '?')}"
                module.note(f"{what}: its value is known only when it is loaded")
                return
            because += _set(module, texts[0], texts[1], unset)
        case "prepend_path" | "append_path" if len(texts) >= 2:
            _add(module, call.function, texts)
        case function if function not in (*_SILENT, *_TAKEN, *MODULES):
            module.note(f"line {call.line}: {function[:60]} is not carried over")
    if call.function in _TAKEN:
        if not call.sure:
            module.note(f"line {call.line}: {call.function} hangs on a condition, and is taken without it")
        elif because:
            module.note(f"line {call.line}: {call.function} is taken without its condition: {' and '.join(because)}")


def _add(module: Module, function: str, texts: tuple[str, ...]) -> None:
    """An item of a list: of one inside, or of one that is then a default; its separator may be named."""
    name, value, separator = (*texts, ":")[:3]
    inside = re.match("(?:SINGULARITY|APPTAINER)(?:ENV_(.*)|_BIND)", name)
    appended = function == "append_path"
    values = module.found.env if inside else module.found.default_env
    before = values.get(inside[1] or "" if inside else name)
    if before and HOLE not in value + separator:
        value = f"{before}{separator}{value}" if appended else f"{value}{separator}{before}"
    if inside and HOLE not in value:
        module.found.set(name, value)
    elif appended and HOLE not in "".join(texts) and not name.endswith("PATH"):
        module.found.default(name, value)
        module.note(f"append_path {name}: set where you have none, not added to yours")
    else:
        module.note(f"{function} {name.replace(HOLE, '?')}: lists of the host are not changed")


def _set(module: Module, name: str, value: str, unset: set[str]) -> list[str]:
    """A variable, or its default; gives what else was assumed."""
    inside = name.removeprefix("SINGULARITYENV_").removeprefix("APPTAINERENV_")
    own = {name, inside} & unset
    if isinstance(value, Default):
        own |= {name, inside} & {value.variable} if value.whole else set()
        unset = {*unset, value.variable}
    if own and not variable_problem(inside, inside=False):
        module.found.default(inside, str(value))
    else:
        module.found.set(name, str(value))
        own = set()
    return [f"{one} counts as not set" for one in sorted(unset - own)]
