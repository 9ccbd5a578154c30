"""Convert a Lua modulefile that starts a container (NGC's, Biocontainers') to an easyconfig: its calls become keys."""

import os
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sifmod.imports.container import MOST, vendor, wrapper
from sifmod.imports.lua import read_lua
from sifmod.imports.lua_values import HOLE, SOMEWHERE, Read
from sifmod.imports.module_calls import MODULES, SOURCE, Module, read_calls
from sifmod.imports.result import CannotImportError, Imported, Value, read_text
from sifmod.secret import cut

_NAMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_IMAGE_FILE = re.compile(r"[A-Za-z0-9_][^\s/\x00-\x1f\x7f-\x9f\ue000-\uf8ff]*\.(?:sif|simg)")
_FETCHED = re.compile(r"(?:docker|oras|library|https)://(?!\w+://).+|(?:oci|file):.+|/.+|[^:]+")
_NO_IMAGE = "starts no container, or its image cannot be determined without running it"
NO_COMMAND = "no command was imported: `wrappers: auto` finds those in the image"


@dataclass(frozen=True)
class Naming:
    """The source of a module's name: its path below `tree`, or its own whatis lines.

    Without a `tree` it is the directory two levels above each file: users load NAME/VERSION.lua as NAME/VERSION.
    """

    by_whatis: bool = False
    tree: Path | None = None


BY_PATH = Naming()


class Place:
    """The name that users load a modulefile by, and its tree, which has the names of other modules.

    Raises CannotImportError for a path outside of the tree that `naming` names.
    """

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
        """The name of the module `spec` in sifmod: of one deep in the same tree the last parts, else `spec`."""
        parts = spec.split("/")
        with suppress(OSError, ValueError):  # the text cannot be a path
            if len(parts) > 2 and (self.tree / f"{spec}.lua").is_file():
                return "/".join(parts[-2:])
            if len(parts) > 1 and any((self.tree / spec).glob("*.lua")):
                return parts[-1]
        return spec


def keys_of_modulefile(read: Read, place: Place, name: str, notes: list[str]) -> dict[str, Value]:
    """The keys for conflicting modules, dependencies and family; checking the easyconfig validates the names."""
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
    notes += [f"family: {cut(one, 60)} is not imported, because a module has only one family here" for one in others]
    keys: dict[str, Value] = {"conflict": tuple(dict.fromkeys(conflicts)), "depends_on": tuple(dict.fromkeys(needed))}
    return {key: value for key, value in (*keys.items(), ("family", family)) if value}


def described(read: Read, place: Place, notes: list[str]) -> dict[str, Value]:
    """Name, version, description, home page, links and whatis; raises CannotImportError without a version."""
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
    module = read_calls(read)
    asked = (one for left in read.untaken if left.names for one in left.asked)
    directories = frozenset(one.name for one in asked if one.name)  # variables that may name a directory of images
    if not module.sources and directories:
        there = read_lua(text, place.full_name, place.version, directories)  # as if they were set
        if (found := read_calls(there)).sources:
            read, module = there, found
    for what in read.skipped:
        module.notes.append(what)
    sources = _sources(module, read)
    notes = module.notes
    keys = described(read, place, notes)
    keys |= keys_of_modulefile(read, place, str(keys["name"]), notes)
    keys |= {"image": {"sources": sources}} | _gpus(module, sources) | module.keys()
    if module.wrappers:
        keys["wrappers"] = tuple(wrapper(name, shlex.join(command)) for name, command in module.wrappers.items())
    else:
        module.notes.append(NO_COMMAND)
    keys |= {"verb": "run"} if module.verbs == {"run"} else {}
    if module.verbs == {"run", "exec"}:
        module.notes.append("some commands use the image's entrypoint (run), others do not (exec): here none does")
    if sources[-1].startswith(("docker:", "oras:")) and "@sha256:" not in sources[-1]:
        module.notes.append("the image has no digest here; `sifmod install` prints one to add")
    notes = [note.replace(HOLE, "?") for note in notes]
    return Imported(keys, tuple(dict.fromkeys(notes)), publisher=sources[-1].rpartition("/")[0].rpartition("/")[2])


def _sources(module: Module, read: Read) -> tuple[str, ...]:
    """The image's file name and the source that the commands use, those known. Raises CannotImportError without one."""
    texts = [text.strip() for text in read.texts if len(text) < MOST]
    named = [text for text in texts if SOURCE.fullmatch(text) and not _IMAGE_FILE.fullmatch(text)]
    if any(_IMAGE_FILE.fullmatch(text) for text in texts):  # any other URL is a web page's
        named = [text for text in named if not text.startswith("http") or text.endswith((".sif", ".simg"))]
    used = next(iter((*module.sources, *named)), "")
    file = used.rpartition("/")[2] if {HOLE, SOMEWHERE} & set(used) else used
    if not _IMAGE_FILE.fullmatch(file):
        file = next((text for text in texts if _IMAGE_FILE.fullmatch(text)), "")
    if {HOLE, SOMEWHERE} & set(used) or used == file:
        used = ""
    if used and not _FETCHED.fullmatch(used):
        module.notes.append(f"image: sifmod cannot fetch {cut(used, 80)}")
        if not file:
            raise CannotImportError(f"its image is {cut(used, 80)}, which sifmod cannot fetch")
        used = ""
    if len(module.sources) > 1:
        module.notes.append(f"the commands are in {len(module.sources)} images; all are assigned to {used or file}")
    sources = tuple(dict.fromkeys(source for source in (file, used) if source))
    if not sources:
        raise CannotImportError(_NO_IMAGE)
    return sources


def _gpus(module: Module, sources: tuple[str, ...]) -> dict[str, Value]:
    """The key `accelerator`: a certain one, `none` without a test for GPUs, else that in the image's name; or {}."""
    certain = sorted(module.gpus)
    if len(certain) == 1:
        return {"accelerator": certain[0]}
    tested = sorted({*module.tested, *certain})
    if not tested:
        return {"accelerator": "none"}
    if not certain and (said := vendor(sources[-1])):
        return {"accelerator": said}
    whose = " and ".join({"cuda": "NVIDIA's", "rocm": "AMD's"}[one] for one in tested)
    module.notes.append(f"the module has options for {whose} GPUs: without `accelerator` the site's is used")
    return {}
