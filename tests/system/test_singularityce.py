"""SingularityCE as the runtime of a module: what it reads, what it cannot do, and what is refused before it fails."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from sifmod.cli.main import run as sifmod
from sifmod.module.plan import Runtime
from support.command import ROOT, run
from support.disk_state import disk_state
from support.generation import make_generation
from support.images import Images
from support.singularityce import singularityce
from support.user_software import Place
from support.wrappers import Somebody, environment, tiny_plan

pytest_plugins = ("support.wrapper_fixtures",)

EASYCONFIG = """
name: Tiny
version: '1.0'
accelerator: none
image: {{sources: ['{source}'], filename: tiny.sif}}
wrappers: [in-sh: sh]
"""


@pytest.fixture
def runtime(shared_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """SingularityCE, as the site's runtime."""
    found = singularityce(shared_tmp)
    monkeypatch.setenv("SIFMOD_RUNTIME", found.path)
    return found


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    return tmp_path / "prefix"


def easyconfig(directory: Path, source: str | Path) -> Path:
    path = directory / "Tiny-1.0.yaml"
    path.write_text(EASYCONFIG.format(source=source))
    return path


def as_gzip(images: Images, directory: Path) -> Path:
    """The tiny image in a SIF that every runtime starts."""
    sif = directory / "tiny gzip.sif"
    assert sifmod(["fetch", "-q", "--compression", "gzip", f"oci:{images.tiny_layout()}", "-o", str(sif)]) == 0
    return sif


@pytest.fixture
def gzip(images: Images, shared_tmp: Path) -> Path:
    sif = as_gzip(images, shared_tmp)
    sif.chmod(0o644)
    return sif


TOLD = [{"APPTAINER_NO_EVAL": "1"}, {"SINGULARITY_NO_EVAL": "1"}, {"SINGULARITY_NO_EVAL": "yes"}]
TOLD += [{"APPTAINER_NO_EVAL": "0"}, {"APPTAINER_NO_EVAL": "false", "SINGULARITY_NO_EVAL": "T"}]


@pytest.mark.parametrize("told", TOLD, ids=str)
def test_a_value_is_text_whichever_spelling_says_no_eval(
    somebody: Somebody, runtime: Runtime, shared_tmp: Path, gzip: Path, told: dict[str, str]
) -> None:
    """Also where the runtime does not read that spelling, or takes the value for no answer (C1)."""
    env = (("HOSTILE", "$(touch pwned) `touch pwned` \\ $HOME"),)
    switch = make_generation(tiny_plan(shared_tmp / "pre fix", env=env, runtime=runtime), gzip)
    result = somebody.run((switch / "bin" / "show-env",), told)
    assert not list(shared_tmp.rglob("pwned"))
    assert environment(result)["HOSTILE"] == env[0][1]


def test_a_squashfs_that_could_not_be_bound_is_not_left(
    somebody: Somebody, runtime: Runtime, shared_tmp: Path, gzip: Path
) -> None:
    """make-squashfs tries the bind first; the commands go on with the directory (C2)."""
    module = make_generation(tiny_plan(shared_tmp / "pre fix", user_software=True, runtime=runtime), gzip)
    place = Place(module, shared_tmp / "the user's own $HOME")
    place.fill_directory()
    if somebody.ordinary is not None:
        somebody.ordinary.own(place.directory.parent)
    before = disk_state(place.directory.parent)
    result = somebody.run((module / "bin" / "make-squashfs",))
    look = somebody.run((module / "bin" / "in-sh", "-c", "cat /user-software/file"))
    assert (look.code, look.stdout, look.stderr) == (0, "directory\n", "")
    assert (result.code, disk_state(place.directory.parent)) == (4, before)
    assert "container creation failed" in result.stderr
    assert "cannot bind a squashfs file; nothing has changed\n\nhint: keep the directory" in result.stderr


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("more", [(), ("--skip-sanity-check",)], ids=["checked", "not checked"])
def test_a_ready_sif_that_would_not_start_is_refused(
    images: Images, prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    """Before it is copied; the commands of the hint make one that starts (C3)."""
    source = tmp_path / "zstd.sif"
    assert sifmod(["fetch", "-q", "--compression", "zstd", f"oci:{images.tiny_layout()}", "-o", str(source)]) == 0
    path = easyconfig(tmp_path, source)
    before = disk_state(tmp_path)
    capfd.readouterr()
    assert sifmod(["install", "-q", *more, str(path)]) == 10
    assert disk_state(tmp_path) == before
    said = capfd.readouterr().err
    assert f"{source} cannot be started here: its squashfs is compressed with zstd; SingularityCE 4" in said
    command = next(line.strip() for line in said.splitlines() if "unsquashfs" in line)
    run(("sh", "-c", command), cwd=tmp_path, env={**os.environ, "PATH": f"{prefix.parent}/bin:{os.environ['PATH']}"})
    repacked = tmp_path / "image-gzip.sif"
    if not repacked.exists():  # the words call the runtime by its name
        run(
            ("sh", "-c", command.replace("singularity build", f"'{os.environ['SIFMOD_RUNTIME']}' build -F")),
            cwd=tmp_path,
        )
    path.write_text(EASYCONFIG.format(source=repacked))
    assert sifmod(["install", "-q", str(path)]) == 0
    assert run((prefix / "software/Tiny/1.0/bin/in-sh", "-c", "echo it")).ok().stdout == "it\n"


@pytest.mark.usefixtures("runtime")
def test_a_conversion_that_would_not_start_is_refused(
    images: Images, prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """And what `auto` makes starts (C3)."""
    path = easyconfig(tmp_path, f"oci:{images.tiny_layout()}")
    before = disk_state(tmp_path)
    assert sifmod(["install", "-q", "--compression", "zstd:3", str(path)]) == 10
    assert disk_state(tmp_path) == before
    said = capfd.readouterr().err
    assert "an image with compression zstd:3 could not be started here: SingularityCE 4" in said
    assert "--compression auto" in said
    assert sifmod(["install", "-q", "--compression", "auto", str(path)]) == 0
    assert run((prefix / "software/Tiny/1.0/bin/in-sh", "-c", "cat /etc/variant")).ok().stdout == "tiny\n"


@pytest.mark.usefixtures("prefix", "runtime")
def test_fetch_says_what_would_not_start_and_what_is_slow(images: Images, capfd: pytest.CaptureFixture[str]) -> None:
    """It publishes nothing, and a SIF may be for another machine."""
    layout = f"oci:{images.tiny_layout()}"
    for compression, note in (
        ("zstd", "cannot be started here"),
        ("lz4", "is slow to start: SingularityCE 4"),
        ("", ""),
    ):
        option = ["--compression", compression] if compression else []
        assert sifmod(["fetch", "--json", "--force", *option, layout]) == 0
        found = json.loads(capfd.readouterr().out)
        assert any(note in line for line in found["notes"]) if note else not found["notes"]
    assert found["made_from"]["compression"] == "gzip:2"


def test_what_another_runtime_got_is_not_kept(
    runtime: Runtime, images: Images, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image with zstd is made anew once the site runs SingularityCE; --module-only, which cannot, refuses."""
    apptainer = shutil.which("apptainer")
    assert apptainer
    path = easyconfig(tmp_path, f"oci:{images.tiny_layout()}")
    monkeypatch.setenv("SIFMOD_RUNTIME", apptainer)
    assert sifmod(["install", "-q", "--compression", "zstd", str(path)]) == 0
    monkeypatch.setenv("SIFMOD_RUNTIME", runtime.path)
    receipt = prefix / "software/Tiny/1.0/receipt.json"
    before = receipt.read_text()
    assert sifmod(["install", "-q", "--module-only", str(path)]) == 10
    assert receipt.read_text() == before
    assert sifmod(["install", "-q", str(path)]) == 0
    assert '"gzip:2"' in receipt.read_text()
    assert run((prefix / "software/Tiny/1.0/bin/in-sh", "-c", "echo it")).ok().stdout == "it\n"


def test_a_promised_image_is_converted_anew(runtime: Runtime, images: Images, prefix: Path, tmp_path: Path) -> None:
    """The promised SIF has zstd, and the store has it; the files of the other one are the promised ones."""
    source = f"oci:{images.tiny_layout()}"
    told = run(
        (sys.executable, "-m", "sifmod", "fetch", "--json", "--compression", "zstd:3", source), env=dict(os.environ)
    )
    promise = json.loads(told.ok().stdout)["promise"]
    path = easyconfig(tmp_path, source)
    path.write_text(
        path.read_text().replace(
            "{sources", f"{{sha256: {promise['sha256']}, conversion: {json.dumps(promise['conversion'])}, sources"
        )
    )
    assert sifmod(["install", "-q", str(path)]) == 0
    assert '"gzip:2"' in (prefix / "software/Tiny/1.0/receipt.json").read_text()
    assert run((prefix / "software/Tiny/1.0/bin/in-sh", "-c", "echo it")).ok().stdout == "it\n"
    assert runtime.kind == "singularity"


def program(directory: Path, script: str) -> Path:
    """A program that says what a runtime would."""
    path = directory / "singularity"
    path.write_text(f"#!/bin/sh\ncase $1 in --version) echo singularity-ce version 4.3.7; exit ;; esac\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("prefix")
def test_the_last_line_that_says_something_is_shown(
    images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """SingularityCE ends with blank lines and the end of a colour (C4)."""
    script = r"printf '\033[31mFATAL:   \033[0m no such thing\n\033[0m\n  \n' >&2; exit 255"
    monkeypatch.setenv("SIFMOD_RUNTIME", str(program(tmp_path, script)))
    assert sifmod(["install", str(easyconfig(tmp_path, as_gzip(images, tmp_path)))]) == 0
    assert "so its commands were not checked (FATAL:    no such thing)" in capfd.readouterr().err


@pytest.mark.usefixtures("prefix")
def test_an_ordinary_user_who_builds_is_told_what_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """C5."""
    said = "FATAL:   --remote, --fakeroot, or the proot command are required to build this source: x"
    monkeypatch.setenv("SIFMOD_RUNTIME", str(program(tmp_path, f"echo '{said}' >&2; exit 255")))
    path = easyconfig(tmp_path, "x")
    (tmp_path / "x.def").write_text("Bootstrap: scratch\n")
    path.write_text(path.read_text().replace("sources: ['x']", "build: x.def"))
    assert sifmod(["install", "-q", str(path)]) == 10
    assert "needs proot on PATH" in capfd.readouterr().err


def test_root_without_the_capability_is_settled_for_both() -> None:
    """Of the tests, and of the demo (C6)."""
    assert os.geteuid() != 0 or os.environ["APPTAINER_USERNS"] == os.environ["SINGULARITY_USERNS"] == "1"
    script = f"source <(sed -n '/^settle_for.*{{$/,/^}}/p' {ROOT}/scripts/demo); settle_for_user_namespace; "
    script += 'echo "${APPTAINER_USERNS-no} ${SINGULARITY_USERNS-no}"'
    mine, other = run(("bash", "-c", script), env={"PATH": os.environ["PATH"]}).ok().stdout.split()
    assert mine == other


def doctor(capfd: pytest.CaptureFixture[str]) -> str:
    sifmod(["doctor", "--json"])
    found = json.loads(capfd.readouterr().out)
    return "\n".join(f"{finding['subject']}: {finding['text']}: {finding['hint']}" for finding in found)


def test_doctor_says_what_this_runtime_cannot_do(runtime: Runtime, capfd: pytest.CaptureFixture[str]) -> None:
    """C8."""
    text = doctor(capfd)
    assert "singularity-ce version 4" in text and runtime.path in text
    for part in ("zstd", "cannot bind a squashfs file", "SINGULARITY_NVCCLI", "lz4", "ignores variables"):
        assert part in text


@pytest.mark.usefixtures("runtime")
def test_doctor_names_the_variables_that_this_runtime_does_not_read(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """C7."""
    monkeypatch.setenv("APPTAINERENV_MINE", "1")
    monkeypatch.setenv("APPTAINERENV_BOTH", "1")
    monkeypatch.setenv("SINGULARITYENV_BOTH", "1")
    monkeypatch.setenv("APPTAINER_BIND", "/opt")
    text = doctor(capfd)
    assert "APPTAINERENV_MINE is set, which this runtime does not read: set SINGULARITYENV_MINE" in text
    assert "APPTAINERENV_BOTH" not in text and "APPTAINER_BIND" not in text


NOTICE, UNREAD = "INFO:    Mounting image with FUSE.", "reached EOF without closing quote"


@pytest.mark.parametrize(
    ("env", "found", "documented"),
    [
        ({}, NOTICE, f"prints `{NOTICE}` in each rank"),
        ({}, "SINGULARITY_CONTAINER=/tmp/", "a temporary path, without setuid"),
        ({"SINGULARITY_NVCCLI": "1"}, "FATAL", "`SINGULARITY_NVCCLI=1`: every command fails"),
        ({"SINGULARITYENV_X": "\\"}, UNREAD, f"says only `{UNREAD}`"),
    ],
    ids=["notice", "path", "nvccli", "backslash"],
)
def test_what_a_bare_command_does_is_documented(
    somebody: Somebody, runtime: Runtime, gzip: Path, env: dict[str, str], found: str, documented: str
) -> None:
    """What sifmod cannot change; of the real one alone (C8)."""
    if Path(runtime.path).parent == gzip.parent:
        pytest.skip("a stand-in for SingularityCE does less than the real one")
    result = somebody.run((runtime.path, "exec", gzip, "env"), env)
    assert found in result.stdout + result.stderr
    assert any(documented in page.read_text() for page in (ROOT / "docs").glob("*.md"))


@pytest.mark.usefixtures("runtime")
def test_one_variable_chooses_the_runtime_of_the_tests(runtime: Runtime) -> None:
    """C9."""
    code = "from support.runtime import RUNTIME as r; print(r.kind, r.path, r.prefix, r.keyring, r.compression)"
    env = {**os.environ, "SIFMOD_TEST_RUNTIME": runtime.path, "PYTHONPATH": f"{ROOT}/tests"}
    said = run((sys.executable, "-c", code), env=env).ok().stdout.split()
    assert said == ["singularity", runtime.path, "SINGULARITY", "SINGULARITY_SYPGPDIR", "gzip"]
