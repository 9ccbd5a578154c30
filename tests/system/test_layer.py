"""Packages over an image: `add`, `remove`, `layers`, `sync`, and who sees them. The wheels are local."""

import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from sifmod.cli.main import run as sifmod
from support.command import Result, run
from support.identity import call_as
from support.images import Images
from support.layered import BACKEND, NAME, PLAIN, Machine, make_machine, old_or_new
from support.module_tool import ModuleTool
from support.runtime import RUNTIME
from support.user import OrdinaryUser
from support.wheels import wheel


@pytest.fixture
def machine(shared_tmp: Path, images: Images) -> Machine:
    return make_machine(shared_tmp, images)


def outlook(environment: dict[str, str]) -> dict[str, str]:
    """What is not the module tool's own."""
    ours = ("SIF", "_SIFMOD", "SINGULARITY", "APPTAINER", "PATH", "EB", "RUNSCRIPTS", "CONTAINERROOT", "WITH_CONDA")
    return {name: value for name, value in environment.items() if name.startswith(ours)}


def test_what_is_added_is_there_for_everything_that_the_module_starts(
    machine: Machine, module_tool: ModuleTool
) -> None:
    modules = machine.prefix / "modules"
    wheel(
        machine.wheels, "pip", "99.0", files={"lonely.pth": "import sys; sys.lonely = True\n"}
    )  # newer than the image's
    told = machine.add("demo", "pip==99.0").ok()
    assert "== 3 packages are added" in told.stderr.replace("the image keeps", "==")
    assert "pip 99.0 is used instead of the image's" in told.stderr

    shown = "import demo, helper, pip, sys; print(demo.__version__, helper.__version__, pip.__version__, sys.lonely)"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {shown!r}], check=True)"
    assert machine.python(shown).ok().stdout == "1.0 2.5 99.0 True\n"
    assert machine.python(child).ok().stdout == "1.0 2.5 99.0 True\n"
    says = run((machine.live() / "bin" / "demo-says",), env=machine.env()).ok()
    assert says.stdout == "demo-says 1.0 /opt/miniconda3/envs/pytorch\n"
    # of a layer that is searched nowhere, from its own directory: that of the same name elsewhere would be taken
    wheel(machine.wheels, "demo", "2.0", requires=("helper>=2",), scripts=("demo-says",))
    machine.add("demo==2.0", "--dir", "else where").ok()
    (commands,) = (machine.top / "else where" / NAME / "default").glob("*/live/bin")
    says = run(("./demo-says",), env=machine.env(), cwd=commands).ok()
    assert says.stdout == "demo-says 2.0 /opt/miniconda3/envs/pytorch\n"
    (machine.wheels / "demo-2.0-py3-none-any.whl").unlink()
    other = "/usr/bin/python3"  # of the image: not the one that the layer is for
    start = f"{RUNTIME.path} exec $SIF"
    loaded = module_tool.run(
        f"module load Python; demo-says; {start} demo-says; {start} python -c {shown!r};"
        f' {start} {other} -c \'import importlib.util as u, sys; print(u.find_spec("demo"), sys.path[0] == "")\'',
        modules,
        env=machine.env(),
    )
    said = "demo-says 1.0 /opt/miniconda3/envs/pytorch\n"
    assert loaded.stdout == f"{said}{said}1.0 2.5 99.0 True\nNone True\n", loaded.stderr
    steps = module_tool.session(("true", "module load Python", "module unload Python"), modules, env=machine.env())
    before, during, after = (dict(step.environment) for step in steps)
    assert f"{machine.live()}/bin" in during["PATH"].split(":")
    assert outlook(after) == outlook(before)

    machine.sifmod("remove", NAME, "demo", "--no-index").ok()
    assert machine.python("import pip; print(pip.__version__)").ok().stdout == "99.0\n"
    assert "No module named 'helper'" in machine.python("import helper").stderr
    assert "default of Python/3.11: removed" in machine.sifmod("remove", NAME, "--all").ok().stderr
    assert machine.python("import pip; print(pip.__version__)").ok().stdout != "99.0\n"
    assert machine.sifmod("layers").stdout == ""
    unloaded = module_tool.run("module load Python", modules, env=machine.env())
    assert "another image" not in unloaded.stderr


def test_a_layers_command_needs_no_wrapper_python(machine: Machine, images: Images) -> None:
    """It started the wrapper `python`, which this module lacks, and ended with 127."""
    machine.install(images.python_sif, rest=PLAIN.replace("python, pip", "python3"))
    machine.add("demo").ok()
    says = run((machine.live() / "bin" / "demo-says", "a b", "*"), env=machine.env(), cwd=machine.top).ok()
    assert says.stdout.startswith("demo-says 1.0 ")
    (machine.live() / "module").unlink()
    gone = run((machine.live() / "bin" / "demo-says",), env=machine.env())
    assert (gone.code, gone.stdout) == (127, "")
    assert "its module is not installed" in gone.stderr


def test_a_layers_command_runs_in_the_loaded_module(machine: Machine, lmod: ModuleTool) -> None:
    """A colleague added to it from an own tree, which was closed to all others: "its module is not installed"."""
    machine.add("demo").ok()
    link = machine.live() / "module"
    link.unlink()
    link.symlink_to("/closed/own/software/Python/3.11")
    modules = machine.prefix / "modules"
    loaded = lmod.run("module load Python; demo-says 'a b'", modules, env=machine.env())
    assert loaded.stdout.startswith("demo-says 1.0 "), loaded.stderr
    env = {**machine.env(), "CONTAINERROOT": str(machine.prefix / "software/Other/.generations/3.11/1")}
    assert run((link.parent / "bin/demo-says",), env=env).code == 127


def test_what_does_not_fit_the_image_changes_nothing(machine: Machine, images: Images) -> None:
    pytorch = Machine(machine.top / "pytorch")
    pytorch.top.mkdir()
    pytorch.wheels.mkdir()
    pytorch.install(images.pytorch_sif, "--link", "reference")
    wheel(pytorch.wheels, "torchaudio", "2.5.1", requires=("torch==2.5.1",))
    wheel(pytorch.wheels, "harmless", requires=("torch", "numpy"))
    wheel(pytorch.wheels, "another_torch", files={"torch/__init__.py": ""})
    before = pytorch.listing()
    version = pytorch.python("import importlib.metadata as m; print(m.version('torch'))").ok().stdout.strip()
    for words, reason in (
        (("torchaudio==2.5.1",), f"torchaudio needs torch 2.5.1; the image has torch {version}"),
        (("torch==2.5.1",), f"torch==2.5.1 is required; the image has torch {version}, which stays"),
        (
            ("another_torch",),
            f"another_torch 1.0 brings its own torch; the image has torch {version}, which stays",
        ),
        (("no-such-package",), "the package no-such-package was not found"),
        (("not a requirement",), "'not a requirement' is not a requirement"),
    ):
        failed = pytorch.add(*words)
        assert failed.code == 2
        assert f"error: {reason}" in failed.stderr
        assert pytorch.listing() == before
    for there in ("torch", f"torch=={version} numpy"):  # what the image has is not added either
        told = pytorch.add(*there.split()).ok()
        assert f"== torch {version}" in told.stderr
        assert "already in the image\n== Python/3.11: nothing was changed\n" in told.stderr
        assert pytorch.listing() == before
    assert json.loads(pytorch.add("torch", "--json").ok().stdout) is None
    told = pytorch.add("harmless").ok()
    assert f"the image keeps torch {version}" in told.stderr
    assert "1 package is added" in told.stderr
    where = "import harmless, torch; print(torch.__file__)"
    assert pytorch.python(where).ok().stdout.startswith("/opt/miniconda3/envs/pytorch/")


def test_what_is_there_or_nowhere_leaves_a_layer_as_it_is(machine: Machine) -> None:
    machine.add("demo").ok()
    before = machine.listing()
    told = machine.add("pip").ok().stderr
    assert told.startswith("== pip ")
    assert told.endswith(": already in the image\n== Python/3.11: nothing was changed\n")
    assert [one["requirements"] for one in json.loads(machine.sifmod("layers", "--json").ok().stdout)] == [["demo"]]
    machine.wheels.rename(machine.top / "elsewhere")
    refused = machine.sifmod("add", NAME, "no-such-package", "--no-index")
    assert refused.code == 2
    why = "--no-index searches no index, and "
    assert f"error: the packages demo, no-such-package were not found: {why}no --find-links is given" in refused.stderr
    assert (
        "hint: the layer holds demo, which this change must find again: name the directory of the wheels"
        in refused.stderr
    )
    (machine.top / "elsewhere").rename(machine.wheels)
    refused = machine.add("no-such-package")
    assert refused.code == 2
    assert f"error: the package no-such-package was not found: {why}" in refused.stderr
    assert f"{machine.wheels} has no such file" in refused.stderr
    words, places = ("no-such-package", "--no-index", "--layer", "new"), {"UV_FIND_LINKS": str(machine.wheels)}
    refused = machine.sifmod("add", NAME, *words, env=places)
    assert f"{why}UV_FIND_LINKS has no such file" in refused.stderr
    assert machine.sifmod("layer", "remove", NAME, "demo", "--all").code == 2
    refused = machine.add("helper", "--dir", f"{machine.top}/a,b")
    assert (refused.code, f"error: --dir: {machine.top}/a,b contains a comma" in refused.stderr) == (2, True)
    for name in ("UV_CACHE_DIR", "XDG_CACHE_HOME"):
        refused = machine.add("helper", env={name: f"{machine.top}/a:b"})
        assert (refused.code, f"error: {machine.top}/a:b" in refused.stderr) == (2, True)
        assert not (machine.top / "a:b").exists()
    assert machine.listing() == before
    told = machine.add("helper", "--dir", f"{machine.top}/a $b").ok().stderr
    assert f"== to use it, set SIFMOD_LAYERS='{machine.top}/a $b'\n" in told


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("planted", ["Python", ".locks", ".staging", "meanwhile"])
def test_below_a_directory_for_all_what_belongs_to_another_user_is_not_used(
    machine: Machine, planted: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Who owns it could replace the layer; a module's directory may also be made after the look at it."""
    for_all, mkdir = machine.top / "for all", os.mkdir
    for_all.mkdir()
    for_all.chmod(0o1777)
    words = ["add", NAME, "demo", "--no-index", "--find-links", str(machine.wheels), "--dir", str(for_all)]

    def plant(name: str) -> None:
        (for_all / name).mkdir()
        os.chown(for_all / name, 12345, 12345)

    def first(path: str | Path, *arguments: object, **names: object) -> None:
        mkdir(path, *arguments, **names)  # type: ignore[arg-type]
        if path == ".staging":
            plant("Python")

    if planted == "meanwhile":
        monkeypatch.setattr(os, "mkdir", first)
    else:
        plant(planted)
    for name, value in machine.env().items():
        monkeypatch.setenv(name, value)
    assert sifmod(words) == 25
    name = "Python" if planted == "meanwhile" else planted
    assert f"error: {for_all}/{name} belongs to user 12345" in capfd.readouterr().err
    assert not list((for_all / name).iterdir())
    (for_all / name).rmdir()
    monkeypatch.setattr(os, "mkdir", mkdir)
    assert sifmod([*words[:2], "no-such-package", *words[3:]]) == 2
    assert not (for_all / "Python").exists()
    assert sifmod(words) == 0
    assert (for_all / NAME / "default").is_dir()


def content(live: Path) -> dict[str, bytes]:
    """The packages of a layer: one file, or a directory where the runtime binds no file."""
    packed = live / "layer.squashfs"
    files = [packed] if packed.exists() else [path for path in (live / "tree").rglob("*") if path.is_file()]
    return {str(path.relative_to(live)): path.read_bytes() for path in files}


def test_a_lock_gives_the_same_bytes_elsewhere_without_an_index(
    machine: Machine, shared_tmp: Path, images: Images
) -> None:
    machine.add("demo").ok()
    elsewhere = Machine(shared_tmp / "elsewhere")
    elsewhere.top.mkdir()
    shutil.copytree(machine.wheels, elsewhere.wheels)
    elsewhere.install(images.python_sif)
    lock = shared_tmp / "pylock.toml"
    shutil.copyfile(machine.live() / "pylock.toml", lock)
    words = ("sync", NAME, str(lock), "--no-index", "--find-links", str(elsewhere.wheels))
    elsewhere.sifmod(*words).ok()
    assert content(machine.live()) == content(elsewhere.live())
    cache = elsewhere.top / "uv"  # whose files were linked, and not written to
    (kept,) = cache.rglob("demo-1.0.dist-info/RECORD")
    with zipfile.ZipFile(elsewhere.wheels / "demo-1.0-py3-none-any.whl") as whole:
        assert kept.read_bytes() == whole.read("demo-1.0.dist-info/RECORD")
    assert [path for path in cache.glob("*linked/*") if path.is_dir()] == []
    assert json.loads(elsewhere.sifmod("layers", "--json").ok().stdout)[0]["requirements"] == ["demo"]
    assert "nothing to do" in elsewhere.sifmod(*words).ok().stderr

    assert "Python/3.11: ok\n" in elsewhere.sifmod("verify").ok().stdout
    shutil.rmtree(elsewhere.live() / "tree", ignore_errors=True)
    if (packed := elsewhere.live() / "layer.squashfs").exists():
        packed.chmod(0o644)
        packed.write_bytes(packed.read_bytes()[:-1])
    assert f"`sifmod layer sync {NAME} {elsewhere.live().resolve()}/pylock.toml" in elsewhere.sifmod("verify").stderr
    elsewhere.sifmod(*words).ok()
    assert content(machine.live()) == content(elsewhere.live())
    elsewhere.sifmod("remove", NAME, "--all").ok()
    changes = json.loads(elsewhere.sifmod("log", NAME, "--json").ok().stdout)
    told = [(one["what"], one["layer"], one["before"], one["generation"]) for one in changes if one["layer"]]
    assert told == [("made", "default", None, 1), ("made", "default", 1, 2), ("removed", "default", 2, None)]

    (elsewhere.wheels / "helper-2.5-py3-none-any.whl").write_bytes(b"another")
    again = elsewhere.sifmod(*words, "--layer", "other", env={"UV_CACHE_DIR": str(shared_tmp / "empty")})
    assert again.code == 18
    assert not (elsewhere.prefix / "layers" / NAME / "other").exists()


def test_a_project_that_is_being_edited(machine: Machine) -> None:
    project = machine.top / "home" / "project"
    (project / "edited").mkdir(parents=True)
    (project / "edited" / "__init__.py").write_text("VALUE = 1\n")
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "edited"\nversion = "0.1"\n'
    )
    (project / "backend.py").write_text(BACKEND)
    env = {"HOME": str(project.parent)}
    machine.add("-e", str(project), env=env).ok()
    code = "import edited; print(edited.VALUE)"
    assert machine.python(code, env=env).ok().stdout == "1\n"
    (project / "edited" / "__init__.py").write_text("VALUE = 2\n")
    assert machine.python(code, env=env).ok().stdout == "2\n"

    (project / "backend.py").write_text("def build_editable(*_):\n    open('/none/x86_64-linux-gnu-gcc')\n")
    before = machine.listing()
    failed = machine.add("-e", str(project), "--layer", "other", env=env)
    assert failed.code == 18
    assert "hint: the image has no compiler" in failed.stderr
    assert machine.listing() == before


def test_a_layer_of_another_image_is_not_used_and_that_is_said(
    machine: Machine, images: Images, lmod: ModuleTool
) -> None:
    machine.add("demo").ok()
    machine.install(images.pytorch_sif, "--link", "reference")
    assert "No module named 'demo'" in machine.python("import demo").stderr
    (row,) = json.loads(machine.sifmod("layers", "--json").ok().stdout)
    assert row["state"] == "stale"
    loaded = lmod.run("module load Python", machine.prefix / "modules", env=machine.env())
    assert "the layer default was made for another image, and is not used" in loaded.stderr
    machine.add("--onto", NAME).ok()
    assert machine.python("import demo; print(demo.__version__)").ok().stdout == "1.0\n"


def test_a_module_of_somebody_else_and_a_layer_of_a_project(
    machine: Machine, ordinary_user: OrdinaryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, project = ordinary_user.home, machine.top / "project"
    env = {**ordinary_user.environment(), "MODULEPATH": f"{machine.prefix}/modules", "UV_CACHE_DIR": f"{home}/uv"}
    wheel(machine.wheels, "ours")

    def add(*words: str) -> int:
        return sifmod(["add", NAME, *words, "--no-index", "--find-links", str(machine.wheels)])

    def add_as_user() -> int:
        os.environ.clear()
        os.environ |= env
        os.chdir(home)
        return add("demo")

    def python(code: str, more: dict[str, str] | None = None) -> Result:
        return ordinary_user.run((machine.commands / "python", "-c", code), env={**env, **(more or {})})

    for name, value in machine.env().items():
        monkeypatch.setenv(name, value)
    assert add("ours", "--dir", str(project)) == 0  # and all of Python is read that the user may be unable to read
    assert call_as(ordinary_user.user, add_as_user) == 0
    assert (home / ".local/share/sifmod/layers" / NAME).is_dir() == (os.geteuid() == 0)  # else the module is the user's
    shown, others = "import demo; print(demo.__version__)", "import ours; print(ours.__version__)"
    assert python(shown).ok().stdout == "1.0\n"
    if os.geteuid() == 0:
        assert "No module named 'demo'" in machine.python(shown).stderr
    shared = {"SIFMOD_LAYERS": str(project)}
    assert python(others, shared).ok().stdout == "1.0\n"
    project.chmod(0)
    if os.geteuid() == 0:
        assert "which SIFMOD_LAYERS names, is closed to you" in python(others, shared).stderr
        assert "No module named 'ours'" in python(others).stderr


def test_what_others_have_changed_in_the_prefix_is_named(machine: Machine) -> None:
    """A link in the place of all layers, which `add` followed, and a Python that is gone or cannot be started."""
    elsewhere, layers, python = machine.top / "elsewhere", machine.prefix / "layers", machine.commands / "python"
    elsewhere.mkdir()
    layers.symlink_to(elsewhere)
    told = machine.add("demo")
    assert (told.code, list(elsewhere.iterdir())) == (18, [])
    assert f"{layers} is a symlink, which sifmod does not follow" in told.stderr
    assert "SIFMOD_LAYERS name a place on another disk" in told.stderr
    layers.unlink()
    before = machine.listing()
    python.chmod(0o444)
    for told in (machine.add("demo"), machine.sifmod("jupyter", NAME)):
        assert told.code == 24
        assert f"bin/python of {NAME} was changed or removed" in told.stderr
        assert "Python-3.11.yaml` restores it" in told.stderr
    assert set(machine.listing()) - set(before) <= {str(layers), str(layers / ".staging")}
    machine.install(machine.top / "none.sif", "--module-only").ok()
    assert machine.commands.joinpath("python").stat().st_mode & 0o111


def test_a_killed_change_leaves_the_old_layer_or_the_new_one(machine: Machine) -> None:
    """Some random instants; tests/fuzz/layer_kills.py takes as many as one likes."""
    old_or_new(machine, 6, seed=20261122)


def test_the_layers_of_a_stack_are_locked_and_brought_along(machine: Machine) -> None:
    """To another tree by --from, and by a bundle: the same bytes, without an index; a damaged one is refused."""
    stack, syntax = machine.top / "stack.yaml", ("--module-syntax", "both")
    machine.add("demo").ok()
    machine.sifmod("stack", "init", str(stack)).ok()
    machine.sifmod("stack", "lock", str(stack), *syntax).ok()
    (locked,) = json.loads(stack.with_suffix(".lock").read_text())["modules"]
    assert list(locked["layers"]) == ["default"]
    machine.sifmod("stack", "bundle", str(stack), "-o", "it.tar", "--no-wheels", *syntax).ok()
    apply = ("stack", "apply", "--skip-sanity-check", "--offline", *syntax, "--prefix")
    first, second, third = (machine.top / name for name in ("first", "second", "third"))
    machine.sifmod(*apply, str(first), str(stack), "--locked", "--from", str(machine.prefix)).ok()
    machine.sifmod(*apply, str(second), "--bundle", "it.tar").ok()
    made = [next(tree.glob("layers/Python/*/default/*/1/layer.squashfs")) for tree in (first, second)]
    assert {path.read_bytes() == (machine.live() / "layer.squashfs").read_bytes() for path in made} == {True}
    command = (second / f"software/{NAME}/bin/python", "-c", "import demo; print(demo.__version__)")
    assert run(command, env={**machine.env(), "SIFMOD_PREFIX": str(second)}).ok().stdout == "1.0\n"
    data = made[0].read_bytes()
    made[0].unlink()
    made[0].write_bytes(data[:-1])
    refused = machine.sifmod(*apply, str(third), str(stack), "--locked", "--from", str(first))
    assert refused.code == 18
    assert "the layer default of Python/3.11 does not match the lock, and no tree has the locked one" in refused.stderr
