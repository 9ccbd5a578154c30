"""Convert a SIF to an OCI image: a layer of its root file system, or of its difference to a base; and its config.

The layer is a tar stream (PAX) in gzip, the same bytes for the same SIF. It is generated each time it is read, so that
it needs neither memory nor disk.
"""

import hashlib
import json
import os
import re
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sifmod.digest import sha256_bytes
from sifmod.errors import ImageError
from sifmod.image.convert.deflate import compressobj
from sifmod.image.convert.sif.header import SQUASHFS, SifInfo, read_sif
from sifmod.image.convert.squashfs.blocks import Stat
from sifmod.image.convert.squashfs.reader import SquashfsReader
from sifmod.image.inspect.description import date
from sifmod.image.inspect.rootfs import open_rootfs
from sifmod.image.inspect.sif import Documents, read_documents
from sifmod.image.oci.manifest import OCI_MANIFEST, Descriptor, ImageConfig
from sifmod.image.printable import line
from sifmod.image.sif_environment import SifEnvironment, sif_environment
from sifmod.module.plan import Runtime

GZIP_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"

_LEVEL = 2  # of isa-l, whose output up to here does not depend on the processor
_REMOVAL = b".wh."
_REMOVES = re.compile(rb"\.wh\.(?!\.wh\.(?!\.opq\Z))")  # other names with .wh..wh. are markers of AUFS without effect
_LONGEST_REMOVED = 255 - len(_REMOVAL)  # bytes of a name
_AS_SIF = "the SIF itself can be pushed (oras://…) and exported (--to sif)"
_UNIT = 1 << 20
# each conversion to a SIF writes these files again; a recipe's own documents stay
_OF_THE_TOOLS = re.compile(rb"\.singularity\.d(/(?!build(/|$)).*)?", re.DOTALL)
_SHELL = re.compile(r"#! ?(?P<shell>/(?:usr/)?bin/(?:ba|da|a|z)?sh)[ \t]*\n")
_KINDS = {
    "d": tarfile.DIRTYPE,
    "f": tarfile.REGTYPE,
    "l": tarfile.SYMTYPE,
    "b": tarfile.BLKTYPE,
    "c": tarfile.CHRTYPE,
    "p": tarfile.FIFOTYPE,
}


@dataclass(frozen=True)
class Base:
    """The base image of a SIF: its local SIF, its config, and its layers in a registry."""

    path: Path
    config: ImageConfig
    layers: tuple[Descriptor, ...]


@dataclass(frozen=True)
class Content:
    """The content of a layer: all of the SIF at `path`, or the paths `changed`; and whiteouts for `gone`."""

    path: Path
    changed: frozenset[bytes] | None = None
    gone: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Converted:
    """An OCI image of a SIF. `layer` is made from the SIF's `content`, and is the last layer in `manifest`."""

    manifest: bytes
    config: bytes
    config_descriptor: Descriptor
    layer: Descriptor
    content: Content
    arch: str
    variant: str
    notes: tuple[str, ...]


def convert(path: Path, base: Base | None, runtime: Runtime, take: Callable[[bytes, int], None]) -> Converted:
    """Convert the SIF at `path` to an OCI image.

    With a `base`, its last layer holds only the differences from the base, including removals, unless a removed name is
    too long for a whiteout: then the one layer holds all files. If scripts set variables, `runtime` starts the SIF to
    find them. Reads the whole SIF; `take` is called with each piece of the layer, and the number of bytes so far.
    Raises ImageError for a SIF that is damaged, has no squashfs, or has a name that an OCI image cannot express.
    """
    info = read_sif(path)
    documents = read_documents(path, info)
    environment = sif_environment(path, documents, runtime)
    content = Content(path) if base is None else _difference(path, base.path)
    if any(len(name.rpartition(b"/")[2]) > _LONGEST_REMOVED for name in content.gone):
        base, content = None, Content(path)  # the whiteout's own name would be too long
    plain, packed, size = hashlib.sha256(), hashlib.sha256(), 0
    for piece in _gzip(_tar(content), plain.update):
        packed.update(piece)
        size += len(piece)
        take(piece, size)
    layer = Descriptor(GZIP_LAYER, f"sha256:{packed.hexdigest()}", size)
    config, notes = _config(documents, environment, info, base, f"sha256:{plain.hexdigest()}")
    raw = json_bytes(config)
    described = Descriptor(OCI_CONFIG, f"sha256:{sha256_bytes(raw)}", len(raw))
    layers = (*(base.layers if base else ()), layer)
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": descriptor_data(described),
        "layers": [descriptor_data(one) for one in layers],
    }
    variant = documents.config.variant if documents.config else ""
    return Converted(json_bytes(manifest), raw, described, layer, content, info.arch, variant, notes)


def layer_bytes(content: Content, start: int) -> Iterator[bytes]:
    """The bytes (gzip) of the layer with `content`, from the byte `start` on."""
    return from_byte(_gzip(_tar(content), lambda _: None), start)


def from_byte(pieces: Iterable[bytes], start: int) -> Iterator[bytes]:
    """The bytes of `pieces` from the byte `start` on."""
    for piece in pieces:
        if start < len(piece):
            yield piece[start:]
        start = max(0, start - len(piece))


def descriptor_data(descriptor: Descriptor) -> dict[str, object]:
    """The descriptor as a manifest has it."""
    return {"mediaType": descriptor.media_type, "digest": descriptor.digest, "size": descriptor.size}


def json_bytes(content: object) -> bytes:
    """The shortest JSON of `content`, in UTF-8."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _gzip(pieces: Iterator[bytes], count: Callable[[bytes], object]) -> Iterator[bytes]:
    packer = compressobj(_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    for piece in pieces:
        count(piece)
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()


@contextmanager
def opened(path: Path) -> Iterator[SquashfsReader]:
    """The file system in a SIF. Raises ImageError unless it is a squashfs, and what `reading` raises."""
    info = read_sif(path)
    (system,) = struct.unpack_from("<i", info.primary.extra)
    if system != SQUASHFS:
        raise ImageError(f"the files of {path} cannot be read: they are not in a squashfs, or encrypted", _AS_SIF)
    with open_rootfs(path, info) as rootfs:
        yield rootfs.reader


def _walk(reader: SquashfsReader) -> Iterator[tuple[bytes, Stat, int]]:
    """Path, inode and its reference of all but sockets and the tools' own files. Raises ImageError for a name .wh.…"""
    yield b".", reader.root, -1
    for path, stat, reference in reader.walk():
        of_the_tools = _OF_THE_TOOLS.fullmatch(path) or stat.target.startswith(b".singularity.d/")
        if of_the_tools or stat.kind not in _KINDS:
            continue
        if _REMOVES.match(path.rpartition(b"/")[2]):
            raise _unsaid(path, "a name that begins with .wh. removes another file there")
        yield path, stat, reference


def _unsaid(path: bytes, why: str) -> ImageError:
    return ImageError(f"/{line(os.fsdecode(path))} cannot be in an OCI image: {why}", _AS_SIF)


def _difference(path: Path, base: Path) -> Content:
    """The difference between the SIF and its base. If one name of an inode is in the layer, all are."""
    with opened(path) as reader, opened(base) as below:
        before = {path: stat for path, stat, _ in _walk(below)}
        directories, names, changed = {b""}, dict[int, list[bytes]](), set[bytes]()
        for name, stat, reference in _walk(reader):
            if stat.kind == "d":
                directories.add(name)
            elif stat.links > 1:
                names.setdefault(reference, []).append(name)
            if not _is_unchanged(reader, stat, below, before.pop(name, None)):
                changed.add(name)
        for group in names.values():
            if changed.intersection(group):
                changed.update(group)
    return Content(path, frozenset(changed), tuple(name for name in before if name.rpartition(b"/")[0] in directories))


def _is_unchanged(reader: SquashfsReader, stat: Stat, below: SquashfsReader, old: Stat | None) -> bool:
    if old is None:
        return False
    attributes = ("kind", "mode", "uid", "gid", "mtime", "target", "device", *(("size",) if stat.kind == "f" else ()))
    if any(getattr(stat, name) != getattr(old, name) for name in attributes):
        return False
    if reader.xattrs(stat) != below.xattrs(old):
        return False
    return stat.kind != "f" or _digest(reader, stat) == _digest(below, old)


def _digest(reader: SquashfsReader, stat: Stat) -> bytes:
    digest = hashlib.sha256()
    for piece in _data(reader, stat):
        digest.update(piece)
    return digest.digest()


def _data(reader: SquashfsReader, stat: Stat) -> Iterator[bytes]:
    for piece in reader.data(stat):
        if isinstance(piece, bytes):
            yield piece
        else:
            yield from (reader.counted(bytes(min(_UNIT, piece - at))) for at in range(0, piece, _UNIT))


def _tar(content: Content) -> Iterator[bytes]:
    """The uncompressed tar of a layer with this content. Each further name of a file is a hard link to the first."""
    for name in content.gone:
        above, slash, last = name.rpartition(b"/")
        yield _header(tarfile.TarInfo(os.fsdecode(above + slash + _REMOVAL + last)))
    names: dict[int, bytes] = {}
    with opened(content.path) as reader:
        for path, stat, reference in _walk(reader):
            if content.changed is not None and path not in content.changed:
                continue
            info = tarfile.TarInfo(os.fsdecode(path))
            info.mode, info.uid, info.gid, info.mtime = stat.mode, stat.uid, stat.gid, stat.mtime
            first = names.setdefault(reference, path) if stat.links > 1 and stat.kind != "d" else path
            if first != path:
                info.type, info.linkname = tarfile.LNKTYPE, os.fsdecode(first)
                yield _header(info)
                continue
            info.type, info.linkname = _KINDS[stat.kind], os.fsdecode(stat.target)
            info.size = stat.size if stat.kind == "f" else 0
            info.devmajor, info.devminor = os.major(stat.device), os.minor(stat.device)
            info.pax_headers = {}
            for name, value in reader.xattrs(stat):
                if name.decode(errors="ignore").encode() != name:
                    raise _unsaid(path, "the name of one of its attributes is not UTF-8")
                info.pax_headers[f"SCHILY.xattr.{os.fsdecode(name)}"] = os.fsdecode(value)
            yield _header(info)
            if info.size:
                yield from _data(reader, stat)
                yield bytes(-info.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _config(
    documents: Documents, environment: SifEnvironment, info: SifInfo, base: Base | None, diff_id: str
) -> tuple[dict[str, object], tuple[str, ...]]:
    """The config of the image, and notes about what an OCI image cannot express."""
    said = documents.config
    section, notes = image_section(documents, environment)
    history = json.loads(base.config.raw).get("history") if base else None
    created = date(info.created) or "1970-01-01T00:00:00Z"
    config: dict[str, object] = {
        "created": created,
        "architecture": info.arch,
        **({"variant": said.variant} if said and said.variant else {}),
        "os": "linux",
        "config": section,
        "rootfs": {"type": "layers", "diff_ids": [*(base.config.diff_ids if base else ()), diff_id]},
        "history": [*(history if isinstance(history, list) else ()), {"created": created, "created_by": "sifmod"}],
    }
    return config, notes


def image_section(documents: Documents, environment: SifEnvironment) -> tuple[dict[str, object], tuple[str, ...]]:
    """How to start the image, as the `config` of an OCI image, and notes about what a `config` cannot express."""
    said = documents.config
    whole = json.loads(said.raw) if said else {}
    section: dict[str, object] = dict(whole.get("config") or {})
    notes = environment.notes
    section["Env"] = [f"{name}={value}" for name, value in environment.variables.items()]
    if said is None or (documents.runscript and "SINGULARITY_OCI_RUN" not in documents.runscript):
        entrypoint, note = _entrypoint(documents.runscript)
        section.update(Entrypoint=entrypoint, Cmd=None)
        notes += note
    labels: dict[str, str] = dict(said.labels) if said else {}
    labels |= {name: text for name, text in documents.labels.items() if not name.startswith("org.label-schema.")}
    if labels:
        section["Labels"] = dict(sorted(labels.items()))
    return {name: value for name, value in section.items() if value is not None}, notes


def _entrypoint(script: str) -> tuple[list[str] | None, tuple[str, ...]]:
    """A runscript's text as an entrypoint for its shell, by default /bin/sh; None without text or shell; and notes."""
    if not script.strip():
        return None, ()
    if not script.startswith("#!"):
        return ["/bin/sh", "-c", script, "runscript"], ()
    if (shell := _SHELL.match(f"{script}\n")) is None:
        return None, ("the runscript is left out: its first line is not only `#!` and a shell in /bin or /usr/bin",)
    return [shell["shell"], "-c", script, "runscript"], ()
