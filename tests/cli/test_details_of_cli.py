"""Small promises of the command line: each was once broken by fuzz/faults.py without a test that noticed."""

import errno
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from sifmod import result as words
from sifmod.cli.installed import _format_entry, _log_row
from sifmod.cli.main import CommandLine, run
from sifmod.cli.output import show_error
from sifmod.cli.progress import bar_line, figures
from sifmod.config.name import ModuleName
from sifmod.config.schema import easyconfig_schema
from sifmod.tree.layout import Layout
from sifmod.tree.log import Done, Entry, read_log
from support.config import write
from support.images import Images
from support.tree import kept_for

MODULE = ModuleName("Tiny", "1.0")


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "prefix"


@pytest.fixture
def easyconfig(prefix: Path, images: Images) -> str:
    text = f"name: Tiny\nversion: '1.0'\nimage: {{sources: ['{images.tiny_sif}']}}\nwrappers: [sh]\n"
    return str(write(prefix.parent / "Tiny-1.0.yaml", text))


def install(easyconfig: str, *words: str) -> None:
    assert run(["install", "-q", "--skip-sanity-check", *words, easyconfig]) == 0


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (words.ModuleText, "Tiny/1.0", ("Tiny", "a/b/c", "/1.0", "Tiny/")),
        (words.PathText, "/x", ("x", "./x", "")),
        (words.Sha256, "0a" * 32, ("0a" * 31, "0a" * 33, "0A" * 32, "sha256:" + "0a" * 32)),
        (words.Digest, "sha256:0a", ("0a", "sha256:", "sha256:0A", "x sha256:0a")),
        (words.Size, 0, (-1, "x")),
        (words.Number, 0, (-1, "x")),
        (words.Time, "2026-11-22T07:36:29.412Z", ("2026-11-22T07:36:29", "2026-11-22 07:36:29Z", "2026-11-22")),
    ],
)
def test_a_word_of_the_answers_allows_no_other_values(kind: Any, right: object, wrong: tuple[object, ...]) -> None:
    adapter: TypeAdapter[object] = TypeAdapter(kind)
    assert adapter.validate_python(right, strict=True) == right
    for value in wrong:
        with pytest.raises(ValidationError):
            adapter.validate_python(value, strict=True)


def test_a_row_of_the_log() -> None:
    """Who logged in is named where it is somebody else; a generation that was live before, where it is another."""
    image = "ab" * 32
    entry = Entry("2026-11-22T07:36:29.412Z", "root", 0, None, "n1", "1.0", "sifmod x", Done("fetched", sha256=image))
    assert _log_row(entry) == ("2026-11-22 07:36", "root", "n1", "fetched image abababababab…, 0 B", "sifmod x")
    assert _log_row(entry._replace(login="ada"))[1] == "ada as root"
    for done, told in (
        (Done("removed", size=2000), "removed download, 2.0 kB"),
        (Done("removed", sha256=image, size=2000), "removed image abababababab…, 2.0 kB"),
        (Done("installed", MODULE, None, 1), "installed Tiny/1.0, generation 1"),
        (Done("installed", MODULE, 1, 2), "installed Tiny/1.0, generation 2 (was 1)"),
        (Done("restored", MODULE, 2, 2), "restored Tiny/1.0, generation 2"),
        (Done("uninstalled", MODULE, 2, None), "uninstalled Tiny/1.0, generation 2"),
    ):
        assert _format_entry(done) == told


def test_each_line_of_the_log_has_the_command(easyconfig: str, prefix: Path) -> None:
    for line in (
        f"install --skip-sanity-check {easyconfig}",
        f"install --rebuild --skip-sanity-check {easyconfig}",
        "rollback Tiny/1.0 --to 1",
        "rollback --release Tiny/1.0",
        "gc --yes --now --rollbacks --ignore-jobs",
        "uninstall Tiny/1.0",
        "uninstall --purge --ignore-jobs Tiny/1.0",
    ):
        before = len(read_log(Layout(prefix), MODULE).entries)
        assert run(line.split()) == 0
        for entry in read_log(Layout(prefix), MODULE).entries[before:]:
            assert entry.command == f"sifmod {line}"
    assert read_log(Layout(prefix), None).entries[-1].command.startswith("sifmod ")
    assert {entry.command.split()[1] for entry in read_log(Layout(prefix), MODULE).entries} == {
        "install",
        "rollback",
        "gc",
        "uninstall",
    }


def test_of_several_references_only_a_failure_is_told_when_all_is_to_be_quiet(
    prefix: Path, images: Images, capfd: pytest.CaptureFixture[str]
) -> None:
    sif = str(images.tiny_sif)
    assert run(["fetch", "-q", sif, sif]) == 0
    assert capfd.readouterr().err == ""
    assert run(["fetch", sif, sif]) == 0
    assert "== 2 of 2 done\n" in capfd.readouterr().err
    assert run(["fetch", "-q", "/no/such.sif", sif]) == 10
    err = capfd.readouterr().err
    assert "== 1 of 2 done, exit code 10\n" in err
    assert "fetching" not in err
    assert prefix.exists()


def test_a_digest_in_each_spelling(prefix: Path, images: Images, capfd: pytest.CaptureFixture[str]) -> None:
    sha256 = hashlib.sha256(images.tiny_sif.read_bytes()).hexdigest()
    for text in (sha256, sha256.upper(), f"sha256:{sha256}"):
        assert run(["fetch", "-q", "--sha256", text, str(images.tiny_sif)]) == 0
    capfd.readouterr()
    before = sorted(prefix.rglob("*.sif"))
    for text in (sha256[:-1], f"{sha256}0", f"{sha256[:-1]}g", f"md5:{sha256}"):
        assert run(["fetch", "-q", "--sha256", text, str(images.tiny_sif)]) == 2
        assert f"--sha256: expected 64 hexadecimal digits, got '{text}'" in capfd.readouterr().err
    assert sorted(prefix.rglob("*.sif")) == before


def test_one_that_cannot_be_uninstalled_is_told_and_the_others_go(
    easyconfig: str, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = write(prefix.parent / "Other-1.yaml", Path(easyconfig).read_text().replace("Tiny\n", "Other\n"))
    for path in (easyconfig, str(other)):
        install(path, "--module-syntax", "lua")
    stub = prefix / "modules" / "Other" / "1.0.lua"
    stub.write_text("-- mine\n")
    capfd.readouterr()
    assert run(["uninstall", "Other/1.0", "Tiny/1.0"]) != 0
    err = capfd.readouterr().err
    assert f"error: {stub} was not written by sifmod, or was changed since" in err
    assert "\nhint: move it away, then repeat the command" in err
    assert f"== Tiny/1.0: uninstalled; {kept_for('Tiny/1.0')}\n" in err
    assert "== Tiny/1.0: shells that have it loaded keep using it but cannot unload it: start a new one\n" in err
    assert stub.read_text() == "-- mine\n"
    assert not Layout(prefix).switch(MODULE).exists()
    assert run(["uninstall", "Tiny/1.0"]) == 0
    assert "== Tiny/1.0: was already uninstalled; `sifmod rollback" in capfd.readouterr().err


def test_verify_says_what_to_do_about_a_changed_file(
    easyconfig: str, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    install(easyconfig)
    capfd.readouterr()
    assert run(["verify"]) == 0
    assert capfd.readouterr() == ("Tiny/1.0: ok\n", "")
    script = Layout(prefix).generation(MODULE, 1) / "bin" / "sh"
    script.chmod(0o755)
    script.write_text("#!/bin/sh\n")
    assert run(["verify"]) == 1
    out, err = capfd.readouterr()
    assert out.startswith("Tiny/1.0: 1 fault\n")
    repaired = (
        "`sifmod install --rebuild` of its easyconfig (see `sifmod show`) repairs a module, --force its image too"
    )
    assert err == f"== {repaired}\n"


def test_a_bar_has_no_less_than_ten_cells_and_no_more_than_sixty() -> None:
    assert bar_line("x", 1, 2, "b", 200) == f"x  {'━' * 30}{'─' * 30}  b"
    for columns in range(8, 40):
        line = bar_line("abcdefghijklmn", 1, 2, "b", columns)
        bar = line.count("━") + line.count("─")
        assert len(line) <= columns - 1
        assert bar == 0 or bar >= 10
        assert (bar > 0) == (columns - 4 >= 20)  # where there is room for a label and a bar of ten
        assert line.endswith("b") or bar == 0
    assert bar_line("x", 3, 2, "b", 200) == f"x  {'━' * 60}  b"
    assert bar_line("x", 1, None, "b", 200) == "x  b"


def test_figures_beside_a_bar() -> None:
    assert figures(0, None, None) == ""
    assert figures(1000, None, None) == "1.0 kB"
    assert figures(0, 1000, None) == "  0 %, 0 B of 1.0 kB"
    assert figures(1000, None, 500.0) == "1.0 kB, 500 B/s"
    assert figures(0, 1000, 0.5) == "  0 %, 0 B of 1.0 kB, 0 B/s"
    assert figures(0, 3600, 1.0) == "  0 %, 0 B of 3.6 kB, 1 B/s, 1:00:00 left"
    assert figures(1, 3600, 1.0) == "  0 %, 1 B of 3.6 kB, 1 B/s, 59:59 left"


def test_an_output_that_is_full(
    prefix: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert run(["list", "--json"]) == 1
        said = "error: the output cannot be written: No space left on device\n\n"
        assert capfd.readouterr().err.startswith(
            f"{said}hint: what the command has changed stays changed; `sifmod log` shows every change"
        )
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())  # what is left in the buffer goes there
    assert not prefix.exists()


def test_json_is_asked_for_by_an_option() -> None:
    assert CommandLine(("list", "--json")).wants_json
    assert CommandLine(("list", "--json", "--", "x")).wants_json
    assert not CommandLine(("list", "--", "--json")).wants_json
    assert not CommandLine(("list",)).wants_json
    assert CommandLine(()).answered is False


def test_new_refuses_a_place_before_it_looks_at_the_image(prefix: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (prefix.parent / "there.yaml").write_text("mine")
    assert run(["new", "-o", "there.yaml", "/no/such.sif"]) != 0
    err = capfd.readouterr().err
    assert "there.yaml" in err
    assert "/no/such.sif" not in err
    assert (prefix.parent / "there.yaml").read_text() == "mine"


def test_new_says_how_to_go_on(prefix: Path, images: Images, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["new", "--name", "Tiny", "--version", "1.0", str(images.tiny_sif)]
    assert run(words) == 0
    out, err = capfd.readouterr()
    assert out == "Tiny-1.0.yaml\n"
    assert err.endswith("== Tiny/1.0: review the guesses, then run `sifmod install Tiny-1.0.yaml`\n")
    assert run([*words, "-q", "-o", "b.yaml"]) == 0
    assert capfd.readouterr() == ("b.yaml\n", "")
    assert run([*words, "-q", "-o", "-"]) == 0
    assert capfd.readouterr().out == Path("Tiny-1.0.yaml").read_text()
    assert run([*words, "-q", "--json", "-o", "-"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert (data["path"], data["module"], data["sif"]) == (None, "Tiny/1.0", str(images.tiny_sif))
    assert data["text"] == Path("Tiny-1.0.yaml").read_text()
    assert run([*words, "-q", "--json", "-o", "c.yaml"]) == 0
    assert json.loads(capfd.readouterr().out)["path"] == f"{prefix.parent}/c.yaml"


def test_help_explains_the_options_of_a_site_once(capfd: pytest.CaptureFixture[str]) -> None:
    for verb, short in (("fetch", True), ("install", False), ("config show", False), ("list", False)):
        assert run([*verb.split(), "--help"]) == 0
        row = "--robot-paths, --image-dirs, --accelerator, --runtime, --module-syntax"
        shown = " ".join(capfd.readouterr().out.split())
        assert (f"{row} See `sifmod config show --help`." in shown) is short
        assert ("Directories to search for easyconfigs" in shown) is (verb in ("install", "config show"))


def test_what_the_examples_are_for_stands_in_one_column(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "--help"]) == 0
    lines = capfd.readouterr().out.splitlines()
    at = lines.index("Examples:")
    assert [line.index(text) for line, text in zip(lines[at + 1 :], ("all modules", "the signers"), strict=False)] == [
        2 + len("sifmod verify --signature my.sif") + 2
    ] * 2


def test_the_schema_of_an_easyconfig_is_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    schema = json.loads(capfd.readouterr().out)
    assert schema == easyconfig_schema()
    assert list(schema["$defs"]) == sorted(schema["$defs"])
    assert schema["properties"]["preset"]["examples"] == sorted(schema["properties"]["preset"]["examples"])


def test_an_error_of_the_system_names_its_file_to_people_and_to_programs(
    prefix: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    for number, code, hint in (
        (
            errno.EACCES,
            25,
            "ask its owner for access, or choose a place of your own; --prefix or SIFMOD_PREFIX names the tree",
        ),
        (errno.ENOSPC, 18, "free some space, or choose another disk with --prefix or SIFMOD_PREFIX"),
        (errno.EIO, 18, "fix this, then run the command again"),
    ):

        def failing(*_: object, number: int = number) -> None:
            raise OSError(number, os.strerror(number), str(prefix))

        monkeypatch.setattr(Path, "exists", failing)
        assert run(["list", "--json"]) == code
        monkeypatch.undo()
        out, err = capfd.readouterr()
        data = json.loads(out)
        assert (data["file"], data["exit_code"]) == (str(prefix), code)
        assert err.startswith(f"error: {prefix}: {os.strerror(number)}")
        assert f"\n\nhint: {hint}" in err


def test_a_message_without_a_hint_has_none(capfd: pytest.CaptureFixture[str]) -> None:
    show_error("what is wrong")
    assert capfd.readouterr().err == "error: what is wrong\n"
    show_error("what is \x1b[2J wrong", "what to \x07 do")
    assert capfd.readouterr().err == "error: what is \\x1b[2J wrong\n\nhint: what to \\x07 do\n"
