"""What a repeated `sifmod install` says is true of the disk, and what it restores; nothing of the user's is lost."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.config import write
from support.disk_state import disk_state
from support.images import Images
from support.runtime import RUNTIME

ROOT = "software/Tiny/.generations/1.0"


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    return tmp_path / "prefix"


@pytest.fixture
def easyconfig(tmp_path: Path, images: Images, prefix: Path) -> Path:  # noqa: ARG001 (it is installed there)
    path = write(
        tmp_path / "a stack's.yaml",
        f"name: Tiny\nversion: '1.0'\ndescription: d\nimage: {{sources: ['{images.tiny_sif}']}}\nwrappers: [sh, cat]\n",
    )
    assert run(["install", "-q", str(path)]) == 0
    return path


def change(path: Path, text: str = "#!/bin/sh\necho mine\n") -> None:
    """What an editor does: another file of the same mode in its place."""
    mode, directory = path.stat().st_mode, path.parent.stat().st_mode
    path.parent.chmod(0o755)
    path.unlink()
    path.write_text(text)
    path.chmod(mode)
    path.parent.chmod(directory)


def write_into(path: Path) -> None:
    """The same size and the same time, as far as a user can set it."""
    before = path.stat()
    path.chmod(0o755)
    path.write_bytes(path.read_bytes()[::-1])
    path.chmod(before.st_mode)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def remove(path: Path) -> None:
    path.parent.chmod(0o755)
    path.unlink()


def forbid(path: Path) -> None:
    path.chmod(0o444)


WAYS = {"edited": change, "written into": write_into, "removed": remove, "no program": forbid}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_a_changed_file_is_restored_and_kept(
    easyconfig: Path, prefix: Path, way: object, capfd: pytest.CaptureFixture[str]
) -> None:
    wrapper = prefix / ROOT / "1/bin/sh"
    right = wrapper.read_bytes()
    assert callable(way)
    way(wrapper)
    theirs = wrapper.read_bytes() if wrapper.exists() else None
    assert said(capfd, "install", "-D", str(easyconfig)).startswith(" * [R] ")
    told = said(capfd, "install", str(easyconfig))
    assert f"{wrapper} was changed or removed; a new generation restores it" in told
    assert "Tiny/1.0: installed, generation 2" in told
    assert (prefix / ROOT / "2/bin/sh").read_bytes() == right
    assert (wrapper.read_bytes() if wrapper.exists() else None) == theirs
    assert run(["verify"]) == 0
    before = disk_state(prefix)
    assert run(["install", str(easyconfig)]) == 0
    assert "already installed, nothing to do" in capfd.readouterr().err
    assert disk_state(prefix) == before


def test_a_changed_modulefile_in_the_module_tree_is_told_and_left(
    easyconfig: Path, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is the user's now: see docs/design.md, section 4."""
    stub = prefix / "modules/Tiny/1.0.lua"
    change(stub, "-- mine\n")
    assert said(capfd, "install", "-D", str(easyconfig)).startswith(" * [R] ")
    before = disk_state(prefix / "modules"), disk_state(prefix / "software")
    assert run(["install", str(easyconfig)]) == 18
    assert "was changed since, so it is neither replaced nor removed" in capfd.readouterr().err
    assert (disk_state(prefix / "modules"), disk_state(prefix / "software")) == before


def test_a_touched_tree_is_as_it_was(easyconfig: Path, prefix: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Modes and times that an administrator sets for all files are no change."""
    for path in (prefix / ROOT / "1").rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(path.stat().st_mode | 0o020)
            os.utime(path)
    assert run(["install", str(easyconfig)]) == 0
    assert "already installed, nothing to do" in capfd.readouterr().err


def test_another_easyconfig_for_the_same_module_is_told(
    easyconfig: Path, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = write(easyconfig.with_name("other.yaml"), easyconfig.read_text() + "env: {A: b}\n")
    again = said(capfd, "install", str(other))
    assert f"Tiny/1.0 was installed from a different easyconfig before: {easyconfig}\n" in again
    assert run(["install", str(other)]) == 0
    assert "a different easyconfig" not in capfd.readouterr().err
    assert os.readlink(prefix / "software/Tiny/1.0") == ".generations/1.0/2"


def test_no_runtime_is_told_before_anything_is_fetched(
    easyconfig: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    places = [place for place in os.environ["PATH"].split(":") if not (Path(place) / "apptainer").exists()]
    monkeypatch.setenv("PATH", ":".join(place for place in places if not (Path(place) / "singularity").exists()))
    write(easyconfig, easyconfig.read_text().replace("Tiny", "Other"))
    assert run(["install", str(easyconfig)]) == 0
    lines = capfd.readouterr().err.splitlines()
    told = (
        "== the site's runtime (apptainer or singularity) was not found: Other/1.0 can be installed and loaded, but "
        "not run on this machine"
    )
    assert lines.index(told) == 1
    assert lines[0].startswith("== Other/1.0: installing from ")
    assert any("copying" in line or "already in the store" in line or "installed" in line for line in lines[2:])


@pytest.fixture
def robot(tmp_path: Path, easyconfig: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of easyconfigs that the name Tiny-1.0 is looked up in, after another; with the blue one."""
    monkeypatch.setenv("SIFMOD_ROBOT_PATHS", f"{tmp_path}/first:{tmp_path}/rr")
    write(tmp_path / "rr/Tiny/Tiny-1.0.yaml", easyconfig.read_text() + "env: {COLOUR: blue}\n")
    return tmp_path / "rr"


def said(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    capfd.readouterr()
    assert run([*words]) == 0
    captured = capfd.readouterr()
    return captured.out + captured.err


@pytest.mark.parametrize("nearer", ["rr/Tiny-1.0.yaml", "first/Tiny-1.0.yaml", "first/Tiny/Tiny-1.0.yaml"])
def test_a_name_means_another_file_now(
    robot: Path, tmp_path: Path, nearer: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "first/Tiny").mkdir(parents=True)
    assert "installed, generation 2" in said(capfd, "install", "Tiny-1.0")
    assert "already installed" in said(capfd, "install", "Tiny-1.0")
    green = write(tmp_path / nearer, (robot / "Tiny/Tiny-1.0.yaml").read_text().replace("blue", "green"))
    assert said(capfd, "install", "-D", "Tiny-1.0") == f" * [R] {green} (module: Tiny/1.0)\n"
    assert "installed, generation 3" in said(capfd, "install", "Tiny-1.0")


def test_a_name_is_not_what_was_installed_by_a_path(
    robot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    other = write(tmp_path / "else/Tiny-1.0.yaml", (robot / "Tiny/Tiny-1.0.yaml").read_text().replace("blue", "red"))
    assert "generation 2" in said(capfd, "install", str(other))
    assert "generation 3" in said(capfd, "install", "Tiny-1.0")
    write(tmp_path / "here/odd.yaml", other.read_text())
    monkeypatch.chdir(tmp_path / "here")
    assert "generation 4" in said(capfd, "install", "odd.yaml")
    monkeypatch.chdir("/")
    assert run(["install", "odd"]) == 4


def test_a_link_extends_what_is_beside_it(easyconfig: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, colour in (("a", "red"), ("b", "green")):
        write(tmp_path / name / "base.yaml", f"{easyconfig.read_text()}env: {{COLOUR: {colour}}}\n")
    file = write(tmp_path / "a/e.yaml", "extends: base.yaml\n")
    (tmp_path / "b/e.yaml").symlink_to(file)
    assert "generation 2" in said(capfd, "install", str(file))
    assert "generation 3" in said(capfd, "install", str(tmp_path / "b/e.yaml"))
    assert "already installed" in said(capfd, "install", str(tmp_path / "b/e.yaml"))


def test_an_edit_is_seen_whatever_happened_since(
    easyconfig: Path, prefix: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    change(prefix / ROOT / "1/bin/sh")
    subprocess.run(("chmod", "-R", "g+w", prefix / "software"), check=True)
    assert said(capfd, "install", "-D", str(easyconfig)).startswith(" * [R] ")
    copy = prefix.with_name("copy")
    subprocess.run(("cp", "-a", prefix, copy), check=True)
    monkeypatch.setenv("SIFMOD_PREFIX", str(copy))
    assert "generation 2" in said(capfd, "install", str(easyconfig))


def damage_image_link(root: Path, image: Path) -> None:  # noqa: ARG001
    (root / "Tiny-1.0.sif").unlink()
    (root / "Tiny-1.0.sif").symlink_to("/nowhere.sif")


def garbage_for_the_link(root: Path, image: Path) -> None:  # noqa: ARG001
    (root / "Tiny-1.0.sif").unlink()
    (root / "Tiny-1.0.sif").write_text("garbage")


def truncate_the_image(root: Path, image: Path) -> None:  # noqa: ARG001
    image.chmod(0o644)
    os.truncate(image, 0)


@pytest.mark.parametrize("damage", [damage_image_link, garbage_for_the_link, truncate_the_image])
def test_a_damaged_image_or_link_comes_back(
    easyconfig: Path, prefix: Path, damage: Callable[[Path, Path], None], capfd: pytest.CaptureFixture[str]
) -> None:
    (image,) = (prefix / "images/sha256").glob("*.sif")
    damage(prefix / ROOT / "1", image)
    assert said(capfd, "install", "-D", str(easyconfig)).startswith(" * [R] ")
    assert "installed, generation 2" in said(capfd, "install", str(easyconfig))
    assert run(["verify"]) == 0
    assert (prefix / "software/Tiny/1.0/Tiny-1.0.sif").stat().st_size > 100_000


def test_a_check_that_was_left_out_is_not_forgotten(easyconfig: Path, prefix: Path) -> None:
    assert run(["install", "-q", "--rebuild", "--skip-sanity-check", str(easyconfig)]) == 0
    write(easyconfig, f"# c\n{easyconfig.read_text()}")
    assert run(["install", "-q", str(easyconfig)]) == 0
    made = json.loads((prefix / "software/Tiny/1.0/receipt.json").read_text())["provenance"]
    assert made["asked"]["checked"] is False


def looked_at(easyconfig: Path, prefix: Path) -> set[str]:
    """The modules of Python that a repeated install imports, in a process of its own."""
    code = "import sys; from sifmod.cli.main import run; code = run(sys.argv[1:]); print(code, *sys.modules)"
    env = {**os.environ, "SIFMOD_PREFIX": str(prefix), **RUNTIME.userns}
    words = (sys.executable, "-c", code, "install", "-q", str(easyconfig))
    said = subprocess.run(words, capture_output=True, text=True, check=True, env=env).stdout.splitlines()[-1].split()
    assert said[0] == "0"
    return set(said[1:])


def test_an_easyconfig_of_any_name_is_not_parsed_again(easyconfig: Path, prefix: Path) -> None:
    assert not {"yaml", "pydantic", "jinja2"} & looked_at(easyconfig, prefix)


def test_after_an_edit_that_changes_nothing_it_is_parsed_once(
    easyconfig: Path, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(easyconfig, f"# a comment\n{easyconfig.read_text()}")
    capfd.readouterr()
    assert run(["install", str(easyconfig)]) == 0
    assert "already installed, nothing to do" in capfd.readouterr().err
    assert not {"yaml", "pydantic", "jinja2"} & looked_at(easyconfig, prefix)
    assert os.readlink(prefix / "software/Tiny/1.0") == ".generations/1.0/1"
    assert run(["verify"]) == 0
    receipt = prefix / ROOT / "1/receipt.json"
    assert receipt.stat().st_mode & 0o777 == 0o444
    assert not list((prefix / ".staging").iterdir())


def test_a_copied_tree_is_recognised_too(easyconfig: Path, prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = prefix.with_name("other")
    shutil.copytree(prefix, other, symlinks=True)
    monkeypatch.setenv("SIFMOD_PREFIX", str(other))
    assert run(["install", "-q", str(easyconfig)]) == 0
    assert not {"yaml", "pydantic", "jinja2"} & looked_at(easyconfig, other)
