"""Export a SIF: as a copy, as a squashfs for enroot, as an archive of an OCI image, or as a directory."""

import os
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_IFBLK, S_IFCHR, S_IFIFO, S_IFSOCK

from sifmod.digest import sha256_bytes
from sifmod.image.artifact import Progress
from sifmod.image.convert.budget import CpuWatch
from sifmod.image.convert.extend import copy_blocks
from sifmod.image.convert.inode import OWNER, Directory, File, Plain, Symlink, directories
from sifmod.image.convert.metadata.added_files import directory_at
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.convert.squashfs.blocks import Stat
from sifmod.image.convert.squashfs.read_tree import read_tree
from sifmod.image.convert.squashfs.reader import SquashfsReader
from sifmod.image.convert.squashfs.writer import SquashfsWriter
from sifmod.image.disk import check_space, reading, writing
from sifmod.image.inspect.sif import read_documents
from sifmod.image.oci.manifest import OCI_MANIFEST, Descriptor
from sifmod.image.settings import Settings
from sifmod.image.sif_environment import sif_environment
from sifmod.image.sif_to_oci import convert, descriptor_data, image_section, json_bytes, opened
from sifmod.module.plan import Runtime
from sifmod.system import one_line

_METADATA = b".singularity.d"
_RC = """\
mkdir -p "{workdir}" 2> /dev/null
cd "{workdir}" && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    exec {entrypoint} "$@"
else
    exec {entrypoint} {cmd}
fi
"""
_RC_LOCAL = """\
# This file is sourced by /etc/rc when the container starts.
# It can be used to manipulate the entrypoint or the command of the container.
"""
_UNIT = 4096  # bytes: the smallest space that a file takes
_SPECIAL = {"b": S_IFBLK, "c": S_IFCHR, "p": S_IFIFO, "s": S_IFSOCK}


def write_sif(path: Path, target: Path) -> None:
    """Copy the SIF at `path` to the new file `target`, with shared blocks if the file system supports that.

    Raises ImageError unless it is a SIF, and the errors of `reading` and `writing`.
    """
    size = read_sif(path).size
    check_space(target.parent, size)
    with reading(path), path.open("rb") as source, writing(target), target.open("xb") as file:
        copy_blocks(source, 0, file, 0, size)


def write_sqsh(path: Path, target: Path, settings: Settings, runtime: Runtime) -> tuple[str, ...]:
    """Write the squashfs that `enroot import` would make of the SIF at `path` if that were an OCI image. Returns notes.

    Its data blocks are copied from the SIF. As with enroot, root owns all files, their owner can read them, /dev is
    empty, and files in /etc define how the image starts. Source: enroot's src/docker.sh, `docker::configure`, and
    src/common.sh, `common::fixperms`. Raises ImageError for a SIF that is damaged or has no squashfs, and what
    `reading` and `writing` raise.
    """
    info = read_sif(path)
    read = read_documents(path, info)
    section, said = image_section(read, sif_environment(path, read, runtime))
    documents, workdir, notes = _configure(section)
    check_space(target.parent, info.primary.size)
    with opened(path) as reader, path.open("rb") as source, writing(target), target.open("xb") as file:
        root, written = read_tree(reader, CpuWatch(settings.memory))
        copy_blocks(source, info.primary.offset, file, 0, reader.superblock.inode_table)
        with SquashfsWriter(file, 0, reader.compression(), settings.processors, info.created) as squashfs:
            squashfs.go_on(reader.superblock, written)
            _as_imported(root)
            etc, _ = (_directory(root, place, info.created) for place in ("etc", workdir))
            for name, text in documents.items():
                content = squashfs.add(text.encode("utf-8", "replace"))
                etc.entries[name.encode()] = File(0o644, 0, 0, info.created, (), content)
            squashfs.close(root)
    return (*said, *notes)


def _as_imported(root: Directory) -> None:
    """Remove the runtimes' files except the recipes, and all in /dev; set owners and modes as enroot does."""
    for name, node in tuple(root.entries.items()):
        if name == _METADATA and isinstance(node, Directory):
            node.entries = {name: below for name, below in node.entries.items() if name == b"build"}
        if (name == _METADATA and not (isinstance(node, Directory) and node.entries)) or (
            isinstance(node, Symlink) and node.target.startswith(_METADATA + b"/")
        ):
            del root.entries[name]
    if isinstance(devices := root.entries.get(b"dev"), Directory):
        devices.entries = {}
    for directory in directories(root):
        directory.mode |= 0o700
        directory.uid = directory.gid = 0
        for name, below in directory.entries.items():
            if isinstance(below, Plain):
                mode, _, _, mtime = OWNER.unpack_from(below)
                directory.entries[name] = OWNER.pack(_mode(mode), 0, 0, mtime) + below[OWNER.size :]
                continue
            below.uid = below.gid = 0
            if isinstance(below, File):
                below.mode = _mode(below.mode)


def _mode(mode: int) -> int:
    """The mode of a file after `chmod u+rX`."""
    return mode | 0o400 | (0o100 if mode & 0o111 else 0)


def _directory(root: Directory, path: str, epoch: int) -> Directory:
    parts = [part for part in path.encode("utf-8", "replace").split(b"/") if part not in (b"", b".", b"..")]
    return directory_at(root, parts, True, epoch) or root


def _configure(section: dict[str, object]) -> tuple[dict[str, str], str, tuple[str, ...]]:
    """The files that enroot writes into /etc, by name; the working directory; notes about what is left out."""
    env, volumes, labels = (section.get(name) or () for name in ("Env", "Volumes", "Labels"))
    lines = [line for line in env if isinstance(line, str)] if isinstance(env, list) else []
    places = sorted(volumes) if isinstance(volumes, dict) else []
    lost = [line.partition("=")[0] for line in lines if "\n" in line]
    lost += [place for place in places if re.search(r"\s", place)]
    mounts = [place for place in places if place not in lost]
    workdir = str(section.get("WorkingDir") or "/")
    entrypoint, command = (_words(section.get(name)) for name in ("Entrypoint", "Cmd"))
    command = command or ("" if entrypoint else "'/bin/sh'")
    described = labels.items() if isinstance(labels, dict) else ()
    about = [f"# {name} {text}".replace("\n", " ") + "\n" for name, text in described]
    quoted = re.sub(r'(["$`\\])', r"\\\1", workdir)
    rc = _RC.format(workdir=quoted, entrypoint=entrypoint, cmd=command)
    documents = {
        "environment": "".join(f"{line}\n" for line in lines if "\n" not in line),
        "fstab": "".join(
            f"${{ENROOT_ROOTFS}}{place} {place} none x-create=dir,bind,rw,nosuid,nodev\n" for place in mounts
        ),
        "rc": "".join((*about, "\n" if about else "", rc)),
        "rc.local": _RC_LOCAL,
    }
    named = ", ".join(lost)
    note = f"variables or volumes left out, because enroot's files cannot express them: {named}"
    return documents, workdir, (note,) if lost else ()


def _words(given: object) -> str:
    """The words in the list `given`, each quoted for a shell as bash's `@Q` does; "" for anything else."""
    words = given if isinstance(given, list) else []
    return " ".join("'{}'".format(str(word).replace("'", "'\\''")) for word in words)


def write_archive(path: Path, target: Path, form: str, runtime: Runtime, progress: Progress) -> tuple[str, ...]:
    """Write the SIF at `path` as an OCI image in a tar: a layout (`oci-archive`), or as `docker save` does.

    Returns notes. The image's single layer is written in one pass. Raises as `write_sqsh` does.
    """
    check_space(target.parent, read_sif(path).primary.size)
    with writing(target), target.open("xb") as file:
        for name in ("blobs", "blobs/sha256") if form == "oci-archive" else ():
            file.write(_header(name, 0, tarfile.DIRTYPE))  # else an ordinary user of skopeo cannot unpack it
        start = file.tell()
        file.write(bytes(tarfile.BLOCKSIZE))  # for the layer's header, which has its digest

        def take(piece: bytes, size: int) -> None:
            file.write(piece)
            progress(f"packing {path.name}", size, None)

        made = convert(path, None, runtime, take)
        file.write(bytes(-made.layer.size % tarfile.BLOCKSIZE))
        layer, config = (one.digest.removeprefix("sha256:") for one in (made.layer, made.config_descriptor))
        if form == "oci-archive":
            layer, config = f"blobs/sha256/{layer}", f"blobs/sha256/{config}"
            descriptor = Descriptor(OCI_MANIFEST, f"sha256:{sha256_bytes(made.manifest)}", len(made.manifest))
            platform = {"architecture": made.arch, "os": "linux"} | ({"variant": made.variant} if made.variant else {})
            listed = [{**descriptor_data(descriptor), "platform": platform}]
            documents = {
                config: made.config,
                f"blobs/sha256/{sha256_bytes(made.manifest)}": made.manifest,
                "index.json": json_bytes({"schemaVersion": 2, "manifests": listed}),
                "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
            }
        else:
            layer, config = f"{layer}.tar.gz", f"{config}.json"
            listing = [{"Config": config, "RepoTags": None, "Layers": [layer]}]
            documents = {config: made.config, "manifest.json": json_bytes(listing)}
        for name, content in documents.items():
            file.write(_header(name, len(content)) + content + bytes(-len(content) % tarfile.BLOCKSIZE))
        file.write(bytes(2 * tarfile.BLOCKSIZE))
        file.seek(start)
        file.write(_header(layer, made.layer.size))
    return made.notes


def _header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.mode = size, kind, 0o755 if kind == tarfile.DIRTYPE else 0o644
    return info.tobuf(tarfile.GNU_FORMAT)  # one block for a file of any size; PAX needs more


def write_directory(path: Path, target: Path, progress: Progress) -> tuple[str, ...]:
    """Unpack the SIF at `path` into the new directory `target`, as Apptainer's unsquashfs does. Returns notes.

    Root keeps owners, devices and all attributes. Another user owns all files, and no program is setuid or setgid. A
    note names what this user or file system does not support. The directory is writable. Raises as `write_sqsh` does.
    """
    with opened(path) as reader, writing(target):
        files = {reference: stat.size for _, stat, reference in reader.walk() if stat.kind == "f"}
        check_space(target.parent, sum(-(-size // _UNIT) * _UNIT for size in files.values()))
        target.mkdir(mode=0o700)
        return _unpack(reader, os.fsencode(target), lambda done: progress(f"unpacking {path.name}", done, None))


def _unpack(reader: SquashfsReader, top: bytes, progress: Callable[[int], None]) -> tuple[str, ...]:
    directories, names, left, done = [(top, reader.root)], dict[int, bytes](), dict[str, list[bytes]](), 0
    for path, stat, reference in reader.walk():
        place = top + b"/" + path
        if reference in names:
            os.link(names[reference], place, follow_symlinks=False)
        elif stat.kind == "d":
            os.mkdir(place, 0o700)  # noqa: PTH102 (bytes)
            directories.append((place, stat))
        elif _make(reader, stat, place):
            for lost in _finish(reader, stat, place):
                left.setdefault(lost, []).append(path)
            if stat.links > 1:
                names[reference] = place
            done += stat.size
            progress(done)
        else:
            left.setdefault("device nodes", []).append(path)
    for place, stat in reversed(directories):
        for lost in _finish(reader, stat, place):
            left.setdefault(lost, []).append(place[len(top) + 1 :])
    os.chmod(top, reader.root.mode | 0o700)  # noqa: PTH101 (bytes); so that it can be moved into its place
    return tuple(
        f"left out, because this user or file system does not support them: {what} ({len(paths)}, such as "
        f"{one_line(os.fsdecode(b'/' + paths[0]))})"
        for what, paths in sorted(left.items())
    )


def _make(reader: SquashfsReader, stat: Stat, place: bytes) -> bool:
    """Create a file, a link or a special file at `place`; False if this user may not create the special file."""
    if stat.kind == "f":
        with open(place, "xb") as file:  # noqa: PTH123 (bytes)
            for piece in reader.data(stat):
                if isinstance(piece, int):
                    file.seek(piece, os.SEEK_CUR)
                else:
                    file.write(piece)
            file.truncate(stat.size)
    elif stat.kind == "l":
        os.symlink(stat.target, place)  # noqa: PTH211 (bytes)
    else:
        try:
            os.mknod(place, 0o600 | _SPECIAL[stat.kind], stat.device)
        except PermissionError:
            return False
    return True


def _finish(reader: SquashfsReader, stat: Stat, place: bytes) -> Iterator[str]:
    """Set owner, attributes, mode and time; yield what cannot be kept. Only root sets owners, setuid and setgid."""
    root = os.geteuid() == 0
    if root:
        try:
            os.lchown(place, stat.uid, stat.gid)
        except OSError:  # the id is not in the user namespace
            yield "owners"
    for name, value in reader.xattrs(stat):
        try:
            os.setxattr(place, name, value, follow_symlinks=False)
        except OSError:
            yield f"attributes {os.fsdecode(name.partition(b'.')[0])}.*"
    if stat.kind != "l":
        os.chmod(place, stat.mode if root else stat.mode & ~0o6000)  # noqa: PTH101 (bytes)
    os.utime(place, (stat.mtime, stat.mtime), follow_symlinks=False)
