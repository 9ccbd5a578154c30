"""The verbs around an install: check, search, show, config, doctor, init, schema, help; and errors of the machine."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sifmod import __version__
from sifmod.cli.commands import COMMANDS
from sifmod.cli.main import run
from sifmod.cli.outputs import hook_schema
from sifmod.config.site import SiteFile
from support.config import write
from support.identity import call_as
from support.images import Images
from support.runtime import RUNTIME
from support.user import OrdinaryUser

EASYCONFIG = "name: Tiny\nversion: '1.0'\nimage: {sources: [/nowhere/tiny.sif]}\n"
SIFMOD = str(Path(sys.executable).with_name("sifmod"))


def test_the_version_needs_no_import(capfd: pytest.CaptureFixture[str]) -> None:
    start = "import sys; sys.argv = ['sifmod', '--version']; import sifmod.__main__ as m; m.main()"
    code = f"{start}; print('click' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == f"sifmod {__version__}\nFalse\n"
    assert run(["--version"]) == 0
    assert capfd.readouterr().out == f"sifmod {__version__}\n"


@pytest.mark.parametrize("verb", list(COMMANDS))
def test_every_verb_explains_itself(verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    assert f"Usage: sifmod {verb}" in capfd.readouterr().out


def test_check_validates_and_renders_every_variant(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "PyTorch-2.2.0.yaml", "PyTorch-2.13.0"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.partition(": ok: ")[2] for line in lines] == [
        "PyTorch/2.2.0-rocm-5.6.1-python-3.10-singularity-20240209 (variant rocm)",
        "PyTorch/2.2.0-cuda-12.3-python-3.10-ngc-24.01 (variant cuda)",
        "PyTorch/2.2.0-cpu (variant cpu)",
        "PyTorch/2.13.0-cuda-12.6-cudnn-9 (variant cuda)",
        "PyTorch/2.13.0-cpu (variant cpu)",
        "PyTorch/2.13.0-rocm-10.1.0-python-3.12 (variant rocm)",
    ]


def test_check_reports_every_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    good, bad, odd = tmp_path / "good.yaml", tmp_path / "bad.yaml", tmp_path / "odd.yaml"
    good.write_text(EASYCONFIG)
    bad.write_text(EASYCONFIG + "wrapers: [sh]\n")
    odd.write_text(EASYCONFIG.replace("/nowhere/tiny.sif", "gopher://x"))
    assert run(["check", str(bad), str(good), str(odd), str(tmp_path / "none.yaml")]) == 5
    out = capfd.readouterr().out
    assert f"{bad}:4:1: wrapers: unknown key; did you mean wrappers?" in out
    assert f"{good}: ok: Tiny/1.0" in out
    assert f"{odd}:" in out
    assert "gopher" in out
    assert "no such file" in out
    assert run(["check", "--json", str(bad)]) == 5
    assert json.loads(capfd.readouterr().out)[0]["modules"] == []


def test_show_of_an_easyconfig_and_its_origins(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "Tiny-1.0.yaml"
    path.write_text(EASYCONFIG + "env: {A: '1'}\n")
    assert run(["show", str(path)]) == 0
    captured = capfd.readouterr()
    assert "PIP_USER: '0'" in captured.out
    assert captured.err == ""
    assert run(["show", "--origins", str(path)]) == 0
    lines = {line.split()[0]: line for line in capfd.readouterr().out.splitlines()}
    assert f"({path}:4" in lines["env.A"]
    assert "default" in lines["env.PIP_USER"]
    assert run(["show", "--json", "--variant", "rocm", "PyTorch-2.2.0.yaml"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown["keys"]["conda"] == {"prefix": "/opt/miniconda3", "env": "pytorch"}


def test_config_show_says_where_each_value_came_from(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = own_home / ".config" / "sifmod" / "config.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text("link: hardlink\nprefix: /from/the/file\n")
    monkeypatch.setenv("SIFMOD_PREFIX", "/from/the/variable")
    assert run(["config", "show", "--accelerator", "cuda"]) == 0
    lines = {line.split()[0]: line for line in capfd.readouterr().out.splitlines()}
    assert f"({settings}:1)" in lines["link"]
    assert "/from/the/variable" in lines["prefix"]
    assert "SIFMOD_PREFIX" in lines["prefix"]
    assert "--accelerator" in lines["accelerator"]


def test_config_show_has_every_key(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--site", "lumi-g"]) == 0
    out = capfd.readouterr().out
    rows = {line.split()[0]: line.split(maxsplit=2)[2] for line in out.splitlines() if line[0] != " "}
    missing = [
        key
        for key in SiteFile.model_fields
        if key not in ("detect", "extends") and not any(row.startswith(key) for row in rows)
    ]
    assert missing == []
    assert rows["umask"].startswith("- ")
    assert rows["mirrors"].startswith("- ")
    assert rows["signatures.keys"].startswith("- ")
    assert int(rows["processors"].split()[0]) >= 1
    assert rows["accelerator"].split(maxsplit=1) == ["rocm", "(site lumi-g)"]
    assert rows["accelerators.cuda"].split() == ["nv", "(default)"]
    assert "lumi-g.yaml" not in out
    monkeypatch.setenv("SIFMOD_PROCESSORS", "1")
    assert run(["config", "show", "--json"]) == 0
    shown = {row["key"]: row for row in json.loads(capfd.readouterr().out)}
    assert (shown["umask"]["value"], shown["processors"]["origin"]) == (None, "SIFMOD_PROCESSORS")


def test_help_points_to_what_is_there(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    out = capfd.readouterr().out
    assert "`sifmod help`" in out
    assert "docs/" not in out.replace(sys.prefix, "")
    assert run(["new", "--help"]) == 0
    out = capfd.readouterr().out
    assert "--compression" in out
    assert "--processors" in out
    assert "--keep-blobs" not in out


def test_an_unknown_variable_is_refused_by_every_verb(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SIFMOD_CONFIG_DIR")
    monkeypatch.setenv("SIFMOD_PREFX", "/x")
    for arguments in (["list"], ["install", "x"], ["config", "show"], ["gc"]):
        assert run(arguments) == 2
        assert "did you mean SIFMOD_PREFIX?" in capfd.readouterr().err


def test_the_schema_is_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    properties = json.loads(capfd.readouterr().out)["properties"]
    assert "image" in properties
    assert "lumi-g1" in properties["preset"]["examples"]  # which an editor completes
    assert run(["schema", "--hooks"]) == 0
    assert json.loads(capfd.readouterr().out) == hook_schema()


def test_doctor_looks_and_changes_nothing(own_home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = run(["doctor", "--json"])
    findings = {finding["subject"]: finding for finding in reversed(json.loads(capfd.readouterr().out))}
    assert {
        "runtime",
        "user namespaces",
        "mksquashfs",
        "accelerator",
        "module tool",
        "Slurm",
        "prefix",
    } <= findings.keys()
    assert findings["runtime"]["text"].startswith(RUNTIME.kind)
    assert findings["module tool"]["status"] == "missing"
    assert code == 1
    assert list(own_home.iterdir()) == []


def test_doctor_tells_of_spellings_that_differ(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SINGULARITY_BIND", "/a")
    monkeypatch.setenv("APPTAINER_BIND", "/b")
    run(["doctor"])
    assert "SINGULARITY_BIND and APPTAINER_BIND are set differently" in capfd.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_init_gives_a_shell_its_modules(shell: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    assert program, f"{shell} is missing: run scripts/provision"
    prefix = tmp_path / "a prefix"
    env = {**os.environ, "PATH": f"{Path(SIFMOD).parent}:/usr/bin:/bin", "SIFMOD_PREFIX": str(prefix)}
    lines = subprocess.run([SIFMOD, "init", shell], env=env, capture_output=True, text=True, check=True).stdout
    modules = {
        "fish": "function module; echo module $argv; end",
        "tcsh": """alias module 'echo module \\!*'""",
    }
    module = modules.get(shell, 'module() { echo "module $*"; }')
    # zsh's completion needs its own system to have been started
    start = "autoload -Uz compinit; compinit -D" if shell == "zsh" else ""
    script = write(tmp_path / "script", "\n".join([module, start, lines]))
    words = [program, "-f", str(script)] if shell == "tcsh" else [program, str(script)]
    result = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert result.stdout == f"module use {prefix}/modules\n"
    assert (result.returncode, result.stderr) == (0, "")


def test_a_place_that_is_not_writable(
    ordinary_user: OrdinaryUser, shared_tmp: Path, images: Images, capfd: pytest.CaptureFixture[str]
) -> None:
    easyconfig = shared_tmp / "Tiny-1.0.yaml"
    easyconfig.write_text(f"name: Tiny\nversion: '1.0'\nimage: {{sources: [{images.tiny_sif}]}}\n")
    closed = shared_tmp / "closed"
    closed.mkdir(mode=0o555)
    # as root first: the other user may not be able to read this interpreter's modules
    assert run(["install", "-q", str(easyconfig), "--prefix", str(shared_tmp / "open")]) == 0
    capfd.readouterr()
    code = call_as(ordinary_user.user, lambda: run(["install", str(easyconfig), "--prefix", str(closed / "tree")]))
    error = capfd.readouterr().err
    assert code == 25, error
    assert "Permission denied" in error
    assert "--prefix" in error
    assert list(closed.iterdir()) == []


def test_standard_output_that_is_closed_is_no_error() -> None:
    result = subprocess.run(
        f"{SIFMOD} schema | head -1; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "{\n0\n"
    assert result.stderr == ""
