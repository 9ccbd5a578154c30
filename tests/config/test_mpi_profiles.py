"""MPI profiles: which file counts, and what is refused in one."""

from pathlib import Path

import pytest

from sifmod.cli.main import run as sifmod
from sifmod.config.find import shipped
from sifmod.config.mpi_profile import profile_of, read_profile
from sifmod.errors import ConfigError
from support.config import lines, write

TEXT = """
    description: MPI of here
    version: '4.1.4'
    abi: openmpi
    library: /opt/mpi/libmpi.so.40
    """


def test_the_nearest_file_counts(tmp_path: Path) -> None:
    places = (tmp_path / "shipped", tmp_path / "machine", tmp_path / "user")
    for place, version in zip(places, ("3.1", "4.1", "5.0"), strict=True):
        path = write(place / "here.yaml", TEXT.replace("4.1.4", version))
        profile, inputs = read_profile("here", places, {})
        assert (profile.file.version, profile.abi) == (version, f"openmpi {version[0]}")
        assert str(path) in [seen.path for seen in inputs]
    path.unlink()
    profile, inputs = read_profile("here", places, {})
    assert profile.file.version == "4.1"
    assert (str(path), None) in [(seen.path, seen.sha256) for seen in inputs], "a file there would be seen"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("abi: openmpi", "abi: hpmpi", "abi: expected"),
        ("library: /opt/mpi/libmpi.so.40", "library: '/opt/*/libmpi.so.40'", "absolute path of one file"),
        ("library: /opt/mpi/libmpi.so.40", "library: libmpi.so.40", "absolute"),
        ("library: /opt/mpi/libmpi.so.40", "", "library: is missing"),
        ("MPI of here", "see https://me:hunter2@x.org", "description: a login cannot be used here"),
        ("version: '4.1.4'", "version: 4.1", "got the number 4.1"),
        ("version: '4.1.4'", "version: '1.10'", "Open MPI 1.10 has no known ABI: versions"),
        ("abi: openmpi", "abi: openmpi\n    librarys: []", "unknown key"),
    ],
)
def test_what_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = write(tmp_path / "mpi" / "bad.yaml", TEXT.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        profile_of(path, {})
    assert any(said in line for line in lines(caught.value)), lines(caught.value)


def test_the_names_that_programs_look_for(tmp_path: Path) -> None:
    """They are of the ABI, whatever the host's file is called."""
    for version, name in (("2.1.1", "libmpi.so.20"), ("3.1", "libmpi.so.40"), ("5.0", "libmpi.so.40")):
        profile, _ = profile_of(write(tmp_path / "here.yaml", TEXT.replace("4.1.4", version)), {})
        assert [bind.target for bind in profile.binds] == [f"/host-mpi/{name}"]


def test_check_and_doctor_know_profiles(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "etc-sifmod.d" / "mpi" / "here.yaml", TEXT)
    assert sifmod(["check", str(path)]) == 0
    assert "ok: a profile" in capfd.readouterr().out
    path.write_text("abi: openmpi\n")
    assert sifmod(["check", str(path)]) == 5
    assert "library: is missing" in capfd.readouterr().out
    sifmod(["doctor"])
    assert "library: is missing" in capfd.readouterr().out


@pytest.mark.parametrize("path", sorted((shipped() / "mpi").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_profile_that_ships(path: Path) -> None:
    profile, _ = profile_of(path, {})
    assert profile.file.version in profile.name
    named = [
        site.name for site in (shipped() / "sites").glob("*.yaml") if f"mpi_profile: {path.stem}" in site.read_text()
    ]
    assert named, "a site is for it"
