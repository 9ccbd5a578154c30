"""`sifmod test` with what is real: PyTorch in a container, an image without Python, a job that is broken off."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.answer import answer
from support.command import SIFMOD
from support.config import write
from support.disk_state import disk_state
from support.images import Images
from support.jobs import SHIPPED
from support.slurm import Slurm

CHECKED = f"extends: {SHIPPED}\nvariants: {{cpu: {{sanity_check: {{commands: ['test -x /runscripts/gpu-check']}}}}}}\n"
TINY = "name: Tiny\nversion: '1.0'\nimage: {{sources: ['{}']}}\nwrappers: [sh]\nsanity_check: {{commands: ['{}']}}\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "pre fix"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def install(easyconfig: Path, sif: Path, *words: str) -> None:
    assert run(["install", "-q", str(easyconfig), "--source", str(sif), "--link", "reference", *words]) == 0


def test_pytorch_sums_over_two_ranks(here: Path, images: Images, capfd: pytest.CaptureFixture[str]) -> None:
    install(write(here / "PyTorch-2.13.0.yaml", CHECKED), images.pytorch_sif, "--variant", "cpu")
    before = disk_state(here / "pre fix/software", here / "pre fix/modules")
    data = answer(capfd, ("test", "PyTorch", "--network"))
    assert [(step["name"], step["outcome"], step["text"].partition(" over ")[0]) for step in data["steps"]] == [
        ("sanity check", "passed", "6 wrappers, 1 command"),
        ("start", "passed", f"{os.uname().nodename}: PyTorch"),
        ("gpu-check", "skipped", "the module is for CPUs"),
        ("collective, torchrun", "passed", "2 ranks"),
        ("bandwidth", "passed", data["steps"][4]["text"]),
        ("network", "skipped", "gloo, PyTorch's backend for CPUs, uses TCP by design"),
    ]
    found = data["bandwidth"]
    assert (found["tool"], found["ranks"], found["size"], found["bus"]) == ("torch", 2, 1 << 24, found["algorithm"])
    assert found["bus"] > 0.01
    assert disk_state(here / "pre fix/software", here / "pre fix/modules") == before


@pytest.mark.parametrize("asks", [True, False])
def test_an_image_without_python(here: Path, images: Images, capfd: pytest.CaptureFixture[str], asks: bool) -> None:
    """Or a module without the runscript that asks Python: it may have PyTorch."""
    text = TINY.format(images.tiny_sif, "test -e /tmp/../mark") + "runscripts: []\n" * (not asks)
    install(write(here / "Tiny-1.0.yaml", text), images.tiny_sif,
            "--skip-sanity-check")  # fmt: skip
    data = answer(capfd, ("test", "Tiny"), 22)
    assert [step["outcome"] for step in data["steps"]] == ["failed", "passed", "skipped", "skipped", "skipped"]
    assert "`test -e /tmp/../mark` failed with exit code 1" in data["steps"][0]["text"]
    assert data["steps"][0]["hint"] is None
    started = "no PyTorch" if asks else "without conda-python-simple nothing asks for PyTorch"
    assert data["steps"][1]["text"] == f"{os.uname().nodename}: {started}"
    why = "the image has no PyTorch" if asks else "the module has no runscript conda-python-simple"
    assert data["steps"][3]["text"] == why
    images_link = next((here / "pre fix/software/Tiny/1.0").glob("*.sif"))
    assert images_link.exists()


def test_an_interrupted_wait_cancels_the_job(slurm: Slurm, here: Path, images: Images) -> None:
    install(write(here / "Tiny-1.0.yaml", TINY.format(images.tiny_sif, "sleep 600")), images.tiny_sif,
            "--skip-sanity-check")  # fmt: skip
    work = here / "work"
    work.mkdir()
    with subprocess.Popen(
        (*SIFMOD, "test", "Tiny", "--job"), env={**os.environ, **slurm.env}, cwd=work, stderr=subprocess.PIPE, text=True
    ) as waits:
        while "running" not in slurm.run(("squeue", "--noheader", "--format=%T")).stdout.lower():
            time.sleep(0.1)
        waits.send_signal(signal.SIGINT)
        _, said = waits.communicate(timeout=60)
    assert waits.returncode == 130, said
    until = time.monotonic() + 20
    while (left := slurm.run(("squeue", "--noheader")).stdout) and time.monotonic() < until:
        time.sleep(0.1)
    assert left == ""
    assert [path.suffix for path in work.iterdir()] in ([], [".log"])
