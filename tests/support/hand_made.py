"""A SIF made of a directory with mksquashfs and our header: for tests of what goes around the root file system."""

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from sifmod.image.convert.inode import Content, Directory, File, Symlink
from sifmod.image.convert.metadata.added_files import Metadata, insert_metadata, make_metadata
from sifmod.image.convert.sif.write import DataObject, partition_offset, write_header
from sifmod.image.oci.manifest import parse_config
from support.command import run
from support.images import APPLETS, BUSYBOX, DIRECTORIES
from support.oci import Entry, layer
from support.runtime import RUNTIME

EPOCH = 1735787045  # 2025-01-02T03:04:05Z


def busybox() -> tuple[Entry, ...]:
    """The root file system of the tiny image."""
    return (
        *(Entry(directory) for directory in DIRECTORIES.split()),
        Entry("bin/busybox", BUSYBOX.read_bytes()),
        *(Entry(f"bin/{applet}", link="busybox") for applet in APPLETS.split()),
        Entry("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", mode=0o644),
        Entry("etc/group", b"root:x:0:\n", mode=0o644),
    )


class Tree:
    """A root file system in memory, whose files' data is kept by the test."""

    def __init__(self) -> None:
        self.root = Directory(0o755, 0, 0, EPOCH, ())
        self.data: list[bytes] = []

    def add(self, data: bytes) -> Content:
        self.data.append(data)
        return Content(len(data), len(self.data) - 1)

    def file(self, data: bytes, mode: int = 0o644) -> File:
        return File(mode, 0, 0, EPOCH, (), self.add(data))

    def directory(self, path: str) -> Directory:
        at = self.root
        for name in path.encode().split(b"/"):
            at = at.entries.setdefault(name, Directory(0o755, 0, 0, EPOCH, ()))  # type: ignore[assignment]
        return at

    def put(self, entries: Sequence[Entry]) -> None:
        """Entries as a layer has them."""
        for entry in entries:
            parent, _, name = entry.path.rpartition("/")
            directory = self.directory(parent) if parent else self.root
            if entry.link is not None:
                directory.entries[name.encode()] = Symlink(0o777, 0, 0, EPOCH, (), entry.link.encode())
            elif entry.content is not None:
                directory.entries[name.encode()] = self.file(entry.content, entry.mode)
            else:
                self.directory(entry.path)

    def read(self, path: str) -> bytes:
        """The data of a file."""
        parent, _, name = path.rpartition("/")
        node = (self.directory(parent) if parent else self.root).entries[name.encode()]
        assert isinstance(node, File)
        return self.data[node.content.block]

    def write(self, to: Path) -> None:
        """Write everything below `to`, which exists."""
        self._write(self.root, os.fsencode(to))

    def _write(self, directory: Directory, to: bytes) -> None:
        for name, node in directory.entries.items():
            path = os.path.join(to, name)
            match node:
                case Directory():
                    os.mkdir(path)
                    self._write(node, path)
                    os.chmod(path, node.mode)
                case File():
                    with open(path, "wb") as stream:
                        stream.write(self.data[node.content.block])
                    os.chmod(path, node.mode)
                case Symlink():
                    os.symlink(node.target, path)


def config_text(config: Mapping[str, object], created: str | None = "2025-01-02T03:04:05Z") -> bytes:
    """An image's config with this `config` section."""
    dates = {} if created is None else {"created": created}
    rootfs = {"type": "layers", "diff_ids": ["sha256:" + 64 * "0"]}
    return json.dumps({**dates, "architecture": "amd64", "os": "linux", "config": config, "rootfs": rootfs}).encode()


def our_metadata(config: Mapping[str, object], manifest: bytes = b'{"schemaVersion": 2}') -> Metadata:
    """The metadata of an image with this `config` section, said to come from a registry."""
    digest = hashlib.sha256(manifest).hexdigest()
    return make_metadata(
        parse_config(config_text(config), "test"), manifest, "docker", f"example.org/app@sha256:{digest}"
    )


def our_sif(to: Path, config: Mapping[str, object], entries: Sequence[Entry] | None = None) -> Path:
    """A SIF of busybox, or of `entries`, with our metadata for this `config` section."""
    metadata, tree = our_metadata(config), Tree()
    tree.put(busybox() if entries is None else entries)
    assert insert_metadata(tree.root, metadata.entries, tree.add, EPOCH) == ()
    return wrap(to, tree, metadata.objects)


def apptainers_sif(to: Path, config: Mapping[str, object], entries: Sequence[Entry] | None = None) -> Path:
    """Apptainer's own conversion of the same."""
    with tempfile.TemporaryDirectory(dir=to.parent) as work:
        blobs = Path(work) / "layout" / "blobs" / "sha256"
        blobs.mkdir(parents=True)

        def blob(kind: str, content: bytes) -> dict[str, object]:
            digest = hashlib.sha256(content).hexdigest()
            (blobs / digest).write_bytes(content)
            media_type = f"application/vnd.oci.image.{kind}"
            return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

        tar = blob("layer.v1.tar", layer(busybox() if entries is None else entries))
        text = config_text(config).replace(b"sha256:" + 64 * b"0", str(tar["digest"]).encode())
        manifest = {"schemaVersion": 2, "config": blob("config.v1+json", text), "layers": [tar]}
        index = {"schemaVersion": 2, "manifests": [blob("manifest.v1+json", json.dumps(manifest).encode())]}
        (Path(work) / "layout" / "index.json").write_text(json.dumps(index))
        (Path(work) / "layout" / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        own = dict.fromkeys((f"{RUNTIME.prefix}_CACHEDIR", f"{RUNTIME.prefix}_TMPDIR", "HOME"), work)
        env = {"PATH": os.environ["PATH"], **RUNTIME.userns, **own}
        run((RUNTIME.path, "--silent", "build", to, "oci:layout"), env=env, cwd=work).ok()
    return to


def wrap(to: Path, tree: Tree, objects: Sequence[DataObject], arch: str = "amd64") -> Path:
    """A SIF of `tree` with `objects`."""
    with tempfile.TemporaryDirectory(dir=to.parent) as work:
        root, squashfs = Path(work) / "root", Path(work) / "root.squashfs"
        root.mkdir()
        tree.write(root)
        options = ("-comp", "gzip", "-Xcompression-level", "1", "-all-root", "-noappend", "-quiet", "-no-progress")
        run(("mksquashfs", root, squashfs, *options, "-all-time", "0"), env={"PATH": os.environ["PATH"]}).ok()
        offset, size = partition_offset(objects), squashfs.stat().st_size
        with to.open("wb") as file:
            file.seek(offset)
            file.write(squashfs.read_bytes())
            write_header(file, objects, size, arch, EPOCH)
        subprocess.run(("chmod", "-R", "u+rwX", root), check=True)
    return to
