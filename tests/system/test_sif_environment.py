"""The environment of a SIF in an export: the config's, or what the runtime has in two containers, or what is read."""

import json
import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.cli.main import run as sifmod
from support.command import run
from support.disk_state import disk_state
from support.identity import call_as
from support.images import Images
from support.runtime import RUNTIME
from support.user import OrdinaryUser

DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SCRIPT = r"""
export PATH=/opt/x/bin:$PATH
export CUDA_HOME=/usr/local/cuda
export CUDA=$CUDA_HOME
export A=1 B=2
readonly C=3
export C
export D=4 \
    E=5
cat >/dev/null <<EOF
export F=6
EOF
if [ -d /etc ]; then export G=7; fi
export OWN=$HOME/x HOST=$(hostname) WHERE=$(pwd) SAME=$(echo same)
export PROCESS=$$
export WHO=$(id -u)
"""
KNOWN = {"A": "1", "B": "2", "C": "3", "CUDA": "/usr/local/cuda", "CUDA_HOME": "/usr/local/cuda", "D": "4", "E": "5"}
PATH = {"PATH": f"/opt/x/bin:{DEFAULT}"}
DIFFERS = "left out of the environment: HOST, OWN, PROCESS, WHERE, WHO (differs between two starts, as by user or host)"
COMPUTED = "computed once, on this machine, by commands of the image: SAME"
LEFT_OUT = "left out of the environment, because only a shell can compute them: G, HOST, OWN, PROCESS, SAME, WHERE, WHO"
Export = Callable[[Path], tuple[dict[str, str], list[str]]]


def build(to: Path, definition: str) -> None:
    with_place = to.with_suffix(".def")
    with_place.write_text(definition)
    run((RUNTIME.path, "build", *RUNTIME.fast, to, with_place), env={**os.environ, **RUNTIME.userns}).ok()


@pytest.fixture(scope="session")
def defined(images: Images, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a definition whose environment needs a shell."""
    sif = tmp_path_factory.mktemp("defined") / "defined.sif"
    build(sif, f"Bootstrap: oci\nFrom: {images.tiny_layout()}\n%environment{SCRIPT}")
    return sif


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Export:
    """The environment in an oci-archive, and what was said; nothing but the archive is new."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))

    def export(sif: Path) -> tuple[dict[str, str], list[str]]:
        (tmp_path / "work").mkdir()
        target, before = tmp_path / "work" / "x.tar", disk_state(tmp_path)
        capfd.readouterr()
        assert sifmod(["export", "--json", str(sif), "--to", "oci-archive", "-o", str(target)]) == 0
        notes = json.loads(capfd.readouterr().out)["notes"]
        found = environment(target)
        target.unlink()
        assert disk_state(tmp_path) == before
        (tmp_path / "work").rmdir()
        return found, notes

    return export


def environment(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as tar:

        def blob(descriptor: dict[str, str]) -> dict[str, dict[str, str]]:
            stream = tar.extractfile(f"blobs/{descriptor['digest'].replace(':', '/')}")
            assert stream is not None
            content: dict[str, dict[str, str]] = json.load(stream)
            return content

        stream = tar.extractfile("index.json")
        assert stream is not None
        section = blob(blob(json.load(stream)["manifests"][0])["config"])["config"]
    return dict(text.partition("=")[::2] for text in section["Env"])


def test_it_is_what_two_containers_agree_on(defined: Path, export: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the host's variables are; the shown one is what can be known without a container."""
    for name in ("APPTAINERENV_A", "SINGULARITYENV_Z", "A", "LD_LIBRARY_PATH", "LANG", "http_proxy"):
        monkeypatch.setenv(name, "/of-the-host")
    found, notes = export(defined)
    assert found == {**KNOWN, **PATH, "G": "7", "SAME": "same"}
    assert notes == [DIFFERS, COMPUTED]


def test_an_ordinary_user_has_the_same(
    defined: Path, ordinary_user: OrdinaryUser, capfd: pytest.CaptureFixture[str]
) -> None:
    home = ordinary_user.home
    sif, archive = home / "x.sif", home / "x.tar"
    sif.write_bytes(defined.read_bytes())
    ordinary_user.own(home)

    def exported() -> int:
        os.environ.clear()
        os.environ |= {**ordinary_user.environment(), "SIFMOD_PREFIX": str(home / "prefix")}
        return sifmod(["export", "--json", str(sif), "--to", "oci-archive", "-o", str(archive)])

    capfd.readouterr()
    assert call_as(ordinary_user.user, exported) == 0
    assert json.loads(capfd.readouterr().out)["notes"] == [DIFFERS, COMPUTED]
    assert environment(archive) == {**KNOWN, **PATH, "G": "7", "SAME": "same"}


def test_without_a_runtime_it_is_what_can_be_read(
    defined: Path, export: Export, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert export(defined) == (
        {**KNOWN, **PATH},
        [LEFT_OUT, "no runtime was found: the environment is read from its scripts"],
    )
    assert sifmod(["show", "--json", str(defined)]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown["config"]["environment"] == {**KNOWN, **PATH}
    assert shown["notes"] == [LEFT_OUT]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo no such thing >&2\nexit 3", "no such thing"),
        ("exit 0", "it says nothing"),
    ],
)
def test_a_runtime_that_cannot_start_it_is_named(
    text: str, said: str, defined: Path, export: Export, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "apptainer"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    found, notes = export(defined)
    assert found == {**KNOWN, **PATH}
    why = f"apptainer did not start the image ({said}): the environment is read from its scripts"
    assert notes == [LEFT_OUT, why]


def test_what_says_its_environment_is_not_started(
    images: Images, export: Export, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A converted image, and one that a recipe or a definition without an environment made of it."""
    program, started = tmp_path / "bin" / "apptainer", tmp_path / "started"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncase $1 in exec) echo >>{started} ;; esac\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    layout = images.tiny_layout("said", env=["ODD=a $b 'c' \"d\"", "HOME=/home/app"])
    sif = tmp_path / "x.sif"
    assert sifmod(["fetch", "-q", f"oci:{layout}", "-o", str(sif)]) == 0
    expected = {"PATH": DEFAULT, "ODD": "a $b 'c' \"d\"", "HOME": "/home/app"}
    assert export(sif) == (expected, [])
    assert not started.exists()


def test_an_image_without_the_program_that_says_it(export: Export, tmp_path: Path) -> None:
    top = tmp_path / "tree"
    (top / "bin").mkdir(parents=True)
    (top / "bin" / "sh").write_text("#!")
    definition = f"Bootstrap: localimage\nFrom: {top}\n%environment\nexport A=1 B=$(x)\n"
    build(tmp_path / "x.sif", definition)
    found, notes = export(tmp_path / "x.sif")
    assert found == {"A": "1"}
    assert notes[1] == "the image has no program `cat`: the environment is read from its scripts"


def test_it_is_what_a_module_sees(defined: Path, export: Export) -> None:
    """Names and values are those of a container of the runtime, but for what is left out and the runtime's own."""
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **RUNTIME.userns}
    said = run((RUNTIME.path, "exec", "--cleanenv", defined, "cat", "/proc/self/environ"), env=env).ok().stdout
    there = dict(text.partition("=")[::2] for text in said.split("\0") if text)
    own = re.compile(r"HOME|PWD|LANG|TERM|USER_PATH|PROMPT_COMMAND|PS1|LD_LIBRARY_PATH|(APPTAINER|SINGULARITY)_.*")
    left = {"HOST", "OWN", "PROCESS", "WHERE", "WHO"}
    found, _ = export(defined)
    assert found == {name: text for name, text in there.items() if not own.fullmatch(name) and name not in left}
