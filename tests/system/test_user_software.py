"""What a user adds to a module, at /user-software inside: bound at the load, and by each wrapper as it is then."""

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from loads import unloads, users, visited
from plans import publish
from sifmod.cli.main import run as sifmod
from sifmod.config.name import ModuleName
from sifmod.module.plan import Activation, Wrapper
from support.command import run
from support.generation import find, make_generation
from support.images import Images
from support.module_tool import ModuleTool, Step
from support.runtime import RUNTIME
from support.user_software import Place
from support.wrappers import Somebody, tiny_plan

pytest_plugins = ("support.wrapper_fixtures",)

LOOK = "cat /user-software/file 2>/dev/null || echo nothing"
LOADED = "module load PyTorch/2.2.0-rocm-5.6.1"
UNLOADED = "module unload PyTorch/2.2.0-rocm-5.6.1"


@pytest.fixture
def module(shared_tmp: Path, tiny: Path) -> Path:
    return make_generation(tiny_plan(shared_tmp / "pre fix", user_software=True), tiny)


@pytest.fixture
def place(module: Path, shared_tmp: Path) -> Iterator[Place]:
    yield Place(module, shared_tmp / "the user's")


def bound(step: Step) -> str:
    """The last bind of a load, which is the user's software where there is any."""
    return step.environment["SINGULARITY_BINDPATH"].replace(",image", "+image").split(",")[-1].replace("+", ",")


def test_the_load_binds_what_is_there(
    module_tool: ModuleTool, shared_tmp: Path, module: Path, place: Place, tmp_path: Path
) -> None:
    """A squashfs, else a directory, else nothing; what was bound is gone after the unload, whatever is there then."""
    root = os.path.realpath(module)
    modules = shared_tmp / "pre fix" / "modules"

    def load() -> Step:
        return unloads(module_tool, modules, LOADED, UNLOADED, env={"SINGULARITY_BINDPATH": "/mine:/mine"})[1]

    assert bound(load()) == f"{root}/runscripts:/runscripts:ro"
    place.fill_directory()
    assert bound(load()) == f"{root}/user-software:/user-software"
    place.fill_squashfs(tmp_path)
    loaded = load()
    assert bound(loaded) == f"{root}/user-software.squashfs:/user-software:ro,image-src=/"
    for prefix in RUNTIME.prefixes:
        assert loaded.environment[f"{prefix}_BINDPATH"] == loaded.environment["SINGULARITY_BINDPATH"]
    assert loaded.environment["SINGULARITY_BINDPATH"].startswith("/mine:/mine,")


def test_what_appears_after_the_load_changes_no_unload(module_tool: ModuleTool, shared_tmp: Path, place: Place) -> None:
    modules = shared_tmp / "pre fix" / "modules"
    made = f"mkdir {shlex.quote(str(place.directory))}"
    done = unloads(module_tool, modules, LOADED, made, UNLOADED)
    assert "/user-software" not in done[1].environment["SINGULARITY_BINDPATH"]
    done = unloads(module_tool, modules, LOADED, made.replace("mkdir", "rmdir"), UNLOADED)
    assert bound(done[1]).endswith("/user-software:/user-software")


def test_show_names_what_a_load_would_bind(module_tool: ModuleTool, shared_tmp: Path, place: Place) -> None:
    modules = shared_tmp / "pre fix" / "modules"
    show = LOADED.replace("load", "show")
    assert "user-software:/user-software" not in _said(module_tool, modules, show)
    place.fill_directory()
    assert "user-software:/user-software" in _said(module_tool, modules, show)


def _said(module_tool: ModuleTool, modules: Path, command: str) -> str:
    step = module_tool.run(command, modules)
    step.ok()
    return step.stdout + step.stderr


def test_a_wrapper_finds_it_without_a_reload(
    somebody: Somebody, module: Path, place: Place, shared_tmp: Path, tmp_path: Path, module_tool: ModuleTool
) -> None:
    """Loaded in each state, and not loaded at all: what counts is what is there when the command starts."""
    look = (module / "bin" / "in-sh", "-c", LOOK)
    modules = shared_tmp / "pre fix" / "modules"
    states: list[Mapping[str, str]] = [{}]

    def now() -> set[str]:
        states.append({**os.environ, **users(module_tool.run(LOADED, modules))})
        # of an ordinary user the first and the last will do
        tried = (states[0], states[-1]) if somebody.ordinary else states
        results = [somebody.run(look, env) for env in tried]
        assert [(result.code, result.stderr) for result in results] == [(0, "")] * len(tried)
        return {result.stdout for result in results}

    assert now() == {"nothing\n"}
    place.fill_directory()
    assert now() == {"directory\n"}
    if RUNTIME.binds_squashfs:
        place.fill_squashfs(tmp_path)
        place.squashfs.chmod(0o644)
        assert now() == {"squashfs\n"}
        shutil.rmtree(place.directory)
        assert now() == {"squashfs\n"}
        place.squashfs.unlink()
        assert now() == {"nothing\n"}
    else:
        shutil.rmtree(place.directory)
    os.mkfifo(place.squashfs)  # a runtime would wait for its other end
    os.mkfifo(place.directory)
    assert now() == {"nothing\n"}


def test_a_venv_there_goes_over_the_image(shared_tmp: Path, tiny: Path) -> None:
    """Also where it is packed; without one all is as it was."""
    wrappers = (Wrapper("in-sh", ("sh",)), Wrapper("mine", ("mine",)))
    activation = Activation("true", "", users_venv=True)
    wanted = tiny_plan(shared_tmp / "venv", user_software=True, activation=activation, wrappers=wrappers)
    root = make_generation(wanted, tiny)
    place = Place(root, shared_tmp / "the user's venv")
    assert run((root / "bin/in-sh", "-c", 'echo "${VIRTUAL_ENV-none}"')).ok().stdout == "none\n"
    program = place.directory / "venv/of mine/bin/mine"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$VIRTUAL_ENV $1"\n')
    program.chmod(0o755)
    (program.parent / "activate").touch()
    assert run((root / "bin/mine", "a b")).ok().stdout == "/user-software/venv/of mine a b\n"
    if RUNTIME.binds_squashfs:
        run((find("mksquashfs"), place.directory, place.squashfs, "-quiet", "-no-progress")).ok()
        shutil.rmtree(place.directory)
        assert run((root / "bin/mine", "a b")).ok().stdout == "/user-software/venv/of mine a b\n"


def test_a_directory_can_be_written_from_inside(somebody: Somebody, module: Path, place: Place) -> None:
    place.directory.mkdir()
    place.directory.chmod(0o777)
    somebody.run((module / "bin" / "in-sh", "-c", "echo mine >/user-software/new")).ok()
    assert (place.directory / "new").read_text() == "mine\n"


def test_the_users_own_bind_of_the_place_wins(somebody: Somebody, module: Path, place: Place, shared_tmp: Path) -> None:
    place.fill_directory()
    (shared_tmp / "other").mkdir()
    (shared_tmp / "other" / "file").write_text("other\n")
    env = {"APPTAINER_BIND": f"{shared_tmp}/other:/user-software"}
    result = somebody.run((module / "bin" / "in-sh", "-c", LOOK), env)
    assert (result.code, result.stdout, result.stderr) == (0, "other\n", "")


def test_a_module_that_does_not_ask_binds_nothing(module_tool: ModuleTool, shared_tmp: Path, tiny: Path) -> None:
    wanted = tiny_plan(shared_tmp / "without")
    root = make_generation(wanted, tiny)
    Place(root, shared_tmp / "the user's").fill_directory()
    done = unloads(module_tool, shared_tmp / "without" / "modules", LOADED, UNLOADED)
    assert bound(done[1]) == f"{os.path.realpath(root)}/runscripts:/runscripts:ro"
    assert run((root / "bin" / "in-sh", "-c", LOOK)).ok().stdout == "nothing\n"


def test_of_two_modules_the_later_ones_is_bound(module_tool: ModuleTool, tmp_path: Path) -> None:
    """And the earlier one's comes back when the later one goes."""
    prefix = tmp_path / "prefix"
    for name in ("One", "Two"):
        made = publish(tiny_plan(prefix, module=ModuleName(name, "1"), user_software=True))
        Place(made.root, tmp_path / name).fill_directory()
    done = visited(module_tool, prefix / "modules", "module load One/1", "module load Two/1", "module unload Two/1")
    binds = [step.environment["SINGULARITY_BINDPATH"].split(",") for step in done[1:]]
    inside = ".generations/1/1/user-software:/user-software"
    of_one, of_two = (f"{prefix}/software/{name}/{inside}" for name in ("One", "Two"))
    assert [(of_one in bound, of_two in bound) for bound in binds] == [(True, False), (False, True), (True, False)]


@pytest.mark.parametrize("verb", ["exec", "run"])
def test_the_verb_decides_about_the_entrypoint(somebody: Somebody, shared_tmp: Path, images: Images, verb: str) -> None:
    image = Path(shutil.copyfile(images.entrypoint_sif, shared_tmp / "entrypoint.sif"))
    root = make_generation(tiny_plan(shared_tmp / "prefix", verb=verb), image)
    args = ("-c", 'printf "%s." "${ENTERED-no}" "$@"; exit 3', "sh", "a b", "", "$x'\"")
    result = somebody.run((root / "bin" / "in-sh", *args))
    entered = "yes" if verb == "run" else "no"
    assert (result.code, result.stdout, result.stderr) == (3, f"{entered}.a b..$x'\".", "")


def test_help_says_where_it_is(module_tool: ModuleTool, tmp_path: Path) -> None:
    said = {}
    for asked in (True, False):
        made = publish(tiny_plan(tmp_path / str(asked), user_software=asked))
        said[asked] = _said(module_tool, made.modules, LOADED.replace("load", "help"))
    line = "Your own additions: $CONTAINERROOT/user-software, which is /user-software inside; make-squashfs packs it.\n"
    assert line in said[True]
    assert "user-software" not in said[False]


def test_help_teaches_the_verb(module_tool: ModuleTool, tmp_path: Path) -> None:
    python = (Wrapper("python", ("python",)),)
    made = publish(
        tiny_plan(tmp_path / "prefix", verb="run", runscripts=("conda-python-distributed",), wrappers=python)
    )
    said = _said(module_tool, made.modules, LOADED.replace("load", "help"))
    assert f'{RUNTIME.kind} run "$SIF" COMMAND' in said
    assert f'srun {RUNTIME.kind} run "$SIF" conda-python-distributed -u train.py' in said


def test_what_is_added_to_an_installed_module(
    tmp_path: Path, images: Images, module_tool: ModuleTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An install makes the place; a load and a wrapper see the directory, then what make-squashfs packs of it.

    So it is with the module's own SIF, with the site's copy of it, after a reinstall, and nothing is lost after that.
    """
    modules = tmp_path / "prefix" / "modules"
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.setenv("SIFMOD_MODULE_SYNTAX", module_tool.syntax)
    monkeypatch.setenv("SIFMOD_IMAGE_DIRS", str(tmp_path / "central"))
    image = f"{{filename: app.sif, sources: ['{images.tiny_sif}']}}"
    easyconfig = tmp_path / "App-1.yaml"
    easyconfig.write_text(f"name: App\nversion: '1'\nimage: {image}\nuser_software: true\nwrappers: [in-sh: sh]\n")
    look = f"singularity -q exec $SIF sh -c '{LOOK}' && in-sh -c '{LOOK}' && singularity -q exec $SIF cat /etc/variant"

    def seen(*steps: str) -> list[str]:
        users = {name: os.environ[name] for name in RUNTIME.userns if name in os.environ}
        done = unloads(module_tool, modules, "module load App", *steps, look, "module unload App", env=users)
        return done[-2].stdout.split()

    assert sifmod(["install", "-q", str(easyconfig)]) == 0
    assert seen() == ["nothing", "nothing", "tiny"]
    assert seen("echo directory >$CONTAINERROOT/user-software/file") == ["directory", "directory", "tiny"]
    if not RUNTIME.binds_squashfs:  # make-squashfs refuses, see test_singularityce.py
        return
    assert seen("make-squashfs", "echo later >$CONTAINERROOT/user-software/file")[1] == "directory"
    assert seen("rm -r $CONTAINERROOT/user-software/*") == ["directory", "directory", "tiny"]  # as it was packed
    (tmp_path / "central").mkdir()
    shutil.copyfile(images.tiny("central"), tmp_path / "central" / "app.sif")
    (tmp_path / "prefix" / "software" / "App" / "1" / "app.sif").unlink()
    assert seen() == ["directory", "directory", "central"]
    assert sifmod(["install", "-q", "--rebuild", str(easyconfig)]) == 0
    assert seen() == ["directory", "directory", "tiny"]
    assert sifmod(["uninstall", "App/1"]) == 0
    assert sifmod(["install", "-q", str(easyconfig)]) == 0
    assert seen() == ["directory", "directory", "tiny"]
    (tmp_path / "prefix" / "user-software" / "App" / "1" / "user-software.squashfs").unlink()
    assert seen() == ["nothing", "nothing", "tiny"]
