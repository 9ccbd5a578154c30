"""A SIF that goes on where another ends: the base's blocks as they are, more behind them, and new tables.

Nothing of the base is unpacked. What is taken out stays in the file as bytes that no file has.
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
from sifmod.image.convert.budget import Budget, Watch
from sifmod.image.convert.inode import OWNER, Device, Directory, File, Node, Symlink
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
from sifmod.image.convert.sif.header import (
    DEFFILE,
    JSON,
    LABELS,
    SIGNATURE,
    SQUASHFS,
    SifInfo,
    read_sif,
)
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
    """What an image is to have more, or less, than its base. Paths inside begin without a slash.

    What is added belongs to root, and is as old as `epoch`; a program stays one. Parents are made. Links of the base on
    the way are followed inside it; the last part is replaced, unless it is a directory.
    """

    files: tuple[tuple[str, Path], ...] = ()  # path inside → file, link or directory here; of a directory itself alone
    removed: tuple[str, ...] = ()  # a directory goes with all in it, and one that becomes empty goes too
    documents: tuple[tuple[str, bytes], ...] = ()  # path inside → content
    env: Pairs = ()  # literally, whatever the base has
    labels: Pairs = ()
    deffile: str = ""
    epoch: int = 0  # seconds since 1970
    one_user: bool = False  # the files of the base become those of root, and devices are left out


def extend(base: Path, addition: Addition, target: Path, processors: int, memory: int | None = None) -> tuple[str, ...]:
    """Write the SIF `target`: what the SIF `base` has, and `addition`. Returns warnings.

    The base's compression, block size and inodes' attributes stay. The same base, addition and libraries give the same
    bytes. `memory` is in bytes, None for any. `target` is complete or not there. Raises ImageError for a base that is
    damaged or cannot be extended and for what cannot be added, and what reading and writing raise.
    """
    info = read_sif(base)
    _check_squashfs(base, info)
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


def _check_squashfs(base: Path, info: SifInfo) -> None:
    (system,) = struct.unpack_from("<i", info.primary.extra)
    if system == _ENCRYPTED:
        raise ImageError(f"{base} is encrypted: nothing can be added to it", "take the image that it was made from")
    if system != SQUASHFS:
        raise ImageError(
            f"the file system of {base} is no squashfs: nothing can be added to it",
            f"make a SIF with one: apptainer build new.sif {base}",
        )


def _write(source: BinaryIO, info: SifInfo, addition: Addition, file: BinaryIO, budget: Budget) -> tuple[str, ...]:
    reader = SquashfsReader(source, info.primary.offset, info.primary.size)
    root, written = read_tree(reader, Watch(budget.memory))
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
    """Share the blocks of a part of `source` where the file system can, else copy them. Raises OSError, ImageError."""
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


def _give_to_root(directory: Directory) -> None:
    directory.uid = directory.gid = 0
    for name, node in list(directory.entries.items()):
        if isinstance(node, bytes):
            mode, _, _, mtime = OWNER.unpack_from(node)
            directory.entries[name] = OWNER.pack(mode, 0, 0, mtime) + node[OWNER.size :]
        elif isinstance(node, Device):
            del directory.entries[name]
        elif isinstance(node, Directory):
            _give_to_root(node)
        else:
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
            raise ImageError(f"/{path} cannot be added: the base has a directory there")
        directory.entries[name] = node
    if directory is None:
        raise ImageError(f"/{path} cannot be added: what the base has on the way to it is no directory")


def _way(root: Directory, parts: Sequence[bytes]) -> list[Directory] | None:
    """From the root to the directory of this path, through the base's links; None where it is none."""
    return way_to([root], Symlink(0, 0, 0, 0, (), b"/" + b"/".join(parts)))


def _parts(path: str) -> list[bytes]:
    parts = os.fsencode(path).split(b"/")
    if not {b"", b".", b".."}.isdisjoint(parts):
        raise ImageError(f"{path!r} is no path inside an image")
    return parts


def _metadata(
    reader: SquashfsReader, said: Mapping[str, _Json], addition: Addition, arch: str
) -> tuple[tuple[Entry, ...], tuple[DataObject, ...], tuple[str, ...]]:
    """Entries, objects and warnings: what the base says (`said`: its JSON documents by name), and `addition`."""
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
        Entry(f"{_HOME}/env/99-base.sh", content=BASE.encode()),  # without it a runtime sets no variable of the user's
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
        kept = before if isinstance(before, list) else []  # of one name the last counts
        labels = child(config, "Labels") | dict(addition.labels)
        objects.append(_document("oci-config.json", config | {"Env": [*kept, *ours], "Labels": labels}))
    return entries, tuple(objects), warnings


def _labels(reader: SquashfsReader, addition: Addition, arch: str) -> _Json:
    """The base's, those of `addition`, and what the definition says of itself."""
    labels = any_object(_read(reader, f"{_HOME}/labels.json")) | dict(addition.labels)
    texts = [(name, text) for name, text in labels.items() if isinstance(text, str) and name != BUILD_DATE]
    header = re.findall(r"(?im)^[ \t]*(bootstrap|from)[ \t]*:[ \t]*(\S.*?)[ \t]*$", addition.deffile)
    said = {key.lower(): value for key, value in reversed(header)}
    return {**make_labels(texts, arch, addition.epoch, (said.get("bootstrap", ""), said.get("from", "")))}


def _document(name: str, content: _Json) -> DataObject:
    return DataObject("json", name, json.dumps(content, separators=(",", ":")).encode())


def _read(reader: SquashfsReader, path: str) -> bytes:
    """The whole of a small file; nothing where there is none."""
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
    """What of the base does not go on: of its JSON documents those of the OCI image that it was made from."""
    others = [
        entry for entry in info.descriptors if entry.type not in (DEFFILE, LABELS, JSON) and entry != info.primary
    ]
    return tuple(
        "the base's signature is left out, because it is for the base alone: sign the new image if it needs one"
        if entry.type == SIGNATURE
        else f"the base's {entry.title} is left out"
        for entry in others
    )
