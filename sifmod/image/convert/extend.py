"""Extend a SIF: copy the base's blocks, append new blocks, and write new tables.

Nothing of the base is unpacked. Removed files leave unused bytes behind.
"""

import errno
import json
import os
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sifmod.errors import ImageError
from sifmod.image.convert.budget import Budget, CpuWatch
from sifmod.image.convert.inode import OWNER, Device, Directory, File, Node, Plain, Symlink, directories
from sifmod.image.convert.metadata.added_files import (
    BUILD_DATE,
    Entry,
    directory_at,
    insert_metadata,
    make_labels,
    way_to,
)
from sifmod.image.convert.metadata.start_scripts import BASE, IMAGE_ENVIRONMENT, image_environment
from sifmod.image.convert.packed import packed_node
from sifmod.image.convert.sif.header import DEFFILE, JSON, LABELS, SIGNATURE, SQUASHFS, SifInfo, read_sif
from sifmod.image.convert.sif.write import DataObject, partition_offset, write_header
from sifmod.image.convert.squashfs.read_tree import read_tree
from sifmod.image.convert.squashfs.reader import SquashfsReader
from sifmod.image.convert.squashfs.writer import SquashfsWriter
from sifmod.image.disk import reading, writing
from sifmod.image.oci.content import any_object, child

Pairs = tuple[tuple[str, str], ...]
_Json = dict[str, object]

_HOME = ".singularity.d"
_ENVIRONMENT = f"{_HOME}/env/90-environment.sh"
_DOCKER = f"{_HOME}/env/{IMAGE_ENVIRONMENT}"
_LARGEST = 4 << 20  # bytes of one document
_AT_ONCE = 1 << 30  # bytes copied by one call
_NO_COPY = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM)
_ENCRYPTED = 5


@dataclass(frozen=True)
class Addition:
    """Files, variables and labels to add to a base, and files to remove. Paths inside have no leading slash.

    Added files belong to root, with time `epoch`; executables stay executable. Parents are created. Links of the base
    are followed inside it, but an added file replaces a file or link at its own path, not a directory or link to one.
    """

    # path inside → file, link or directory on the host; directories without content
    files: tuple[tuple[str, Path], ...] = ()
    removed: tuple[str, ...] = ()  # paths, directories with their content; parents that become empty go too
    documents: tuple[tuple[str, bytes], ...] = ()  # path inside → content
    env: Pairs = ()  # set literally, regardless of the base
    labels: Pairs = ()
    deffile: str = ""
    epoch: int = 0  # seconds since 1970
    one_user: bool = False  # files of the base become root's, and devices are skipped


def extend(base: Path, addition: Addition, target: Path, processors: int, memory: int | None = None) -> tuple[str, ...]:
    """Write the SIF `target`: the SIF `base` with `addition`. Returns warnings.

    The base's compression, block size and inode attributes are kept. The same base, addition and libraries give the
    same bytes. `memory` is in bytes, None for no limit. `target` is only created or replaced when it is complete.
    Raises ImageError for a base that is damaged, changed meanwhile or cannot be extended and for invalid additions, and
    what `reading` and `writing` raise.
    """
    info = read_sif(base)
    (system,) = struct.unpack_from("<i", info.primary.extra)
    if system == _ENCRYPTED:
        raise ImageError(f"{base} is encrypted: nothing can be added to it", "use the image that it was made from")
    if system != SQUASHFS:
        raise ImageError(
            f"the file system of {base} is not a squashfs: nothing can be added to it",
            f"make a SIF with a squashfs: apptainer build new.sif {base}",
        )
    beside = target.with_name(f".{target.name}.extending")
    try:
        with reading(base), base.open("rb") as source, writing(target), beside.open("w+b") as file:
            before = os.fstat(source.fileno())
            warnings = _write(source, info, addition, file, Budget(processors, memory))
            after = os.fstat(source.fileno())
            if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
                raise ImageError(f"{base} was changed while it was read", "try again when it is complete")
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
    return warnings


def _write(source: BinaryIO, info: SifInfo, addition: Addition, file: BinaryIO, budget: Budget) -> tuple[str, ...]:
    reader = SquashfsReader(source, info.primary.offset, info.primary.size)
    root, written = read_tree(reader, CpuWatch(budget.memory))
    if addition.one_user:
        _give_to_root(root)
    for path in addition.removed:
        _remove(root, path)
    said = {
        entry.name: any_object(os.pread(source.fileno(), entry.size, entry.offset))
        for entry in info.descriptors
        if entry.type == JSON and entry.size <= _LARGEST
    }
    entries, objects, warnings = _metadata(reader, said, addition, info.arch)
    offset, epoch = partition_offset(objects), addition.epoch
    kept = reader.superblock.inode_table
    copy_blocks(source, info.primary.offset, file, offset, kept)
    with SquashfsWriter(file, offset, reader.compression(), budget.processors, epoch) as squashfs:
        squashfs.go_on(reader.superblock, written)
        for path, here in sorted(addition.files):
            _add(root, path, packed_node(squashfs, here, epoch), epoch)
        for path, content in sorted(addition.documents):
            _add(root, path, File(0o644, 0, 0, epoch, (), squashfs.add(content)), epoch)
        warnings += insert_metadata(root, entries, squashfs.add, epoch)
        size = squashfs.close(root)
    write_header(file, objects, size, info.arch, epoch)
    return (*warnings, *_left_out(info))


def copy_blocks(source: BinaryIO, start: int, file: BinaryIO, at: int, size: int) -> None:
    """Copy `size` bytes of `source` from `start` to `file` at `at`, in shared blocks if possible.

    Raises OSError, and ImageError if `source` is too short.
    """
    end = start + size
    while start < end:
        try:
            done = os.copy_file_range(source.fileno(), file.fileno(), min(end - start, _AT_ONCE), start, at)
        except OSError as error:
            if error.errno not in _NO_COPY:
                raise
            done = os.pwrite(file.fileno(), os.pread(source.fileno(), min(end - start, 1 << 20), start), at)
        if not done:
            raise ImageError(f"{source.name} is truncated: it ends before byte {end}")
        start, at = start + done, at + done


def _give_to_root(root: Directory) -> None:
    for directory in directories(root):
        directory.uid = directory.gid = 0
        for name, node in list(directory.entries.items()):
            if isinstance(node, Plain):
                mode, _, _, mtime = OWNER.unpack_from(node)
                directory.entries[name] = OWNER.pack(mode, 0, 0, mtime) + node[OWNER.size :]
            elif isinstance(node, Device):
                del directory.entries[name]
            elif not isinstance(node, Directory):
                node.uid = node.gid = 0
                node.xattrs = tuple(pair for pair in node.xattrs if pair[0].startswith(b"user."))


def _remove(root: Directory, path: str) -> None:
    *above, name = _parts(path)
    way = _way(root, above)
    if way is None or way[-1].entries.pop(name, None) is None:
        return
    while len(way) > 1 and not way[-1].entries:
        empty = way.pop()
        way[-1].entries = {name: node for name, node in way[-1].entries.items() if node is not empty}


def _add(root: Directory, path: str, node: Node, epoch: int) -> None:
    *above, name = _parts(path)
    if isinstance(node, Directory):
        directory = directory_at(root, (*above, name), False, epoch)
    elif directory := directory_at(root, above, False, epoch):
        there = directory.entries.get(name)
        if isinstance(there, Directory) or (isinstance(there, Symlink) and _way(root, (*above, name))):
            raise ImageError(f"/{path} cannot be added: the base has a directory, or a link to one, there")
        directory.entries[name] = node
    if directory is None:
        raise ImageError(f"/{path} cannot be added: a parent in the base is not a directory")


def _way(root: Directory, parts: Sequence[bytes]) -> list[Directory] | None:
    """The directories from the root to this path, following the base's links; None if it is not a directory."""
    return way_to([root], Symlink(0, 0, 0, 0, (), b"/" + b"/".join(parts)))


def _parts(path: str) -> list[bytes]:
    parts = os.fsencode(path).split(b"/")
    if not {b"", b".", b".."}.isdisjoint(parts):
        raise ImageError(f"{path!r} is not a path inside an image")
    return parts


def _metadata(
    reader: SquashfsReader, said: Mapping[str, _Json], addition: Addition, arch: str
) -> tuple[tuple[Entry, ...], tuple[DataObject, ...], tuple[str, ...]]:
    """Entries, objects and warnings from the base (`said`: its JSON documents by name) and `addition`."""
    exports, warnings = image_environment([f"{name}={value}" for name, value in addition.env])
    script = _read(reader, _ENVIRONMENT) or b"#!/bin/sh\n"
    script = script.rstrip(b"\n") + _utf8(exports[exports.index("\n") :])
    labels, deffile = _labels(reader, addition, arch), addition.deffile
    labels_text = _utf8(json.dumps(labels, ensure_ascii=False, indent="\t"))
    shown = child(child(said.get("inspect-metadata.json", {}), "data"), "attributes") or {
        "environment": {f"/{_DOCKER}": _text(_read(reader, _DOCKER))},
        "runscript": _text(_read(reader, f"{_HOME}/runscript")),
    }
    environment = child(shown, "environment") | {f"/{_ENVIRONMENT}": _text(script)}
    shown |= {"environment": environment, "labels": labels, "deffile": deffile.rstrip("\n")}
    entries = (
        # without this file a runtime does not set the user's variables
        Entry(f"{_HOME}/env/99-base.sh", content=BASE.encode()),
        Entry(_ENVIRONMENT, content=script, replaces=True),
        Entry(f"{_HOME}/labels.json", 0o644, labels_text, replaces=True),
        Entry(f"{_HOME}/Singularity", 0o644, _utf8(deffile), replaces=True),
    )
    objects = [
        DataObject("deffile", "", _utf8(deffile)),
        DataObject("labels", "", labels_text),
        _document("inspect-metadata.json", {"data": {"attributes": shown}, "type": "container"}),
    ]
    if config := said.get("oci-config.json"):
        before, ours = config.get("Env"), [f"{name}={value}" for name, value in addition.env]
        kept = before if isinstance(before, list) else []  # the last entry of a name counts
        labels = child(config, "Labels") | dict(addition.labels)
        objects.append(_document("oci-config.json", config | {"Env": [*kept, *ours], "Labels": labels}))
    return entries, tuple(objects), warnings


def _labels(reader: SquashfsReader, addition: Addition, arch: str) -> _Json:
    """The labels of the base, of `addition`, and of the definition."""
    labels = any_object(_read(reader, f"{_HOME}/labels.json")) | dict(addition.labels)
    texts = [(name, text) for name, text in labels.items() if isinstance(text, str) and name != BUILD_DATE]
    header = re.findall(r"(?im)^[ \t]*(bootstrap|from)[ \t]*:[ \t]*(\S.*?)[ \t]*$", addition.deffile)
    said = {key.lower(): value for key, value in reversed(header)}
    return {**make_labels(texts, arch, addition.epoch, (said.get("bootstrap", ""), said.get("from", "")))}


def _document(name: str, content: _Json) -> DataObject:
    return DataObject("json", name, json.dumps(content, separators=(",", ":")).encode())


def _read(reader: SquashfsReader, path: str) -> bytes:
    """The content of a small file; empty if it is missing. Raises ImageError for a large one."""
    found = reader.lookup(path)
    if found is None or found.kind != "f":
        return b""
    if found.size > _LARGEST:
        raise ImageError(f"/{path} of the base has {found.size} bytes, more than {_LARGEST}")
    return reader.head(found, _LARGEST)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").rstrip("\n")


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _left_out(info: SifInfo) -> tuple[str, ...]:
    """A warning for each object of the base that is not kept, except definition, labels and JSON documents."""
    others = [
        entry for entry in info.descriptors if entry.type not in (DEFFILE, LABELS, JSON) and entry != info.primary
    ]
    return tuple(
        "the base's signature is not copied, because it is only valid for the base: sign the new image if necessary"
        if entry.type == SIGNATURE
        else f"the base's {entry.title} is not copied"
        for entry in others
    )
