"""A Lua modulefile that starts a container (NGC's, Biocontainers') to an easyconfig: the calls it makes, as keys."""

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from sifmod.imports.budget import CannotImportError, Imported, Value, read_text
from sifmod.imports.command import MOST, NAME, is_for_a_shell, options, without_arguments, wrapper
from sifmod.imports.container import Found
from sifmod.imports.lua import HOLE, Made, read_lua, text_of

_RUNTIME = re.compile(rf"(?:\S*/)?(?:singularity|apptainer)|{HOLE}")
_SOURCE = re.compile(r"(?:docker|oras|library|https?|oci|shub|file):.+|[^\s]+\.sif")
_NAMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_SILENT = (
    *("LmodMessage", "LmodWarning", "LmodError", "io.stderr:write", "capture", "table.insert", "table.concat", "pairs"),
    *("ipairs", "mode", "isloaded", "isFile", "isDir", "os.getenv", "pathJoin", "myModuleName", "myModuleVersion"),
    *(
        "myModuleFullName",
        "tostring",
        "string.lower",
        "string.format",
        "help",
        "whatis",
        "conflict",
        "family",
        "unpack",
    ),
    *("setenv", "pushenv", "prepend_path", "append_path", "set_shell_function", "set_alias", "add_property"),
)


@dataclass
class _Module:
    found: Found = field(default_factory=Found)
    wrappers: dict[str, Value] = field(default_factory=dict)
    sources: dict[str, None] = field(default_factory=dict)
    verbs: set[str] = field(default_factory=set)

    def note(self, text: str) -> None:
        if text not in self.found.notes:
            self.found.notes.append(text)


def read_modulefile(path: Path) -> Imported:
    """The easyconfig of a modulefile; raises CannotImportError with the reason where there is none."""
    name, version = path.parent.resolve().name, path.name.removesuffix(".lua")
    read = read_lua(read_text(path), name, version)
    module = _Module()
    for call in read.calls:
        _take(module, call)
    for what in read.skipped:
        module.note(what)
    variables = (text_of(value) for value in read.variables.values())
    named = (text for text in variables if len(text) < MOST and _SOURCE.fullmatch(text))
    source = next(iter(module.sources), "") or next(named, "")
    if not source or HOLE in source:
        raise CannotImportError("starts no container, or the image that it starts cannot be known without running it")
    whatis = [text for call in read.calls if call.function == "whatis" for text in call.texts if HOLE not in text]
    keys = _described(whatis, _first(read.calls, "help"), (name, version))
    own = (name, keys["name"])
    conflicts = (text for call in read.calls if call.function == "conflict" for text in call.texts)
    keys |= _listed("conflict", tuple(dict.fromkeys(one for one in conflicts if one not in own)), module)
    if family := _first(read.calls, "family"):
        keys["family"] = family
    keys |= {"image": {"sources": (source,)}} | _gpus(module) | module.found.keys()
    keys |= {"wrappers": tuple(module.wrappers.values())} if module.wrappers else {}
    keys |= {"verb": "run"} if module.verbs == {"run"} else {}
    if module.verbs == {"run", "exec"}:
        module.note("some commands go through the image's entrypoint (run), some do not (exec): all do not here")
    if source.startswith(("docker:", "oras:")) and "@sha256:" not in source:
        module.note("the image has no digest here; install prints one to add")
    return Imported(keys, tuple(module.found.notes), publisher=source.rpartition("/")[0].rpartition("/")[2])


def _first(calls: tuple[Made, ...], function: str) -> str:
    return next((call.texts[0] for call in calls if call.function == function and call.texts), "")


def _listed(key: str, items: tuple[str, ...], module: _Module) -> dict[str, Value]:
    good = tuple(item for item in items if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+/-]*", item) and ".." not in item)
    for item in items:
        if item not in good:
            module.note(f"{key}: {item[:60].replace(HOLE, '?')!r} is no module's name")
    return {key: good} if good else {}


def _described(whatis: list[str], text: str, place: tuple[str, str]) -> dict[str, Value]:
    """Name, version, and what the module says about itself."""
    said = {key.strip(): value.strip() for key, colon, value in (line.partition(":") for line in whatis) if colon}
    name, version = said.pop("Name", ""), said.pop("Version", "")
    name = name if _NAMED.fullmatch(name) else place[0]
    version = version if _NAMED.fullmatch(version) else place[1]
    body, urls = _sections(text.replace(HOLE, "?"))
    keys: dict[str, Value] = {"name": name, "version": version, "description": body or said.get("Description", "")}
    if (homepage := said.pop("URL", said.pop("Home page", ""))).startswith(("http://", "https://")):
        keys["homepage"] = homepage
    said.pop("Description", None)
    rest = tuple(f"{key}: {' '.join(value.split())}" for key, value in said.items() if value)
    others = tuple(url for url in urls if not url.endswith(str(keys.get("homepage", "-"))))
    keys |= {"whatis": rest} if rest else {}
    return keys | ({"docurls": others} if others else {})


def _sections(text: str) -> tuple[str, tuple[str, ...]]:
    """The body of the section `Description` (all of it where there are none), and the lines with URLs of the rest."""
    parts = re.split(r"^([A-Z][A-Za-z ]{0,40})\n={3,}\n", text, flags=re.MULTILINE)
    if len(parts) < 3:
        return text.strip(), ()
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    body = sections.pop("Description", "").strip()
    lines = (" ".join(line.strip(" -*\t").split()) for rest in sections.values() for line in rest.splitlines())
    return body, tuple(line for line in lines if "://" in line)


def _gpus(module: _Module) -> dict[str, Value]:
    match sorted(module.found.gpus):
        case []:
            return {"accelerator": "none"}
        case [one]:
            return {"accelerator": one}
    module.note("the module looks for NVIDIA's and AMD's GPUs: without `accelerator` the site's is meant")
    return {}


def _take(module: _Module, call: Made) -> None:
    """One call; what only a run could decide is taken as if it were so, with a note."""
    texts = tuple(text_of(value) for value in call.arguments)
    match call.function:
        case "set_shell_function" | "set_alias" if len(texts) >= 2:
            _command(module, texts[0], texts[1])
        case "setenv" | "pushenv" if len(texts) >= 2:
            if HOLE in "".join(texts[:2]):
                module.note(f"{call.function} {texts[0].replace(HOLE, '?')}: its value is known only when it is loaded")
            else:
                module.found.set(texts[0], texts[1])
        case "prepend_path" | "append_path" if len(texts) >= 2:
            inside = re.match("(SINGULARITY|APPTAINER)(ENV_|_BIND)", texts[0])
            if inside and HOLE not in texts[1]:
                module.found.set(texts[0], texts[1])
            else:
                module.note(f"{call.function} {texts[0].replace(HOLE, '?')}: lists of the host are not changed")
        case "load" | "depends_on" | "prereq" | "always_load" | "load_any" | "unload":
            if any("singularity" in text.lower() or "apptainer" in text.lower() for text in texts):
                module.note(f"{call.function}: the runtime is the one of the site")
            else:
                module.note(f"{call.function} of {', '.join(texts).replace(HOLE, '?')[:80]} is not carried over")
        case function if function not in _SILENT:
            module.note(f"line {call.line}: {function[:60]} is not carried over")
    if not call.sure and call.function in ("setenv", "pushenv", "prepend_path", "append_path", "set_shell_function"):
        module.note(f"line {call.line}: {call.function} hangs on a condition, and is taken without it")


def _command(module: _Module, name: str, text: str) -> None:
    """A shell function or alias that starts a container becomes a wrapper."""
    command = without_arguments(text)
    if len(command) > MOST or not NAME.fullmatch(name) or ".." in name:
        module.note(f"function {name[:60].replace(HOLE, '?')!r}: cannot be a wrapper")
        return
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if len(words) < 3 or not _RUNTIME.fullmatch(words[0]) or words[1] not in ("run", "exec"):
        module.note(f"function {name} does not just start a container: not carried over")
        return
    if is_for_a_shell(re.sub(r"\$\w+(?=[/:])", "", command)):
        module.note(f"function {name} is a script of its own: not carried over")
        return
    given = options(words[2:], name)
    rest = words[2 + given.count :]
    module.verbs.add(words[1])
    module.found.gpus |= set(given.gpus)
    for bind in given.binds:
        module.found.bind(bind)
    for variable, value in given.env:
        module.found.set(f"SINGULARITYENV_{variable}", value)
    for note in given.notes:
        module.note(note.replace(f"{name}: ", "", 1).replace(HOLE, "?"))
    if not rest or HOLE in "".join(rest[1:]):
        module.note(f"function {name}: its command is known only when it is loaded")
        return
    if HOLE not in rest[0] and _SOURCE.fullmatch(rest[0]):
        module.sources[rest[0]] = None
    if len(rest) == 1:
        module.note(f"{name} hands its arguments to the image's entrypoint; the wrapper runs {name} in the image")
    try:
        module.wrappers[name] = wrapper(name, shlex.join(rest[1:] or [name]))
    except ValueError as error:
        module.note(f"function {name}: no command for a wrapper: {error}")
