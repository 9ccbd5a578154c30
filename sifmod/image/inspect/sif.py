"""Describe a SIF without starting it: from its descriptors, its documents and the files in its root."""

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from sifmod.digest import sha256_bytes
from sifmod.errors import ImageError
from sifmod.image.convert.sif.header import DEFFILE, JSON, LABELS, PARTITION, SifInfo, SifObject, kind_of, read_sif
from sifmod.image.disk import reading
from sifmod.image.inspect.description import Config, ImageDescription, Part, date, of_config, pairs
from sifmod.image.inspect.environment_scripts import ScriptedEnvironment, read_scripts
from sifmod.image.inspect.rootfs import Rootfs, open_rootfs
from sifmod.image.oci.content import any_object, child
from sifmod.image.oci.manifest import ImageConfig, parse_config
from sifmod.image.printable import block, line
from sifmod.image.signature.signatures import signatures

_MOST_SCRIPTS = 100
_LARGEST_SCRIPT = 1 << 18  # bytes of a script of the environment
_FILE_SYSTEMS = {1: "squashfs", 2: "ext3", 3: "archive", 4: "raw", 5: "encrypted squashfs"}
_PARTITIONS = {1: "system", 2: "primary system", 3: "data", 4: "overlay"}
_LARGEST = 4 << 20  # bytes of one document
_MOST_DOCUMENTS = 32
_MOST_BYTES = 4 * _LARGEST  # of all documents; their labels take ten times as much memory
_HOME = "/.singularity.d"
_RECIPES = f"{_HOME}/build"  # the recipes that built the image, by number
_OF_THE_RUNTIME = re.compile(r"(01-base|94-appsbase|95-apps|99-base|99-runtimevars)\.sh")


@dataclass
class Documents:
    """The metadata of a SIF, collected from its documents and files."""

    deffile: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    config: ImageConfig | None = None
    manifest: str = ""
    scripts: dict[str, str | None] = field(default_factory=dict)  # of the environment, by name; None: it is too long
    runscript: str = ""
    bases: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    @cached_property
    def environment(self) -> ScriptedEnvironment:
        """The config's variables, and those of the image's scripts, in the order in which a runtime reads them."""
        config = self.config.env if self.config else ()
        return read_scripts(self.scripts, dict(text.partition("=")[::2] for text in config))


def describe_sif(path: Path, name: str = "") -> ImageDescription:
    """The metadata of the SIF at `path`, called `name` in messages. Reads little of it, however large it is.

    Raises ImageError unless it is a SIF, PermissionsError or FetchError if it cannot be read. An unreadable file system
    in it gives a note.
    """
    info = read_sif(path, name)
    found = read_documents(path, info)
    config = of_config(found.config) if found.config else Config()
    labels = {**dict(config.labels), **dict(pairs(found.labels.items()))}
    scripted = found.environment
    config = config._replace(labels=tuple(sorted(labels.items())), environment=pairs(scripted.variables.items()))
    return ImageDescription(
        kind="SIF",
        arch=info.arch,
        size=info.size,
        manifest=found.manifest,
        created=date(info.created),
        source=_origin(found.deffile),
        bases=found.bases,
        parts=tuple(Part(_part(entry), entry.size) for entry in info.descriptors),
        compression=info.compression,
        config=config,
        runscript="" if config.entrypoint or config.cmd else block(found.runscript),
        definition=block(found.deffile),
        signers=tuple(one.fingerprint or f"a signature of the form {one.form}" for one in signatures(path, info)),
        notes=tuple(line(note) for note in (*found.notes, *scripted.notes)),
    )


def read_documents(path: Path, info: SifInfo) -> Documents:
    """The metadata in the documents and files of the SIF at `path`, whose checked header is `info`.

    Raises PermissionsError or FetchError if the SIF cannot be read. An unreadable file system in it gives a note.
    """
    found, room = Documents(), _MOST_BYTES
    with reading(path), path.open("rb") as file:
        for entry in info.descriptors[: _MOST_DOCUMENTS * 4]:
            if entry.type in (DEFFILE, LABELS, JSON) and entry.size <= min(room, _LARGEST):
                room -= entry.size
                file.seek(entry.offset)
                _take(found, entry.type, file.read(entry.size))
    try:
        with open_rootfs(path, info) as rootfs:
            _take_files(found, rootfs)
    except ImageError as error:
        found.notes.append(f"its files cannot be read: {error.message}")
    return found


def _take(found: Documents, kind: int, raw: bytes) -> None:
    """Add the metadata of one data object; an unreadable one is ignored, an invalid config noted."""
    if kind == DEFFILE:
        found.deffile = found.deffile or raw.rstrip(b"\0").decode("utf-8", "replace")
        return
    content = any_object(raw)
    if kind == LABELS:
        found.labels |= _texts(content)
    elif "rootfs" in content or "architecture" in content or {"Env", "Cmd", "Entrypoint", "Labels"} & set(content):
        whole = raw if "rootfs" in content or "architecture" in content else json.dumps({"config": content}).encode()
        try:
            found.config = parse_config(whole, "the OCI config in the SIF")
        except ImageError as error:
            found.notes.append(error.message)
    elif "layers" in content and "config" in content:
        found.manifest = f"sha256:{sha256_bytes(raw)}"
    elif attributes := child(child(content, "data"), "attributes"):
        found.labels |= _texts(child(attributes, "labels"))
        found.runscript = _texts(attributes).get("runscript", "")
        scripts = _texts(child(attributes, "environment"))
        found.scripts = {
            name: text if len(text) <= _LARGEST_SCRIPT else None
            for path, text in scripts.items()
            if not _OF_THE_RUNTIME.fullmatch(name := path.rpartition("/")[2])
        }


def _take_files(found: Documents, rootfs: Rootfs) -> None:
    found.deffile = found.deffile or rootfs.read(f"{_HOME}/Singularity", _LARGEST)
    found.runscript = found.runscript or rootfs.read(f"{_HOME}/runscript", _LARGEST)
    found.labels = found.labels or _texts(any_object(rootfs.read(f"{_HOME}/labels.json", _LARGEST).encode()))
    recipes = sorted((name for name in rootfs.entries(_RECIPES) if re.fullmatch("[0-9]{1,2}", name)), key=int)
    said = (_texts(any_object(rootfs.read(f"{_RECIPES}/{name}/recipe.json", _LARGEST).encode())) for name in recipes)
    found.bases = tuple(line(f"{one.get('from', '')} {one.get('base', '')}".strip()) for one in said)
    names = [name for name in rootfs.entries(f"{_HOME}/env") if name.endswith(".sh")]
    if names:  # then the scripts in the documents have no effect
        found.scripts = {}
    for number, name in enumerate(name for name in names if not _OF_THE_RUNTIME.fullmatch(name)):
        text = rootfs.data(f"{_HOME}/env/{name}", _LARGEST_SCRIPT + 1)
        readable = number < _MOST_SCRIPTS and len(text) <= _LARGEST_SCRIPT
        found.scripts[name] = text.decode("utf-8", "surrogateescape") if readable else None


def _part(entry: SifObject) -> str:
    if entry.type != PARTITION:
        return " ".join((kind_of(entry.type), line(entry.name))).strip()
    system, use = struct.unpack_from("<ii", entry.extra)
    return f"{_PARTITIONS.get(use, 'unknown')} partition, {_FILE_SYSTEMS.get(system, 'unknown')}"


def _origin(deffile: str) -> str:
    """The source, such as `docker://…`, from the first lines of a definition; "" if they have none."""
    found = re.findall(r"(?im)^[ \t]*(bootstrap|from)[ \t]*:[ \t]*(\S.*)$", deffile[:8192])
    said = {key.lower(): value.strip() for key, value in reversed(found)}
    bootstrap, source = said.get("bootstrap", ""), said.get("from", "")
    between = "://" if bootstrap in ("docker", "oras", "library", "shub") else ":"
    return line(f"{bootstrap}{between}{source}", 1000) if bootstrap and source else ""


def _texts(content: Mapping[str, object]) -> dict[str, str]:
    return {name: value for name, value in content.items() if isinstance(value, str)}
