"""`sifmod install --module-only` without a FILE: what a changed site, preset or quirk does to everything installed."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.command import SIFMOD
from support.config import write
from support.disk_state import disk_state, is_there
from support.images import Images
from support.module_tool import ModuleTool


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: Images) -> Path:
    """Two modules of one image, of which one has a preset; the image's source is gone after the install."""
    prefix = tmp_path / "prefix"
    monkeypatch.setenv("SIFMOD_PREFIX", str(prefix))
    monkeypatch.setenv("SIFMOD_MODULE_SYNTAX", "both")
    monkeypatch.setenv("SIFMOD_ROBOT_PATHS", str(tmp_path / "ec"))
    source = tmp_path / "tiny.sif"
    source.write_bytes(images.tiny_sif.read_bytes())
    write(tmp_path / "ec/presets/p.yaml", "env: {FROM_PRESET: 1}\n")
    text = f"version: '1.0'\nimage: {{sources: ['{source}']}}\nwrappers: [sh]\n"
    write(tmp_path / "ec/One/One-1.0.yaml", f"name: One\npreset: p\n{text}")
    write(
        tmp_path / "ec/Two/Two-1.0.yaml",
        f"name: Two\n{text}variants: {{a: {{env: {{V: a}}}}, cpu: {{env: {{V: b}}}}}}\n",
    )
    assert run(["install", "-q", "One-1.0"]) == 0
    assert run(["install", "-q", "Two-1.0", "--variant", "a"]) == 0
    source.unlink()
    return prefix


def again(*options: str) -> int:
    return run(["install", "--module-only", *options])


def generations(prefix: Path) -> list[str]:
    return [os.readlink(prefix / "software" / name / "1.0").rpartition("/")[2] for name in ("One", "Two")]


def inside(tool: ModuleTool, prefix: Path, name: str) -> dict[str, str]:
    step = tool.run(f"module load {name}/1.0", prefix / "modules")
    step.ok()
    return {key.removeprefix("SINGULARITYENV_"): value for key, value in step.environment.items()}


@pytest.mark.parametrize("options", [(), ("--installed",)])
def test_nothing_has_changed(prefix: Path, options: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    before = disk_state(prefix)
    capfd.readouterr()
    assert again(*options) == 0
    assert capfd.readouterr() == ("", "== 0 of 2 installed modules change\n")
    assert disk_state(prefix) == before


def test_a_changed_site_goes_into_every_module(
    prefix: Path, tmp_path: Path, module_tool: ModuleTool, capfd: pytest.CaptureFixture[str]
) -> None:
    """The diff comes first; nothing is fetched, since the image's source is gone; the variant stays."""
    write(tmp_path / "etc-sifmod.d/own.yaml", "env: {FROM_SITE: new}\n")
    capfd.readouterr()
    assert again("--installed") == 0
    captured = capfd.readouterr()
    for name in ("One", "Two"):
        for file in ("modulefile.lua", "modulefile.tcl", "share/launch.sh"):
            assert f"--- {name}/1.0/{file}\n+++ {name}/1.0/{file}\n" in captured.out
    assert '+         FROM_SITE = "new",' in captured.out
    assert not [line for line in captured.out.splitlines() if line.startswith("-") and not line.startswith("---")]
    assert "== 2 of 2 installed modules change\n" in captured.err
    assert generations(prefix) == ["2", "2"]
    assert inside(module_tool, prefix, "One")["FROM_SITE"] == "new"
    assert (inside(module_tool, prefix, "Two")["FROM_SITE"], inside(module_tool, prefix, "Two")["V"]) == ("new", "a")
    assert again() == 0
    assert generations(prefix) == ["2", "2"]


def test_a_diff_of_several_modules_begins_with_its_counts(
    prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    preset = write(tmp_path / "etc-sifmod.d/own.yaml", "env: {FROM_SITE: new}\n")
    before = disk_state(prefix)
    capfd.readouterr()
    assert again("--dry-run") == 0
    out, err = capfd.readouterr()
    lines = out.splitlines()
    files = sum(line.startswith("+++ ") for line in lines)
    added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
    assert files > 4
    assert added > 4
    first, last = (
        f"2 modules differ: {files} files, {added} lines added, {removed} removed",
        "2 of 2 installed modules change",
    )
    assert err == f"== {first}\n== {last}\n"
    assert disk_state(prefix) == before
    preset.unlink()
    write(tmp_path / "ec/presets/p.yaml", "env: {FROM_PRESET: 2}\nwrappers: [sh, cat]\n")
    assert again("--dry-run") == 0  # one module
    assert "modules differ" not in capfd.readouterr().err


def test_a_changed_preset_goes_into_its_modules(
    prefix: Path, tmp_path: Path, module_tool: ModuleTool, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "ec/presets/p.yaml", "env: {FROM_PRESET: 2}\nwrappers: [sh, cat]\n")
    capfd.readouterr()
    assert again() == 0
    captured = capfd.readouterr()
    assert "== 1 of 2 installed modules change\n" in captured.err
    assert '-         FROM_PRESET = "1",\n+         FROM_PRESET = "2",\n' in captured.out
    assert generations(prefix) == ["2", "1"]
    assert inside(module_tool, prefix, "One")["FROM_PRESET"] == "2"


def test_a_new_quirk_goes_into_the_modules_that_it_is_for(
    prefix: Path, tmp_path: Path, module_tool: ModuleTool, capfd: pytest.CaptureFixture[str]
) -> None:
    head = "description: d\nreason: r\nlink: l\n"
    write(tmp_path / "etc-sifmod.d/quirks/q.yaml", f"{head}match: {{name: Two}}\nenv: {{V: null, Q: 1}}\n")
    assert again() == 0
    assert "== quirk q: d (Q=1, no V)" in capfd.readouterr().err
    assert generations(prefix) == ["1", "2"]
    found = inside(module_tool, prefix, "Two")
    assert (found["Q"], "V" in found) == ("1", False)


@pytest.mark.parametrize("option", ["-D", "--dry-run", "-x"])
def test_a_dry_run_only_shows(prefix: Path, tmp_path: Path, option: str, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "etc-sifmod.d/own.yaml", "env: {FROM_SITE: new}\n")
    before = disk_state(prefix)
    assert again(option) == 0
    assert '+         FROM_SITE = "new",' in capfd.readouterr().out
    assert disk_state(prefix) == before


def test_an_option_counts_for_all(prefix: Path, tmp_path: Path, module_tool: ModuleTool) -> None:
    write(tmp_path / "etc-sifmod.d/sites/mine.yaml", "env: {FROM_SITE: mine}\n")
    assert again("--site", "mine") == 0
    assert inside(module_tool, prefix, "One")["FROM_SITE"] == "mine"
    assert again() == 0  # it has become an option of the modules
    assert generations(prefix) == ["2", "2"]


def test_options_hold_in_every_directory(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], images: Images
) -> None:
    """Relative paths of the command line were those of the install's directory; the tree's name again is no change."""
    write(tmp_path / "here/sites/mine.yaml", "env: {FROM_SITE: mine}\n")
    (tmp_path / "here/tiny.sif").write_bytes(images.tiny_sif.read_bytes())
    monkeypatch.chdir(tmp_path / "here")
    options = ["--site", "sites/mine.yaml", "--source", "tiny.sif", "--robot-paths", "../ec", "--image-dirs", "."]
    assert run(["install", "-q", "One-1.0", *options]) == 0
    before = disk_state(prefix)
    monkeypatch.chdir("/")
    for tree in ((), ("--prefix", str(prefix))):
        capfd.readouterr()
        assert again(*tree) == 0
        assert capfd.readouterr() == ("", "== 0 of 2 installed modules change\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", "/no/such")
    assert again("--prefix", "prefix") == 0
    assert disk_state(prefix) == before


def test_a_site_that_is_gone_is_told_with_its_modules(
    prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    site = write(tmp_path / "mine.yaml", "env: {FROM_SITE: mine}\n")
    assert run(["install", "-q", "One-1.0", "--site", str(site)]) == 10  # the image's source is gone too
    assert again("--site", str(site)) == 0
    site.unlink()
    before = disk_state(prefix)
    capfd.readouterr()
    assert again() == 2
    assert f"error: One/1.0, Two/1.0: --site: there is no site '{site}'\n" in capfd.readouterr().err
    assert disk_state(prefix) == before


def test_what_cannot_be_done_is_told_and_the_rest_is_done(
    prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "etc-sifmod.d/own.yaml", "env: {FROM_SITE: new}\n")
    (tmp_path / "ec/One/One-1.0.yaml").unlink()
    before = disk_state(prefix / "software/One")
    assert again("--json") == 4
    captured = capfd.readouterr()
    assert f"One/1.0: its easyconfig {tmp_path}/ec/One/One-1.0.yaml is gone" in captured.err
    one, two = json.loads(captured.out)
    assert (one["module"], one["diff"], "is gone" in one["error"]) == ("One/1.0", "", True)
    assert (two["module"], "error" in two, one["exit_code"]) == ("Two/1.0", False, 4)
    assert "FROM_SITE" in two["diff"]
    assert generations(prefix) == ["1", "2"]
    assert disk_state(prefix / "software/One") == before


@pytest.mark.parametrize("fail_fast", [False, True])
def test_one_that_fails_leaves_the_others_only_with_fail_fast(
    prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], fail_fast: bool
) -> None:
    write(tmp_path / "etc-sifmod.d/own.yaml", "env: {FROM_SITE: new}\n")
    with (tmp_path / "ec/One/One-1.0.yaml").open("a") as file:
        file.write("sanity_check: {commands: ['false']}\n")
    capfd.readouterr()
    assert again("--json", *(["--fail-fast"] if fail_fast else [])) == 22
    captured = capfd.readouterr()
    one, two = json.loads(captured.out)
    assert (one["exit_code"], two.get("exit_code")) == (22, 22 if fail_fast else None)
    assert ("==   Two/1.0: not tried\n" in captured.err) is fail_fast
    assert captured.err.count("error: ") == 1
    assert generations(prefix) == ["1", "1" if fail_fast else "2"]


def test_what_was_done_ahead_is_told_in_order(prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "ec/One/One-1.0.yaml").open("a") as file:
        file.write("sanity_check: {commands: [sleep 1]}\n")
    write(tmp_path / "etc-sifmod.d/own.yaml", "env: {FROM_SITE: new}\n")
    capfd.readouterr()
    assert again() == 0
    told = capfd.readouterr().err
    assert 0 < told.index("One/1.0: installed, generation 2") < told.index("Two/1.0: installed, generation 2")
    done = [[json.loads(line)["time"] for line in log.read_text().splitlines()][-1] for log in logs(prefix)]
    assert done[1] < done[0] or len(os.sched_getaffinity(0)) == 1


def test_what_workers_have_done_before_an_interruption_is_told_as_done(
    prefix: Path, tmp_path: Path, images: Images
) -> None:
    """For one processor there are two workers: One is never done, Two is done meanwhile, and Yet is begun after it."""
    (tmp_path / "tiny.sif").write_bytes(images.tiny_sif.read_bytes())
    text = (tmp_path / "ec/One/One-1.0.yaml").read_text()
    write(tmp_path / "ec/Yet/Yet-1.0.yaml", text.replace("One", "Yet"))
    assert run(["install", "-q", "Yet-1.0"]) == 0
    for name in ("One", "Yet"):
        with (tmp_path / f"ec/{name}/{name}-1.0.yaml").open("a") as file:
            file.write("sanity_check: {commands: [sleep 1000]}\n")
    write(tmp_path / "etc-sifmod.d/own.yaml", "env: {FROM_SITE: new}\nprocessors: 1\n")
    before = disk_state(prefix / "software/One"), disk_state(prefix / "software/Yet")
    command = (*SIFMOD, "install", "--module-only")
    going = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while going.poll() is None and not is_there(prefix, ".staging/Yet@1.0.*"):
        time.sleep(0.01)
    going.send_signal(signal.SIGINT)
    _, told = going.communicate(timeout=60)
    assert going.returncode == 130, told
    assert "== Two/1.0: installed, generation 2\n" in told
    summary = [line for line in told.splitlines() if line.startswith("==   ")]
    assert [line.partition(";")[0] for line in summary] == [
        "==   One/1.0: failed (130): interrupted",
        "==   Two/1.0: installed, generation 2",
        "==   Yet/1.0: not tried",
    ]
    assert generations(prefix) == ["1", "2"]
    assert (disk_state(prefix / "software/One"), disk_state(prefix / "software/Yet")) == before
    assert not list((prefix / ".staging").iterdir())


def logs(prefix: Path) -> list[Path]:
    return [prefix / "log/modules" / name / "1.0.log" for name in ("One", "Two")]


def test_an_easyconfig_that_gives_another_module_now(
    prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ec/One/One-1.0.yaml"
    path.write_text(path.read_text().replace("1.0", "1.1"))
    before = disk_state(prefix)
    assert again() == 24
    assert f"One/1.0: its easyconfig {path} now gives One/1.1" in capfd.readouterr().err
    assert disk_state(prefix) == before


@pytest.mark.parametrize("options", [["--installed"], ["--module-only", "--installed", "One-1.0"], []])
def test_options_that_do_not_go_together(options: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["install", *options]) == 2
    assert capfd.readouterr().err


def test_a_module_without_its_image_is_told(prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "etc-sifmod.d/own.yaml", "env: {FROM_SITE: new}\n")
    (image,) = (prefix / "images/sha256").glob("*.sif")
    image.unlink()
    before = disk_state(prefix)
    assert again() == 24
    assert f"One/1.0: its image {image} is gone, and this command fetches nothing" in capfd.readouterr().err
    assert disk_state(prefix) == before


@pytest.mark.parametrize("collected", [False, True], ids=["in the store", "collected"])
def test_an_image_that_was_given_up_for_the_sites_copy_stays_so(
    prefix: Path,
    tmp_path: Path,
    images: Images,
    module_tool: ModuleTool,
    capfd: pytest.CaptureFixture[str],
    collected: bool,
) -> None:
    """`rm $SIF`, and later gc: the module goes on with the copy in image_dirs, and has the site's changes too."""
    for name in ("One", "Two"):
        (prefix / "software" / name / "1.0" / f"{name}-1.0.sif").unlink()
    if collected:
        (image,) = (prefix / "images/sha256").glob("*.sif")
        image.unlink()
    (tmp_path / "central").mkdir()
    copy = tmp_path / "central/One-1.0.sif"
    copy.write_bytes(images.tiny_sif.read_bytes())
    write(tmp_path / "etc-sifmod.d/own.yaml", f"env: {{FROM_SITE: new}}\nimage_dirs: ['{tmp_path}/central']\n")
    before = disk_state(prefix / "software/Two")
    assert again() == (24 if collected else 0)
    assert ("Two/1.0: its image " in capfd.readouterr().err) == collected
    assert generations(prefix) == ["2", "1" if collected else "2"]
    found = inside(module_tool, prefix, "One")
    assert (found["FROM_SITE"], found["SIF"]) == ("new", str(copy))
    assert not os.path.lexists(prefix / "software/One/.generations/1.0/2/One-1.0.sif")
    if collected:
        assert disk_state(prefix / "software/Two") == before
        assert run(["verify", "One/1.0"]) == 0
        assert run(["install", "-q", "One-1.0"]) == 10  # the easyconfig's own source is gone
        assert generations(prefix) == ["2", "1"]


@pytest.mark.usefixtures("prefix")
def test_wrappers_that_were_found_stay(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With `wrappers: auto` the commands are those of the image, which is not looked into again."""
    path = tmp_path / "ec/One/One-1.0.yaml"
    path.write_text(path.read_text().replace("wrappers: [sh]", "wrappers: [sh, auto]\npath+: [/bin]"))
    assert again() == 0
    capfd.readouterr()
    assert again() == 0
    assert capfd.readouterr() == ("", "== 0 of 2 installed modules change\n")
