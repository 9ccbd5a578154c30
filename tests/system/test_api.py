"""`sifmod.api`: each call against real files, and its page: what it names, promises and shows."""

import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FunctionType

import pytest

from sifmod import api
from sifmod.errors import EasyconfigNotFoundError, HeldError, ModuleError
from sifmod.tree.layout import Layout
from sifmod.tree.log import read_log
from support.config import write
from support.disk_state import disk_state
from support.images import Images
from support.layered import NAME, Machine, make_machine

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
TINY = "name: Tiny\nversion: '1.0'\nimage: {{sources: ['{}']}}\nwrappers: [sh]\n"


@pytest.fixture
def here(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an easyconfig, its image and a stack of it, from which nothing is installed yet."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.setenv("SIFMOD_CONFIG_DIR", str(tmp_path / "etc"))
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "Tiny-1.0.yaml", TINY.format(images.tiny_sif))
    write(tmp_path / "stack.yaml", "easyconfigs: [Tiny-1.0.yaml, Gone-1.yaml]\n")
    write(tmp_path / "Gone-1.yaml", "name: Gone\nversion: '1'\nimage: {sources: [/no/such.sif]}\n")
    return tmp_path


@pytest.fixture
def machine(shared_tmp: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A module with a Python, in an image that can be started."""
    machine = make_machine(shared_tmp, images)
    for name, value in machine.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(machine.top)
    return machine


def test_an_import_has_no_effect() -> None:
    code = "import sys; sys.argv = None; import sifmod.api"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")


def test_a_module_from_its_plan_to_its_end(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By an option as by the variable; the log says which call it was, and nothing is printed."""
    prefix = here / "prefix"
    assert api.load_site().prefix == api.load_site(api.Where(prefix)).prefix == prefix
    before = disk_state(here)
    preview = api.plan("Tiny-1.0.yaml")
    assert (str(preview.module), preview.mark) == ("Tiny/1.0", " ")
    with pytest.raises(EasyconfigNotFoundError):
        api.plan("Nothing-1.0")
    assert disk_state(here) == before

    said: list[str] = []
    made = api.install("Tiny-1.0.yaml", sanity_check=False, where=api.Where(say=said.append))
    assert (made.state, made.installation.generation, bool(said)) == ("installed", 1, True)
    assert api.install("Tiny-1.0.yaml", sanity_check=False).state == "unchanged"
    assert api.plan(here / "Tiny-1.0.yaml").mark == "x"
    assert api.install("Tiny-1.0.yaml", rebuild=True, sanity_check=False).installation.generation == 2
    assert [(str(one.module), one.generation) for one in api.list_modules("tiny")] == [("Tiny/1.0", 2)]
    assert api.list_modules("tiny", where=api.Where(here / "other")) == ()

    assert api.verify("Tiny") == ()
    launcher = Path(api.list_modules()[0].installation.root, "share/launch.sh")  # type: ignore[union-attr]
    text = launcher.read_bytes()
    launcher.chmod(0o644)
    launcher.write_bytes(text + b"#\n")
    assert [finding.kind for finding in api.verify("Tiny", where=api.Where(str(prefix)))] == ["changed"]
    launcher.write_bytes(text)

    assert api.rollback("Tiny").generation == 1
    write(here / "Tiny-1.0.yaml", (here / "Tiny-1.0.yaml").read_text() + "description: other\n")
    assert api.rollback("Tiny", to=2).generation == 2
    assert api.uninstall("Tiny").generation == 2
    with pytest.raises(ModuleError):
        api.verify("Tiny")
    kept = api.collect_garbage(ask_jobs=False)
    assert (kept.removed, [bool(old.keep) for old in kept.plan.generations]) == (None, [True, True])
    gone = api.collect_garbage(days=0, rollbacks=True, ask_jobs=False, remove=True).removed
    assert gone is not None
    assert ([old.number for old in gone.generations], len(gone.images)) == ([1, 2], 1)
    assert not Layout(prefix).switch(made.installation.module).exists()
    commands = {entry.command for entry in read_log(Layout(prefix), made.installation.module).entries}
    assert "sifmod.api.rollback Tiny" in commands
    assert capfd.readouterr() == ("", "")


def test_what_is_held_is_not_asked_about(here: Path) -> None:
    """No terminal answers here, and a call ends no hold by itself."""
    api.install("Tiny-1.0.yaml", sanity_check=False)
    write(here / "Tiny-1.0.yaml", (here / "Tiny-1.0.yaml").read_text() + "env: {A: '1'}\n")
    assert api.install("Tiny-1.0.yaml", sanity_check=False).installation.generation == 2
    assert api.rollback("Tiny").generation == 1
    before = disk_state(here / "prefix" / "modules")
    with pytest.raises(HeldError):
        api.install("Tiny-1.0.yaml", sanity_check=False)
    assert disk_state(here / "prefix" / "modules") == before
    assert api.list_modules()[0].generation == 1


def test_search_answers_as_the_command(here: Path) -> None:
    write(here / "robot/Tiny-1.0.yaml", (here / "Tiny-1.0.yaml").read_text())
    write(here / "etc/own.yaml", f"robot_paths: [{here}/robot]\n")
    (found,) = api.search("tiny").found
    assert (found.path, [one.module for one in found.variants]) == (here / "robot/Tiny-1.0.yaml", ["Tiny/1.0"])
    assert api.search("no-such-thing").found == ()


def test_a_stack(here: Path) -> None:
    """One module is installed, and the other fails without an exception."""
    before = disk_state(here)
    steps = api.plan_stack("stack.yaml").plan.steps
    assert [(str(step), step.mark) for step in steps] == [("Tiny/1.0", " "), ("Gone/1", " ")]
    assert disk_state(here) == before
    outcome = api.apply_stack(here / "stack.yaml", sanity_check=False)
    assert {number: (one.generation, one.changed) for number, one in outcome.outcomes.items()} == {0: (1, True)}
    assert {number: error.exit_code for number, error in outcome.failed.items()} == {1: 10}
    assert api.apply_stack("stack.yaml", only=("Tiny",), sanity_check=False).outcomes == {}
    assert [step.mark for step in api.plan_stack("stack.yaml").plan.steps] == ["x", " "]


def test_packages_are_added(machine: Machine) -> None:
    outcome = api.add_packages("Python", "demo", find_links="wheels")
    assert (str(outcome.module), outcome.what) == (NAME, "made")
    assert machine.python("import demo; print(demo.__version__)").ok().stdout == "1.0\n"
    assert api.add_packages("Python", "demo", find_links="wheels").what == "unchanged"


def test_the_page_names_what_the_module_exports() -> None:
    calls = {name for name in api.__all__ if isinstance(getattr(api, name), FunctionType)}
    assert len(calls) == 12
    assert set(re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE)) == calls
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE)
    assert {name for name, _, _ in rows} | calls | {"SifmodError", "Where"} == set(api.__all__)
    assert {call for _, call, _ in rows} == calls
    for name, call, promised in rows:
        value = getattr(api, name)
        outer = re.sub(r"\([^)]*\)", "", promised)
        for field in re.findall(r"`(\w+)`", outer):
            known = {one.name for one in fields(value)} if is_dataclass(value) else set(value._fields)
            assert field in known | set(vars(value)), f"{name} has no {field}"
        given = str(getattr(api, call).__annotations__["return"])
        assert name in given, f"{call} gives {given}"


def test_the_examples_of_the_page_run(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    """In their order; before the last ones there is an earlier generation to go back to."""
    write(machine.top / "stack.yaml", "easyconfigs: [Python-3.11.yaml]\n")
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 14  # the import, one for each call, and an error
    api.install("Python-3.11.yaml", rebuild=True, sanity_check=False)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/api.md", "exec"), names)
    out = capfd.readouterr().out
    for line in (
        "Python/3.11 x",
        "unchanged Python/3.11 2",
        "x Python/3.11 () None",
        "Python/3.11 2 ()",
        "\nok\n1\n1\n",
    ):
        assert line in out
