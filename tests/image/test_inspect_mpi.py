"""The MPI of an image: which it is, which ABI it has, and what `srun --mpi=` must say."""

from pathlib import Path

import pytest

from sifmod.image.convert.sif.header import read_sif
from sifmod.image.inspect.mpi import Dynamic, Mpi, find_mpi, glibc, read_dynamic, read_mpi
from sifmod.image.inspect.rootfs import open_rootfs
from support.elf import library
from support.images import Images
from support.oci import Entry

PAL = "libopen-pal.so.40"
OPEN = b"Open MPI v%d"
LIBRARY = library("libmpi.so.40", (PAL, "libc.so.6"), OPEN)


def test_what_a_library_says_to_the_loader() -> None:
    assert read_dynamic(LIBRARY) == Dynamic("libmpi.so.40", (PAL, "libc.so.6"))
    assert read_dynamic(library("")) == Dynamic("", ())


def test_a_real_library() -> None:
    host = next(Path("/usr/lib").glob("*-linux-gnu/libmpich.so.12"))
    dynamic = read_dynamic(host.read_bytes())
    assert dynamic is not None
    assert dynamic.soname == "libmpich.so.12"
    assert "libc.so.6" in dynamic.needed


def test_what_is_cut_off_or_changed_is_no_library_and_no_crash() -> None:
    for size in range(len(LIBRARY)):
        read_dynamic(LIBRARY[:size])
    for place in range(len(LIBRARY)):
        for value in (0, 0x7F, 0xFF):
            read_dynamic(LIBRARY[:place] + bytes([value]) + LIBRARY[place + 1 :])
    assert read_dynamic(b"") is read_dynamic(b"\x7fELF\x01\x01" + bytes(100)) is None


@pytest.mark.parametrize(
    ("path", "needed", "text", "said", "abi", "pmi"),
    [
        ("libmpi.so.40.30.4", (PAL,), OPEN, "Open MPI 4.1", "openmpi 4", "pmix"),
        ("libmpi.so.40.20.3", (PAL,), OPEN, "Open MPI 4.0", "openmpi 4", "pmix"),
        ("libmpi.so.40.10.3", (PAL,), OPEN, "Open MPI 3.1", "openmpi 3", "pmix"),
        ("libmpi.so.40.40.7", ("libopen-pal.so.80", "libpmix.so.2"), OPEN, "Open MPI 5.0", "openmpi 5", "pmix"),
        ("libmpi.so.40", ("libopen-pal.so.80",), OPEN, "Open MPI 5", "openmpi 5", "pmix"),
        ("libmpi.so.40", (PAL,), OPEN, "Open MPI", "", "pmix"),  # 3 or 4: it serves no host's
        ("libmpi.so.20.10.1", (), OPEN, "Open MPI 2", "openmpi 2", "pmix"),
        ("libmpi.so.12.0.2", ("libopen-rte.so.12", "libpmi2.so.0"), OPEN, "Open MPI 1", "openmpi 1", "pmi2"),
        ("libmpi.so.12.0.2", ("libopen-rte.so.12",), OPEN, "Open MPI 1", "openmpi 1", "none"),
        ("libmpi.so.12.2.2", (), b"MPICH Version:", "MPICH", "mpich", "pmi2"),
        ("libmpi.so.12.2.2", ("libpmix.so.2",), b"MPICH Version:", "MPICH", "mpich", "pmix"),
        ("libmpi.so.10.0.4", (), b"MPICH Version:", "MPICH", "", "pmi2"),  # 3.0, before the common ABI
        ("libmpi.so.12.0.0", (), b"MPICH Version: Intel(R) MPI Library", "Intel MPI", "mpich", "pmi2"),
        ("libmpi.so.12.1.1", (), b"MVAPICH2 Version: MPICH Version:", "MVAPICH", "mpich", "pmi2"),
        ("libmpi.so.12", ("libpmi2.so.0",), b"CRAY MPICH version MPICH Version", "Cray MPICH", "mpich", "cray_shasta"),
    ],
)  # fmt: skip
def test_kinds(path: str, needed: tuple[str, ...], text: bytes, said: str, abi: str, pmi: str) -> None:
    soname = ".".join(path.split(".")[:3])
    found = read_mpi(f"/usr/lib/{path}", library(soname, needed, text))
    assert found is not None
    assert (str(found), found.abi, found.pmi, found.soname) == (said, abi, pmi, soname)


def test_what_is_no_mpi() -> None:
    assert read_mpi("/usr/lib/libmpi.so.40.30.4", library("libmpi.so.40")) is None
    assert read_mpi("/usr/lib/libmpi.so.40.30.4", OPEN) is None


def found_in(images: Images, *entries: Entry, env: tuple[str, ...] = (), path: tuple[str, ...] = ()) -> Mpi | None:
    sif = images.tiny("mpi", entries=entries, env=env)
    with open_rootfs(sif, read_sif(sif)) as rootfs:
        return find_mpi(rootfs, dict(one.split("=", 1) for one in env), path)


def test_the_first_that_a_program_would_find(images: Images) -> None:
    """A conda environment's before the system's; a link's own name says no version, but where it leads does."""
    top, conda = "usr/lib/x86_64-linux-gnu", "opt/conda/envs/a/lib"
    entries = (
        Entry(f"{top}/libmpi.so.40.30.4", LIBRARY),
        Entry(f"{top}/libmpi.so.40", link="libmpi.so.40.30.4"),
        Entry(f"{top}/libmpi_cxx.so.40", LIBRARY),
        Entry(f"{top}/libc.so.6", library("libc.so.6", text=b"GLIBC_2.2.5\0GLIBC_2.36\0GLIBC_PRIVATE")),
        Entry(f"{conda}/libmpi.so.12", library("libmpi.so.12", text=b"MPICH Version")),
    )
    system = found_in(images, *entries)
    assert system == Mpi("openmpi", "4.1", f"/{top}/libmpi.so.40.30.4", "libmpi.so.40", "pmix", "36")
    for where in ({"path": ("/opt/conda/envs/a/bin",)}, {"env": (f"LD_LIBRARY_PATH=:/nowhere:/{conda}",)}):
        own = found_in(images, *entries, **where)
        assert own is not None
        assert str(own) == "MPICH"


def test_an_image_without_an_mpi(images: Images) -> None:
    assert found_in(images) is None
    assert found_in(images, Entry("usr/lib/libmpi.so.40", link="libmpi.so.40"), Entry("opt/x")) is None


def test_the_newest_glibc_is_compared_as_a_number() -> None:
    assert [glibc(b"GLIBC_2.9 GLIBC_2.34"), glibc(b"GLIBC_2.4"), glibc(b"")] == [34, 4, 0]
