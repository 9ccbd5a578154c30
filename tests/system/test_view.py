"""Views with real module systems and a real image: what a load brings, what the wrappers see, what an unload leaves."""

import json
from datetime import date
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from loads import users
from sifmod.cli.main import run
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import installations
from support.answer import answer
from support.config import write
from support.disk_state import disk_state
from support.images import Images
from support.module_tool import ModuleTool

VIEW = """
name: ai-stack
version: '2026'
description: What the course needs
modules: [Tiny/1, Note]
binds: [{{source: {0}, target: /data}}, {{source: {0}, target: /usual}}]
env: {{COLOUR: green, COURSE: a 'b'}}
host_env: {{COURSE_HOST: '1'}}
default_env: {{MINE: default, THEIRS: default}}
path: [/data/bin]
"""
LOADED = "module is-loaded {} && echo yes || echo no"


@pytest.fixture
def prefix(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with two modules and a view of both."""
    image = f"image: {{sources: ['{images.tiny_sif}']}}"
    data = tmp_path / "da ta"
    write(data / "x", "of the course\n")
    own = "wrappers: [{cat: cat}, printenv: env]\nbinds: [{source: /usr, target: /usual}]\nenv: {COLOUR: blue}"
    write(tmp_path / "Tiny-1.0.yaml", f"name: Tiny\nversion: '1.0'\n{image}\n{own}\n")
    write(tmp_path / "Note-2.yaml", f"name: Note\nversion: '2'\n{image}\nwrappers: [cat]\n")
    write(tmp_path / "ai-stack-2026.yaml", VIEW.format(data))
    for name, value in {"PREFIX": tmp_path / "a prefix", "ROBOT_PATHS": tmp_path, "MODULE_SYNTAX": "both"}.items():
        monkeypatch.setenv(f"SIFMOD_{name}", str(value))
    monkeypatch.setenv("SIFMOD_LINK", "reference")
    monkeypatch.delenv("MODULEPATH", raising=False)
    assert run(["install", "--skip-sanity-check", "Tiny-1.0", "Note-2", "ai-stack-2026"]) == 0
    return tmp_path / "a prefix"


def test_a_load_brings_the_modules_and_an_unload_takes_them_away(module_tool: ModuleTool, prefix: Path) -> None:
    steps = ("module load ai-stack/2026", "printenv; echo; cat /data/x; cat /usual/x", "module unload ai-stack")
    before, loaded, told, after = module_tool.session(("true", *steps), prefix / "modules", {"MINE": "mine"})
    assert [step.code for step in (before, loaded, told, after)] == [0, 0, 0, 0]
    inside, _, files = told.stdout.partition("\n\n")
    assert {"COLOUR=green", "COURSE=a 'b'"} <= set(inside.splitlines())  # Tiny's own wrapper, with what the view says
    assert files == "of the course\n" * 2  # its binds too, where a module has another for the same place
    found = loaded.environment
    root = {name: f"{prefix}/software/{name}/.generations" for name in ("Tiny", "Note", "ai-stack")}
    assert found["PATH"].startswith(f"{root['Note']}/2/1/bin:{root['Tiny']}/1.0/1/bin:")  # the last one first
    assert (found["SIF"], found["EBROOTAIMINSTACK"]) == (f"{root['Note']}/2/1/Note-2.sif", f"{root['ai-stack']}/2026/1")
    assert [found[name] for name in ("COURSE_HOST", "MINE", "THEIRS")] == ["1", "mine", "default"]
    assert users(after) == users(before)


def test_what_the_user_had_loaded_stays(module_tool: ModuleTool, prefix: Path) -> None:
    steps = ("module load Tiny/1.0", "module load ai-stack", "module unload ai-stack", *map(LOADED.format, MODULES))
    first, view, *rest = module_tool.session(steps, prefix / "modules")
    assert (first.code, view.code) == (0, 0)
    assert users(rest[0]) == users(first)
    assert [step.stdout for step in rest[1:]] == ["yes\n", "no\n", "no\n"]


MODULES = ("Tiny", "Note", "ai-stack")


def test_it_goes_the_way_of_every_module(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(*words: str) -> str:
        capsys.readouterr()
        assert run(list(words)) == 0, words
        return "".join(capsys.readouterr())

    assert "already installed" in told("install", "ai-stack-2026")
    assert "loads        Tiny/1\n" in told("install", "--dry-run", "ai-stack-2026")
    assert "ai-stack/2026  view " in told("list")
    assert "loads         Tiny/1 Note\n" in told("show", "ai-stack/2026")
    assert "  loads Tiny/1, Note\n" in told("search", "ai-stack")
    assert told("verify", "ai-stack") == "ai-stack/2026: ok\n"
    assert "0 of 3 installed modules change" in told("install", "--module-only", "--installed", "--dry-run")
    assert "ai-stack/2026 loads it and can no longer be loaded" in told("uninstall", "Note/2")
    assert "loads it" not in told("uninstall", "ai-stack")
    assert "generation 1" in told("rollback", "ai-stack/2026")
    told("gc", "--now", "--yes")
    assert {str(one.module): one.modules for one in installations(Layout(prefix))} == {
        "Tiny/1.0": (),
        "ai-stack/2026": ("Tiny/1", "Note"),
    }
    there = disk_state(prefix)
    fetch = ["install", "--fetch", "ai-stack-2026"]
    for words in (["jobscript", "ai-stack"], ["add", "ai-stack", "x"], fetch):
        assert run(words) == 24
        assert "name a module that it loads: Tiny/1, Note" in capsys.readouterr().err
        assert disk_state(prefix) == there


def test_what_is_in_it_and_what_changed(prefix: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its bill of materials has what it loads, a view that it loads among that; its diff what it says itself."""
    (prefix.parent / "outer-1.yaml").write_text("name: outer\nversion: '1'\nmodules: [ai-stack, Tiny]\n")
    assert run(["install", "-q", "outer-1"]) == 0
    found = answer(capfd, ("sbom", "outer"))
    assert (found["module"], found["sha256"], found["notes"]) == ("outer/1", None, [])
    made = json.loads(found["text"])
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(found["text"]) is None
    assert (made["metadata"]["component"]["name"], made["metadata"]["component"]["version"]) == ("outer", "1")
    one, other = installations(Layout(prefix))[:2]
    assert {(each["name"], each["version"], each["hashes"][0]["content"]) for each in made["components"]} == {
        *((each.module.name, each.module.version, each.image_sha256) for each in (one, other))
    }
    easyconfig = prefix.parent / "ai-stack-2026.yaml"
    text = easyconfig.read_text().replace("[Tiny/1, Note]", "[Tiny/1.0]").replace("green", "red")
    easyconfig.write_text(
        text.replace("target: /data", "target: /other").replace("COURSE_HOST: '1'", "COURSE_HOST: '2'")
    )
    assert run(["install", "-q", "ai-stack-2026"]) == 0
    easyconfig.unlink()  # each generation has its own copy
    found = answer(capfd, ("diff", "ai-stack"))
    assert found["notes"] == found["packages"] == found["commands"] == []
    changed = {
        part: {one["name"]: (one["old"], one["new"]) for one in found[part]}
        for part in ("loaded_modules", "variables", "variables_inside", "binds")
    }
    source = f"{prefix.parent}/da ta"
    assert changed == {
        "loaded_modules": {"Tiny": ("1", "1.0"), "Note": ("Note", None)},
        "variables": {"COURSE_HOST": ("1", "2")},
        "variables_inside": {"COLOUR": ("green", "red")},
        "binds": {"/data": (f"{source}:/data", None), "/other": (None, f"{source}:/other")},
    }
    assert run(["diff", "ai-stack"]) == 0
    assert "modules: 1 removed, 1 changed\n  - Note\n  ~ Tiny 1 → 1.0\n" in capfd.readouterr().out


@pytest.mark.usefixtures("prefix")
def test_a_stack_and_its_lock_have_views_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = "".join(f"  - easyconfig: {name}.yaml\n" for name in ("ai-stack-2026", "Tiny-1.0", "Note-2"))
    stack = str(write(tmp_path / "stack.yaml", f"name: course\neasyconfigs:\n{names}"))
    skip = "--skip-sanity-check"
    assert run(["stack", "apply", stack, skip]) == run(["stack", "lock", stack]) == 0
    for other, *options in (("one", skip), ("two", skip, "--locked")):
        monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / other))
        assert run(["stack", "apply", stack, *options]) == 0  # the view comes last, though it is named first
        made = {str(one.module): one.modules for one in installations(Layout(tmp_path / other))}
        assert made["ai-stack/2026"] == ("Tiny/1", "Note")
    assert run(["stack", "outdated", stack]) == 0


def test_a_stack_names_what_its_views_do_not_load(
    prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """ "2 of 2 modules match" and nothing else, for a view that nobody could load."""
    names = ", ".join(f"{name}.yaml" for name in ("ai-stack-2026", "Tiny-1.0", "Note-2"))
    apply = ["stack", "apply", str(write(tmp_path / "stack.yaml", f"name: course\neasyconfigs: [{names}]\n"))]
    assert run([*apply, "--skip-sanity-check"]) == 0
    assert "warning: " not in capfd.readouterr().err
    assert run(["retire", "Note/2"]) == 0
    for words in (apply, [*apply, "--only", "ai-stack/2026"]):
        capfd.readouterr()
        assert run([*words, "--skip-sanity-check"]) == 0
        said = "ai-stack/2026 cannot be loaded: it loads Note, but finds only retired or hidden modules"
        assert f"warning: {said}\n" in capfd.readouterr().err
    assert run(["verify", "ai-stack/2026", "--prefix", str(prefix)]) == 1


def test_modules_that_are_not_there(prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["uninstall", "Note/2", "ai-stack"]) == 0
    parts = [prefix / name for name in ("software", "modules", "log")]
    write(tmp_path / "Other-1.yaml", "name: Other\nversion: '1'\nmodules: [Tiny/3, Note, Nowhere/1]\n")
    there = disk_state(*parts)
    capsys.readouterr()
    assert run(["install", "Other-1"]) == 24
    told = capsys.readouterr().err
    assert "Other/1 cannot be installed: Tiny/3 is not installed (Tiny/1.0 is); Note is not installed\n" in told
    assert "hint: sifmod install Note-2\n" in told
    assert disk_state(*parts) == there
    write(tmp_path / "modules" / "Tiny" / "3.lua", "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MODULEPATH", f"/nowhere:{tmp_path / 'modules'}")
        write(tmp_path / "Other-1.yaml", "name: Other\nversion: '1'\nmodules: [Tiny/3, Nowhere/1]\n")
        assert run(["install", "Other-1"]) == 0
    told = capsys.readouterr().err
    assert f"warning: Nowhere/1, which Other/1 loads, is not in {prefix} or on MODULEPATH" in told
    assert "Tiny/3" not in told


@pytest.mark.usefixtures("prefix")
def test_a_module_that_was_retired_and_removed_is_not_only_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`Tiny/1.0 is not installed (Tiny/2 is)` did not say that this is no accident."""
    two = (tmp_path / "Tiny-1.0.yaml").read_text().replace("1.0", "2")
    write(tmp_path / "Tiny-2.yaml", two)
    assert run(["install", "Tiny-2.yaml", "--skip-sanity-check"]) == 0
    assert run(["uninstall", "ai-stack"]) == 0
    assert run(["retire", "Tiny/1.0", "--successor", "Tiny/2"]) == run(["gc", "--yes", "--now"]) == 0
    (tmp_path / "Tiny-1.0.yaml").unlink()
    write(tmp_path / "Other-1.yaml", "name: Other\nversion: '1'\nmodules: [Tiny/1.0]\n")
    capsys.readouterr()
    assert run(["install", "Other-1.yaml"]) == 24
    said = f"Tiny/1.0 is not installed (Tiny/2 is); Tiny/1.0 was retired on {date.today()}: use Tiny/2"
    assert f"error: Other/1 cannot be installed: {said}\n" in capsys.readouterr().err


def test_verify_reports_what_a_view_no_longer_loads(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Modules of its own tree, and of another one, whose publisher knows nothing of the view; also through a view."""

    def lost(view: str, of: str = "own") -> list[str]:
        capsys.readouterr()
        code = run(["verify", view, "--prefix", str(tmp_path / of)])
        told = [line.strip() for line in capsys.readouterr().out.splitlines()[1:]]
        assert code == bool(told)
        return told

    write(tmp_path / "outer-1.yaml", "name: outer\nversion: '1'\nmodules: [ai-stack, Foreign/3, Tiny]\n")
    monkeypatch.setenv("SIFMOD_TREES", str(prefix))
    assert run(["install", "-q", "outer-1", "--prefix", str(tmp_path / "own")]) == 0
    at = f"missing: {tmp_path}/own/software/outer/1: expected"
    assert lost("outer") == lost("ai-stack", prefix.name) == []
    assert run(["hide", "Note/2"]) == 0
    assert lost("outer") == [f"{at} Note, which it loads, found only retired or hidden modules"]
    assert run(["hide", "Note/2", "--undo"]) == run(["retire", "Tiny/1.0", "--message", "old"]) == 0
    retired = [f"{at} {name}, which it loads, found only retired or hidden modules" for name in ("Tiny", "Tiny/1")]
    assert lost("outer") == retired
    assert len(lost("ai-stack", prefix.name)) == 1
    assert run(["retire", "Tiny/1.0", "--undo"]) == 0
    assert lost("outer") == []
    assert run(["uninstall", "--purge", "--ignore-jobs", "Note/2"]) == 0
    nothing = f"found nothing in {tmp_path / 'own'}, {prefix} or on MODULEPATH"
    assert lost("outer") == [f"{at} Note, which it loads, {nothing}"]
    assert len(lost("ai-stack", prefix.name)) == 1
    monkeypatch.setenv("MODULEPATH", str(tmp_path / "modules"))
    write(tmp_path / "modules/Note/3.lua", "")
    assert lost("outer") == lost("ai-stack", prefix.name) == []
    prefix.rename(tmp_path / "away")
    assert len(lost("outer")) == 3
