"""Several easyconfigs, variants or references on one command line: each has its turn, its line and its object."""

import json
import os
import platform
import signal
import sys
from pathlib import Path

import pytest

from sifmod.actions.batch import Failed, Skipped, Succeeded, run_batch, worst
from sifmod.cli.main import Terminated, run
from sifmod.errors import FetchError, ModuleError
from sifmod.tree.layout import Layout
from support.config import write
from support.disk_state import disk_state
from support.images import Images
from support.tree import names


@pytest.fixture
def here(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a good easyconfig, one of an image that is not there, one that is wrong; and no prefix."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.setenv("SIFMOD_CONFIG_DIR", str(tmp_path / "etc"))
    monkeypatch.chdir(tmp_path)
    variants = (
        "variants: {a: {versionsuffix: -a}, b: {versionsuffix: -b}, arm: {versionsuffix: -c, image: {arch: ARCH}}}"
    )
    other = "arm64" if platform.machine() == "x86_64" else "amd64"
    image = f"image: {{sources: ['{images.tiny_sif}']}}\nwrappers: [sh]\n"
    write(tmp_path / "Good-1.yaml", f"name: Good\nversion: '1'\n{image}")
    write(tmp_path / "Many-1.yaml", f"name: Many\nversion: '1'\n{image}{variants.replace('ARCH', other)}\n")
    write(tmp_path / "Gone-1.yaml", "name: Gone\nversion: '1'\nimage: {sources: [/no/such.sif]}\n")
    write(tmp_path / "Bad-1.yaml", "name: Bad\nversion: 1\nimage: {sources: [/no/such.sif]}\n")
    return tmp_path


def test_an_install_of_several_goes_on_and_says_what_became_of_each(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["install", "Gone-1.yaml", "Bad-1.yaml", "Good-1.yaml", "nope"]
    assert run([*words, "--skip-sanity-check"]) == 10
    out, err = capfd.readouterr()
    assert out == f"module use {here}/prefix/modules\nmodule load Good/1\n"
    assert err.splitlines()[-5:] == [
        "== 1 of 4 done, exit code 10",
        "==   Gone-1.yaml: failed (10): no source of the image Gone-1.sif worked; it was not stored",
        "==   Bad-1.yaml: failed (5): Bad-1.yaml:2:10: version: expected text, got the number 1; write version: '1'",
        "==   Good-1.yaml: Good/1 installed, generation 1",
        "==   nope: failed (4): no easyconfig is called 'nope'",
    ]
    before = names(Layout(here / "prefix"))
    assert run([*words, "--json", "-q"]) == 10
    gone, bad, good, missing = json.loads(capfd.readouterr().out)
    assert (gone["easyconfig"], gone["exit_code"], gone["file"], gone["line"]) == ("Gone-1.yaml", 10, None, None)
    assert "/no/such.sif: cannot read" in gone["error"]
    assert (bad["exit_code"], bad["file"], bad["line"], bad["column"]) == (5, "Bad-1.yaml", 2, 10)
    assert (good["easyconfig"], good["module"], good["changed"]) == ("Good-1.yaml", "Good/1", False)
    assert (missing["exit_code"], missing["hint"]) == (4, "`sifmod search WORDS` finds easyconfigs")
    assert names(Layout(here / "prefix")) == before


def test_a_reader_that_has_gone_ends_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`| true`: what is left is installed all the same, and the summary says so."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        assert run(["install", "--skip-sanity-check", "Good-1.yaml", "nope", "Many-1.yaml", "--variant", "a"]) == 5
        assert run(["check", "Good-1.yaml", "Bad-1.yaml"]) == 5
    assert capfd.readouterr().err.splitlines()[-5:] == [
        "== 1 of 3 done, exit code 5",
        "==   Good-1.yaml --variant a: failed (5): Good-1.yaml has no variants, so there is no variant 'a'",
        "==   nope --variant a: failed (4): no easyconfig is called 'nope'",
        "==   Many-1.yaml --variant a: Many/1-a installed, generation 1",
        "== 1 of 2 files ok",
    ]
    assert (here / "prefix/modules/Many").is_dir()


@pytest.mark.parametrize("option", [(), ("--fetch",), ("--dry-run-short",)])
def test_fail_fast_leaves_the_others_and_says_which(
    here: Path, option: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    before = disk_state(here)
    assert run(["install", "-q", "--json", "--fail-fast", *option, "Bad-1.yaml", "Good-1.yaml"]) == 5
    out, err = capfd.readouterr()
    assert err.endswith("==   Good-1.yaml: not tried\n")
    bad, good = json.loads(out)
    assert (good["easyconfig"], good["exit_code"]) == ("Good-1.yaml", 5)
    assert good["error"] == f"not tried: {bad['error']}"
    assert disk_state(here) == before


def test_one_that_fails_alone_is_a_list_of_one_and_has_no_summary(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["install", "--json", "Bad-1.yaml"]) == 5
    out, err = capfd.readouterr()
    assert [one["easyconfig"] for one in json.loads(out)] == ["Bad-1.yaml"]
    assert err.startswith("error: a problem in the configuration\nBad-1.yaml:2:10: ")
    assert " of 1 done" not in err
    assert not (here / "prefix").exists()


def test_a_fault_that_stops_all_of_them_is_told_once(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(here / "etc/quirks/odd.yaml", "description: odd\n")
    before = disk_state(here)
    assert run(["install", "Good-1.yaml", "Many-1.yaml"]) == 5
    err = capfd.readouterr().err
    assert err.count("error: ") == 1
    assert err.count("failed (5): ") == 2
    assert disk_state(here) == before


@pytest.mark.usefixtures("here")
def test_each_variant_that_is_named_or_all_of_them(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["install", "-D", "Many-1.yaml", "--variant", "b", "--variant", "a", "--variant", "b"]) == 0
    assert [line.partition("module: ")[2] for line in capfd.readouterr().out.splitlines()] == ["Many/1-b)", "Many/1-a)"]
    words = ["install", "--json", "-q", "--skip-sanity-check", "--variant", "all", "Many-1.yaml"]
    assert run(words) == 0  # what is for another architecture is not among them
    rows = json.loads(capfd.readouterr().out)
    assert [(row["module"], row["variant"], row["changed"]) for row in rows] == [
        ("Many/1-a", "a", True),
        ("Many/1-b", "b", True),
    ]
    assert run([*words, "Good-1.yaml", "Bad-1.yaml"]) == 5
    rows = json.loads(capfd.readouterr().out)
    assert [row.get("changed") for row in rows] == [False, False, True, None]
    assert rows[2]["variant"] is None  # it has no variants
    assert rows[3]["error"].startswith("Bad-1.yaml:2:10: version: ")
    assert run(["install", "-D", "Many-1.yaml", "--variant", "all", "--variant", "zz", "--variant", "a"]) == 5
    out, err = capfd.readouterr()
    assert [line.partition("module: ")[2] for line in out.splitlines()] == ["Many/1-a)", "Many/1-b)"]
    assert "Many-1.yaml has no variant 'zz'" in err
    assert run(["check", "Many-1.yaml", "--variant", "all", "--variant", "zz"]) == 5
    assert "Many-1.yaml has no variant 'zz'" in capfd.readouterr().out
    assert run(["check", "Many-1.yaml", "--variant", "all", "--variant", "arm"]) == 0
    assert capfd.readouterr().out.count(": ok: ") == 3


def test_all_where_none_is_for_this_architecture(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = (here / "Many-1.yaml").read_text()
    write(here / "Far-1.yaml", text[: text.index("variants")] + "variants: {" + text[text.index("arm: ") :])
    before = disk_state(here)
    assert run(["install", "--variant", "all", "Far-1.yaml"]) == 5
    assert "Far-1.yaml has no variant for architecture" in capfd.readouterr().err
    assert disk_state(here) == before


def test_several_references_are_fetched(here: Path, images: Images, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["fetch", "/no/such.sif", str(images.tiny_sif)]
    assert run(words) == 10
    out, err = capfd.readouterr()
    (stored,) = (here / "prefix/images/sha256").glob("*.sif")
    assert out == f"{stored}\n"
    assert err.splitlines()[-3:] == [
        "== 1 of 2 done, exit code 10",
        "==   /no/such.sif: failed (10): no source of the image such.sif worked; it was not stored",
        f"==   {images.tiny_sif}: fetched",
    ]
    assert run([*words, "--json", "--fail-fast", "-q"]) == 10
    assert [one["reference"] for one in json.loads(capfd.readouterr().out)] == words[1:]
    assert run([*words, "-o", "x.sif"]) == 2
    assert "-o and --sha256 take a single REFERENCE" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("problem", "code", "goes_on"),
    [
        (FetchError("gone"), 10, True),
        (PermissionError(13, "Permission denied", "/x"), 25, True),
        (ValueError("odd"), 70, True),
        (KeyboardInterrupt(), 130, False),
        (Terminated(128 + signal.SIGTERM), 143, False),
    ],
)
def test_what_may_go_wrong_with_one_of_them(problem: BaseException, code: int, goes_on: bool) -> None:
    """An interruption ends the batch, and is told like everything else; a bug does not end it."""

    def do(thing: int) -> str:
        if thing == 1:
            raise problem
        return "done"

    (_, first), (_, second), (_, third) = run_batch((0, 1, 2), do)
    assert isinstance(first, Succeeded)
    assert isinstance(second, Failed)
    assert second.error.exit_code == code
    assert ("ValueError: odd" in second.bug) == (code == 70)
    assert isinstance(third, Succeeded if goes_on else Skipped)
    assert worst([first, second, third, Failed(ModuleError("x"))]) == max(code, 24)
