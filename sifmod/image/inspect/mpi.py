"""The MPI library of an image, read from its files: its kind, its ABI, and how `srun` must start its programs.

A shared library's data for the loader is in its dynamic section (System V ABI, chapter 5).
"""

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import NamedTuple

from sifmod.image.inspect.rootfs import Rootfs, search_path

_LOAD, _DYNAMIC = 1, 2  # kinds of segments
_NEEDED, _STRTAB, _SONAME = 1, 5, 14  # tags of the dynamic section, which a 0 ends
_MOST = 4096  # segments, entries of the dynamic section, or bytes of a name
# the name of each, and a text in its library; all but Open MPI derive from MPICH, and may have its text too
KINDS = {
    "openmpi": ("Open MPI", b"Open MPI v"),
    "intel": ("Intel MPI", b"Intel(R) MPI Library"),
    "cray": ("Cray MPICH", b"CRAY MPICH version"),
    "mvapich": ("MVAPICH", b"MVAPICH"),
    "mpich": ("MPICH", b"MPICH Version"),
}
LARGEST = 256 << 20  # bytes of a library
_NAME = re.compile(r"lib(?:mpi|mpich|mpi_(?:cray|gnu|amd|aocc|intel|nvidia|pgi)(?:_[0-9]+)?)\.so\.([0-9]{1,3})")
_FILE = re.compile(r"\.so\.([0-9]{1,3})\.([0-9]{1,3})\.[0-9]{1,3}")
# the release of an Open MPI whose file ends in .so.40.REVISION.x, by the revision's tens (its VERSION files)
_OPEN_MPI = ("3.0", "3.1", "4.0", "4.1", "5.0")
_GLIBC = re.compile(rb"GLIBC_2\.([0-9]{1,3})")
_USUAL = (
    *("/usr/local/lib", "/usr/lib64", "/lib64", "/usr/lib", "/usr/local/lib64"),
    *("/usr/lib64/openmpi/lib", "/usr/lib64/mpich/lib", "/usr/lib64/mvapich2/lib"),  # Red Hat's
    *("/opt/intel/oneapi/mpi/latest/lib", "/opt/intel/oneapi/mpi/latest/lib/release"),
)


class Dynamic(NamedTuple):
    """A library's soname, "" if it has none, and the names of the libraries it needs."""

    soname: str
    needed: tuple[str, ...]


def read_dynamic(data: bytes) -> Dynamic | None:
    """The dynamic section of a 64-bit little-endian ELF file; None for anything else, also truncated or invalid."""
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    try:
        (table,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
        # of each segment: kind, flags, offset in the file, address, physical address, bytes in the file
        segments = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(min(count, _MOST))]
        start, length = next((one[2], one[5]) for one in segments if one[0] == _DYNAMIC)
        entries = struct.iter_unpack("<QQ", data[start : start + min(length, _MOST * 16)])
        tags = list(takewhile(lambda entry: entry[0], entries))
        at = next(value for tag, value in tags if tag == _STRTAB)
        names = next(one[2] - one[3] + at for one in segments if one[0] == _LOAD and 0 <= at - one[3] < one[5])
    except (struct.error, OverflowError, StopIteration):
        return None
    texts = [(tag, data[names + value : names + value + _MOST].split(b"\0", 1)[0]) for tag, value in tags]
    sonames, needed = (
        [text.decode("utf-8", "replace") for tag, text in texts if tag == one] for one in (_SONAME, _NEEDED)
    )
    return Dynamic(sonames[0] if sonames else "", tuple(needed))


class Mpi(NamedTuple):
    """An MPI library, as texts for a receipt."""

    kind: str  # of KINDS
    version: str  # as far as its files tell: 4.1, or ""
    path: str
    soname: str
    pmi: str  # the value for `srun --mpi=`
    glibc: str = ""  # the N of the image's glibc 2.N; 0 where it has another C library
    library_path: str = ""  # the image's own LD_LIBRARY_PATH

    def __str__(self) -> str:
        """The name for messages: `Open MPI 4.1`."""
        return f"{KINDS[self.kind][0]} {self.version}".rstrip()

    @property
    def abi(self) -> str:
        """The ABI: `mpich` (3.1 and later), or `openmpi` and its major version; "" if unknown."""
        if self.kind == "openmpi":
            major = self.version.partition(".")[0]
            return f"openmpi {major}" if major else ""
        return "mpich" if self.soname.endswith(".so.12") else ""


def find_mpi(rootfs: Rootfs, environment: Mapping[str, str], path: Iterable[str]) -> Mpi | None:
    """The first MPI that a program of the image would find; None if none can be identified.

    `environment` is the image's; the directories in `path` precede its PATH. Raises ImageError for a damaged image.
    """
    for directory in dict.fromkeys(_directories(rootfs, environment, path)):
        entries = rootfs.entries(directory)
        for name in filter(_NAME.fullmatch, entries):
            file = max((entry for entry in entries if entry.startswith(name)), key=len)  # libmpi.so.40 → .so.40.30.4
            if found := read_mpi(f"{directory}/{file}", rootfs.data(f"{directory}/{name}", LARGEST)):
                own = environment.get("LD_LIBRARY_PATH", "")
                return found._replace(glibc=str(_glibc_of(rootfs)), library_path=own)
    return None


def read_mpi(path: str, data: bytes) -> Mpi | None:
    """The MPI whose library at `path`, its last link followed, has the content `data`; None for any other library."""
    dynamic = read_dynamic(data)
    kind = next((kind for kind, (_, mark) in KINDS.items() if mark in data), None)
    if dynamic is None or kind is None:
        return None
    needed = " ".join(dynamic.needed)
    version = _open_mpi(path, needed) if kind == "openmpi" else ""
    return Mpi(kind, version, path, dynamic.soname, _pmi(kind, version, needed))


def glibc(data: bytes) -> int:
    """The N of the newest GLIBC_2.N in a library, which needs that version; of the C library, its own; 0 for none."""
    return max((int(number) for number in _GLIBC.findall(data)), default=0)


def _glibc_of(rootfs: Rootfs) -> int:
    places = [f"{top}/{name}" for top in ("/lib", "/usr/lib") for name in rootfs.entries(top) if "-linux-gnu" in name]
    found = (rootfs.data(f"{place}/libc.so.6", LARGEST) for place in (*places, "/lib64", "/usr/lib64"))
    return next((number for data in found if (number := glibc(data))), 0)


def _directories(rootfs: Rootfs, environment: Mapping[str, str], path: Iterable[str]) -> Iterator[str]:
    yield from (one for one in environment.get("LD_LIBRARY_PATH", "").split(":") if one.startswith("/"))
    for directory in (*path, *search_path(environment.get("PATH", ""))):
        if directory.endswith("/bin"):
            yield from (f"{directory.removesuffix('/bin')}/{lib}" for lib in ("lib", "lib64"))
    yield from (f"/usr/lib/{name}" for name in rootfs.entries("/usr/lib") if name.endswith("-linux-gnu"))
    yield from _USUAL
    yield from (f"/opt/{name}/lib" for name in rootfs.entries("/opt")[:200])


def _open_mpi(path: str, needed: str) -> str:
    found = _FILE.search(path)
    if found and found[1] == "40" and int(found[2]) // 10 < len(_OPEN_MPI):
        return _OPEN_MPI[int(found[2]) // 10]
    if "libopen-pal.so.80" in needed:
        return "5"
    return {"20": "2", "12": "1", "1": "1"}.get(found[1] if found else "", "")


def _pmi(kind: str, version: str, needed: str) -> str:
    """The value for `srun --mpi=`. MPICH and its derivatives use PMI-1 over a socket, which Slurm's pmi2 serves too."""
    if "libpmix.so" in needed or (kind == "openmpi" and not version.startswith("1")):
        return "pmix"
    if kind == "openmpi":
        return "pmi2" if "libpmi" in needed else "none"
    return "cray_shasta" if kind == "cray" else "pmi2"
