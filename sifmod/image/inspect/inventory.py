"""The inventory of an image: its Python distributions, conda, Debian and RPM packages, read without starting it.

Every directory is searched, since a venv may be anywhere, except the kernel's, the insides of distributions and the
caches of conda and pip. A package that contains others (`_vendor`) counts as one.
"""

import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

from sifmod.errors import ImageError
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.convert.squashfs.blocks import Stat
from sifmod.image.convert.squashfs.reader import SquashfsReader
from sifmod.image.inspect.package import Found, Inventory, Package, TooMuchError
from sifmod.image.inspect.python_environments import distribution, library_prefix
from sifmod.image.inspect.rootfs import open_rootfs
from sifmod.image.inspect.rpm import DATABASES, add_rpms

_HEADER = 1 << 16  # bytes of a METADATA, in which its header ends
_CONDA = 8 << 20  # bytes of one JSON
_STATUS = 32 << 20  # bytes of dpkg's list
_LICENCE = re.compile(rb'"license"\s*:\s*("(?:[^"\\]|\\.){0,400}")')
_HELD = re.compile(rb'"([^"\\]{1,400}/site-packages/[^"/\\]{1,200}\.(?:dist|egg)-info)[/"]')
_NOT_ENTERED = (b"_vendor", b".cache")
_OF_THE_KERNEL = (b"proc", b"sys", b"dev")
_LIBRARIES = (b"site-packages", b"dist-packages")
_METADATA = ((b"METADATA",), (b"PKG-INFO",), (b"EGG-INFO", b"PKG-INFO"))
_DISTRIBUTIONS = (b".dist-info", b".egg-info", b".egg")
_SHORT = 120  # letters of a licence that is a name, and not a text
_STATUS_FILE, _STATUS_FILES = b"var/lib/dpkg/status", b"var/lib/dpkg/status.d"


def read_inventory(path: Path) -> Inventory:
    """The packages in the SIF at `path`; for a damaged one the readable part, with a note.

    Takes at most a minute and bounded memory for any image. Raises ImageError unless it is a SIF with a readable file
    system, FetchError or PermissionsError if the file cannot be read.
    """
    found, ended = Found(), ""
    with open_rootfs(path, read_sif(path)) as rootfs:
        system = _system(rootfs.read("/etc/os-release", _HEADER) or rootfs.read("/usr/lib/os-release", _HEADER))
        try:
            _walk(rootfs.reader, found)
        except TooMuchError as reason:
            ended = str(reason)
        except ImageError as error:
            ended = error.message
    return found.inventory(system, ended)


def _system(release: str) -> str:
    said = dict(re.findall(r"^(ID|VERSION_ID)=(.*)$", release, re.MULTILINE))
    try:
        return "-".join(word for key in ("ID", "VERSION_ID") for word in shlex.split(said.get(key, ""))[:1])
    except ValueError:  # an open quote
        return ""


def _walk(reader: SquashfsReader, found: Found) -> None:
    noted: dict[Package, bytes] = {}  # conda's packages, each with the path of its metadata for Python
    there: set[bytes] = set()  # the paths of such metadata that exist
    condas: set[bytes] = set()  # directories with a conda-meta, which the walk meets before pkgs, conda's cache

    def enter(path: bytes) -> bool:
        above, _, name = path.rpartition(b"/")
        if name == b"conda-meta":
            condas.add(above)
        inside = name.endswith(_DISTRIBUTIONS) or above.endswith(_LIBRARIES) or (name == b"pkgs" and above in condas)
        return not inside and name not in _NOT_ENTERED and path not in _OF_THE_KERNEL

    for path, stat, _ in reader.walk(enter):
        found.step()
        above, _, name = path.rpartition(b"/")
        if name.endswith(_DISTRIBUTIONS):
            there.add(path)
            _add_distribution(reader, stat, path, found)
        elif stat.kind == "f" and above.endswith(b"conda-meta") and name.endswith(b".json"):
            data = reader.head(stat, _CONDA)
            package = _add_conda(data, path, found)
            if held := _HELD.search(data):
                noted[package] = path.rpartition(b"conda-meta/")[0] + held[1]
        elif stat.kind == "f" and (path == _STATUS_FILE or (above == _STATUS_FILES and not name.endswith(b".md5sums"))):
            _add_debs(reader.head(stat, _STATUS), found)
        elif stat.kind == "f" and path in DATABASES:
            add_rpms(reader.data(stat), stat.size, found)
    for package, place in noted.items():
        found.check()
        # pip does not remove conda's record when it replaces or removes a package
        if place not in there and reader.lookup(os.fsdecode(place)) is None:
            found.leave_out(package)


def _text(path: bytes) -> str:
    return "/" + path.decode("utf-8", "replace")


def _add_distribution(reader: SquashfsReader, stat: Stat, path: bytes, found: Found) -> None:
    above, _, name = path.rpartition(b"/")
    named = distribution(name.decode("utf-8", "replace")) or ("", "")
    said = _fields(_metadata(reader, stat))
    package, version = said("Name:") or named[0], said("Version:") or named[1]
    found.add(Package("python", package, version, library_prefix(_text(above)) or "/", _licence(said)))


def _metadata(reader: SquashfsReader, stat: Stat) -> bytes:
    """A distribution's METADATA or PKG-INFO, up to its description; an egg-info may be a file itself."""
    if stat.kind == "f" and stat.size <= 1 << 20:  # else an egg that is a zip
        return reader.head(stat, _HEADER)
    for names in _METADATA if stat.kind == "d" else ():
        inner: Stat | None = stat
        for name in names:
            inner = reader.find(inner, name) if inner and inner.kind == "d" else None
        if inner and inner.kind == "f":
            return reader.head(inner, _HEADER)
    return b""


def _fields(metadata: bytes) -> Callable[[str], str]:
    """A function for the value of a header field like `Name:`; "" if it is missing, or continues on the next line."""
    header = re.split(r"\r?\n\r?\n", metadata.decode("utf-8", "replace"), maxsplit=1)[0]

    def field(name: str) -> str:
        match = re.search(rf"^{name}[ \t]*+(.*+)$(?!\n[ \t])", header, re.MULTILINE)
        return match[1].strip() if match else ""

    return field


def _licence(said: Callable[[str], str]) -> str:
    """The licence: the expression of PEP 639, else a short name, else of a classifier; "" without one of these."""
    if expression := said("License-Expression:"):
        return expression
    licence = said("License:")
    if licence and licence.upper() != "UNKNOWN" and len(licence) <= _SHORT:
        return licence
    return said("Classifier: License ::").rpartition("::")[2].strip()


def _add_conda(data: bytes, path: bytes, found: Found) -> Package:
    """Add the package that a file of conda records; the file is called name-version-build.json."""
    prefix, _, name = _text(path).removesuffix(".json").rpartition("/conda-meta/")
    package, _, rest = name.rpartition("-")[0].rpartition("-")
    licence = _LICENCE.search(data)
    try:
        text = str(json.loads(licence[1])) if licence else ""
    except ValueError:
        text = ""
    return found.add(Package("conda", package, rest, prefix or "/", text))


def _add_debs(data: bytes, found: Found) -> None:
    start = 0
    while start < len(data):
        end = data.find(b"\n\n", start) + 1 or len(data)
        said, start = _fields(data[start : min(end, start + _HEADER)].lstrip()), end + 1
        found.check()
        if said("Status:").endswith(" installed") or not said("Status:"):  # which distroless images do not have
            found.add(Package("deb", said("Package:"), said("Version:"), "/"))
