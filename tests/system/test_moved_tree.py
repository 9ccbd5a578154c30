"""A prefix that was copied, moved or mounted elsewhere: a whole tree of its own, which leaves the original alone."""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from loads import unloads
from sifmod.cli.main import run
from support.command import run as started
from support.config import write
from support.disk_state import disk_state
from support.identity import sifmod
from support.images import Images
from support.module_tool import ModuleTool, Step
from support.runtime import RUNTIME

MODULE = "Tiny/1.0"
Moving = Callable[[Path, Path], None]


def copied(source: Path, target: Path) -> None:
    started(("cp", "-a", source, target)).ok()


def synchronised(source: Path, target: Path) -> None:
    started(("rsync", "-a", f"{source}/", f"{target}/")).ok()


def archived(source: Path, target: Path) -> None:
    target.mkdir()
    subprocess.run(f"tar -C '{source}' -cf - . | tar -C '{target}' -xf -", shell=True, check=True)


def moved(source: Path, target: Path) -> None:
    source.rename(target)


WAYS = {"cp": copied, "rsync": synchronised, "tar": archived, "mv": moved}


def remove(tree: Path) -> None:
    """With its read-only directories, which stop all but root."""
    subprocess.run(("chmod", "-R", "u+rwX", tree), check=True)
    shutil.rmtree(tree)


@dataclass(frozen=True)
class Kept:
    """A tree with its easyconfig as they were made, to be put in their place for each test."""

    place: Path
    copy: Path

    def restore(self) -> None:
        if self.place.exists():
            remove(self.place)
        copied(self.copy, self.place)


@pytest.fixture(scope="module")
def kept(images: Images, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A tree of two generations, of which the second is live, with something of the user's own."""
    directory = tmp_path_factory.mktemp("moved")
    place = directory / "place"
    easyconfig = write(
        place / "Tiny-1.0.yaml",
        f"name: Tiny\nversion: '1.0'\ndescription: A tiny thing\nimage: {{sources: ['{images.tiny_sif}']}}\n"
        "wrappers: [sh, cat]\nrunscripts: [conda-python-simple]\nuser_software: true\nenv: {COLOUR: blue}\n"
        "host_env: {HOSTED: '1'}\n",
    )
    prefix = place / "the original"
    env = {**os.environ, **RUNTIME.userns, "SIFMOD_PREFIX": str(prefix), "SIFMOD_MODULE_SYNTAX": "both"}
    sifmod(("install", "-q", easyconfig), env, place).ok()
    write(easyconfig, easyconfig.read_text().replace("blue", "green"))
    sifmod(("install", "-q", easyconfig), env, place).ok()
    write(prefix / "user-software" / MODULE / "user-software" / "mine.txt", "mine\n")
    place.rename(directory / "kept")
    return Kept(place, directory / "kept")


@pytest.fixture
def original(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tree, which a test may change."""
    kept.restore()
    prefix = kept.place / "the original"
    monkeypatch.setenv("SIFMOD_PREFIX", str(prefix))
    monkeypatch.setenv("SIFMOD_MODULE_SYNTAX", "both")
    return prefix


@pytest.fixture
def easyconfig(original: Path) -> Path:
    return original.parent / "Tiny-1.0.yaml"


@pytest.fixture(params=WAYS)
def other(request: pytest.FixtureRequest, original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same tree at another place, with the original gone."""
    prefix = tmp_path / "another (place)"
    WAYS[request.param](original, prefix)
    if original.exists():
        remove(original)
    monkeypatch.setenv("SIFMOD_PREFIX", str(prefix))
    return prefix


def load(tool: ModuleTool, modules: Path, *then: str) -> tuple[Step, ...]:
    """The environment before, in and after a load, and after each further step."""
    return unloads(tool, modules, f"module load {MODULE}", *then, f"module unload {MODULE}")


def colour(bin_directory: str | Path, cwd: Path | None = None) -> str:
    """What the wrapper in this directory finds in its environment in the real container."""
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **RUNTIME.userns}
    return (
        started((f"{bin_directory}/sh", "-c", "cat /user-software/mine.txt; echo $COLOUR"), env=env, cwd=cwd)
        .ok()
        .stdout
    )


def test_it_loads_and_runs(other: Path, original: Path, module_tool: ModuleTool) -> None:
    start = "sh -c 'cat /user-software/mine.txt /runscripts/conda-python-simple; echo $COLOUR'"
    bare = f"{RUNTIME.path} -q exec \"$SIF\" sh -c 'cat /user-software/mine.txt; echo $COLOUR'"
    _, loaded, wrapped, executed, _ = load(module_tool, other / "modules", start, bare)
    root = other / "software/Tiny/.generations/1.0/2"
    values = loaded.environment
    assert str(original) not in " ".join(values.values())
    assert (values["SIF"], values["SIFTINY"]) == (f"{root}/Tiny-1.0.sif",) * 2
    assert (values["EBROOTTINY"], values["CONTAINERROOT"], values["RUNSCRIPTS"]) == (str(root),) * 2 + (
        f"{root}/runscripts",
    )
    assert values["SINGULARITY_BINDPATH"] == f"{root}/runscripts:/runscripts:ro,{root}/user-software:/user-software"
    assert values["PATH"].split(":")[0] == f"{root}/bin"
    assert wrapped.stdout.startswith("mine\n#!")
    assert wrapped.stdout.endswith("\ngreen\n")
    assert executed.stdout == "mine\ngreen\n"


@pytest.mark.parametrize("other", ["cp"], indirect=True)
def test_its_help_and_display_name_the_place(other: Path, original: Path, module_tool: ModuleTool) -> None:
    for verb in ("help", "show"):
        said = module_tool.run(f"module {verb} {MODULE}", other / "modules")
        assert said.code == 0
        assert str(original) not in said.stdout + said.stderr
        assert str(other) in said.stdout + said.stderr
    assert f"module use '{other}/modules'" in module_tool.run(f"module help {MODULE}", other / "modules").stderr


@pytest.mark.parametrize("other", ["mv", "rsync"], indirect=True)
def test_every_verb_works_there(other: Path, easyconfig: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["verify"]) == 0
    assert run(["install", str(easyconfig)]) == 0
    assert "already installed" in capfd.readouterr().err
    before = disk_state(other)
    assert run(["install", str(easyconfig)]) == 0
    assert "already installed" in capfd.readouterr().err
    assert disk_state(other) == before
    assert colour(other / "software/Tiny/1.0/bin") == "mine\ngreen\n"
    assert run(["rollback", "Tiny"]) == 0
    assert colour(other / "software/Tiny/1.0/bin") == "mine\nblue\n"
    assert run(["rollback", "--release", "Tiny"]) == 0
    assert run(["install", "-q", "--rebuild", str(easyconfig)]) == 0
    assert os.readlink(other / "software/Tiny/1.0") == ".generations/1.0/3"
    assert colour(other / "software/Tiny/1.0/bin") == "mine\ngreen\n"
    assert run(["verify"]) == 0
    assert run(["uninstall", "--purge", "Tiny"]) == 0
    assert not list((other / "images/sha256").iterdir())


def test_a_copy_changes_nothing_of_the_original(
    original: Path, easyconfig: Path, tmp_path: Path, module_tool: ModuleTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    copied(original, copy)
    before = disk_state(original)
    monkeypatch.setenv("SIFMOD_PREFIX", str(copy))
    load(module_tool, copy / "modules", "sh -c true")
    assert run(["install", "-q", "--rebuild", str(easyconfig)]) == 0
    assert run(["rollback", "Tiny"]) == 0
    assert run(["uninstall", "Tiny"]) == 0
    assert run(["gc", "--yes", "--now"]) == 0
    assert disk_state(original) == before
    load(module_tool, original / "modules", "sh -c true")


def test_the_files_of_two_prefixes_are_the_same(
    original: Path, easyconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside what a receipt says of how it was made."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "b"))
    assert run(["install", "-q", str(easyconfig)]) == 0
    write(easyconfig, easyconfig.read_text() + "# changed\n")
    assert run(["install", "-q", "--rebuild", str(easyconfig)]) == 0
    one, two = (prefix / "software/Tiny/1.0" for prefix in (original, tmp_path / "b"))
    names = {str(path.relative_to(two)) for path in two.rglob("*") if path.is_file() and not path.is_symlink()}
    assert len(names) > 10
    for name in names - {"receipt.json", "easyconfig.yaml"}:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    assert str(original) not in (one / "receipt.json").read_text().replace(f'"{original}"]', "")  # but as an option


@pytest.mark.parametrize("way", ["tree", "name", "file", "relative file", "link to a link", "above"])
def test_modulefiles_are_reached_through_links(
    original: Path, tmp_path: Path, way: str, module_tool: ModuleTool
) -> None:
    """Of the directory for `module use`, of the directory of a module, of a modulefile, of the prefix."""
    modules, there = tmp_path / "elsewhere/deep/modules", original / "modules"
    match way:
        case "tree":
            modules.parent.mkdir(parents=True)
            modules.symlink_to(there)
        case "name":
            modules.mkdir(parents=True)
            (modules / "Tiny").symlink_to(there / "Tiny")
        case "file" | "relative file":
            (modules / "Tiny").mkdir(parents=True)
            for name in ("1.0", "1.0.lua"):
                target = there / "Tiny" / name
                (modules / "Tiny" / name).symlink_to(
                    os.path.relpath(target, modules / "Tiny") if way == "relative file" else target
                )
        case "link to a link":
            (modules / "Tiny").mkdir(parents=True)
            for name in ("1.0", "1.0.lua"):
                (modules / name).symlink_to(there / "Tiny" / name)
                (modules / "Tiny" / name).symlink_to(f"../{name}")
        case _:
            (tmp_path / "link").symlink_to(original)
            modules = tmp_path / "link/modules"
    _, loaded, ran, _ = load(module_tool, modules, "sh -c 'echo $COLOUR'")
    assert ran.stdout == "green\n"
    prefix = tmp_path / "link" if way == "above" else original
    assert loaded.environment["SIF"] == f"{prefix}/software/Tiny/.generations/1.0/2/Tiny-1.0.sif"


@pytest.mark.parametrize("start", ["", "prefix/modules", "prefix", "prefix/modules/Tiny"])
def test_a_relative_modulepath(original: Path, tmp_path: Path, start: str, module_tool: ModuleTool) -> None:
    """What is loaded works in every directory."""
    (tmp_path / "prefix").symlink_to(original)
    directory = tmp_path / start
    relative = os.path.relpath(original / "modules", directory.resolve())
    steps = (f"cd '{directory}'; export MODULEPATH='{relative}'", f"module load {MODULE}", "cd /; sh -c 'echo $COLOUR'")
    *_, loaded, ran = module_tool.session(steps, "")
    assert (ran.stdout, ran.stderr) == ("green\n", "")
    assert loaded.environment["SIF"] == f"{original}/software/Tiny/.generations/1.0/2/Tiny-1.0.sif"


def test_a_load_through_a_link_leaves_the_directory_as_it_was(original: Path, tmp_path: Path, lmod: ModuleTool) -> None:
    write(tmp_path / "m/Where/1.0.lua", 'setenv("WHERE", require("lfs").currentdir())\n')
    (tmp_path / "m/Tiny").mkdir()
    (tmp_path / "m/Tiny/1.0.lua").symlink_to(original / "modules/Tiny/1.0.lua")
    (step,) = lmod.session((f"cd '{tmp_path}'; module load Tiny Where",), tmp_path / "m")
    assert (step.code, step.environment["WHERE"]) == (0, str(tmp_path))


def test_wrappers_are_reached_in_any_way(original: Path, tmp_path: Path) -> None:
    root = original / "software/Tiny/1.0"
    links = tmp_path / "links"
    links.mkdir()
    (links / "sh").symlink_to(root / "bin/sh")
    (links / "directory").symlink_to(root)
    (tmp_path / "sh").symlink_to("links/sh")
    for directory in (root / "bin", root.resolve() / "bin", links, tmp_path, links / "directory/bin", f"{root}//bin/"):
        assert colour(directory) == "mine\ngreen\n"
    for cwd, directory in ((root, "bin"), (root / "bin", "."), (root / "share", "../bin"), (tmp_path, ".")):
        assert colour(directory, cwd) == "mine\ngreen\n"
    (tmp_path / "copy").mkdir()
    shutil.copy(root / "bin/sh", tmp_path / "copy/sh")
    lost = started((tmp_path / "copy/sh", "-c", "true"))
    assert (lost.code, lost.stdout) == (127, "")
    assert lost.stderr == (
        f"{tmp_path}/copy/sh: its module is not around it\n\nhint: a link to it works anywhere, a copy does not\n"
    )


def test_a_place_that_bind_paths_cannot_express(original: Path, tmp_path: Path, module_tool: ModuleTool) -> None:
    odd = tmp_path / "a,b"
    copied(original, odd)
    said = module_tool.run(f"module load {MODULE}; echo SIF=$SIF", odd / "modules")
    assert "contains a comma or a colon, which bind paths cannot express" in said.stderr
    assert "SIF=\n" in said.stdout
    wrapped = started((odd / "software/Tiny/1.0/bin/sh", "-c", "true"))
    assert wrapped.code == 127
    assert "contains a comma or a colon, which bind paths cannot express" in wrapped.stderr


@pytest.mark.parametrize("other", ["mv"], indirect=True)
def test_packing_works_in_the_other_place(other: Path, module_tool: ModuleTool) -> None:
    program = other / "software/Tiny/1.0/bin/make-squashfs"
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **RUNTIME.userns}
    started((program,), env=env).ok()
    assert (other / "user-software" / MODULE / "user-software.squashfs").is_file()
    _, loaded, ran, _ = load(module_tool, other / "modules", "sh -c 'cat /user-software/mine.txt'")
    root = other / "software/Tiny/.generations/1.0/2"
    assert f"{root}/user-software.squashfs:/user-software:ro,image-src=/" in loaded.environment["SINGULARITY_BINDPATH"]
    assert ran.stdout == "mine\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_read_only_mount_elsewhere(
    original: Path, tmp_path: Path, module_tool: ModuleTool, monkeypatch: pytest.MonkeyPatch, easyconfig: Path
) -> None:
    """As CVMFS, or a cluster's login nodes, have it."""
    mounted = tmp_path / "cvmfs"
    mounted.mkdir()
    started(("mount", "-o", "bind", original, mounted)).ok()
    try:
        started(("mount", "-o", "remount,bind,ro", mounted)).ok()
        _, loaded, ran, _ = load(module_tool, mounted / "modules", "sh -c 'echo $COLOUR'")
        assert (str(original) in str(loaded.environment), ran.stdout) == (False, "green\n")
        monkeypatch.setenv("SIFMOD_PREFIX", str(mounted))
        assert run(["verify"]) == 0
        assert run(["install", str(easyconfig)]) == 0  # nothing to do
    finally:
        started(("umount", mounted)).ok()
