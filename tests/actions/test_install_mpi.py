"""Whose MPI a module has: its image's own or the host's, what is said of it, and what is refused.

The libraries are headers for the loader with the words of an MPI; tests/system/test_slurm_mpi.py runs real ones.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.actions.install.found_in_image import srun_mpi
from sifmod.cli.main import run as sifmod
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import Installation, installations
from support.disk_state import disk_state
from support.elf import library
from support.images import Images
from support.oci import Entry

LIB = "usr/lib/x86_64-linux-gnu"
LIBC = Entry(f"{LIB}/libc.so.6", library("libc.so.6", text=b"GLIBC_2.36"))
MPICH = library("libmpi.so.12", ("libc.so.6",), b"MPICH Version GLIBC_2.34")
OPEN_MPI = library("libmpi.so.40", ("libopen-pal.so.40",), b"Open MPI v%d GLIBC_2.34")
QUICK = ("--skip-sanity-check",)  # nothing in the images is started here
OWN = "MPICH of the image; start its programs with srun --mpi=pmi2"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Writes settings, and the profile `here` of the library at `host/libmpi.so.12`."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    directory = tmp_path / "etc-sifmod.d"
    host = tmp_path / "host" / "libmpi.so.12"
    host.parent.mkdir()
    host.write_bytes(MPICH)
    (host.parent / "libfabric.so.1").write_bytes(library("libfabric.so.1"))

    def write(mpi: str, profile: str = "here", version: str = "8.1.29", more: str = "") -> None:
        (directory / "mpi").mkdir(parents=True, exist_ok=True)
        (directory / "site.yaml").write_text(f"mpi: {mpi}\nmpi_profile: {profile}\n")
        (directory / "mpi" / f"{profile}.yaml").write_text(
            f"description: MPICH of the host\nversion: '{version}'\nabi: mpich\nlibrary: {host}\n"
            f"libraries: ['{host.parent}/libfab*.so.*']\nlibrary_path: [/opt/fabric/lib]\nenv: {{FI_PROVIDER: tcp}}\n"
            f"binds: [{{source: /run/fabric, optional: true}}]\nsrun: pmi2\n{more}"
        )

    return write


def easyconfig(directory: Path, images: Images, *entries: Entry, more: str = "", env: tuple[str, ...] = ()) -> str:
    sif = images.tiny("install-mpi", entries=(LIBC, *entries), env=env)
    path = directory / "Solver-1.0.yaml"
    path.write_text(f"name: Solver\nversion: '1.0'\nimage: {{sources: ['{sif}']}}\nwrappers: [env]\n{more}")
    return str(path)


def mpich(directory: Path, images: Images, more: str = "") -> str:
    entry = Entry(f"{LIB}/libmpi.so.12", MPICH)
    return easyconfig(directory, images, entry, more=more, env=("LD_LIBRARY_PATH=/opt/own/lib",))


def installed(tmp_path: Path) -> Installation:
    (found,) = installations(Layout(tmp_path / "prefix"))
    return found


def modulefile(tmp_path: Path) -> str:
    root = Path(installed(tmp_path).root)
    return next(root.glob("modulefile.*")).read_text()


def test_the_images_own_is_said(
    tmp_path: Path, images: Images, settings: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    settings("image")
    assert sifmod(["install", *QUICK, mpich(tmp_path, images)]) == 0
    assert f"MPI: {OWN}" in capfd.readouterr().err
    assert f"MPI: {OWN}" in modulefile(tmp_path)
    assert sifmod(["show", "Solver/1.0"]) == 0
    assert f"mpi             {OWN}" in capfd.readouterr().out
    assert sifmod(["show", "Solver/1.0", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["provenance"]["mpi"] == OWN
    assert "/host-mpi" not in modulefile(tmp_path)
    assert 'UCX_POSIX_USE_PROC_LINK = "n"' in modulefile(tmp_path)


def test_what_a_job_script_must_say_to_srun(tmp_path: Path, images: Images, settings: Callable[..., None]) -> None:
    """Nothing for the host's: a load sets SLURM_MPI_TYPE, which --mpi would override."""
    path = mpich(tmp_path, images)
    for mpi, expected in (("image", "pmi2"), ("host", "")):
        settings(mpi)
        assert sifmod(["install", *QUICK, path]) == 0
        assert srun_mpi(installed(tmp_path)) == expected


def test_an_image_without_an_mpi_says_nothing(
    tmp_path: Path, images: Images, settings: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever the site says of images with one; an easyconfig that demands the host's is wrong there."""
    settings("host")
    path = easyconfig(tmp_path, images)
    assert sifmod(["install", *QUICK, path]) == 0
    assert sifmod(["show", "Solver/1.0"]) == 0
    said = capfd.readouterr()
    assert "MPI" not in said.err + modulefile(tmp_path)
    assert "UCX" not in modulefile(tmp_path)
    assert "mpi  " not in said.out
    before = disk_state(tmp_path / "prefix" / "software", tmp_path / "prefix" / "modules")
    assert sifmod(["install", *QUICK, easyconfig(tmp_path, images, more="mpi: host\n")]) == 18
    assert "its image has no known MPI" in capfd.readouterr().err
    assert disk_state(tmp_path / "prefix" / "software", tmp_path / "prefix" / "modules") == before


def test_the_hosts_is_bound_and_found_first(tmp_path: Path, images: Images, settings: Callable[..., None]) -> None:
    settings("host")
    assert sifmod(["install", *QUICK, mpich(tmp_path, images)]) == 0
    text = modulefile(tmp_path)
    for name in ("libmpi.so.12", "libmpich.so.12"):  # a program of Debian's looks for the second
        assert f'{{ "{tmp_path}/host/libmpi.so.12:/host-mpi/{name}" }}' in text
    assert f'{{ "{tmp_path}/host/libfabric.so.1:/host-mpi/libfabric.so.1", optional = true }}' in text
    assert '{ "/run/fabric", optional = true }' in text
    assert 'LD_LIBRARY_PATH = "/host-mpi:/opt/fabric/lib:/opt/own/lib"' in text
    assert 'FI_PROVIDER = "tcp"' in text
    assert 'SLURM_MPI_TYPE = "pmi2"' in text
    assert "the host's MPI of profile here (mpich 8.1.29), instead of the image's MPICH" in text


def test_another_abi_is_refused_or_told(
    tmp_path: Path, images: Images, settings: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    settings("host")
    entry = Entry(f"{LIB}/libmpi.so.40.30.4", OPEN_MPI)
    own = (entry, Entry(f"{LIB}/libmpi.so.40", link="libmpi.so.40.30.4"))
    assert sifmod(["install", *QUICK, easyconfig(tmp_path, images, *own)]) == 18
    said = capfd.readouterr().err
    assert "the image has Open MPI 4.1 (openmpi 4), and the host's MPI of profile here (mpich 8.1.29) cannot" in said
    assert "`mpi: auto`" in said
    assert installations(Layout(tmp_path / "prefix")) == ()
    assert not list((tmp_path / "prefix" / "modules").rglob("*.lua"))
    assert sifmod(["install", *QUICK, easyconfig(tmp_path, images, *own, more="mpi: auto\n")]) == 0
    assert (
        "Open MPI 4.1 of the image; start its programs with srun --mpi=pmix (not the host's: the"
        in capfd.readouterr().err
    )
    assert "/host-mpi" not in modulefile(tmp_path)


@pytest.mark.parametrize(
    ("host", "why"),
    [
        (OPEN_MPI, "is Open MPI, and profile here expects mpich"),
        (b"text", "is not a known MPI library, and profile here expects mpich"),
        (MPICH.replace(b"2.34", b"2.38"), "needs glibc 2.38, and the image has 2.36"),
    ],
)
def test_what_the_profile_names_is_looked_at(
    tmp_path: Path,
    images: Images,
    settings: Callable[..., None],
    capfd: pytest.CaptureFixture[str],
    host: bytes,
    why: str,
) -> None:
    settings("host")
    (tmp_path / "host" / "libmpi.so.12").write_bytes(host)
    assert sifmod(["install", *QUICK, mpich(tmp_path, images)]) == 18
    assert f"{tmp_path}/host/libmpi.so.12 {why}" in capfd.readouterr().err
    assert installations(Layout(tmp_path / "prefix")) == ()


def test_a_library_that_cannot_be_looked_at_decides_nothing(
    tmp_path: Path, images: Images, settings: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    """As one that is missing on this node; os.stat fails for too long a name as it does in a closed directory."""
    settings("host")
    profile = tmp_path / "etc-sifmod.d/mpi/here.yaml"
    profile.write_text(profile.read_text().replace("library: /", f"library: /{'a' * 300}/"))
    assert sifmod(["install", *QUICK, mpich(tmp_path, images)]) == 0, capfd.readouterr().err


def test_a_profile_is_switched_without_touching_images(
    tmp_path: Path, images: Images, settings: Callable[..., None]
) -> None:
    """The image is not read again for it: what is in it is in the receipt."""
    path = mpich(tmp_path, images)
    assert sifmod(["install", *QUICK, path]) == 0
    stored = disk_state(tmp_path / "prefix" / "images")
    for generation, version in ((2, "8.1.29"), (3, "8.1.32")):
        settings("host", f"cray-{version}", version)
        assert sifmod(["install", "--module-only", "--installed", "--yes"]) == 0
        assert f"profile cray-{version} (mpich {version})" in modulefile(tmp_path)
        assert sifmod(["install", *QUICK, path]) == 0
        assert installed(tmp_path).generation == generation, "nothing is left to do"
    assert disk_state(tmp_path / "prefix" / "images") == stored


def test_an_edited_profile_is_noticed(tmp_path: Path, images: Images, settings: Callable[..., None]) -> None:
    path = mpich(tmp_path, images)
    settings("auto")
    assert sifmod(["install", *QUICK, path]) == 0
    settings("auto", more="# a word more\n")
    assert sifmod(["install", *QUICK, path]) == 0
    assert installed(tmp_path).generation == 1
    settings("auto", version="9.0")
    assert sifmod(["install", *QUICK, path]) == 0
    assert installed(tmp_path).generation == 2


def test_an_easyconfig_that_binds_the_hosts_itself(
    tmp_path: Path, images: Images, settings: Callable[..., None]
) -> None:
    settings("host")
    path = mpich(tmp_path, images, more=f"binds: [{tmp_path}/host]\nenv: {{LD_LIBRARY_PATH: {tmp_path}/host}}\n")
    assert sifmod(["install", *QUICK, path]) == 0
    assert "/host-mpi" not in modulefile(tmp_path)


def test_no_profile(
    tmp_path: Path, images: Images, settings: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    path = mpich(tmp_path, images, more="mpi: host\n")
    before = disk_state(tmp_path)
    assert sifmod(["install", *QUICK, path]) == 2
    assert "Solver/1.0: mpi: host in the easyconfig, but site generic has no profile" in capfd.readouterr().err
    assert disk_state(tmp_path) == before
    settings("auto")
    (tmp_path / "etc-sifmod.d" / "mpi" / "here.yaml").unlink()
    assert sifmod(["install", *QUICK, path]) == 2
    assert "mpi_profile: there is no profile here; searched in" in capfd.readouterr().err
    assert not (tmp_path / "prefix").exists()


def test_what_the_easyconfig_says_goes_before_the_profile(
    tmp_path: Path, images: Images, settings: Callable[..., None]
) -> None:
    """Of each thing that both name; the host's libraries are found first all the same."""
    settings("host")
    more = (
        "env: {FI_PROVIDER: mine, LD_LIBRARY_PATH: /mine}\nbinds: ['/mine:/run/fabric']\n"
        "default_env: {SLURM_MPI_TYPE: mine, UCX_POSIX_USE_PROC_LINK: mine}\n"
    )
    assert sifmod(["install", *QUICK, mpich(tmp_path, images, more)]) == 0
    text = modulefile(tmp_path)
    for name in ("FI_PROVIDER", "SLURM_MPI_TYPE", "UCX_POSIX_USE_PROC_LINK"):
        assert f'{name} = "mine"' in text
    assert 'LD_LIBRARY_PATH = "/host-mpi:/opt/fabric/lib:/mine"' in text
    assert [line.strip() for line in text.splitlines() if "/run/fabric" in line] == ['{ "/mine:/run/fabric" },']


@pytest.mark.parametrize(("needs", "fits"), [(b"2.35", True), (b"2.36", True), (b"2.37", False)])
def test_the_glibc_that_the_hosts_libraries_need(
    needs: bytes, fits: bool, tmp_path: Path, images: Images, settings: Callable[..., None]
) -> None:
    """The image has 2.36."""
    settings("auto")
    (tmp_path / "host" / "libmpi.so.12").write_bytes(MPICH.replace(b"2.34", needs))
    assert sifmod(["install", *QUICK, mpich(tmp_path, images)]) == 0
    assert ("/host-mpi" in modulefile(tmp_path)) == fits
