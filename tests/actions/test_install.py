"""`sifmod install` from the command line, with a real small image: what it does, what it says, what it leaves alone."""

import grp
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.actions.install.decision import decide
from sifmod.actions.install.install import install
from sifmod.actions.install.install_easyconfigs import InstallOptions
from sifmod.actions.reporter import Reporter
from sifmod.cli.main import run
from sifmod.config.load_site import load_site
from sifmod.digest import sha256_file
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live
from support.config import write
from support.disk_state import disk_state
from support.images import Images
from support.module_tool import ModuleTool
from support.oci import Entry
from support.processes import marked, wait_until, with_mark

Sifmod = Callable[..., int]


@pytest.fixture
def sif(tmp_path: Path, images: Images) -> Path:
    """A user's own copy of the tiny image."""
    path = tmp_path / "my images" / "tiny.sif"
    path.parent.mkdir()
    path.write_bytes(images.tiny_sif.read_bytes())
    path.chmod(0o640)
    return path


@pytest.fixture
def easyconfig(tmp_path: Path, sif: Path) -> Path:
    path = tmp_path / "Tiny-1.0.yaml"
    path.write_text(
        f"name: Tiny\nversion: '1.0'\ndescription: A tiny thing\n"
        f"image: {{sources: ['{sif}']}}\nwrappers: [sh, cat, start-shell]\nenv: {{COLOUR: blue}}\n"
    )
    return path


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "a prefix"
    monkeypatch.setenv("SIFMOD_PREFIX", str(path))
    return path


def generations(prefix: Path) -> set[str]:
    return {path.name for path in (prefix / "software" / "Tiny" / ".generations" / "1.0").iterdir() if path.is_dir()}


def test_the_next_commands_go_to_standard_output(
    easyconfig: Path, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["install", str(easyconfig)]) == 0
    captured = capfd.readouterr()
    assert captured.out == f"module use '{prefix}/modules'\nmodule load Tiny/1.0\n"
    assert "== Tiny/1.0: installed, generation 1" in captured.err
    assert (prefix / "modules" / "Tiny" / "1.0.lua").is_file()
    assert not list((prefix / ".staging").iterdir())


def test_module_use_is_left_out_where_the_directory_is_known(
    easyconfig: Path, prefix: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODULEPATH", f"/somewhere:{prefix}/modules")
    assert run(["install", "-q", str(easyconfig)]) == 0
    assert capfd.readouterr() == ("module load Tiny/1.0\n", "")


def test_an_image_that_is_replaced_while_it_is_copied_is_installed_next(
    easyconfig: Path, sif: Path, prefix: Path, images: Images
) -> None:
    newer = sif.with_name("newer.sif")
    newer.write_bytes(images.tiny("newer").read_bytes())
    digests = [sha256_file(path) for path in (sif, newer)]

    def replaced(what: str, _done: int, _total: int | None) -> None:
        if what.startswith("copying") and newer.exists():
            newer.rename(sif)

    decision = decide(str(easyconfig), load_site({}, os.environ), InstallOptions())
    telling = Reporter(print, replaced)
    made = install(decision, telling.tree(decision.site.site), telling).installation
    assert made.image_sha256 == digests[0]
    assert run(["install", str(easyconfig)]) == 0
    found = live(Layout(prefix), made.module)
    assert found
    assert found.image_sha256 == digests[1]


def test_an_unchanged_module_is_left_alone(easyconfig: Path, prefix: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["install", str(easyconfig)]) == 0
    before = disk_state(prefix)
    capfd.readouterr()
    assert run(["install", str(easyconfig)]) == 0
    assert "already installed, nothing to do" in capfd.readouterr().err
    assert disk_state(prefix) == before


NEARER = {
    "far/presets/kept.yaml": "host_env: {KEPT: '1'}",
    "far/Base-1.yaml": "host_env: {BASE: '1'}",
    "far/Tiny/Tiny-1.0.yaml": "name: Tiny\nversion: '1.0'\nextends: Base-1.yaml\npreset: kept\n",
}


@pytest.mark.parametrize(
    ("appears", "text"),
    [
        ("near/presets/kept.yaml", "host_env: {NEAR: '1'}"),
        ("near/Base-1.yaml", "host_env: {NEAR: '1'}"),
        ("near/Base/Base-1.yaml", "host_env: {NEAR: '1'}"),
        ("far/Tiny/Base-1.yaml", "host_env: {NEAR: '1'}"),
        ("near/Tiny-1.0.yaml", "name: Tiny\nversion: '1.0'\nhost_env: {NEAR: '1'}\n"),
        ("near/Tiny/Tiny-1.0.yaml", "name: Tiny\nversion: '1.0'\nhost_env: {NEAR: '1'}\n"),
        ("here/Tiny-1.0.yaml", "name: Tiny\nversion: '1.0'\nhost_env: {NEAR: '1'}\n"),
    ],
)
@pytest.mark.parametrize("made", [True, False], ids=["directories", "nothing"])
def test_a_nearer_file_that_appears_later_is_noticed(
    tmp_path: Path, sif: Path, prefix: Path, monkeypatch: pytest.MonkeyPatch, appears: str, text: str, made: bool
) -> None:
    """Whatever was looked for and was not there is an input, whether its directory was there or not."""
    image = f"image: {{sources: ['{sif}']}}\n"
    for name, content in NEARER.items():
        write(tmp_path / name, content + (image if content.startswith("name") else ""))
    if made:
        (tmp_path / appears).parent.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("SIFMOD_ROBOT_PATHS", f"{tmp_path}/near:{tmp_path}/far")
    (tmp_path / "here").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "here")
    for _ in range(2):
        assert run(["install", "-q", "--skip-sanity-check", "Tiny-1.0.yaml"]) == 0
    assert generations(prefix) == {"1"}
    write(tmp_path / appears, text + (image if text.startswith("name") else ""))
    assert run(["install", "-q", "--skip-sanity-check", "Tiny-1.0.yaml"]) == 0
    assert generations(prefix) == {"1", "2"}
    assert "NEAR" in (prefix / "software" / "Tiny" / "1.0" / "modulefile.lua").read_text()


@pytest.mark.parametrize("change", ["easyconfig", "image", "option", "variable", "stub"])
def test_every_input_is_noticed(
    change: str, easyconfig: Path, prefix: Path, sif: Path, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["install", "-q", str(easyconfig)]) == 0
    arguments = ["install", "-q", str(easyconfig)]
    match change:
        case "easyconfig":
            easyconfig.write_text(easyconfig.read_text().replace("blue", "red"))
        case "image":
            sif.chmod(0o600)
            sif.write_bytes(images.tiny("other").read_bytes())
        case "option":
            arguments += ["--module-syntax", "both"]
        case "variable":
            monkeypatch.setenv("SIFMOD_MODULE_SYNTAX", "both")
        case "stub":
            (prefix / "modules" / "Tiny" / "1.0.lua").unlink()
    assert run(arguments) == 0
    assert generations(prefix) == ({"1"} if change == "stub" else {"1", "2"})
    assert (prefix / "modules" / "Tiny" / "1.0.lua").is_file()


def test_a_removed_link_comes_back_without_a_new_generation(easyconfig: Path, prefix: Path) -> None:
    assert run(["install", "-q", str(easyconfig)]) == 0
    link = prefix / "software" / "Tiny" / "1.0" / "Tiny-1.0.sif"
    link.unlink()
    assert run(["install", "-q", str(easyconfig)]) == 0
    assert link.is_file()
    assert generations(prefix) == {"1"}


def test_module_only_keeps_the_image_and_needs_no_source(easyconfig: Path, prefix: Path, sif: Path) -> None:
    assert run(["install", "-q", str(easyconfig)]) == 0
    sif.unlink()
    easyconfig.write_text(easyconfig.read_text().replace("blue", "red"))
    assert run(["install", "-q", "--module-only", str(easyconfig)]) == 0
    assert generations(prefix) == {"1", "2"}
    assert "red" in (prefix / "software" / "Tiny" / "1.0" / "modulefile.lua").read_text()
    assert len(list((prefix / "images" / "sha256").glob("*.sif"))) == 1


def test_module_only_of_nothing_is_an_error(easyconfig: Path, prefix: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["install", "--module-only", str(easyconfig)]) == 24
    assert "has no installed image" in capfd.readouterr().err
    assert not (prefix / "modules").exists()


@pytest.mark.parametrize("link", ["copy", "hardlink", "reference"])
@pytest.mark.usefixtures("prefix")
def test_the_users_own_file_is_never_changed(link: str, easyconfig: Path, sif: Path) -> None:
    before = disk_state(sif)
    assert run(["install", "-q", "--link", link, str(easyconfig)]) == 0
    assert run(["verify"]) == 0
    assert run(["uninstall", "Tiny"]) == 0
    assert disk_state(sif) == before


def test_a_missing_command_is_found_before_publishing(
    easyconfig: Path, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    easyconfig.write_text(easyconfig.read_text().replace("cat,", "cat, no-such-command,"))
    assert run(["install", str(easyconfig)]) == 22
    assert "not in the image: no-such-command" in capfd.readouterr().err
    assert not (prefix / "modules").exists()
    assert not (prefix / "software").exists()
    assert run(["install", "-q", "--skip-sanity-check", str(easyconfig)]) == 0


def test_a_module_without_runscripts_and_wrappers_loads(
    easyconfig: Path, prefix: Path, module_tool: ModuleTool
) -> None:
    easyconfig.write_text(easyconfig.read_text().replace("[sh, cat, start-shell]", "[]") + "runscripts: []\n")
    assert run(["install", "-q", "--module-syntax", "both", str(easyconfig)]) == 0
    step = module_tool.run('module load Tiny/1.0 && singularity -q exec "$SIF" ls /runscripts', prefix / "modules")
    assert (step.code, step.stderr, step.stdout) == (0, "", "README\n")


def test_a_failing_sanity_command_keeps_the_old_generation(
    easyconfig: Path, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["install", "-q", str(easyconfig)]) == 0
    before = disk_state(prefix / "software", prefix / "modules")
    easyconfig.write_text(easyconfig.read_text() + "sanity_check: {commands: ['echo it broke >&2; exit 3']}\n")
    assert run(["install", str(easyconfig)]) == 22
    error = capfd.readouterr().err
    assert "failed with exit code 3" in error
    assert "it broke" in error
    assert disk_state(prefix / "software", prefix / "modules") == before


def test_sanity_commands_see_the_modules_environment(easyconfig: Path, prefix: Path) -> None:
    check = "commands: ['test \"$COLOUR\" = blue', 'get-master n1']\n  paths: [/bin/sh, bin/cat, easyconfig.yaml]"
    easyconfig.write_text(easyconfig.read_text() + f"sanity_check:\n  {check}\n")
    assert run(["install", "-q", str(easyconfig)]) == 0
    assert prefix.is_dir()


@pytest.mark.parametrize(
    "variable",
    [
        *("SINGULARITY_NO_EVAL=1", "APPTAINER_NO_EVAL=1", "SINGULARITY_BIND=/not/there", "APPTAINER_BIND=/not/there"),
        *("SINGULARITY_BINDPATH=/not/there", "APPTAINER_BINDPATH=/not/there"),
        *("SINGULARITYENV_PRICE=none", "APPTAINERENV_PRICE=none", "SINGULARITYENV_OWN=1", "APPTAINERENV_OWN=1"),
        *("PYTHONPATH=/mine", "LD_PRELOAD=/mine/library.so"),
    ],
)
def test_what_a_user_has_set_does_not_decide_the_sanity_check(
    easyconfig: Path, prefix: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    easyconfig.write_text(
        easyconfig.read_text().replace(
            "COLOUR: blue", "PRICE: '5 $(echo 6) \"$HOME\"', PYTHONPATH: null, LD_PRELOAD: null"
        )
        + """sanity_check:
  commands:
    - test "$PRICE" = '5 $(echo 6) "$HOME"'
    - test -z "$OWN$PYTHONPATH$LD_PRELOAD"
"""
    )
    name, _, value = variable.partition("=")
    monkeypatch.setenv(name, value)
    assert run(["install", "-q", str(easyconfig)]) == 0
    assert (prefix / "software" / "Tiny" / "1.0" / "receipt.json").is_file()


def test_the_sanity_check_takes_no_shell_of_an_environment(
    tmp_path: Path, images: Images, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A venv's own `sh`, which lets everything pass."""
    sif = images.tiny("own-sh", entries=(Entry("opt/venv/bin/sh", b"#!/bin/true\n"),))
    path = tmp_path / "Tiny-1.0.yaml"
    text = f"name: Tiny\nversion: '1.0'\nimage: {{sources: ['{sif}']}}\nvenv: /opt/venv\n"
    path.write_text(f"{text}wrappers: [not-there]\n")
    assert run(["install", str(path)]) == 22
    assert "not in the image: not-there" in capfd.readouterr().err
    path.write_text(f"{text}wrappers: []\nsanity_check: {{commands: ['exit 3']}}\n")
    assert run(["install", str(path)]) == 22
    assert "failed with exit code 3" in capfd.readouterr().err
    assert not (prefix / "software" / "Tiny" / "1.0").exists()
    assert not list((prefix / "modules").rglob("1.0*"))


def test_origins_are_an_easyconfigs(easyconfig: Path, prefix: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["install", "-q", str(easyconfig)]) == 0
    capfd.readouterr()
    for option in (["--origins"], ["--variant", "rocm"]):
        assert run(["show", "Tiny/1.0", *option]) == 2
        error = capfd.readouterr().err
        assert f"{option[0]} needs an easyconfig, and Tiny/1.0 is an installed module" in error
        assert f"`sifmod show {easyconfig} --origins`" in error
    assert run(["show", str(easyconfig), "--origins"]) == 0
    assert prefix.is_dir()


@pytest.mark.usefixtures("prefix")
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["install", "no-such-easyconfig"], 4, "no easyconfig is called 'no-such-easyconfig'"),
        (["install", "{easyconfig}", "--variant", "rocm"], 5, "variant"),
        (["install", "{easyconfig}", "--site", "nowhere"], 2, "there is no site 'nowhere'"),
        (["install", "{easyconfig}", "--link", "move"], 2, "'move' is not one of"),
        (["install", "{easyconfig}", "--source", "/etc/passwd"], 10, "is not a SIF: it is a text"),
        (["install", "{easyconfig}", "--source", "gopher://x/y"], 2, "--source: "),
        (["install", "{easyconfig}", "--offline", "--source", "docker://x/y:1"], 10, "--offline was given"),
        (["install", "{easyconfig}", "--prefix", "/tmp/a,b"], 2, "','"),
        (["uninstall", "Tiny"], 24, "no module is called `Tiny`"),
        (["rollback", "Tiny"], 24, "no module is called `Tiny`"),
        (["instal"], 2, "did you mean `sifmod install`?"),
    ],
)
def test_bad_input_has_its_code_and_changes_nothing(
    arguments: list[str],
    code: int,
    says: str,
    easyconfig: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = disk_state(tmp_path)
    assert run([argument.format(easyconfig=easyconfig) for argument in arguments]) == code
    error = capfd.readouterr().err
    assert says in error
    assert "Traceback" not in error
    assert disk_state(tmp_path) == before


def test_every_problem_of_a_file_at_once(prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("name: Py Torch\nversion: 2.20\nversonsuffix: -x\nimage: {sha256: abc}\n")
    assert run(["install", str(path)]) == 5
    error = capfd.readouterr().err
    assert f"\n{path}:2:10: version: expected text, got the number 2.20; write version: '2.20'\n" in error
    assert f"\n{path}:3:1: versonsuffix: unknown key; did you mean versionsuffix?\n" in error
    assert "problems in the configuration" in error
    assert not prefix.exists()


def test_dry_runs_are_exact_and_change_nothing(
    easyconfig: Path, prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = disk_state(tmp_path)
    for option in ("-D", "--dry-run"):
        assert run(["install", option, str(easyconfig)]) == 0
        assert f" * [ ] {easyconfig} (module: Tiny/1.0)" in capfd.readouterr().out
    assert run(["install", "-x", str(easyconfig)]) == 0
    shown = capfd.readouterr().out
    assert disk_state(tmp_path) == before
    assert run(["install", "-q", str(easyconfig)]) == 0
    root = prefix / "software" / "Tiny" / ".generations" / "1.0" / "1"
    for name in ("modulefile.lua", "bin/cat", "share/launch.sh", "runscripts/get-master"):
        assert f"--- {root / name}\n{(root / name).read_text()}" in shown
    capfd.readouterr()
    assert run(["install", "-D", str(easyconfig)]) == 0
    assert "[x]" in capfd.readouterr().out
    assert run(["install", "-D", "--force", str(easyconfig)]) == 0
    assert "[F]" in capfd.readouterr().out
    assert run(["install", "-D", "--rebuild", str(easyconfig)]) == 0
    assert "[R]" in capfd.readouterr().out


def test_a_group_and_a_umask(easyconfig: Path, prefix: Path, own_home: Path) -> None:
    # one that is not the first, where this user has another
    group = "daemon" if os.geteuid() == 0 else grp.getgrgid([os.getegid(), *os.getgroups()][-1]).gr_name
    settings = own_home / ".config" / "sifmod" / "config.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"umask: '027'\ngroup: {group}\n")
    assert run(["install", "-q", str(easyconfig)]) == 0
    root = prefix / "software" / "Tiny" / "1.0"
    assert prefix.group() == group
    assert (root / "modulefile.lua").group() == group
    assert (root / "modulefile.lua").stat().st_mode & 0o777 == 0o440
    assert (root / "bin" / "cat").stat().st_mode & 0o777 == 0o550


@pytest.mark.parametrize("source", ["", "/not/there.sif"])
def test_the_umask_is_this_process_own_again(
    easyconfig: Path, prefix: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setenv("SIFMOD_UMASK", "077")
    before = os.umask(0o022)
    try:
        assert run(["install", "-q", *(("--source", source) if source else ()), str(easyconfig)]) == (
            10 if source else 0
        )
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    assert prefix.exists() == (not source)


@pytest.mark.parametrize("verb", ["install", "fetch"])
def test_a_group_that_cannot_be_given_leaves_no_prefix(
    easyconfig: Path,
    sif: Path,
    prefix: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    verb: str,
) -> None:
    monkeypatch.setenv("SIFMOD_GROUP", "no-such-group")
    assert run([verb, "-q", str(easyconfig if verb == "install" else sif)]) == 25
    assert f"{prefix} cannot be given to the group no-such-group" in capfd.readouterr().err
    assert not prefix.exists()


def test_a_prefix_that_is_there_keeps_its_group_and_mode(
    easyconfig: Path, prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIFMOD_GROUP", "no-such-group")
    prefix.mkdir(mode=0o750)
    before = prefix.stat()
    assert run(["install", "-q", str(easyconfig)]) == 0
    after = prefix.stat()
    assert (after.st_gid, after.st_mode) == (before.st_gid, before.st_mode)


def test_module_only_does_not_take_another_promise_or_source_for_the_kept_image(
    easyconfig: Path, prefix: Path, sif: Path, images: Images, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["install", "-q", str(easyconfig)]) == 0
    other = sif.with_name("other.sif")
    other.write_bytes(images.tiny("other").read_bytes())
    text = easyconfig.read_text()
    easyconfig.write_text(text.replace(f"['{sif}']", f"['{other}'], sha256: {'a' * 64}"))
    assert run(["install", "--module-only", str(easyconfig)]) == 24
    assert "has no installed image" in capfd.readouterr().err
    easyconfig.write_text(text.replace(f"['{sif}']", f"['{other}']"))
    assert run(["install", "-q", "--module-only", str(easyconfig)]) == 0
    assert len(list((prefix / "images" / "sha256").glob("*.sif"))) == 1
    assert run(["install", "-q", str(easyconfig)]) == 0
    assert len(list((prefix / "images" / "sha256").glob("*.sif"))) == 2


@pytest.mark.parametrize(("before", "after"), [("lua", "tcl"), ("tcl", "lua")])
def test_another_syntax_leaves_the_one_that_a_shell_has_loaded(
    before: str, after: str, easyconfig: Path, prefix: Path, module_tool: ModuleTool
) -> None:
    if module_tool.syntax != before:
        before, after = after, before
    python = shlex.join((sys.executable, "-m", "sifmod", "install", "-q", str(easyconfig), "--prefix", str(prefix)))
    assert run(["install", "-q", "--module-syntax", before, str(easyconfig)]) == 0
    first, loaded, installed, unloaded = module_tool.session(
        ("true", "module load Tiny/1.0", f"{python} --module-syntax {after}", "module unload Tiny/1.0"),
        prefix / "modules",
    )
    assert [step.code for step in (loaded, installed, unloaded)] == [0, 0, 0], installed
    left = {name for name in unloaded.environment if name.startswith(("SIF", "SINGULARITY", "APPTAINER", "_SIFMOD"))}
    assert left == {name for name in first.environment if name.startswith(("SIF", "SINGULARITY", "APPTAINER"))}
    assert {path.name for path in (prefix / "modules" / "Tiny").iterdir()} == {"1.0", "1.0.lua"}


def test_a_prefix_in_the_place_of_a_file(easyconfig: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    for place in ("file", "file/below"):
        for verb in (["install", str(easyconfig)], ["list"]):
            assert run([*verb, "--prefix", str(tmp_path / place)]) == 2
            assert "is a file" in capfd.readouterr().err
    assert run(["install", str(easyconfig), "--prefix", "/"]) == 2
    assert (tmp_path / "file").read_text() == "mine"


def test_kill_9_during_the_sanity_check_leaves_no_process(easyconfig: Path, prefix: Path) -> None:
    mark = "117.17017"  # in the command line of that sleep alone
    easyconfig.write_text(easyconfig.read_text() + f"sanity_check: {{commands: ['sleep {mark}']}}\n")
    command = (sys.executable, "-m", "sifmod", "install", "-q", str(easyconfig))
    process = subprocess.Popen(command, env=with_mark(mark))
    wait_until(lambda: any(mark in line for line in marked(mark)))
    process.kill()
    process.wait()
    wait_until(lambda: not marked(mark))
    assert not (prefix / "modules").exists()


def test_hostile_labels_of_an_image_reach_nobody(
    easyconfig: Path, prefix: Path, sif: Path, images: Images, module_tool: ModuleTool, shared_tmp: Path
) -> None:
    pwned = shared_tmp / "pwned"
    text = f"]==] os.execute('touch {pwned}') --[==[ \"$(touch {pwned})\" `touch {pwned}` [exec touch {pwned}] }}"
    labels = {"org.opencontainers.image.description": text, "org.opencontainers.image.title": text}
    sif.chmod(0o600)
    sif.write_bytes(images.tiny("labels", labels=labels).read_bytes())
    assert run(["install", "-q", "--module-syntax", "both", str(easyconfig)]) == 0
    steps = module_tool.session(
        tuple(f"module {verb} Tiny/1.0" for verb in ("load", "show", "help", "whatis", "unload")), prefix / "modules"
    )
    assert [step.code for step in steps] == [0] * 5
    root = prefix / "software" / "Tiny" / "1.0"
    assert not any("pwned" in path.read_text() for path in root.rglob("*") if path.is_file() and path.suffix != ".sif")
    assert not pwned.exists()
