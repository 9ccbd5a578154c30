"""What `sifmod install --module-only --installed` leaves as it was: site, runtime, options; and what it refuses."""

import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sifmod.actions.install.reapply import RerenderContext, rerender, rerender_all
from sifmod.actions.reporter import Reporter
from sifmod.cli.main import run
from sifmod.config.load_site import Kept, load_site
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import installations
from support.command import SIFMOD
from support.config import write
from support.disk_state import disk_state
from support.images import Images
from support.user import OrdinaryUser

SITE = "accelerator: cuda\nrunscript_env: {NCCL_NET: IB}\n"


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: Images) -> Path:
    """Two modules of a site that is recognised by a file; its name in the site file is not the site file's own."""
    prefix = tmp_path / "prefix"
    monkeypatch.setenv("SIFMOD_PREFIX", str(prefix))
    monkeypatch.setenv("SIFMOD_ROBOT_PATHS", str(tmp_path / "ec"))
    (tmp_path / "node").touch()
    write(tmp_path / "etc-sifmod.d/sites/gpus.yaml", f"name: ours\n{SITE}detect: {{paths: ['{tmp_path}/node']}}\n")
    for name in ("One", "Two"):
        text = f"name: {name}\nversion: '1.0'\nimage: {{sources: ['{images.tiny_sif}']}}\nwrappers: [sh]\n"
        write(tmp_path / f"ec/{name}/{name}-1.0.yaml", text)
        assert run(["install", "-q", f"{name}-1.0"]) == 0
    return prefix


def again(*options: str) -> int:
    return run(["install", "--module-only", "--installed", *options])


def sites(prefix: Path) -> list[str]:
    return [each.provenance.site for each in installations(Layout(prefix))]


def generations(prefix: Path) -> list[int]:
    return [each.generation for each in installations(Layout(prefix))]


def change(tmp_path: Path, value: str = "new") -> None:
    write(tmp_path / "etc-sifmod.d/own.yaml", f"env: {{FROM_SETTINGS: {value}}}\n")


def test_on_a_node_that_looks_like_another_site(
    prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "node").unlink()
    before = disk_state(prefix)
    capfd.readouterr()
    assert again() == 0
    said = "its site stays ours, though this machine looks like generic; --site NAME changes it"
    assert capfd.readouterr() == ("", f"== One/1.0, Two/1.0: {said}\n== 0 of 2 installed modules change\n")
    assert disk_state(prefix) == before
    change(tmp_path)
    assert again() == 0
    assert (sites(prefix), generations(prefix)) == (["ours", "ours"], [2, 2])
    root = prefix / "software/One/1.0"
    assert "sifmod_set _NV 1" in (root / "share/launch.sh").read_text()
    assert "default NCCL_NET IB" in (root / "runscripts/conda-python-distributed").read_text()
    assert again() == 0
    assert generations(prefix) == [2, 2]


def test_a_site_that_is_named_now_counts_and_is_told(
    prefix: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SIFMOD_SITE", "generic")
    assert again() == 0
    assert (
        "== One/1.0, Two/1.0: its site changes from ours to generic, named by SIFMOD_SITE\n" in capfd.readouterr().err
    )
    assert sites(prefix) == ["generic", "generic"]


@pytest.mark.usefixtures("prefix")
def test_a_site_that_a_variable_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The file is in no directory of sites, and the variable is gone at the next time, and at the one after that."""
    prefix = tmp_path / "prefix"
    monkeypatch.setenv("SIFMOD_SITE", str(write(tmp_path / "mine.yaml", SITE)))
    assert again() == 0  # no file of the modules changes
    assert (sites(prefix), generations(prefix)) == (["mine", "mine"], [2, 2])
    monkeypatch.delenv("SIFMOD_SITE")
    for value in ("one", "two"):
        change(tmp_path, value)
        assert again() == 0
        assert sites(prefix) == ["mine", "mine"]
    (tmp_path / "mine.yaml").unlink()
    before = disk_state(prefix)
    capfd.readouterr()
    assert again() == 2
    captured = capfd.readouterr().err
    assert f"One/1.0, Two/1.0: the site of the install: there is no site '{tmp_path}/mine.yaml'" in captured
    assert "--site NAME chooses another" in captured
    assert disk_state(prefix) == before


def test_a_site_that_is_gone(prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "etc-sifmod.d/sites/gpus.yaml").unlink()
    before = disk_state(prefix)
    capfd.readouterr()
    assert again() == 2
    captured = capfd.readouterr().err
    assert "== 0 of 2 installed modules change, 2 could not be decided\n" in captured
    assert "error: One/1.0, Two/1.0: the site of the install: there is no site 'ours'\n" in captured
    assert disk_state(prefix) == before


def test_on_a_node_without_the_runtime(
    prefix: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    before = disk_state(prefix)
    monkeypatch.setenv("PATH", "/no/such")
    capfd.readouterr()
    assert again() == 0
    assert capfd.readouterr() == ("", "== 0 of 2 installed modules change\n")
    assert disk_state(prefix) == before


@pytest.mark.parametrize("program", ["/x/apptainer", ""])
def test_what_was_found_at_the_install_counts(tmp_path: Path, program: str) -> None:
    """The GPU of that node, whatever this one has; a runtime is looked for where there was none."""
    site = {"site": str(write(tmp_path / "auto.yaml", "accelerator: auto\n"))}
    here = load_site(site, os.environ).site
    facts = {"device cuda": "present", "program apptainer": f"{program}\t{program}" if program else ""}
    there = load_site(site, os.environ, Kept("auto", {"program singularity": "", **facts})).site
    assert (there.accelerator, there.runtime_path) == ("cuda", program or here.runtime_path)
    other = Kept("auto", {"program apptainer": "", "program singularity": "/x/singularity\t/x/singularity"})
    assert load_site(site, os.environ, other).site.runtime_path == "/x/singularity"
    assert load_site({**site, "runtime": "apptainer"}, os.environ, other).site.runtime_path == here.runtime_path


def test_without_the_sanity_check(prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is one of the options that a module keeps, and can be given for all."""
    path = tmp_path / "ec/One/One-1.0.yaml"
    path.write_text(path.read_text().replace("[sh]", "[no-such-command]"))
    parts = (prefix / "software", prefix / "modules", prefix / "images")
    before = disk_state(*parts)
    assert again() == 22
    assert disk_state(*parts) == before
    assert again("--skip-sanity-check") == 0
    change(tmp_path)
    assert again() == 0
    assert run(["install", "-q", "--skip-sanity-check", "Two-1.0"]) == 0
    capfd.readouterr()
    for name in ("One-1.0", "Two-1.0"):
        assert run(["install", name]) == 0
        assert "already installed, nothing to do" in capfd.readouterr().err
    path = tmp_path / "ec/Two/Two-1.0.yaml"
    path.write_text(path.read_text().replace("[sh]", "[no-such-command]"))
    assert run(["install", "-q", "Two-1.0"]) == 22
    assert run(["install", "-q", "Two-1.0", "--skip-sanity-check"]) == 0
    change(tmp_path, "newer")
    assert again() == 0


@pytest.mark.parametrize(
    "options",
    [
        ("--source", "/x"),
        ("--variant", "foo"),
        ("--rebuild",),
        ("--force",),
        ("--fetch",),
        ("--keep-blobs",),
        ("--compression", "lz4"),
        ("--processors", "1"),
    ],
)
def test_options_of_other_installs_are_refused(
    prefix: Path, options: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    before = disk_state(prefix)
    assert again(*options) == 2
    assert f"{options[0]}: cannot be used with --module-only without easyconfigs" in capfd.readouterr().err
    assert disk_state(prefix) == before


def test_back_to_a_generation_whose_image_was_given_up(prefix: Path, tmp_path: Path, images: Images) -> None:
    (tmp_path / "central").mkdir()
    (tmp_path / "central/One-1.0.sif").write_bytes(images.tiny_sif.read_bytes())
    write(tmp_path / "etc-sifmod.d/own.yaml", f"image_dirs: ['{tmp_path}/central']\n")
    assert again() == 0
    for name in ("One", "Two"):
        (prefix / f"software/{name}/1.0/{name}-1.0.sif").unlink()
    (image,) = (prefix / "images/sha256").glob("*.sif")
    image.unlink()
    write(tmp_path / "etc-sifmod.d/more.yaml", "env: {FROM_SETTINGS: new}\n")
    assert again() == 24  # there is no copy for Two
    assert generations(prefix) == [3, 2]
    assert run(["rollback", "One/1.0"]) == 0
    assert generations(prefix) == [2, 2]
    assert not os.path.lexists(prefix / "software/One/1.0/One-1.0.sif")
    started = subprocess.run((prefix / "software/One/1.0/bin/sh", "-c", "echo in"), capture_output=True, check=True)
    assert started.stdout == b"in\n"
    before = [disk_state(prefix / name) for name in ("modules", "software", "images", "log")]
    (tmp_path / "central/One-1.0.sif").unlink()
    assert run(["rollback", "One/1.0", "--to", "3"]) == 18
    assert [disk_state(prefix / name) for name in ("modules", "software", "images", "log")] == before


def test_a_damaged_receipt_is_told(prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    receipt = next(path for path in (prefix / "software/One/.generations/1.0/1").iterdir() if "receipt" in path.name)
    receipt.chmod(0o644)
    receipt.write_text("{")
    change(tmp_path)
    before = disk_state(prefix / "software/One")
    capfd.readouterr()
    assert again("--json") == 18
    captured = capfd.readouterr()
    assert "== 1 of 2 installed modules change, 1 could not be decided\n" in captured.err
    assert f"error: One/1.0: the receipt in {receipt.parent} is missing or cannot be read\n" in captured.err
    one, two = json.loads(captured.out)
    assert (one["module"], "cannot be read" in one["error"], "error" in two) == ("One/1.0", True, False)
    assert disk_state(prefix / "software/One") == before
    assert os.readlink(prefix / "software/Two/1.0").endswith("/2")


def test_an_easyconfig_that_is_gone_comes_back_by_the_hint(
    prefix: Path, tmp_path: Path, images: Images, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its relative source is one of its own directory."""
    directory = tmp_path / "ec/a b"
    text = "name: Near\nversion: '1.0'\nimage: {sources: [./tiny.sif]}\nwrappers: [sh]\n"
    path = write(directory / "Near-1.0.yaml", text)
    (directory / "tiny.sif").write_bytes(images.tiny_sif.read_bytes())
    assert run(["install", "-q", str(path)]) == 0
    path.unlink()
    before = disk_state(prefix)
    capfd.readouterr()
    assert again() == 4
    assert disk_state(prefix) == before
    _, _, command = capfd.readouterr().err.partition("from the copy in the module: ")
    assert f" {shlex.quote(str(path))}\n" in command
    subprocess.run(("sh", "-c", command), check=True)
    assert again() == 0
    assert run(["install", str(path)]) == 0
    assert "already installed" in capfd.readouterr().err


@pytest.mark.parametrize(("answer", "code", "then"), [("n", 1, [1, 1]), ("y", 0, [2, 2])])
def test_the_answer_on_a_terminal(prefix: Path, tmp_path: Path, answer: str, code: int, then: list[int]) -> None:
    change(tmp_path)
    before = disk_state(prefix)
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    command = (sys.executable, "-m", "sifmod", "install", "--module-only")
    done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, check=False)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == code, done.stderr
    assert ("== nothing was changed, as you chose\n" in done.stderr) == (answer == "n")
    assert generations(prefix) == then
    assert (disk_state(prefix) == before) == (answer == "n")


def test_what_changes_while_it_is_asked_is_not_installed_unseen(prefix: Path, tmp_path: Path) -> None:
    """The answer is for the difference that was shown; the other module's is as it was."""
    change(tmp_path)
    before = disk_state(prefix / "software/One", prefix / "modules/One")
    ours, theirs = pty.openpty()
    command = (sys.executable, "-m", "sifmod", "install", "--module-only")
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as started:
        assert started.stderr is not None
        said = b""
        while b"Apply the changes" not in said:
            more = os.read(started.stderr.fileno(), 4096)
            assert more, said
            said += more
        with (tmp_path / "ec/One/One-1.0.yaml").open("a") as file:
            file.write("env: {UNSEEN: '1'}\n")
        os.write(ours, b"y\n")
        told = started.stderr.read().decode()
    os.close(ours)
    os.close(theirs)
    assert started.returncode == 18, told
    assert "One/1.0: its site, easyconfig or receipt changed meanwhile\n\nhint: repeat the command" in told
    assert disk_state(prefix / "software/One", prefix / "modules/One") == before
    assert generations(prefix) == [1, 2]


def test_two_at_once_make_one_generation(prefix: Path, tmp_path: Path) -> None:
    """Both have decided before either begins, as when one waits for the other's lock."""
    change(tmp_path)
    asked = RerenderContext(Layout(prefix), {}, sanity=True)
    first, second = (tuple(rerender_all(asked)) for _ in range(2))
    for decided, changed in ((first, True), (second, False)):
        for one in decided:
            assert one.diff
            _, became = rerender(one.module, one.number, one.decided, asked, Reporter(print))
            assert isinstance(became, tuple)
            assert became[1] == changed
    assert generations(prefix) == [2, 2]
    assert run(["rollback", "One/1.0"]) == 0
    assert "FROM_SETTINGS" not in (prefix / "software/One/1.0/share/launch.sh").read_text()


def test_an_easyconfig_in_a_closed_directory_stops_no_other_module(
    shared_tmp: Path, images: Images, ordinary_user: OrdinaryUser
) -> None:
    image = f"version: '1'\nimage: {{sources: [{images.tiny_sif}]}}\n"
    for name in ("One", "Two"):
        write(shared_tmp / f"{name}/{name}-1.yaml", f"name: {name}\n{image}")
    tree = {"SIFMOD_PREFIX": str(ordinary_user.home / "tree")}
    files = (shared_tmp / "One/One-1.yaml", shared_tmp / "Two/Two-1.yaml")
    ordinary_user.run((*SIFMOD, "install", *files, "--skip-sanity-check"), tree).ok()
    (shared_tmp / "One").chmod(0)
    with files[1].open("a") as file:
        file.write("env: {A: b}\n")
    for words in (("-D",), ("--yes",)):
        ended = ordinary_user.run((*SIFMOD, "install", "--module-only", "--installed", *words), tree)
        assert ended.code == 25, ended.stderr
        assert f"One/1: {files[0]} is closed to you" in ended.stderr
        assert "1 of 2 installed modules change, 1 could not be decided" in ended.stderr
    assert (ordinary_user.home / "tree/software/Two/.generations/1/2").is_dir()
