"""A Lua modulefile that starts a container (NGC's, Biocontainers') to an easyconfig: the calls it makes, as keys."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sifmod.imports.budget import CannotImportError, Imported, Value, read_text
from sifmod.imports.command import MOST, NAME, is_for_a_shell, options, without_arguments, wrapper
from sifmod.imports.container import Found, vendor
from sifmod.imports.lua import read_lua
from sifmod.imports.lua_calls import Made, Read
from sifmod.imports.lua_value import HOLE, MAYBE, SOMEWHERE, Default, text_of

_RUNTIME = re.compile(rf"(?:\S*/)?(?:singularity|apptainer)|{HOLE}")
_SOURCE = re.compile(r"(?:docker|oras|library|https?|oci|shub|file):.+|[^\s]+\.(?:sif|simg)")
_IMAGE_FILE = re.compile(r"[A-Za-z0-9_][^\s/]*\.(?:sif|simg)")
_FETCHED = re.compile(r"(?:docker|oras|library|https)://(?!\w+://).+|(?:oci|file):.+|[^:]+")
_NAMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_MODULES = ("load", "depends_on", "prereq", "always_load")
_ASSIGNED = re.compile("(?:SINGULARITYENV_|APPTAINERENV_)?([A-Za-z_][A-Za-z0-9_]*=.*)", re.DOTALL)
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


@dataclass(frozen=True)
class Naming:
    """Where a module's name comes from: its path below `tree`, or what it says of itself by whatis.

    Without a `tree` that is the directory two above each file: users load NAME/VERSION.lua as NAME/VERSION.
    """

    by_whatis: bool = False
    tree: Path | None = None


_BY_PATH = Naming()


@dataclass
class _Module:
    found: Found = field(default_factory=Found)
    wrappers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sources: dict[str, None] = field(default_factory=dict)
    verbs: set[str] = field(default_factory=set)
    tested: set[str] = field(default_factory=set)  # whose GPUs it looks for: of cuda, rocm

    def note(self, text: str) -> None:
        if text not in self.found.notes:
            self.found.notes.append(text)


def read_modulefile(path: Path, naming: Naming = _BY_PATH) -> Imported:
    """The easyconfig of a modulefile; raises CannotImportError with the reason where there is none."""
    text = read_text(path)
    place = _Place(path, naming)
    read = read_lua(text, place.full_name, place.version)
    module = _taken(read)
    if not module.sources and (directories := _directories(read)):
        read = read_lua(text, place.full_name, place.version, directories)  # as where the site's image is there
        module = _taken(read)
    for what in read.skipped:
        module.note(what)
    sources = _sources(module, read)
    whatis = [text for call in read.calls if call.function == "whatis" for text in call.texts if HOLE not in text]
    keys = _described(whatis, _first(read.calls, "help"), place, module)
    keys |= _beside(read, place, (place.name, str(keys["name"])), module)
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
    return Imported(keys, tuple(module.found.notes), publisher=_publisher(sources[-1]))


class _Place:
    """What users type to load a modulefile, and the names of others beside it."""

    def __init__(self, path: Path, naming: Naming) -> None:
        path = path.resolve()
        self.naming = naming
        self.tree = naming.tree.resolve() if naming.tree else path.parent.parent
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
        """A module of the same tree by the name that it has here, which is the last two parts of its own."""
        parts = spec.split("/")
        if len(parts) > 2 and (self.tree / f"{spec}.lua").is_file():
            return "/".join(parts[-2:])
        return parts[-1] if len(parts) > 1 and any((self.tree / spec).glob("*.lua")) else spec


def _taken(read: Read) -> _Module:
    """What the calls of a file do, with a note for each branch that was left out."""
    module = _Module()
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
    return bool(_SOURCE.fullmatch(text_of(read.variables.get(name)))) or read.variables.get(name) == ""


def _directories(read: Read) -> frozenset[str]:
    """The variables of the environment that name a directory of images, as far as conditions can tell."""
    asked = (one for left in read.untaken if left.names for one in left.asked)
    return frozenset(one.name for one in asked if one.name)


def _sources(module: _Module, read: Read) -> tuple[str, ...]:
    """The image by its file name, for the site's image directories, and where the commands take it from."""
    texts = [text for text in read.texts if len(text) < MOST]
    named = next((text for text in texts if _SOURCE.fullmatch(text) and not _IMAGE_FILE.fullmatch(text)), "")
    used = next(iter(module.sources), "") or named
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
    sources = tuple(dict.fromkeys(source for source in (file, used) if source))
    if not sources:
        raise CannotImportError(_NO_IMAGE)
    return sources


def _publisher(source: str) -> str:
    return source.rpartition("/")[0].rpartition("/")[2]


def _first(calls: tuple[Made, ...], function: str) -> str:
    return next((call.texts[0] for call in calls if call.function == function and call.texts), "")


def _beside(read: Read, place: _Place, own: tuple[str, str], module: _Module) -> dict[str, Value]:
    """The modules that it conflicts with, those that it needs, and its family."""
    conflicts, needed = list[str](), list[str]()
    family = ""
    for call in read.calls:
        if call.function == "conflict":
            conflicts += [one for one in map(place.ours, map(str.strip, call.texts)) if one not in own]
        elif call.function in _MODULES:
            runtimes = [text for text in call.texts if re.search("singularity|apptainer", text, re.IGNORECASE)]
            needed += [place.ours(text) for text in map(str.strip, call.texts) if text not in runtimes]
            if runtimes:
                module.note(f"{call.function}: the runtime is the one of the site")
        elif call.function == "family" and call.texts:
            family = family or call.texts[0]
    keys = _listed("conflict", conflicts, module) | _listed("depends_on", needed, module)
    return keys | ({"family": family} if family else {})


def _listed(key: str, items: list[str], module: _Module) -> dict[str, Value]:
    good = list[str]()
    for item in dict.fromkeys(items):
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+/-]*", item) and ".." not in item:
            good.append(item)
        else:
            module.note(f"{key}: {item[:60].replace(HOLE, '?')!r} is no module's name")
    return {key: tuple(good)} if good else {}


def _described(whatis: list[str], text: str, place: _Place, module: _Module) -> dict[str, Value]:
    """Name, version, and what the module says about itself."""
    said = {key.strip(): value.strip() for key, colon, value in (line.partition(":") for line in whatis) if colon}
    name, version = _named(said, place, module)
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


def _named(said: Mapping[str, str], place: _Place, module: _Module) -> tuple[str, str]:
    """The module's name and version; raises CannotImportError where it has no version."""
    name, version = said.get("Name", ""), said.get("Version", "")
    if place.naming.by_whatis:
        name = name if _NAMED.fullmatch(name) else place.name
        return name, version if _NAMED.fullmatch(version) else place.version
    if place.alone and not _NAMED.fullmatch(version):
        raise CannotImportError(f"is loaded as {place.loaded_as}, without a version, which a module of sifmod has")
    name, version = place.name, version if place.alone else place.version
    if place.loaded_as != f"{name}/{version}":
        module.note(f"name: {name}/{version} here, for a name has two parts; it was loaded as {place.loaded_as}")
    return name, version


def _sections(text: str) -> tuple[str, tuple[str, ...]]:
    """The body of the section `Description` (all of it where there are none), and the lines with URLs of the rest."""
    parts = re.split(r"^([A-Z][A-Za-z ]{0,40})\n={3,}\n", text, flags=re.MULTILINE)
    if len(parts) < 3:
        return text.strip(), ()
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    body = sections.pop("Description", "").strip()
    lines = (" ".join(line.strip(" -*\t").split()) for rest in sections.values() for line in rest.splitlines())
    return body, tuple(line for line in lines if "://" in line)


def _gpus(module: _Module, sources: tuple[str, ...]) -> dict[str, Value]:
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


def _take(module: _Module, call: Made) -> None:
    """One call; what only a run could decide is taken as if it were so, with a note."""
    texts = tuple(text_of(value) for value in call.arguments)
    unset = {one.name for one in call.asked if one.is_set}
    because = [str(one) for one in call.asked if not (one.is_set and call.function in ("setenv", "pushenv"))]
    match call.function:
        case "set_shell_function" | "set_alias" if len(texts) >= 2:
            _command(module, texts[0].strip(f"{MAYBE} "), texts[1])
        case "setenv" | "pushenv" if len(texts) >= 2:
            if HOLE in "".join(texts[:2]):
                module.note(f"{call.function} {texts[0].replace(HOLE, '?')}: its value is known only when it is loaded")
            else:
                because += _set(module, texts[0], texts[1], unset)
        case "prepend_path" | "append_path" if len(texts) >= 2:
            inside = re.match("(SINGULARITY|APPTAINER)(ENV_|_BIND)", texts[0])
            if inside and HOLE not in texts[1]:
                module.found.set(texts[0], texts[1])
            else:
                module.note(f"{call.function} {texts[0].replace(HOLE, '?')}: lists of the host are not changed")
        case function if function not in (*_SILENT, *_TAKEN, *_MODULES):
            module.note(f"line {call.line}: {function[:60]} is not carried over")
    if call.function in _TAKEN:
        if not call.sure:
            module.note(f"line {call.line}: {call.function} hangs on a condition, and is taken without it")
        elif because:
            module.note(f"line {call.line}: {call.function} is taken without its condition: {' and '.join(because)}")


def _set(module: _Module, name: str, value: str, unset: set[str]) -> list[str]:
    """A variable, or its default; gives what else was assumed."""
    inside = name.removeprefix("SINGULARITYENV_").removeprefix("APPTAINERENV_")
    own = {name, inside} & unset
    if isinstance(value, Default):
        own |= {name, inside} & {value.variable} if value.whole else set()
        unset = {*unset, value.variable}
    if own:
        module.found.default(inside, str(value))
    else:
        module.found.set(name, str(value))
    return [f"{one} counts as not set" for one in sorted(unset - own)]


def _command(module: _Module, name: str, text: str) -> None:
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
    if is_for_a_shell(re.sub(r"\$\w+(?=[/:])", "", command)):
        module.note(f"function {name} is a script of its own: not carried over")
        return
    given = options([word.lstrip(MAYBE) for word in words[2:]], name)
    tested = options([word.lstrip(MAYBE) for word in words[2:] if word.startswith(MAYBE)], name)
    rest = [word.replace(MAYBE, "") for word in words[2 + given.count :]]
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
    if _SOURCE.fullmatch(rest[0]):
        module.sources[rest[0]] = None
    if len(rest) == 1:
        module.note(f"{name} hands its arguments to the image's entrypoint; the wrapper runs {name} in the image")
    if not (rest[1:] or [name])[0] or rest[-1:] == [""] or "".join(rest[1:2]).startswith("-"):
        module.note(f"function {name}: no command for a wrapper: it does not begin with a command")
        return
    module.wrappers[name] = (*before, *(rest[1:] or [name]))


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
