"""Stacks by jobs of a real Slurm, of which a node dies."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.answer import held
from support.command import SIFMOD
from support.config import write
from support.images import Images
from support.processes import wait_until
from support.registry import Registry
from support.slurm import Slurm
from support.web import Web, answer, raw

APPLY = ("stack", "apply", "stack.yaml", "--skip-sanity-check", "--job", "--job-cores=1")
IMAGE = "name: {name}\nversion: '{version}'\nwrappers: [sh]\nimage: {{sources: ['{source}']}}\n"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """One of its own, for a node of it is killed; a job of that node is not begun anew two minutes later."""
    directory = Path(tempfile.mkdtemp(dir="/tmp", prefix="sifmod-slurm-"))
    slurm = Slurm(directory / "cluster")
    for name, value in {**slurm.env, "SBATCH_NO_REQUEUE": "1"}.items():
        monkeypatch.setenv(name, value)
    slurm.start()
    yield slurm
    slurm.stop()
    shutil.rmtree(directory)


@pytest.fixture
def web() -> Iterator[Web]:
    """A server that gives half of an image and then nothing more."""
    server = Web()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stack(here: Path, sources: dict[str, str]) -> None:
    """Two modules of each image, on a machine without GPUs."""
    lines = []
    for name, source in sources.items():
        for version in ("1", "2"):
            write(here / f"{name}-{version}.yaml", IMAGE.format(name=name, version=version, source=source))
            lines.append(f"  - {name}-{version}.yaml\n")
    write(here / "stack.yaml", "easyconfigs:\n" + "".join(lines))
    registry = next((source.split("/")[2] for source in sources.values() if source.startswith("docker:")), "none")
    settings = f"prefix: {here}/prefix\naccelerator: none\ninsecure_registries: ['{registry}']\n"
    write(here / "home/.config/sifmod/config.yaml", settings)


def there(here: Path) -> set[str]:
    return {f"{path.parent.name}/{path.stem}" for path in (here / "prefix/modules").glob("*/*.lua")}


def done(here: Path) -> list[str]:
    """What the log says of modules and images, each change once."""
    files = (here / "prefix/log").glob("**/*.log")
    lines = [line for file in files if "stacks" not in file.parts for line in file.read_text().splitlines()]
    return sorted(f"{entry['what']} {entry.get('module', '')}" for entry in map(json.loads, lines))


def nodes(slurm: Slurm) -> dict[str, str]:
    """Where each element is that has not ended."""
    shown = slurm.run(("squeue", "--noheader", "--array", "--format=%i %N")).ok().stdout
    return dict(line.split(" ", 1) for line in shown.splitlines())


def test_a_node_that_dies_loses_nothing(
    cluster: Slurm, web: Web, images: Images, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sif = images.tiny_sif.read_bytes()
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(sif)}\r\n\r\n".encode()
    web.answers["/slow.sif"] = raw(head, sif[: len(sif) // 2], hang=True)
    registry = Registry(here / "registry")
    registry.start()
    try:
        quick = {
            f"Quick{number}": registry.push_layout(images.tiny_layout(f"quick{number}"), f"quick{number}:1")
            for number in (1, 2)
        }
        stack(here, {**quick, "Slow": web.url("/slow.sif")})
        assert run([*APPLY]) == 0
        assert "== job 1, 3 elements to install 6 modules: submitted" in capfd.readouterr().err
        wait_until(lambda: len(there(here)) == 4 and len(web.asked) > 1 and len(nodes(cluster)) == 1)
        assert run([*APPLY]) == 0
        assert "== job 1, 1 element to install 2 modules: submitted before, and not over yet" in capfd.readouterr().err
        cluster.kill(nodes(cluster)["1_2"])
        wait_until(lambda: not nodes(cluster))
    finally:
        registry.stop()  # so nothing of it can be fetched again
    assert there(here) == {f"{name}/{version}" for name in quick for version in "12"}
    web.answers["/slow.sif"] = answer(200, sif)
    assert run([*APPLY, "--wait", "--json"]) == 0
    out, err = capfd.readouterr()
    assert [job["names"] for job in held("stack apply", out)["jobs"]] == [["Slow/1", "Slow/2"]]
    assert "== [2/2] Slow/" in err
    assert "[R]" not in err  # of what the killed runs have left
    modules = sorted(f"installed {name}/{version}" for name in (*quick, "Slow") for version in "12")
    assert [line for line in done(here) if line.startswith("installed")] == modules
    assert len(list((here / "prefix/images/sha256").glob("*.sif"))) == 3
    assert run([*APPLY, "--wait"]) == 0
    err = capfd.readouterr().err
    assert err.splitlines()[0] == "== stack, 6 modules: 6 there"
    assert ": submitted\n" not in err


def test_what_fails_and_what_is_broken_off(
    slurm: Slurm, images: Images, here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(slurm.configuration))
    stack(here, {"Good": str(images.tiny_sif), "Bad": f"{here}/none.sif"})
    nodes = ("scontrol", "update", "NodeName=n1,n2", "Reason=test")
    slurm.run((*nodes, "State=DRAIN")).ok()
    waiting = subprocess.Popen((*SIFMOD, *APPLY, "--wait"), stderr=subprocess.PIPE, text=True)
    try:
        assert waiting.stderr is not None
        while "PENDING" not in waiting.stderr.readline():
            pass
        waiting.send_signal(signal.SIGINT)
        said = waiting.communicate()[1]
    finally:
        waiting.kill()
        slurm.run((*nodes, "State=RESUME")).ok()
    assert waiting.returncode == 130
    assert "the jobs go on: the same command waits for them again, `scancel " in said
    assert run([*APPLY, "--wait"]) == 10
    err = capfd.readouterr().err
    assert "2 elements to install 4 modules: submitted before, and not over yet" in err
    assert there(here) == {"Good/1", "Good/2"}
    assert "2 of 4 modules are as " in err
    assert "  Bad/1: failed (10): " in err
    assert "  Bad/2: failed (10): not tried: the image of Bad/1 was not fetched" in err
    (log,) = here.glob("sifmod-stack-*.log")
    assert "none.sif" in log.read_text()
    (here / "Bad-1.yaml").write_text((here / "Good-1.yaml").read_text().replace("Good", "Bad"))
    (here / "Bad-2.yaml").write_text("- bad\n")
    (here / "View-1.yaml").write_text("name: View\nversion: '1'\nmodules: [Bad/1]\n")
    (here / "stack.yaml").write_text("easyconfigs: ['*-?.yaml']\n")
    capfd.readouterr()
    assert run([*APPLY, "--wait", "--job-test", "--json"]) == 5  # of what cannot be submitted at all
    data = held("stack apply", capfd.readouterr().out)
    assert [(job["what"], job["names"]) for job in data["jobs"]] == [
        ("apply", ["Bad/1"]),
        ("apply", ["View/1"]),  # which begins when its module is there
        ("test", ["Bad/1"]),
    ]
    assert there(here) == {"Good/1", "Good/2", "Bad/1", "View/1"}
    assert [(test["names"], test["passed"]) for test in data["tests"]] == [(["Bad/1"], True)]
    assert os.listdir(here / "prefix/stacks/jobs") == ["stack.json"]
