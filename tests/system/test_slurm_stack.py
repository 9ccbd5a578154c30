"""Stacks by jobs of a real Slurm, of which a node dies."""

import json
import os
import re
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifmod.actions.slurm import ask_slurm, cancel, states, submit
from sifmod.cli.main import run
from sifmod.tree.layout import Layout
from sifmod.tree.life import read_life
from sifmod.tree.receipt import live_modules
from support.answer import held
from support.config import write
from support.images import Images
from support.oci import Entry, layer, write_layout
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
        quick = registry.push_layout(images.tiny_layout(), "quick:1")
        stack(here, {"Quick": quick, "Slow": web.url("/slow.sif")})
        assert run([*APPLY]) == 0
        assert re.search("== job [0-9]+, 2 elements to install 4 modules: submitted", capfd.readouterr().err)
        wait_until(lambda: len(there(here)) == 2 and len(web.asked) > 1 and len(nodes(cluster)) == 1)
        assert run([*APPLY]) == 0
        told = "== job [0-9]+, 1 element to install 2 modules: submitted earlier, and not finished"
        assert re.search(told, capfd.readouterr().err)
        (node,) = nodes(cluster).values()
        cluster.kill(node)
        wait_until(lambda: not nodes(cluster))
    finally:
        registry.stop()  # so nothing of it can be fetched again
    assert there(here) == {"Quick/1", "Quick/2"}
    web.answers["/slow.sif"] = answer(200, sif)
    assert run([*APPLY, "--wait", "--json"]) == 0
    out, err = capfd.readouterr()
    assert [job["names"] for job in held("stack apply", out)["jobs"]] == [["Slow/1", "Slow/2"]]
    assert "== [2/2] Slow/" in err
    assert "[R]" not in err  # of what the killed runs have left
    modules = ["Quick/1", "Quick/2", "Slow/1", "Slow/2"]
    assert [line for line in done(here) if line.startswith("installed")] == [f"installed {one}" for one in modules]
    assert len(list((here / "prefix/images/sha256").glob("*.sif"))) == 2
    assert run([*APPLY, "--wait"]) == 0
    err = capfd.readouterr().err
    assert err.splitlines()[0] == "== stack, 4 modules: 4 installed"
    assert ": submitted\n" not in err


def interrupt_when(submitted: Path) -> None:
    """Do as ^C does, a second after the jobs were submitted."""
    wait_until(submitted.exists)
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGINT)


def test_what_fails_and_what_is_broken_off(
    slurm: Slurm, images: Images, here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(slurm.configuration))
    stack(here, {"Good": str(images.tiny_sif), "Bad": f"{here}/none.sif"})
    nodes = ("scontrol", "update", "NodeName=n1,n2", "Reason=test")
    slurm.run((*nodes, "State=DRAIN")).ok()
    interrupting = threading.Thread(target=interrupt_when, args=(here / "prefix/stacks/jobs/stack.json",))
    interrupting.start()
    try:
        assert run([*APPLY, "--wait"]) == 130
    finally:
        interrupting.join()
        slurm.run((*nodes, "State=RESUME")).ok()
    assert "the jobs go on: the same command waits for them again, `scancel " in capfd.readouterr().err
    assert run([*APPLY, "--wait"]) == 10
    err = capfd.readouterr().err
    assert "2 elements to install 4 modules: submitted earlier, and not finished" in err
    assert there(here) == {"Good/1", "Good/2"}
    assert "2 of 4 modules match " in err
    assert "  Bad/1: failed (10): " in err
    assert "  Bad/2: failed (10): not tried: the image of Bad/1 was not fetched" in err
    (log,) = here.glob("sifmod-stack-*.log")
    assert "none.sif" in log.read_text()
    (here / "Bad-1.yaml").write_text((here / "Good-1.yaml").read_text().replace("Good", "Bad"))
    (here / "Bad-2.yaml").write_text("- bad\n")
    capfd.readouterr()
    assert run([*APPLY, "--wait", "--job-test", "--json"]) == 5  # of what cannot be submitted at all
    data = held("stack apply", capfd.readouterr().out)
    assert [(job["what"], job["names"]) for job in data["jobs"]] == [
        ("apply", ["Bad/1"]),
        ("test", ["Bad/1"]),
    ]
    assert there(here) == {"Good/1", "Good/2", "Bad/1"}
    assert [(test["names"], test["passed"]) for test in data["tests"]] == [(["Bad/1"], True)]
    assert os.listdir(here / "prefix/stacks/jobs") == ["stack.json"]


def test_images_that_share_much_are_fetched_by_one_element(
    slurm: Slurm, here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The large layer of two images is downloaded once; a small one does not keep a third from its own element."""
    monkeypatch.setenv("SLURM_CONF", str(slurm.configuration))
    large, other, small = (layer([Entry(f"file-{size}", os.urandom(size))]) for size in (3_000_000, 2_000_000, 1_000))
    layers = {"One": (small, large), "Two": (large,), "Three": (small, other)}
    registry = Registry(here / "registry")
    registry.start()
    try:
        tagged = {
            name: registry.push_layout(write_layout(here / f"layout-{name}", each), f"{name.lower()}:1")
            for name, each in layers.items()
        }
        stack(here, tagged)
        assert run([*APPLY, "--wait"]) == 0
        assert re.search("== job [0-9]+, 2 elements to install 6 modules: submitted", capfd.readouterr().err)
        log = (registry.directory / "registry.log").read_text()
    finally:
        registry.stop()
    sent = [int(size) for size in re.findall(r"method=GET .*blobs/sha256.* http.response.written=(\d+)", log)]
    assert sorted(size // 1_000_000 for size in sent if size > 1_000_000) == [2, 3]
    assert len(there(here)) == 6
    assert not list((here / "prefix/images/partial").glob("*"))


def test_the_spider_cache_is_made_once_by_the_last_element(
    slurm: Slurm, images: Images, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an array and of the views after it, whether the command waits for them or not."""
    monkeypatch.setenv("SLURM_CONF", str(slurm.configuration))
    program = write(
        here / "lmod/update_lmod_system_cache_files", f"#!/bin/sh\nsleep 3\nls '{here}/prefix/modules' >>calls\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("LMOD_DIR", str(program.parent))
    calls = here / "prefix/calls"
    for name in ("One", "Two", "Three"):
        shutil.copyfile(images.tiny_sif, here / f"{name}.sif")
    stack(here, {name: str(here / f"{name}.sif") for name in ("One", "Two", "Three")})
    settings = here / "home/.config/sifmod/config.yaml"
    cache = f"spider_cache: {{directory: {here}/cache, timestamp: {here}/stamp}}\n"
    settings.write_text(settings.read_text() + cache)
    write(here / "View-1.yaml", "name: View\nversion: '1'\nmodules: [One/1]\n")
    whole = (here / "stack.yaml").read_text()
    write(here / "stack.yaml", f"{whole}  - View-1.yaml\n")
    assert run([*APPLY]) == 0
    wait_until(lambda: len(there(here)) == 7 and not nodes(slurm))
    assert calls.read_text().split() == ["One", "Three", "Two", "View"]
    calls.unlink()
    write(here / "home/.config/sifmod/config.yaml", f"{settings.read_text()}env: {{A: b}}\n")
    assert run([*APPLY, "--wait"]) == 0
    assert calls.read_text().split() == ["One", "Three", "Two", "View"]


def test_the_last_element_applies_what_the_stack_decides(
    slurm: Slurm, images: Images, here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of all modules of the stack, and nobody waits for it; with --only of none."""
    monkeypatch.setenv("SLURM_CONF", str(slurm.configuration))
    names = ("One", "Two", "Three")
    for name in names:
        shutil.copyfile(images.tiny_sif, here / f"{name}.sif")
    stack(here, {name: str(here / f"{name}.sif") for name in names})
    decided = {
        "One-1": "hidden: true",
        "One-2": "default: true",
        "Two-1": "deprecated: {since: 2026-01-01, until: 2199-12-31, message: Use 2.}",
        "Three-1": "retired: {since: 2026-01-01, successor: Three/2}",
    }
    lines = [f"  - {{easyconfig: {name}.yaml, {what}}}\n" for name, what in decided.items()]
    more = "".join(f"  - {name}-2.yaml\n" for name in names[1:])
    write(here / "stack.yaml", f"easyconfigs:\n{''.join(lines)}{more}")
    layout = Layout(here / "prefix")
    assert run([*APPLY, "--only", "One/1"]) == 0
    wait_until(lambda: len(live_modules(layout)) == 1 and not nodes(slurm))
    assert not read_life(layout, "One").of("1").hidden
    capfd.readouterr()
    assert run([*APPLY]) == 0
    err = capfd.readouterr().err
    assert "One/2, Three/1, Two/1: the stack's lifecycle settings are applied when the jobs end" in err
    assert "warning" not in err
    wait_until(lambda: len(live_modules(layout)) == 6 and not nodes(slurm))
    one, two, three = (read_life(layout, name) for name in names)
    assert one.of("1").hidden
    assert one.default == "2"
    assert two.of("1").deprecated
    assert three.of("1").retired
    assert run(["stack", "plan", "stack.yaml"]) == 0
    assert "[D]" not in capfd.readouterr().out


@pytest.mark.parametrize(
    "variable", ["SQUEUE_USERS=nobody", "SQUEUE_PARTITION=none", "SLURM_TIME_FORMAT=relative", "SBATCH_WAIT=1"]
)
def test_variables_for_people_hide_no_job_and_wait_for_none(
    variable: str, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in (f"SLURM_CONF={slurm.configuration}", variable):
        monkeypatch.setenv(*one.split("="))
    job = submit("--wrap=sleep 3", "--array=0-0", f"--output={tmp_path}/log")
    known = states((job,)) or {}
    jobs = ask_slurm(tmp_path)
    cancel(job)
    assert [state.over for state in known.values()] == [False]
    assert jobs.unknown == ""
    assert jobs.earliest is not None
