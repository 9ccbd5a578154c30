"""Recipes by the command line alone: `install` of bases with odd Pythons, and the files that `export` then writes.

The rows E2, E3 and E6 to E9: what was wrong ended with exit code 0.
"""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from support import identity
from support.command import Result
from support.config import write
from support.extending import sif_of

LOADER, MUSL = "#!ELF /lib64/ld-linux-x86-64.so.2", "#!ELF /lib/ld-musl-x86_64.so.1"
DEBIAN, UPSTREAM = "'dist-packages'", "'site-packages'"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with wheels, which are all that uv can take packages from, and a base without a Python."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "pre fix"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    (tmp_path / "wheels").mkdir()
    for name, version in (("helper", "2.0"), ("torch", "2.1")):
        wheel(tmp_path, name, version)
    top = tmp_path / "top"
    write(top / "lib/x86_64-linux-gnu/libc.so.6", "GNU C Library (Test GLIBC 2.36) stable release version 2.36.\n")
    write(top / ".singularity.d/env/10-docker2singularity.sh", "#!/bin/sh\nexport LANG=C\n")
    return tmp_path


def wheel(here: Path, name: str, version: str, tag: str = "py3-none-any") -> None:
    info = f"{name}-{version}.dist-info"
    texts = {
        f"{name}/__init__.py": f"# {name} {version}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}-says = {name}:main\n",
    }
    record = "".join(f"{path},,\n" for path in (*texts, f"{info}/RECORD"))
    with zipfile.ZipFile(here / f"wheels/{name}-{version}-{tag}.whl", "w") as file:
        for path, text in {**texts, f"{info}/RECORD": record}.items():
            file.writestr(path, text)


def python(here: Path, prefix: str, version: str, site: str, *, program: str = LOADER, name: bool = True) -> Path:
    """A Python in the base, which `python3` is if it has that `name`; gives its directory of packages."""
    top = here / "top" / prefix
    write(top / f"bin/python{version}", program).chmod(0o755)
    if name:
        (top / "bin/python3").symlink_to(f"python{version}")
    for file, text in (("os.py", ""), ("site.py", site)):
        write(top / f"lib/python{version}/{file}", text)
    local = here / f"top/usr/local/lib/python{version}/dist-packages"
    packages = local if site == DEBIAN else top / f"lib/python{version}/site-packages"
    packages.mkdir(parents=True)
    return packages


def held(library: Path, name: str, version: str, *files: str) -> None:
    """Put a package into a directory of the base."""
    info = f"{name}-{version}.dist-info"
    for file in (files := files or ("__init__.py",)):
        write(library / name / file, f"# {name} {version}\n")
    write(library / info / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    write(library / info / "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n")
    names = (*(f"{name}/{file}" for file in files), *(f"{info}/{file}" for file in ("METADATA", "WHEEL", "RECORD")))
    write(library / info / "RECORD", "".join(f"{each},,\n" for each in names))


def sifmod(here: Path, *words: str) -> Result:
    return identity.sifmod(words, os.environ, here)


def install(here: Path, build: str, more: str = "") -> Result:
    """Install a recipe upon the base."""
    squashfs = here / "base.squashfs"
    subprocess.run(("mksquashfs", here / "top", squashfs, "-all-root", "-noappend", "-quiet"), check=True)
    sif_of(squashfs, here / "base.sif")
    head = "name: App\nversion: '1'\ndescription: none\naccelerator: none\nwrappers: []\n"
    write(here / "App-1.yaml", f"{head}{more}image: {{build: {{from: ./base.sif, {build}}}}}\n")
    return sifmod(here, "install", "--skip-sanity-check", "App-1.yaml")


def changed(here: Path) -> tuple[set[str], set[str]]:
    """The paths that the installed image has besides those of its base, and those that it has not."""
    shutil.rmtree(here / "files", ignore_errors=True)
    told = sifmod(here, "export", "App/1", "--to", "sandbox", "-o", str(here / "files"))
    assert told.code == 0, told.stderr
    before, after = (_paths(here / name) for name in ("top", "files"))
    return after - before, before - after


def _paths(top: Path) -> set[str]:
    found = (f"/{path.relative_to(top)}" for path in top.rglob("*") if path.is_file() or path.is_symlink())
    return {path for path in found if ".dist-info/" not in path and not path.startswith("/.singularity.d/")}


def test_of_two_pythons_in_one_directory_it_is_the_one_that_python3_is(here: Path) -> None:
    """E2: packages went to the newest, with its name in the commands' first line."""
    library = python(here, "usr", "3.11", DEBIAN).relative_to(here / "top")
    python(here, "usr", "3.12", DEBIAN, name=False)
    told = install(here, "pip: [helper]")
    assert told.code == 0, told.stderr
    new, gone = changed(here)
    assert (new, gone) == ({f"/{library}/helper/__init__.py", "/usr/local/bin/helper-says"}, set())
    assert (here / "files/usr/local/bin/helper-says").read_text().startswith("#!/usr/bin/python3.11\n")


def test_what_a_venv_has_of_the_system_stays(here: Path) -> None:
    """E3: torch 2.1 was put over the system's 2.0, which is protected."""
    held(python(here, "usr", "3.11", DEBIAN), "torch", "2.0")
    write(here / "top/opt/venv/bin/activate", "")
    (here / "top/opt/venv/bin/python3").symlink_to("/usr/bin/python3")
    write(here / "top/opt/venv/lib/python3.11/site-packages/_virtualenv.pth", "")
    write(here / "top/opt/venv/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = true\n")
    told = install(here, "pip: [torch==2.1]", "venv: /opt/venv\n")
    assert told.code == 10, told.stderr
    assert "torch==2.1 is required; the image has torch 2.0, which stays" in told.stderr
    assert not list((here / "pre fix").rglob("*.sif"))
    told = install(here, "pip: [helper]", "venv: /opt/venv\n")
    assert told.code == 0, told.stderr
    assert "torch is not in the image" not in told.stderr
    library = "/opt/venv/lib/python3.11/site-packages"
    assert changed(here) == ({f"{library}/helper/__init__.py", "/opt/venv/bin/helper-says"}, set())


def test_a_file_over_another_takes_its_bytecode_along(here: Path) -> None:
    """E6: the old bytecode stayed, which Python runs where the times agree."""
    for name in ("x.py", "__pycache__/x.cpython-311.pyc", "__pycache__/xy.cpython-311.pyc"):
        write(here / "top/opt/app" / name, "old\n")
    write(here / "x.py", "new\n")
    told = install(here, "files: {x.py: /opt/app/x.py}")
    assert told.code == 0, told.stderr
    assert changed(here) == (set(), {"/opt/app/__pycache__/x.cpython-311.pyc"})
    assert (here / "files/opt/app/x.py").read_text() == "new\n"


@pytest.mark.parametrize(("program", "version"), [(LOADER, "1.0"), (MUSL, "2.0")])
def test_wheels_are_for_the_c_library_of_the_python(here: Path, program: str, version: str) -> None:
    """E7: an image of glibc with Debian's package `musl` got musllinux wheels."""
    wheel(here, "native", "1.0", "cp312-abi3-manylinux_2_28_x86_64")
    wheel(here, "native", "2.0", "cp312-abi3-musllinux_1_2_x86_64")
    library = python(here, "usr/local", "3.12", UPSTREAM, program=program).relative_to(here / "top")
    write(here / "top/lib/ld-musl-x86_64.so.1", "")
    told = install(here, "pip: [native]")
    assert told.code == 0, told.stderr
    changed(here)
    assert (here / "files" / library / "native/__init__.py").read_text() == f"# native {version}\n"


def test_a_file_that_another_package_has_too_stays(here: Path) -> None:
    """E8: it went with the package that was replaced."""
    library = python(here, "usr/local", "3.12", UPSTREAM)
    held(library, "helper", "1.0", "old.py", "../shared/both.py")
    held(library, "other", "1.0", "__init__.py", "../shared/both.py")
    told = install(here, "pip: [helper==2.0]")
    assert told.code == 0, told.stderr
    _, gone = changed(here)
    assert gone == {f"/{library.relative_to(here / 'top')}/helper/old.py"}


def test_what_pythonpath_of_the_image_names_is_replaced(here: Path) -> None:
    """E9: "1 package is added", and the old one in the image's PYTHONPATH was imported."""
    library = python(here, "usr/local", "3.12", UPSTREAM).relative_to(here / "top")
    write(here / "top/.singularity.d/env/10-docker2singularity.sh", "#!/bin/sh\nexport PYTHONPATH=/opt/more\n")
    held(here / "top/opt/more", "helper", "1.0")
    told = install(here, "pip: [helper==2.0]")
    assert told.code == 0, told.stderr
    new, gone = changed(here)
    assert f"/{library}/helper/__init__.py" in new
    assert gone == {"/opt/more/helper/__init__.py"}
