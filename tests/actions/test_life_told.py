"""What the log, the screen and hooks are told of each decision about a module, and of each that is taken back."""

import json
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.tree.layout import Layout
from sifmod.tree.write_life import commands
from support.answer import answer
from support.config import write
from support.disk_state import disk_state
from support.tree import install

OLD, NEW = ModuleName("Tiny", "1.0"), ModuleName("Tiny", "2.0")


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """Two versions, the older one in its third generation."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "tree"))
    layout = Layout(tmp_path / "tree")
    for tag, module in (("a", OLD), ("b", OLD), ("c", OLD), ("d", NEW)):
        install(layout, tag, module, syntaxes=("lua", "tcl"))
    return layout


STEPS: tuple[tuple[str, list[str]], ...] = (
    ("hide Tiny/1.0", ["Tiny/1.0 hidden"]),
    ("hide Tiny/1.0", []),
    ("hide --undo Tiny/1.0", ["Tiny/1.0 shown"]),
    ("deprecate --message x Tiny/1.0", ["Tiny/1.0 deprecated"]),
    ("deprecate --undo Tiny/1.0", ["Tiny/1.0 no longer deprecated"]),
    ("default Tiny/1.0", ["Tiny/1.0 made the default"]),
    ("default Tiny/2.0", ["Tiny/2.0 made the default"]),
    ("default --none Tiny", ["Tiny/2.0 no longer the default"]),
    ("retire --successor Tiny/2.0 Tiny/1.0", ["Tiny/1.0 retired"]),
    ("retire --undo Tiny/1.0", ["Tiny/1.0 no longer retired"]),
    ("hide Tiny/1.0 Tiny/2.0", ["Tiny/1.0 hidden", "Tiny/2.0 hidden"]),
)


@pytest.mark.usefixtures("layout")
def test_each_step_is_told_and_recorded(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = write(tmp_path / "hook", f"#!/bin/sh\ncat >>'{tmp_path}/told'; echo >>'{tmp_path}/told'\n")
    program.chmod(0o755)
    write(
        tmp_path / "etc-sifmod.d/hooks.yaml", f"hooks: {{before_retire: ['{program}'], after_retire: ['{program}']}}\n"
    )
    expected: list[str] = []
    for words, told in STEPS:
        assert run(words.split()) == 0, words
        err = capfd.readouterr().err.splitlines()
        names = [word for word in words.split()[1:] if word in ("Tiny/1.0", "Tiny/2.0")]
        lines = [f"== {one.replace(' ', ': ', 1)}" for one in told] or [f"== {names[-1]}: nothing to change"]
        assert err == lines, words
        expected += told
    logged = answer(capfd, ("log", "Tiny"))
    decided = [one for one in logged if one["what"] != "installed"]
    assert [f"{one['module']} {one['what']}" for one in decided] == expected
    assert {(one["module"], one["before"], one["generation"]) for one in decided} == {
        ("Tiny/1.0", 3, 3), ("Tiny/2.0", 1, 1),
    }  # fmt: skip
    hooks = [json.loads(text) for text in (tmp_path / "told").read_text().split("\n\n") if text.strip()]
    assert [(one["hook"], one["module"]) for one in hooks] == [
        ("before_retire", "Tiny/1.0"),
        ("after_retire", "Tiny/1.0"),
    ]


@pytest.mark.usefixtures("layout")
def test_the_views_that_no_longer_load_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A hidden module is loaded by its full name only, a retired one by none; another version may take its place."""
    for name, loads in (("Any", "Tiny"), ("Begun", "Tiny/1"), ("Full", "Tiny/1.0")):
        view = write(tmp_path / f"{name}-1.yaml", f"name: {name}\nversion: '1'\nmodules: [{loads}]\n")
        assert run(["install", "-q", str(view)]) == 0
    for words, broken in (
        ("hide Tiny/1.0", ["Begun/1"]),
        ("hide Tiny/1.0", []),
        ("hide Tiny/2.0", ["Any/1"]),
        ("hide --undo Tiny/2.0", []),
        ("hide --undo Tiny/1.0", []),
        ("deprecate --since 2020-01-01 --until 2020-02-01 Tiny/1.0", ["Begun/1", "Full/1"]),
        ("retire --since 2099-01-01 Tiny/2.0", ["Any/1"]),
        ("retire --undo Tiny/2.0", []),
        ("uninstall Tiny/2.0", ["Any/1"]),
    ):
        rows = answer(capfd, tuple(words.split()))
        rows = rows["uninstalled"] if words.startswith("uninstall") else rows
        assert [row["views"] for row in rows] == [broken], words
    assert run(["retire", "Tiny/1.0"]) == 0
    assert "== Tiny/1.0: Full/1 loads it and can no longer be loaded" in capfd.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("deprecate --undo --message x Tiny/1.0", "--undo cannot be combined with --since, --until or --message"),
        (
            "deprecate --undo --until 2030-01-01 Tiny/1.0",
            "--undo cannot be combined with --since, --until or --message",
        ),
        (
            "deprecate --undo --since 2030-01-01 Tiny/1.0",
            "--undo cannot be combined with --since, --until or --message",
        ),
        ("retire --undo --message x Tiny/1.0", "--undo cannot be combined with --since, --successor or --message"),
        (
            "retire --undo --successor Tiny/2.0 Tiny/1.0",
            "--undo cannot be combined with --since, --successor or --message",
        ),
        (
            "retire --undo --since 2030-01-01 Tiny/1.0",
            "--undo cannot be combined with --since, --successor or --message",
        ),
        ("retire --successor Tiny/1.0 Tiny/1.0", "Tiny/1.0 cannot be its own successor"),
        ("deprecate --since 2030-01-02 --until 2030-01-01 Tiny/1.0", "until 2030-01-01, which is before 2030-01-02"),
        ("hide Tiny/2.0", "Tiny/2.0 cannot be the default and hidden"),
        ("retire Tiny/2.0", "Tiny/2.0 cannot be the default and retired"),
        ("retire --since 2030-1-1 Tiny/1.0", "expected a day of 2000 to 2999, such as 2027-03-31, got '2030-1-1'"),
    ],
)
def test_what_contradicts_itself(words: str, message: str, layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["default", "Tiny/2.0"]) == 0
    before = disk_state(layout.prefix)
    assert run(words.split()) == 2
    assert message in capfd.readouterr().err
    assert disk_state(layout.prefix) == before


@pytest.mark.usefixtures("layout")
def test_days_that_are_known_stay(capfd: pytest.CaptureFixture[str]) -> None:
    """A later word about the reason does not begin the days again; the first and the last day may be one."""
    for verb in ("deprecate", "retire"):
        assert run([verb, "--since", "2020-02-03", "Tiny/1.0"]) == 0
        assert run([verb, "--message", "why", "Tiny/1.0"]) == 0
        capfd.readouterr()
        (row,) = (one for one in answer(capfd, ("list",)) if one["module"] == "Tiny/1.0")
        assert (row["life"][f"{verb}d"]["since"], row["life"][f"{verb}d"]["message"]) == ("2020-02-03", "why")
    assert run(["deprecate", "--since", "2030-01-01", "--until", "2030-01-01", "Tiny/2.0"]) == 0


def test_all_that_a_kept_file_lacks_is_told(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    kept = layout.modules / "Tiny" / ".modulerc.lua"
    kept.write_text("-- mine\n")
    assert run(["retire", "--since", "2030-01-01", "Tiny/1.0"]) == 0
    err = capfd.readouterr().err
    tail = err.partition("kept; it needs these lines:\n")[2].splitlines()
    assert tail[0] == '==   hide_version("Tiny/1.0")'
    assert tail[1].startswith("==   if os.time() >= 1893456000 then -- 2030-01-01")
    assert "forbid{name = " in tail[3]
    assert tail[4] == "==   end"
    assert kept.read_text() == "-- mine\n"
    # of Environment Modules' file, which is sifmod's, the same is written
    tcl = (layout.modules / "Tiny" / ".modulerc").read_text()
    assert "if {[clock seconds] >= 1893456000} {\n    # 2030-01-01\n    module-hide Tiny/1.0\n    module-forbid " in tcl


def test_below_a_path_that_a_shell_takes_apart_there_is_lmods_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside modulefiles of both kinds; of Tcl alone the other one is there."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "my tree"))
    layout = Layout(tmp_path / "my tree")
    install(layout, "a", OLD, syntaxes=("lua", "tcl"))
    install(layout, "b", ModuleName("Other", "1"), syntaxes=("tcl",))
    assert run(["hide", "Tiny/1.0", "Other/1"]) == 0
    assert [str(path.relative_to(layout.modules)) for path in sorted(layout.modules.glob("*/.modulerc*"))] == [
        "Other/.modulerc", "Tiny/.modulerc.lua",
    ]  # fmt: skip


def test_both_files_say_the_same(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    """Of a module that retires on a day, of one that is hidden now, and of the default that ends."""
    install(layout, "e", ModuleName("Tiny", "3.0"), syntaxes=("lua", "tcl"))
    for words in (
        "deprecate --since 2029-01-01 --until 2029-12-31 --message x Tiny/1.0",
        "hide Tiny/2.0",
        "deprecate --since 2029-01-01 --until 2030-12-31 Tiny/3.0",
        "default Tiny/3.0",
    ):
        assert run(words.split()) == 0
    capfd.readouterr()
    first, second = 1893456000, 1924992000  # 2030-01-01, 2031-01-01
    one, three = "Tiny/1.0 was retired on 2030-01-01: x", "Tiny/3.0 was retired on 2031-01-01"
    assert commands((layout.modules / "Tiny" / ".modulerc.lua").read_text()) == (
        f"if os.time() >= {first} then -- 2030-01-01", '   hide_version("Tiny/1.0")',
        f'   if forbid then forbid{{name = "Tiny/1.0", message = "{one}"}} end', "end",
        'hide_version("Tiny/2.0")',
        f"if os.time() >= {second} then -- 2031-01-01", '   hide_version("Tiny/3.0")',
        f'   if forbid then forbid{{name = "Tiny/3.0", message = "{three}"}} end', "end",
        f'if os.time() < {second} then module_version("Tiny/3.0", "default") end -- 2031-01-01',
    )  # fmt: skip
    assert commands((layout.modules / "Tiny" / ".modulerc").read_text())[4:] == (
        f"if {{[clock seconds] >= {first}}} {{", "    # 2030-01-01", "    module-hide Tiny/1.0",
        f'    module-forbid --message {{{one}}} Tiny/1.0', "}",
        "module-hide Tiny/2.0",
        f"if {{[clock seconds] >= {second}}} {{", "    # 2031-01-01", "    module-hide Tiny/3.0",
        f'    module-forbid --message {{{three}}} Tiny/3.0', "}",
        f"if {{[clock seconds] < {second}}} {{module-version Tiny/3.0 default}} ;# 2031-01-01",
    )  # fmt: skip


def test_another_ones_file_is_told_of_only_where_something_is_to_be_in_it(
    layout: Layout, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in (".modulerc", ".modulerc.lua"):
        (layout.modules / "Tiny" / name).write_text("mine\n")
    assert run(["hide", "Tiny/1.0"]) == 0
    assert capfd.readouterr().err.count("kept; it needs") == 2
    assert run(["hide", "--undo", "Tiny/1.0"]) == 0
    assert "is kept" not in capfd.readouterr().err


def test_the_spider_cache_is_made_again_where_any_of_several_has_changed(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Lmod's program, with each place under its own option."""
    program = write(
        tmp_path / "lmod/update_lmod_system_cache_files",
        f'#!/bin/sh\nmkdir -p "$2"\ntouch "$4"\necho "$1 $3 $5" >>\'{tmp_path}/calls\'\n',
    )
    program.chmod(0o755)
    monkeypatch.setenv("LMOD_DIR", str(program.parent))
    install(layout, "x", ModuleName("Other", "1"))
    cache = f"directory: {tmp_path}/cache, timestamp: {tmp_path}/stamp"
    write(tmp_path / "etc-sifmod.d/a.yaml", f"spider_cache: {{{cache}}}\n")
    assert run(["hide", "Tiny/1.0"]) == 0
    assert run(["hide", "Other/1", "Tiny/1.0"]) == 0  # of which the last is as it was
    assert run(["hide", "Other/1", "Tiny/1.0"]) == 0
    call = f"-d -t {layout.modules}"
    assert (tmp_path / "calls").read_text().splitlines() == [call, call]
    write(tmp_path / "etc-sifmod.d/a.yaml", f"spider_cache: {{{cache}, modulepath: [/a, /b]}}\n")
    assert run(["hide", "--undo", "Tiny/1.0"]) == 0
    assert (tmp_path / "calls").read_text().splitlines()[2:] == [call.replace(str(layout.modules), "/a:/b")]


@pytest.mark.parametrize("verb", ["hide", "retire --since 2099-01-01"])
def test_what_is_hidden_or_will_be_retired_is_not_made_the_default(
    verb: str, layout: Layout, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*verb.split(), "Tiny/1.0"]) == 0
    assert run(["default", "Tiny/1.0"]) == 2
    assert f"hint: run `sifmod {verb.split()[0]} --undo Tiny/1.0` first" in capfd.readouterr().err
    assert run([verb.split()[0], "--undo", "Tiny/1.0"]) == 0
    assert run(["default", "Tiny/1.0"]) == 0
    assert layout.prefix.is_dir()
