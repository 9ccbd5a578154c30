"""Real images, built once without a network where that is possible, and kept under build/tests."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from filelock import FileLock

from support import large_file, umoci_image
from support.command import BUILD, ROOT, SIFMOD, run
from support.layer_stacks import BASE
from support.oci import Entry, layer, write_layout
from support.runtime import RUNTIME
from support.ustar import tar
from support.wheels import wheel

BUSYBOX = Path("/bin/busybox")
APPLETS = (
    "ash awk cat chmod cp cut date echo env expr false find getopt grep head hostname id kill ln ls mkdir mount mv od"
)
APPLETS += " printenv printf ps pwd readlink rm sed seq sh sleep sort stat tail tar test touch tr true uname wc which"
DIRECTORIES = "bin dev etc home opt proc root sys tmp usr var var/tmp"
SIF_ARCHITECTURES = {"amd64": 2, "arm64": 4}


class Images:
    """Images for the tests. Every path is to a file that a test may read and copy but must not change."""

    @cached_property
    def tiny_sif(self) -> Path:
        """About 1 MB: a static busybox with the usual commands."""
        return self.tiny()

    def tiny(
        self,
        name: str = "tiny",
        *,
        entries: Sequence[Entry] = (),
        labels: Mapping[str, str] | None = None,
        env: Sequence[str] = (),
    ) -> Path:
        """A SIF that apptainer built of the tiny image, with more files, labels or variables: another digest each."""
        layout = self.tiny_layout(name, entries=entries, labels=labels, env=env)
        return made(layout.with_suffix(".sif"), lambda to: _build_sif(to, f"oci:{layout}"))

    def tiny_layout(
        self,
        name: str = "tiny",
        *,
        entries: Sequence[Entry] = (),
        labels: Mapping[str, str] | None = None,
        env: Sequence[str] = (),
    ) -> Path:
        """The same as an OCI layout directory of one manifest without a tag."""
        content = layer((*_busybox(), Entry("etc/variant", f"{name}\n".encode(), mode=0o644), *entries))
        key = hashlib.sha256(content + json.dumps([dict(labels or {}), list(env)]).encode()).hexdigest()[:12]
        path = BUILD / f"{name}-{key}.oci"
        return made(path, lambda to: write_layout(to, (content,), labels=labels, env=env))

    def foreign(self, arch: str = "arm64") -> Path:
        """The tiny image in a SIF whose header says another architecture (the programs inside stay this machine's)."""
        tiny = self.tiny_sif

        def build(to: Path) -> None:
            with tempfile.TemporaryDirectory(dir=BUILD) as work:
                squashfs = Path(work) / "root.squashfs"
                _siftool("dump", str(_partition(tiny)), str(tiny), into=squashfs)
                _siftool("new", str(to))
                number = str(SIF_ARCHITECTURES[arch])
                options = ("--datatype", "4", "--parttype", "2", "--partfs", "1", "--partarch", number)
                _siftool("add", str(to), str(squashfs), *options)

        return made(tiny.with_name(f"{tiny.stem}-{arch}.sif"), build)

    @cached_property
    def entrypoint_sif(self) -> Path:
        """The tiny image with an entrypoint, which sets ENTERED and starts the command it is given."""
        entry = Entry("entry", b'#!/bin/sh\nexport ENTERED=yes\nexec "$@"\n')
        layout = made(
            BUILD / "entrypoint.oci",
            lambda to: write_layout(to, (layer((*_busybox(), entry)),), entrypoint=("/entry",)),
        )
        return made(BUILD / "entrypoint.sif", lambda to: _build_sif(to, f"oci:{layout}"))

    @cached_property
    def umoci_layout(self) -> Path:
        """An OCI layout of three layers that umoci made."""
        key = hashlib.sha256("".join((*umoci_image.STEPS, umoci_image.AGED)).encode()).hexdigest()[:12]
        return made(BUILD / f"umoci-{key}.oci", umoci_image.build)

    @cached_property
    def large_file_layout(self) -> Path:
        """An OCI layout with one file of more than 8 GiB, most of it zeros that are not marked as a hole."""
        return made(BUILD / "large-file.oci", lambda to: write_layout(to, (tar(BASE), large_file.packed())))

    @cached_property
    def python_layout(self) -> Path:
        """Debian 12 with Python in /opt/miniconda3/envs/pytorch, laid out as LUMI's images; from the network once."""
        return made(BUILD / "python.oci", lambda to: _demo_image(str(to)))

    @cached_property
    def python_sif(self) -> Path:
        """The same as a SIF."""
        layout = self.python_layout
        return made(BUILD / "python.sif", lambda to: converted(to, layout))

    @cached_property
    def conda_sif(self) -> Path:
        """Debian 12 with an environment in /opt/conda that a real conda implementation made; from the network once."""
        script = ROOT / "scripts" / "build-conda-image"
        layout = BUILD / f"conda-{hashlib.sha256(script.read_bytes()).hexdigest()[:12]}.oci"
        made(layout, lambda to: run((sys.executable, script, "--link", to, "packaging==23.2", "tqdm==4.66.1")).ok())
        return made(layout.with_suffix(".sif"), lambda to: converted(to, layout))

    def mpi_sif(self, kind: str) -> Path:
        """Debian 12 with its `mpich` or `openmpi`, mpi4py and mpi-hello; from the network once."""
        script, source = (ROOT / "scripts" / name for name in ("build-mpi-image", "mpi-hello.c"))
        key = hashlib.sha256(script.read_bytes() + source.read_bytes()).hexdigest()[:12]

        def build(to: Path) -> None:
            with tempfile.TemporaryDirectory(dir=BUILD) as work:
                packed, layout = Path(work) / "root.tar", Path(work) / "image.oci"
                run((script, kind, packed)).ok()
                write_layout(layout, (packed.read_bytes(),))
                converted(to, layout)

        return made(BUILD / f"{kind}-{key}.sif", build)

    @cached_property
    def pytorch_layout(self) -> Path:
        """The demo's image: the same with torch (a CPU build) and numpy; from the network once."""
        return made(ROOT / "build" / "pytorch-2.13.0-oci", lambda _: _demo_image())

    @cached_property
    def pytorch_sif(self) -> Path:
        """The same as a SIF."""
        layout = self.pytorch_layout
        return made(BUILD / "pytorch.sif", lambda to: converted(to, layout))


def ipykernel_wheels() -> Path:
    """A directory with ipykernel and what it needs, for the Python of the images; from the network once.

    jedi and debugpy, seven files of eight, are there by name: IPython and ipykernel do without them.
    """

    def download(to: Path) -> None:
        tags = [word for tag in ("2_28", "2_17", "2014") for word in ("--platform", _manylinux(tag))]
        words = ("download", "-q", "-d", str(to), "--python-version", "3.11", "--only-binary", ":all:", *tags)
        subprocess.run((sys.executable, "-m", "pip", *words, "ipykernel"), check=True)
        for large in (*to.glob("jedi-*"), *to.glob("debugpy-*")):
            large.unlink()
            name, version = large.name.split("-")[:2]
            wheel(to, name, version, empty=True)

    return made(BUILD / "wheels-of-ipykernel", download)


def _manylinux(tag: str) -> str:
    return f"manylinux{'_' if '_' in tag else ''}{tag}_{platform.machine()}"


def made(path: Path, build: Callable[[Path], object]) -> Path:
    """`path`, below BUILD: built beside its place and renamed into it, once, however many tests ask at a time."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with FileLock(BUILD / f"{path.name}.lock"):
        if not path.exists():
            unfinished = path.with_name(f"unfinished-{path.name}")
            if unfinished.is_dir():
                shutil.rmtree(unfinished)
            unfinished.unlink(missing_ok=True)
            build(unfinished)
            if unfinished.exists():
                unfinished.rename(path)
    assert path.exists(), f"{path} was not built"
    return path


def converted(to: Path, layout: Path) -> None:
    """A large image by sifmod, in a quarter of the processor time, with what is fastest to read."""
    compression = "lz4" if RUNTIME.kind == "apptainer" else "gzip"
    with tempfile.TemporaryDirectory(dir=BUILD) as prefix:
        words = ("fetch", "--quiet", f"oci:{layout}", "-o", to, "--compression", compression)
        run((*SIFMOD, *words), env={**os.environ, "SIFMOD_PREFIX": prefix}).ok()


def _busybox() -> tuple[Entry, ...]:
    assert BUSYBOX.exists(), f"{BUSYBOX} is missing: run scripts/provision"
    return (
        *(Entry(directory) for directory in DIRECTORIES.split()),
        Entry("bin/busybox", BUSYBOX.read_bytes()),
        *(Entry(f"bin/{applet}", link="busybox") for applet in APPLETS.split()),
        Entry("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", mode=0o644),
        Entry("etc/group", b"root:x:0:\n", mode=0o644),
    )


def _build_sif(to: Path, source: str) -> None:
    """Build with what the runtime is fastest with, and an empty cache of its own."""
    with tempfile.TemporaryDirectory(dir=BUILD) as work:
        own = {f"{RUNTIME.prefix}_{name}": work for name in ("CACHEDIR", "TMPDIR")}
        env = {"PATH": os.environ["PATH"], "HOME": work, **RUNTIME.userns, **own}
        run((RUNTIME.path, "--silent", "build", *RUNTIME.fast, to, source), env=env).ok()


def _demo_image(*arguments: str) -> None:
    env = {**os.environ, "DEMO_DOWNLOAD_MB": "10000"}  # where no index has CPU builds
    run((ROOT / "scripts" / "build-demo-image", *arguments), env=env).ok()


def _siftool(*arguments: str, into: Path | None = None) -> None:
    if into is None:
        run(("siftool", *arguments)).ok()
    else:
        with into.open("wb") as stream:
            subprocess.run(("siftool", *arguments), stdout=stream, check=True)


def _partition(sif: Path) -> int:
    """The number of the descriptor with the root file system."""
    listing = run(("siftool", "list", sif)).ok().stdout
    lines = [line for line in listing.splitlines() if "FS (" in line]
    assert len(lines) == 1, listing
    return int(lines[0].split("|")[0])
