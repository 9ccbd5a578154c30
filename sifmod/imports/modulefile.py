"""Convert a Lua modulefile that starts a container (NGC's, Biocontainers') to an easyconfig: its calls become keys."""

import os
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sifmod.config.easyconfig import variable_problem
from sifmod.imports.container import MOST, NAME, Found, is_for_a_shell, options, vendor, without_arguments, wrapper
from sifmod.imports.cost import CannotImportError, Imported, Value, read_text
from sifmod.imports.lua import read_lua
from sifmod.imports.lua_syntax import HOLE, MAYBE, SOMEWHERE, Default, Made, Read, text_of

SOURCE = re.compile(r"(?:docker|oras|library|https?|oci|shub|file):.+|[^\s]+\.(?:sif|simg)")
_RUNTIME = re.compile(rf"(?:\S*/)?(?:singularity|apptainer)|{HOLE}")
_ASSIGNED = re.compile("(?:SINGULARITYENV_|APPTAINERENV_)?([A-Za-z_][A-Za-z0-9_]*=.*)", re.DOTALL)
MODULES = ("load", "depends_on", "prereq", "always_load")
_NAMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
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
_NO_IMAGE = "starts no container, or its image cannot be determined without running it"
NO_COMMAND = "its commands are unknown: `wrappers: auto` finds those in the image"


@dataclass
class Module:
    """The effects of a modulefile's calls, collected so far."""

    found: Found = field(default_factory=Found)
    wrappers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sources: dict[str, None] = field(default_factory=dict)
    verbs: set[str] = field(default_factory=set)
    tested: set[str] = field(default_factory=set)  # whose GPUs it looks for: of cuda, rocm

    def note(self, text: str) -> None:
        """Add a note for the user, once."""
        if text not in self.found.notes:
            self.found.notes.append(text)


def take_command(module: Module, name: str, text: str) -> None:
    """Convert a shell function or alias that starts a container to a wrapper."""
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
        module.note(f"function {name} does more than start a container: not imported")
        return
    if is_for_a_shell(re.sub(r"\$\w+(?=[/:])", "", command.replace('"$@"', ""))):
        module.note(f"function {name} is a script: not imported")
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
        module.note(f"function {name}: its command is only known at load time")
        return
    if SOURCE.fullmatch(rest[0]):
        module.sources[rest[0]] = None
    if len(rest) == 1:
        module.note(f"{name} passes its arguments to the image's entrypoint; the wrapper runs {name} in the image")
    if not (rest[1:] or [name])[0] or rest[-1:] == [""] or "".join(rest[1:2]).startswith("-"):
        module.note(f"function {name}: cannot be a wrapper: it does not start with a command")
        return
    words = rest[1:] or [name]
    if "$@" in words:  # with words behind the user's own
        script = " ".join('"$@"' if word == "$@" else shlex.quote(word) for word in words)
        words = ["sh", "-c", script, name]
    module.wrappers[name] = (*before, *words)


def _start(words: list[str]) -> tuple[list[str], list[str]]:
    """A command line without a leading `env`, and that `env` for inside the container."""
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


@dataclass(frozen=True)
class Naming:
    """The source of a module's name: its path below `tree`, or its own whatis lines.

    Without a `tree` it is the directory two levels above each file: users load NAME/VERSION.lua as NAME/VERSION.
    """

    by_whatis: bool = False
    tree: Path | None = None


BY_PATH = Naming()


class Place:
    """The name that users load a modulefile by, and the names of the others beside it."""

    def __init__(self, path: Path, naming: Naming) -> None:
        path = Path(os.path.abspath(path))  # noqa: PTH100 (a link stays a link)
        self.naming = naming
        self.tree = Path(os.path.abspath(naming.tree)) if naming.tree else path.parent.parent  # noqa: PTH100
        try:
            *above, last = path.relative_to(self.tree).parts
        except ValueError:
            raise CannotImportError(f"is not below the module tree {naming.tree}") from None
        self.version = last.removesuffix(".lua")
        self.full_name = "/".join(above) or self.version  # as Lmod has it
        self.name = above[-1] if above else self.version
        self.alone = not above  # NAME.lua in the tree itself, which has no version
        self.loaded_as = "/".join((*above, self.version))

    def ours(self, spec: str) -> str:
        """The name of a module of the same tree in sifmod: the last two parts of its own name."""
        parts = spec.split("/")
        with suppress(OSError, ValueError):  # a text that can be no path
            if len(parts) > 2 and (self.tree / f"{spec}.lua").is_file():
                return "/".join(parts[-2:])
            if len(parts) > 1 and any((self.tree / spec).glob("*.lua")):
                return parts[-1]
        return spec


def beside(read: Read, place: Place, name: str, notes: list[str]) -> dict[str, Value]:
    """Its conflicting modules, its dependencies, and its family; the check validates their names."""
    own = (name, place.name, f"{place.name}/{place.version}")
    conflicts, needed, families = list[str](), list[str](), list[str]()
    for call in read.calls:
        texts = [text.replace(HOLE, "?") for text in call.texts]
        if call.function == "conflict":
            conflicts += [one for one in map(place.ours, map(str.strip, texts)) if one not in own]
        elif call.function in MODULES:
            runtimes = [text for text in texts if re.search("singularity|apptainer", text, re.IGNORECASE)]
            others = [place.ours(text) for text in map(str.strip, texts) if text not in runtimes]
            needed += others
            if others and not call.sure:
                notes.append(f"line {call.line}: {call.function} depends on a condition, and is imported without it")
            if runtimes:
                notes.append(f"{call.function}: the site's runtime is used")
        elif call.function == "family":
            families += texts[:1]
    family, *others = dict.fromkeys(families) or [""]
    notes += [f"family: {one[:60]} is not imported, because a module has only one family here" for one in others]
    keys: dict[str, Value] = {"conflict": tuple(dict.fromkeys(conflicts)), "depends_on": tuple(dict.fromkeys(needed))}
    return {key: value for key, value in (*keys.items(), ("family", family)) if value}


def described(read: Read, place: Place, notes: list[str]) -> dict[str, Value]:
    """Name, version and description of the module; raises CannotImportError if it has no version."""
    whatis = [text for call in read.calls if call.function == "whatis" for text in call.texts if HOLE not in text]
    text = next((call.texts[0] for call in read.calls if call.function == "help" and call.texts), "")
    said = {key.strip(): value.strip() for key, colon, value in (line.partition(":") for line in whatis) if colon}
    name, version = _named(said, place, notes)
    for key, value in (("Name", name), ("Version", version)):
        if said.get(key) == value:
            del said[key]
    body, urls = _sections(text.replace(HOLE, "?"))
    keys: dict[str, Value] = {"name": name, "version": version, "description": body or said.get("Description", "")}
    if (homepage := said.pop("URL", said.pop("Home page", ""))).startswith(("http://", "https://")):
        keys["homepage"] = homepage
    said.pop("Description", None)
    rest = tuple(f"{key}: {' '.join(value.split())}" for key, value in said.items() if value)
    others = tuple(url for url in urls if not url.endswith(str(keys.get("homepage", "-"))))
    keys |= {"whatis": rest} if rest else {}
    return keys | ({"docurls": others} if others else {})


def _named(said: Mapping[str, str], place: Place, notes: list[str]) -> tuple[str, str]:
    name, version = said.get("Name", ""), said.get("Version", "")
    if place.naming.by_whatis:
        name = name if _NAMED.fullmatch(name) else place.name
        return name, version if _NAMED.fullmatch(version) else place.version
    if place.alone and not _NAMED.fullmatch(version):
        raise CannotImportError(f"is loaded as {place.loaded_as}, without a version, but sifmod's modules have one")
    name, version = place.name, version if place.alone else place.version
    if place.loaded_as != f"{name}/{version}":
        notes.append(f"name: {name}/{version} here, because a name has two parts; it was loaded as {place.loaded_as}")
    return name, version


def _sections(text: str) -> tuple[str, tuple[str, ...]]:
    """The section `Description` (the whole text if there are no sections), and the lines with URLs elsewhere."""
    parts = re.split(r"^([A-Z][A-Za-z ]{0,40})\n={3,}\n", text, flags=re.MULTILINE)
    if len(parts) < 3:
        return text.strip(), ()
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    body = sections.pop("Description", "").strip()
    lines = (" ".join(line.strip(" -*\t").split()) for rest in sections.values() for line in rest.splitlines())
    return body, tuple(line for line in lines if "://" in line)


def read_modulefile(path: Path, naming: Naming = BY_PATH) -> Imported:
    """The easyconfig for a modulefile; raises CannotImportError with the reason if there is none."""
    text = read_text(path)
    place = Place(path, naming)
    read = read_lua(text, place.full_name, place.version)
    module = _taken(read)
    asked = (one for left in read.untaken if left.names for one in left.asked)
    directories = frozenset(one.name for one in asked if one.name)  # variables that may name one of images
    if not module.sources and directories:
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
        module.note("some commands use the image's entrypoint (run), others do not (exec): here none does")
    if sources[-1].startswith(("docker:", "oras:")) and "@sha256:" not in sources[-1]:
        module.note("the image has no digest here; install prints one to add")
    return Imported(keys, tuple(dict.fromkeys(notes)), publisher=sources[-1].rpartition("/")[0].rpartition("/")[2])


def _taken(read: Read) -> Module:
    """The effects of a file's calls, with a note for each skipped branch."""
    module = Module()
    for call in read.calls:
        _take(module, call)
    for left in read.untaken:
        functions = [name for name in left.functions if name not in _SILENT]
        why = " and ".join(map(str, left.asked))
        where = f"line {left.line}: " if left.line else ""
        if functions:
            module.note(f"{where}{', '.join(functions)[:80]} is not imported: {why}")
        values = {name: read.variables.get(name) for name in left.names}
        names = [name for name, value in values.items() if value != "" and not SOURCE.fullmatch(text_of(value))]
        if names:
            module.note(f"{where}another value of {', '.join(names)[:80]} is not imported: {why}")
    return module


def _sources(module: Module, read: Read) -> tuple[str, ...]:
    """The image's file name, for the site's image directories, and the source that the commands use."""
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
        module.note(f"image: sifmod cannot fetch {used[:80]}")
        if not file:
            raise CannotImportError(f"its image is {used[:80]}, which sifmod cannot fetch")
        used = ""
    if len(module.sources) > 1:
        module.note(f"the commands are in {len(module.sources)} images; all are assigned to {used or file}")
    sources = tuple(dict.fromkeys(source for source in (file, used) if source))
    if not sources:
        raise CannotImportError(_NO_IMAGE)
    return sources


def _gpus(module: Module, sources: tuple[str, ...]) -> dict[str, Value]:
    """The image's accelerator: a certain one, else the one in its name. A test for a device indicates neither."""
    certain = sorted(module.found.gpus)
    if len(certain) == 1:
        return {"accelerator": certain[0]}
    tested = sorted({*module.tested, *certain})
    if not tested:
        return {"accelerator": "none"}
    if not certain and (said := vendor(sources[-1])):
        return {"accelerator": said}
    whose = " and ".join({"cuda": "NVIDIA's", "rocm": "AMD's"}[one] for one in tested)
    module.note(f"the module looks for {whose} GPUs: without `accelerator` the site's is used")
    return {}


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
                module.note(f"{what}: its value is only known at load time")
                return
            because += _set(module, texts[0], texts[1], unset)
        case "prepend_path" | "append_path" if len(texts) >= 2:
            _add(module, call.function, texts)
        case function if function not in (*_SILENT, *_TAKEN, *MODULES):
            module.note(f"line {call.line}: {function[:60]} is not imported")
    if call.function in _TAKEN:
        if not call.sure:
            module.note(f"line {call.line}: {call.function} depends on a condition, and is imported without it")
        elif because:
            module.note(f"line {call.line}: {call.function} is imported without its condition: {' and '.join(because)}")


def _add(module: Module, function: str, texts: tuple[str, ...]) -> None:
    """Add an item to a list inside, or to one that becomes a default; its separator may be given."""
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
        module.note(f"append_path {name}: only set if you have not set it, not appended to yours")
    else:
        module.note(f"{function} {name.replace(HOLE, '?')}: lists of the host are not changed")


def _set(module: Module, name: str, value: str, unset: set[str]) -> list[str]:
    """Convert a variable, or its default; returns the other assumptions."""
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
    return [f"{one} counts as unset" for one in sorted(unset - own)]
