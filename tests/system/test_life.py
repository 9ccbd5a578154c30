"""Default, hidden, deprecated and retired modules in Lmod and Environment Modules, with both vendors' in one tree."""

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from loads import users
from plans import plan, publish
from sifmod.actions.life import update_life
from sifmod.actions.reporter import Reporter
from sifmod.config.load_site import load_site
from sifmod.config.name import ModuleName
from sifmod.tree.layout import Layout
from sifmod.tree.life import Deprecated, Life, NameLife, Retired, today
from support.command import run
from support.module_tool import ModuleTool, Step

TODAY = today()
CUDA, ROCM = "mytool/1.0-cuda-12", "mytool/1.0-rocm-6"
SAYS = "mytool/0.9 is deprecated"
LIFE = NameLife(
    "1.0-cuda-12",
    {
        "0.9": Life(deprecated=Deprecated(TODAY, TODAY + timedelta(days=30), f"use {CUDA}")),
        "0.8": Life(hidden=True),
        "0.7": Life(retired=Retired(TODAY, CUDA, 'it was {old} [exit] $HOME "x"')),
        "0.6": Life(deprecated=Deprecated(TODAY - timedelta(days=9), TODAY - timedelta(days=1), f"use {ROCM}")),
        "0.5": Life(retired=Retired(TODAY + timedelta(days=9), CUDA)),
    },
)
VERSIONS = ("1.0-cuda-12", "1.0-rocm-6", "0.9", "0.8", "0.7", "0.6", "0.5")
LISTED = {CUDA, ROCM, "mytool/0.9"}


def decide(layout: Layout, life: NameLife) -> None:
    update_life(layout, "mytool", lambda _: life, load_site({}, os.environ).site, Reporter(print))


def made(layout: Layout) -> Layout:
    for version in VERSIONS:
        module = ModuleName("mytool", version)
        publish(plan(prefix=str(layout.prefix), module=module, version=version, binds=(), warn_without_version=True))
    return layout


@pytest.fixture
def layout(shared_tmp: Path) -> Layout:
    return made(Layout(shared_tmp / "prefix"))


@pytest.fixture
def decided(layout: Layout) -> Layout:
    decide(layout, LIFE)
    return layout


def said(step: Step) -> str:
    return " ".join((step.stdout + step.stderr).split())


def on_terminal(tool: ModuleTool, layout: Layout, *steps: str) -> str:
    """What a bash says on a terminal, as one line."""
    script = layout.prefix.parent / "session"
    pagers = "export LMOD_PAGER=none MODULES_PAGER="
    script.write_text("\n".join((tool.initialise, pagers, *steps)))
    words = f"/bin/bash --norc '{script}' '{layout.modules}'"
    done = run(("script", "-qec", words, "/dev/null"), env=tool.clean_environment(), cwd=layout.prefix.parent)
    return " ".join(done.stdout.split())


def loaded(step: Step) -> Sequence[str]:
    return [name for name in step.environment.get("LOADEDMODULES", "").split(":") if name]


def test_what_is_listed_and_what_loads(module_tool: ModuleTool, decided: Layout) -> None:
    spider = "module -t spider mytool 2>&1" if module_tool.name == "lmod" else "module -t avail mytool 2>&1"
    steps: tuple[str, ...] = (
        "module -t avail 2>&1",
        spider,
        "module load mytool",
        f"module load {ROCM}",
        "module purge",
    )
    steps += ("module load mytool/0.8", "module purge", "module load mytool/0.5", "module purge")
    steps += ("module load mytool/0.9", "module purge")
    avail, spider_, default, _, _, hidden, _, later, _, deprecated, _ = module_tool.session(steps, decided.modules)
    for listed in (avail, spider_):
        names = {word.replace("(default)", "") for word in said(listed).split() if word.startswith("mytool/")}
        assert names - {"mytool/"} == LISTED
    assert [loaded(step) for step in (default, hidden, later, deprecated)] == [
        [CUDA], ["mytool/0.8"], ["mytool/0.5"], ["mytool/0.9"],
    ]  # fmt: skip
    # a batch job's output is no terminal
    assert (default.stderr, deprecated.stderr) == ("", "")


def test_a_retired_module_is_refused_with_its_successor(module_tool: ModuleTool, decided: Layout) -> None:
    steps = ("true", "module load mytool/0.7", "module load mytool/0.6")
    before, retired, ended = module_tool.session(steps, decided.modules)
    assert (retired.code, ended.code) == (1, 1)
    assert f'mytool/0.7 was retired on {TODAY}: use {CUDA}; it was {{old}} [exit] $HOME "x"' in said(retired)
    assert f"mytool/0.6 was retired on {TODAY}: use {ROCM}" in said(ended)
    assert users(ended) == users(before)


def test_without_a_modulerc_the_modulefile_refuses(module_tool: ModuleTool, decided: Layout) -> None:
    for file in decided.modules.glob("*/.modulerc*"):
        file.write_text("" if file.suffix == ".lua" else "#%Module1.0\n")
    before, retired = module_tool.session(("true", "module load mytool/0.7"), decided.modules)
    assert retired.code == 1
    assert f"mytool/0.7 was retired on {TODAY}: use {CUDA}; it was {{old}} [exit]" in said(retired)
    assert users(retired) == users(before)


def test_what_is_loaded_when_it_retires_goes_on_and_unloads(module_tool: ModuleTool, layout: Layout) -> None:
    """The shell waits between its steps, as one that was opened before."""
    go, gone = layout.prefix.parent / "go", layout.prefix.parent / "gone"
    os.mkfifo(go)
    os.mkfifo(gone)
    steps: tuple[str, ...] = ("true", "module load mytool/0.7", f"echo >'{gone}'; read -r _ <'{go}'")
    steps += ('cat "$SIF"; "$EBROOTMYTOOL/bin/python" --help', "module list", "module unload mytool/0.7")
    if (child := os.fork()) == 0:
        gone.read_text()
        decide(layout, LIFE)
        go.write_text("\n")
        os._exit(0)
    before, load, _, works, listed, unloaded = module_tool.session(steps, layout.modules)
    assert os.waitpid(child, 0)[1] == 0
    assert loaded(load) == ["mytool/0.7"]
    assert "No such file" not in works.stderr
    assert "mytool/0.7" in said(listed)
    assert (unloaded.code, unloaded.stderr) == (0, "")
    assert users(unloaded) == users(before)


def test_a_terminal_is_told_once(module_tool: ModuleTool, decided: Layout) -> None:
    last = TODAY + timedelta(days=30)
    shown = on_terminal(module_tool, decided, "module load mytool/0.9", "module list", "module purge", "echo end")
    assert shown.count(f"{SAYS} and loads until {last}: use {CUDA}") == 1
    assert "the default" not in shown
    told = on_terminal(module_tool, decided, "module load mytool", "module purge", f"module load {CUDA}")
    assert told.count(f"loaded {CUDA}, the default; name the version in job scripts") == 1
    later = NameLife(None, {"0.9": Life(deprecated=Deprecated(TODAY + timedelta(days=1)))})
    decide(decided, later)
    assert SAYS not in on_terminal(module_tool, decided, "module load mytool/0.9")


def test_a_hand_written_modulerc_counts(module_tool: ModuleTool, layout: Layout) -> None:
    """And what it does not say, the modulefile does."""
    directory = layout.modules / "mytool"
    (directory / ".modulerc.lua").write_text(f'module_version("{ROCM}", "default")\n')
    (directory / ".modulerc").write_text(f"#%Module1.0\nmodule-version {ROCM} default\n")
    decide(layout, LIFE)
    load, _, retired = module_tool.session(
        ("module load mytool", "module purge", "module load mytool/0.7"), layout.modules
    )
    assert loaded(load) == [ROCM]
    assert retired.code == 1


def test_lmod_reads_the_tcl_modulefiles_of_a_tree_too(lmod: ModuleTool, decided: Layout) -> None:
    for file in decided.modules.glob("mytool/*.lua"):
        file.unlink()
    avail, load, retired = lmod.session(
        ("module -t avail 2>&1", f"module load {ROCM}", "module load mytool/0.7"), decided.modules
    )
    assert ROCM in said(avail)
    assert loaded(load) == [ROCM]
    assert "mytool/0.7 was retired on" in said(retired)
    assert SAYS in on_terminal(lmod, decided, "module load mytool/0.9")


def test_in_a_prefix_that_lmod_cannot_spell_it_reads_its_own_file_alone(lmod: ModuleTool, shared_tmp: Path) -> None:
    layout = made(Layout(shared_tmp / "pre fix"))
    decide(layout, LIFE)
    load, retired = lmod.session(("module load mytool", "module load mytool/0.7"), layout.modules)
    assert loaded(load) == [CUDA]
    assert "mytool/0.7 was retired on" in said(retired)
