"""A small base with a Python environment that starts nothing, and recipes upon it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from sifmod.config.site import PROTECTED
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.inspect.rootfs import open_rootfs
from sifmod.module.plan import BuildPlan, ImagePlan
from support.config import write
from support.extending import base_of

HOME = "/opt/env"
LIBRARY = f"{HOME}/lib/python3.11/site-packages"
_IMAGE = ImagePlan("base.sif", (), (), None, None, "amd64", "reference", False)


def base(directory: Path) -> Path:
    """A SIF with a Python in /opt/env that holds helper 1.0, torch 2.0, fixed 1.0 without a RECORD, and an app."""
    top = directory / "base"
    library = top / LIBRARY.lstrip("/")
    write(top / "opt/env/bin/python3", "#!/bin/sh\n").chmod(0o755)
    write(top / "lib/x86_64-linux-gnu/libc.so.6", "GNU C Library (Test GLIBC 2.36) stable release version 2.36.\n")
    write(top / ".singularity.d/env/10-docker2singularity.sh", "#!/bin/sh\nexport LANG=C\n")
    write(top / ".singularity.d/labels.json", '{"of": "the base"}')
    held(library, "helper", "1.0", ("__init__.py", "old.py", "deep/er.py"))
    for compiled in ("__pycache__/old.cpython-311.pyc", "deep/__pycache__/er.cpython-311.pyc"):
        write(library / "helper" / compiled, "")
    write(library / "helper-1.0.dist-info/RECORD", (library / "helper-1.0.dist-info/RECORD").read_text() + SAYS)
    write(top / "opt/env/bin/helper-says", "#!/opt/env/bin/python3\nold\n").chmod(0o755)
    held(library, "torch", "2.0", ("__init__.py", "version.txt"), "Root-Is-Purelib: false\n")
    held(library, "fixed", "1.0", ("__init__.py",))
    (library / "fixed-1.0.dist-info/RECORD").unlink()
    return base_of(top, directory / "base.sif", "-all-root", "-all-time", "1600000000")


SAYS = "../../../bin/helper-says,,\n"


def held(library: Path, name: str, version: str, files: tuple[str, ...] = ("__init__.py",), wheel: str = "") -> None:
    """Put a distribution into a directory of packages."""
    info = f"{name}-{version}.dist-info"
    for file in files:
        write(library / name / file, f"# {name} {version}\n")
    write(library / info / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    write(library / info / "WHEEL", f"Wheel-Version: 1.0\n{wheel}")
    names = (*(f"{name}/{file}" for file in files), f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD")
    write(library / info / "RECORD", "".join(f"{each},,\n" for each in names))


def recipe(base: Path, **build: Any) -> ImagePlan:
    """The plan of an image upon a base, whose Python is in /opt/env."""
    told = {"path": (f"{HOME}/bin",), "protected": PROTECTED, **build}
    made = BuildPlan(base=replace(_IMAGE, sources=(str(base),)), **told)
    return replace(_IMAGE, filename="own.sif", link="copy", build=made)


def contents(sif: Path, below: str = "") -> dict[str, bytes]:
    """The files of a SIF by path, those below a directory alone where one is given."""
    with open_rootfs(sif, read_sif(sif)) as rootfs:
        return {
            f"/{path.decode()}": rootfs.reader.head(stat, stat.size)
            for path, stat, _ in rootfs.reader.walk()
            if stat.kind == "f" and f"/{path.decode()}".startswith(below)
        }
