"""Images with Pythons in all the layouts that we know of, each with a real interpreter that runs: Debian's.

It is moved where another layout has it. Debian's own rules of where a Python looks are frozen into it; for the other
ones `site` is looked up on disk again (`_thawed`), where upstream's is, or that with Red Hat's patch.
"""

import platform
import re
import shutil
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support.command import BUILD, ROOT, run
from support.config import write
from support.extending import base_of
from support.images import Images, made
from support.wheels import wheel

PYTHON = "python3.11"
DEBIAN_HOME, DEBIAN_LOCAL = "usr/lib/python3/dist-packages", f"usr/local/lib/{PYTHON}/dist-packages"
_LIB = f"lib/{PYTHON}"
SITE = f"{_LIB}/site-packages"
_SKIPPED = re.compile(r"/(__pycache__|test|tests|idlelib|lib2to3|ensurepip|distutils|pydoc_data|config-[^/]*)(/|$)")
_TAKEN = re.compile(
    r"\./(bin|lib|lib64|sbin|etc|usr|usr/(bin|lib|lib64|sbin)"
    r"|etc/(passwd|group|python3.*)|usr/bin/(sh|dash|env|cat|ls|python3.*)|usr/lib64/.*|usr/lib/python3.*"
    r"|usr/lib/[a-z0-9_]+-linux-gnu(/lib[^/]*\.so[^/]*|/ld-[^/]*)?)"
)
# what Red Hat's patch 251 says in the place of upstream's line, for /usr is rpm's alone
_PATCHED = """    if ENABLE_USER_SITE and 'RPM_BUILD_ROOT' not in os.environ:
        PREFIXES.insert(0, "/usr/local")
    for sitedir in getsitepackages(prefixes):
"""
_UPSTREAM = "    for sitedir in getsitepackages(prefixes):\n"


@dataclass(frozen=True)
class Layout:
    """An image: what is moved and added in Debian's root, and which Python a user of it means."""

    fill: Callable[[Path], None]
    program: str = "/usr/bin/python3"  # "": the image has none
    path: tuple[str, ...] = ()  # what an easyconfig says, where it has to
    environment: str = ""  # lines of shell
    held: tuple[str, ...] = ("helper 1.0", "torch 2.0")  # and nothing else
    wheels: str = "manylinux"


def sif(images: Images, layout: Layout, to: Path) -> Path:
    """The image of a layout, made below the directory `to`."""
    top = to / "top"
    run(("cp", "-a", _root(images), top)).ok()
    layout.fill(top)
    write(top / ".singularity.d/env/10-docker2singularity.sh", f"#!/bin/sh\nexport LANG=C.UTF-8\n{layout.environment}")
    image = base_of(top, to / "base.sif", "-all-root", "-comp", "lz4", "-processors", "1")
    shutil.rmtree(top)
    (to / "base.squashfs").unlink()
    return image


def put(library: Path, name: str, version: str) -> None:
    """A package, as an installer puts it into a directory of packages."""
    library.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, zipfile.ZipFile(wheel(Path(work), name, version)) as packed:
        packed.extractall(library)


def _root(images: Images) -> Path:
    """Debian with its Python and what that needs, of what the demo's image is made of."""
    assert images.python_layout.exists()  # its base is here then
    base = ROOT / "build" / "debian-base.tar"

    def unpack(to: Path) -> None:
        with tarfile.open(base) as tar:
            members = [one for one in tar if _TAKEN.fullmatch(one.name) and not _SKIPPED.search(one.name)]
            tar.extraction_filter = lambda member, _: member  # Debian 12's tarfile knows no filter by name
            tar.extractall(to, members)
        for name in ("dev", "proc", "sys", "tmp", "root", "home", "opt", "run", "var/tmp", "usr/local/bin"):
            (to / name).mkdir(parents=True, exist_ok=True)
        for path in to.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)

    return made(BUILD / "debian-python", unpack)


def _sources() -> Path:
    """site.py and sysconfig.py as upstream has them, from Debian's copy of its sources; from the network once."""

    def fetch(to: Path) -> None:
        (to / "lists/partial").mkdir(parents=True)
        (to / "parts").mkdir()
        debian = run((ROOT / "scripts/build-demo-image", "--sources")).ok().stdout.splitlines()[0].split()
        key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
        (to / "parts/source.list").write_text(" ".join(("deb-src", key, *debian[-3:])) + "\n")
        places = {"Dir::Etc::sourcelist": "/dev/null", "Dir::Etc::sourceparts": to / "parts"}
        places |= {"Dir::State::lists": to / "lists"}
        apt = ("apt-get", "-qq", *(word for key, place in places.items() for word in ("-o", f"{key}={place}")))
        run((*apt, "update")).ok()
        run((*apt, "source", "--download-only", PYTHON), cwd=to).ok()
        (archive,) = to.glob("*.orig.tar.*")
        with tarfile.open(archive) as tar:
            for one in tar:
                if one.name.partition("/")[2] in ("Lib/site.py", "Lib/sysconfig.py"):
                    content = tar.extractfile(one)
                    assert content
                    (to / Path(one.name).name).write_bytes(content.read())
        for path in to.iterdir():
            if path.suffix != ".py":
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    return made(BUILD / "upstreams-python", fetch)


def _thawed(program: bytes) -> bytes:
    """Debian's Python without `site` in its table of frozen modules, so that the one on disk decides where it looks.

    Each entry of the table begins with the address of its name, here followed by no code of its own and no size.
    """
    header, count = struct.unpack_from("<Q", program, 32)[0], struct.unpack_from("<H", program, 56)[0]
    segments = [struct.unpack_from("<IIQQQQ", program, header + 56 * number) for number in range(count)]
    found = []
    for match in re.finditer(rb"site\0", program):
        for kind, _, offset, address, _, size in segments:
            if kind == 1 and offset <= match.start() < offset + size:
                name = address + match.start() - offset
                entry = struct.pack("<QQQ", name, 0, 0)
                found += [(each.start(), name) for each in re.finditer(re.escape(entry), program)]
    ((place, name),) = found
    return program[:place] + struct.pack("<Q", name + 1) + program[place + 8 :]


def upstream(top: Path, prefix: str, lib: str = "lib", patched: bool = False) -> None:
    """Move the Python into a prefix as upstream lays it out."""
    sources = _sources()
    home, program = top / prefix, top / "usr/bin" / PYTHON
    content = _thawed(program.read_bytes())
    library = home / lib / PYTHON
    if library != top / "usr" / _LIB:
        library.parent.mkdir(parents=True, exist_ok=True)
        (top / "usr" / _LIB).rename(library)
    if prefix != "usr":
        for name in ("python3", PYTHON):
            (top / "usr/bin" / name).unlink()
        (home / "bin").mkdir(parents=True, exist_ok=True)
        (home / "bin/python3").symlink_to(PYTHON)
        (home / "bin" / PYTHON).touch(mode=0o755)
    (home / "bin" / PYTHON).write_bytes(content)
    site = (sources / "site.py").read_text()
    if patched:
        assert site.count(_UPSTREAM) == 1
        site = site.replace(_UPSTREAM, _PATCHED)
    (library / "site.py").write_text(site)
    shutil.copyfile(sources / "sysconfig.py", library / "sysconfig.py")
    for path in (library / "sitecustomize.py", library / "EXTERNALLY-MANAGED"):
        path.unlink(missing_ok=True)
    shutil.rmtree(top / "usr/lib/python3", ignore_errors=True)


def venv(top: Path, place: str, *, system: bool) -> None:
    """A virtual environment over /usr, as `venv` writes it."""
    write(top / place / "pyvenv.cfg", f"home = /usr/bin\ninclude-system-site-packages = {str(system).lower()}\n")
    write(top / place / "bin/activate", f"VIRTUAL_ENV=/{place}\nPATH=$VIRTUAL_ENV/bin:$PATH\nexport VIRTUAL_ENV PATH\n")
    for name, target in (("python3", f"/usr/bin/{PYTHON}"), ("python", "python3"), (PYTHON, "python3")):
        (top / place / "bin" / name).symlink_to(target)
    (top / place / _LIB / "site-packages").mkdir(parents=True)


def _debian(top: Path) -> None:
    put(top / DEBIAN_LOCAL, "torch", "2.0")
    put(top / DEBIAN_HOME, "helper", "1.0")


def _upstream_in_usr(top: Path) -> None:
    upstream(top, "usr")
    put(top / f"usr/{SITE}", "torch", "2.0")
    put(top / f"usr/{SITE}", "helper", "1.0")
    put(top / DEBIAN_LOCAL, "unseen", "1.0")


def _beside_debians(top: Path) -> None:
    """As the images `python` of Docker Hub have it; Debian's stays."""
    debians = {name: top / f"debians/{name}" for name in ("bin", _LIB)}
    for name, kept in debians.items():
        kept.parent.mkdir(parents=True, exist_ok=True)
        run(("cp", "-a", top / "usr" / name, kept)).ok()
    upstream(top, "usr/local")
    shutil.rmtree(top / "usr/bin")
    for name, kept in debians.items():
        kept.rename(top / "usr" / name)
    put(top / f"usr/local/{SITE}", "torch", "2.0")
    put(top / f"usr/local/{SITE}", "helper", "1.0")
    put(top / DEBIAN_LOCAL, "torch", "1.0")


def _red_hat(top: Path) -> None:
    upstream(top, "usr", "lib64", patched=True)
    put(top / f"usr/local/lib64/{PYTHON}/site-packages", "torch", "2.0")
    put(top / f"usr/{SITE}", "helper", "1.0")


def _alpine(top: Path) -> None:
    """There is no Python for musl in Debian: here musl's loader is another name of glibc's."""
    _upstream_in_usr(top)
    loader = f"ld-musl-{platform.machine()}.so.1"
    program = top / f"usr/bin/{PYTHON}"
    (own,) = re.findall(rb"/lib(?:64)?/ld-linux[^\0]*\0", program.read_bytes()[:4096])
    program.write_bytes(program.read_bytes().replace(own, f"/lib/{loader}".encode().ljust(len(own), b"\0"), 1))
    shutil.copyfile(top / own[1:-1].decode(), top / "usr/lib" / loader)
    (top / "usr/lib" / loader).chmod(0o755)


def _conda(top: Path) -> None:
    """Two environments and conda's own; each starts the Python of /usr, as those of scripts/build-conda-image."""
    for place in ("opt/conda", "opt/conda/envs/first", "opt/conda/envs/second"):
        venv(top, place, system=False)
        (top / place / "bin/activate").unlink()
        write(top / place / "conda-meta/history", "")
    write(top / "opt/conda/bin/activate", "# conda's\n")
    put(top / f"opt/conda/envs/first/{SITE}", "torch", "1.0")
    put(top / f"opt/conda/envs/second/{SITE}", "torch", "2.0")
    put(top / f"opt/conda/envs/second/{SITE}", "helper", "1.0")


def _venv(top: Path) -> None:
    venv(top, "opt/venv", system=False)
    put(top / DEBIAN_LOCAL, "torch", "1.0")
    put(top / f"opt/venv/{SITE}", "torch", "2.0")
    put(top / f"opt/venv/{SITE}", "helper", "1.0")


def _venv_over(top: Path) -> None:
    venv(top, "opt/venv", system=True)
    put(top / DEBIAN_LOCAL, "torch", "2.0")
    put(top / DEBIAN_HOME, "helper", "1.0")


def _two(top: Path) -> None:
    """A newer one, which is not what `python3` is; it would be found by its name."""
    _debian(top)
    shutil.copyfile(top / f"usr/bin/{PYTHON}", top / "usr/bin/python3.12")
    (top / "usr/bin/python3.12").chmod(0o755)
    write(top / "usr/lib/python3.12/os.py", "")
    put(top / "usr/local/lib/python3.12/dist-packages", "torch", "3.0")


def _pythonpath(top: Path) -> None:
    put(top / "opt/more", "helper", "1.0")
    put(top / DEBIAN_LOCAL, "helper", "0.9")
    put(top / DEBIAN_LOCAL, "torch", "2.0")


def _none(top: Path) -> None:
    for path in (top / "usr/bin").glob("python*"):
        path.unlink()


_OPT = "export VIRTUAL_ENV=/opt/venv\nexport PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin\n"
LAYOUTS = {
    "Debian's": Layout(_debian),
    "upstream's in `/usr`": Layout(_upstream_in_usr),
    "upstream's in `/usr/local`, beside Debian's": Layout(_beside_debians, "/usr/local/bin/python3"),
    "Red Hat's, with `lib64`": Layout(_red_hat, environment="export PYTHONPLATLIBDIR=lib64\n"),
    "Alpine's (musl)": Layout(_alpine, wheels="musllinux"),
    "conda, the second of two environments": Layout(
        _conda, "/opt/conda/envs/second/bin/python3", ("/opt/conda/envs/second/bin",)
    ),
    "a virtual environment": Layout(_venv, "/opt/venv/bin/python3", environment=_OPT),
    "one with the system's packages": Layout(_venv_over, "/opt/venv/bin/python3", environment=_OPT),
    "two Pythons in one directory": Layout(_two),
    "`PYTHONPATH` in the image's environment": Layout(_pythonpath, environment="export PYTHONPATH=/opt/more\n"),
    "no Python": Layout(_none, "", held=()),
}
