"""Hooks: what the site's programs are told, and what stops when one of them says no."""

import json
import os
import time
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.cli.outputs import hook_schema
from sifmod.digest import sha256_file
from support.command import SIFMOD
from support.config import write
from support.disk_state import State, disk_state, is_there
from support.images import Images
from support.processes import marked, wait_until
from support.user import OrdinaryUser

MOMENTS = ["before_install", "before_fetch", "after_fetch", "after_install", "before_publish", "after_publish"]


@pytest.fixture
def easyconfig(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.setenv("SIFMOD_LINK", "reference")
    text = f"name: Tiny\nversion: '1'\nlicense: MIT\nimage: {{sources: ['{images.tiny_sif}']}}\nwrappers: [cat]\n"
    return str(write(tmp_path / "Tiny-1.yaml", text))


def hook(place: Path, *lines: str, **keys: str) -> Path:
    """A program that keeps what it is told and then does as `lines` say, and settings that name it for each moment."""
    program = write(place / "hook", "\n".join(("#!/bin/sh", f"cat >>'{place}/told'", *lines, "")))
    program.chmod(0o755)
    named = dict.fromkeys(MOMENTS, f"[{program}]") | keys
    write(
        place / "etc-sifmod.d" / "hooks.yaml",
        "hooks:\n" + "".join(f"  {key}: {value}\n" for key, value in named.items()),
    )
    return program


def told(place: Path) -> list[dict[str, object]]:
    """What the hooks were told, each as the schema says."""
    import jsonschema  # which compiles 38 grammars

    decoder, text, found = json.JSONDecoder(), (place / "told").read_text(), []
    schema = jsonschema.Draft202012Validator(hook_schema())
    while text.strip():
        data, end = decoder.raw_decode(text)
        found.append(data)
        schema.validate(data)
        text = text[end:].lstrip()
    return found


def installed(place: Path) -> State:
    return disk_state(*(place / "prefix" / name for name in ("software", "modules") if (place / "prefix").exists()))


def test_each_moment_is_told_with_the_plan(
    tmp_path: Path, images: Images, easyconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hook(tmp_path, "printf 'seen \\033[31mred\\n'")
    assert run(["install", "--skip-sanity-check", easyconfig]) == 0
    assert "== hook: seen red\n" in capsys.readouterr().err
    first, *_, last = seen = told(tmp_path)
    assert [one["hook"] for one in seen] == MOMENTS
    image = {"sources": [str(images.tiny_sif)], "build": None, "arch": first["image"]["arch"]}  # type: ignore[index]
    assert first["image"] == image | {"sha256": None, "size": None, "path": None}
    assert last["image"] == image | {
        "sha256": str(sha256_file(images.tiny_sif)),
        "size": images.tiny_sif.stat().st_size,
        "path": str(images.tiny_sif),
    }
    assert (first["module"], first["easyconfig"], first["license"]) == ("Tiny/1", easyconfig, "MIT")
    assert (first["path"], last["path"]) == (None, f"{tmp_path}/prefix/software/Tiny/.generations/1/1")
    assert run(["install", easyconfig]) == 0
    assert len(told(tmp_path)) == len(MOMENTS)  # nothing was done, and nothing is told
    assert run(["fetch", str(images.tiny_sif)]) == 0
    assert [(one["hook"], one["module"]) for one in told(tmp_path)[6:]] == [
        ("before_fetch", None),
        ("after_fetch", None),
    ]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_hook_that_fails_stops_and_says_so(
    moment: str, tmp_path: Path, easyconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["install", "--skip-sanity-check", easyconfig]) == 0
    before = installed(tmp_path)
    others = {other: "[]" for other in MOMENTS if other != moment}
    hook(tmp_path, "echo first; echo 'no licence' >&2; exit 3", **others)
    assert run(["install", "--force", "--skip-sanity-check", easyconfig]) == 18
    said = capsys.readouterr().err
    assert f"the hook {tmp_path}/hook ({moment}) failed with exit code 3; " in said
    assert "\n  first\n  no licence\n" in said
    assert f"hint: {tmp_path}/etc-sifmod.d/hooks.yaml configures it\n" in said
    if moment == "after_publish":
        assert "the module was published anyway" in said
        assert os.readlink(tmp_path / "prefix/software/Tiny/1") == ".generations/1/2"
    else:
        assert installed(tmp_path) == before


def test_a_hook_has_its_time(
    tmp_path: Path, easyconfig: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK", str(tmp_path))
    hook(tmp_path, "sh -c 'trap \"\" HUP; sleep 60' & wait", seconds="1")
    began = time.monotonic()
    assert run(["install", easyconfig]) == 18
    assert time.monotonic() - began < 10
    assert "did not finish within 1 s; nothing was changed" in capsys.readouterr().err
    assert not (tmp_path / "prefix" / "software").exists()
    wait_until(lambda: not marked(str(tmp_path)))


def test_what_others_may_write_is_not_run(
    tmp_path: Path, easyconfig: str, capsys: pytest.CaptureFixture[str], ordinary_user: OrdinaryUser
) -> None:
    program = hook(tmp_path)
    settings = tmp_path / "etc-sifmod.d" / "hooks.yaml"
    for path in (program, settings, settings.parent):
        mode = path.stat().st_mode & 0o777
        path.chmod(mode | 0o020)
        assert run(["install", easyconfig]) == 18
        assert f"was not run: other users can write {path}; nothing was changed" in capsys.readouterr().err
        if path.is_file():  # the sticky bit means nothing there
            path.chmod(mode | 0o1022)
            assert run(["install", easyconfig]) == 18
            assert f"was not run: other users can write {path}; nothing was changed" in capsys.readouterr().err
        path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(program, ordinary_user.user.uid, 0)
        assert run(["install", easyconfig]) == 18
        assert f"{program} belongs to sifmod-tester" in capsys.readouterr().err
        os.chown(program, 0, 0)
    aside = tmp_path / "aside"
    aside.mkdir()
    (aside / "program").symlink_to(program)
    (tmp_path / "first").symlink_to("aside/program")
    settings.write_text(settings.read_text().replace(str(program), str(tmp_path / "first")))
    aside.chmod(0o777)  # in which neither the first name nor the program is, but a link between them
    assert run(["install", easyconfig]) == 18
    assert f"was not run: other users can write {aside}; nothing was changed" in capsys.readouterr().err
    assert not (tmp_path / "told").exists()
    if os.geteuid() == 0:
        aside.chmod(0o1777)  # where nobody replaces what is another's; but this link is
        os.chown(aside / "program", ordinary_user.user.uid, 0, follow_symlinks=False)
        assert run(["install", easyconfig]) == 18
        assert f"{aside}/program belongs to sifmod-tester" in capsys.readouterr().err
        assert not (tmp_path / "told").exists()
        os.chown(aside / "program", 0, 0, follow_symlinks=False)
    aside.chmod(0o755)
    program.unlink()
    assert run(["install", easyconfig]) == 18
    assert f"{program}: No such file or directory" in capsys.readouterr().err
    assert not (tmp_path / "told").exists()


LINES = {
    "direct": "{}",
    "deep": "SCRIPT",
    "env": "/usr/bin/env -S {} -u",
    "env in one word": "/usr/bin/env -S{} -u",
    "env by its long option": "/usr/bin/env --split-string={} -u",
    "env with variables": "/usr/bin/env -S A=/bin B=/etc C=/lib D=/sbin E=/usr {}",
    "another program": "/usr/bin/nice {}",
    "env that searches PATH": "/usr/bin/env python",
    "env that searches PATH, in one word": "/usr/bin/env -Spython -u",
}


@pytest.mark.parametrize("way", LINES)
def test_an_interpreter_that_others_may_write_is_not_run(
    way: str,
    tmp_path: Path,
    easyconfig: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran = tmp_path / "ran"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    interpreter = write(tmp_path / "python", f"#!/bin/sh\ntouch '{ran}'\n")
    script = write(tmp_path / "script", f"#! {interpreter} -u\n")
    line = LINES[way].replace("SCRIPT", str(script)).format(interpreter)
    program = write(tmp_path / "program", f"#!{line}\n")
    write(tmp_path / "etc-sifmod.d/hooks.yaml", f"hooks: {{before_install: [{program}]}}\n")
    for file in (program, script, interpreter):
        file.chmod(0o755)
    interpreter.chmod(0o775)
    assert run(["install", easyconfig]) == 18
    assert f"was not run: other users can write {interpreter}; nothing was changed" in capsys.readouterr().err
    assert not ran.exists()
    interpreter.chmod(0o755)
    assert run(["install", "--skip-sanity-check", easyconfig]) == 0
    assert ran.exists()


@pytest.mark.usefixtures("needs_root")
def test_a_directory_of_somebody_else_before_the_interpreter_on_path_is_refused(
    tmp_path: Path,
    easyconfig: str,
    ordinary_user: OrdinaryUser,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    program = write(tmp_path / "program", "#!/usr/bin/env true\n")
    program.chmod(0o755)
    write(tmp_path / "etc-sifmod.d/hooks.yaml", f"hooks: {{before_install: [{program}]}}\n")
    usual = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{theirs}:{usual}")
    ordinary_user.own(theirs)
    assert run(["install", easyconfig]) == 18
    assert f"was not run: {theirs} belongs to sifmod-tester; nothing was changed" in capsys.readouterr().err
    monkeypatch.setenv("PATH", f"/gone::{usual}:{theirs}")
    assert run(["install", "--skip-sanity-check", easyconfig]) == 0


def test_a_path_that_is_another_for_the_hook_is_refused(
    tmp_path: Path, easyconfig: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = hook(tmp_path)
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "etc-sifmod.d/hooks.yaml", "hooks: {before_install: [/proc/self/cwd/hook]}\n")
    assert program.exists()
    assert run(["install", easyconfig]) == 18
    assert "was not run: /proc is not the same for each process" in capsys.readouterr().err


def test_settings_that_cannot_be_hooks(tmp_path: Path, easyconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "etc-sifmod.d" / "hooks.yaml", "hooks: {before_instal: [], before_fetch: [x], seconds: 0}\n")
    assert run(["install", easyconfig]) == 5
    said = capsys.readouterr().err
    assert "hooks.before_instal: unknown key; did you mean before_install?" in said
    assert "hooks.yaml:1:43: hooks.before_fetch[0]: expected the absolute path of a program, got 'x'" in said
    assert "hooks.seconds: expected a number from 1 to 86400" in said


def test_a_hook_stops_a_module_from_being_retired(tmp_path: Path, easyconfig: str) -> None:
    assert run(["install", "--skip-sanity-check", easyconfig]) == 0
    before = installed(tmp_path)
    no = dict.fromkeys(MOMENTS, "[]") | {"before_retire": f"[{tmp_path}/hook]"}
    hook(tmp_path, "exit 1", **no)
    assert run(["retire", "Tiny/1"]) == 18
    assert installed(tmp_path) == before
    hook(tmp_path, "true", **no | {"after_retire": f"[{tmp_path}/hook]"})
    assert run(["retire", "Tiny/1"]) == 0
    moments = ["before_retire", "before_retire", "after_retire"]
    assert [(one["hook"], one["module"]) for one in told(tmp_path)] == [(moment, "Tiny/1") for moment in moments]


def test_a_password_that_a_failing_hook_prints_is_not_repeated(
    tmp_path: Path, easyconfig: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("APPTAINER_DOCKER_PASSWORD", "s3cret-of-registry")
    hook(tmp_path, 'echo "refused: $APPTAINER_DOCKER_PASSWORD"', "exit 3")
    assert run(["install", easyconfig]) != 0
    said = "".join(capfd.readouterr())
    assert "\n  refused: ...\n" in said
    assert "s3cret" not in said


@pytest.mark.parametrize(
    ("words", "code"),
    [("uninstall Tiny/1", 18), ("install --rebuild Tiny-1.yaml", 18), ("rollback Tiny/1", 18), ("hide Tiny/1", 0)],
)
def test_a_command_that_would_wait_for_its_own_hook_fails_at_once(
    words: str, code: int, tmp_path: Path, easyconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A decision is made, but not logged, for which the module's lock is needed; another module can be changed."""
    write(tmp_path / "Two-1.yaml", Path(easyconfig).read_text().replace("Tiny", "Two"))
    assert run(["install", "--skip-sanity-check", easyconfig, str(tmp_path / "Two-1.yaml")]) == 0
    sifmod = " ".join(SIFMOD)
    lines = (f"cd {tmp_path} && {sifmod} uninstall Two/1 && {sifmod} {words}",)
    program = hook(tmp_path, *lines, **dict.fromkeys(MOMENTS, "[]") | {"after_publish": f"[{tmp_path}/hook]"})
    capsys.readouterr()
    assert run(["install", "--skip-sanity-check", "--rebuild", easyconfig]) == code
    assert f"the hook {program} (after_publish) cannot change what sifmod is changing" in capsys.readouterr().err
    assert run(["list", "--json"]) == 0
    (left,) = json.loads(capsys.readouterr().out)
    assert (left["module"], left["generation"]) == ("Tiny/1", 2)
    assert is_there(tmp_path, "prefix/life/Tiny/.life.json") == (code == 0)
