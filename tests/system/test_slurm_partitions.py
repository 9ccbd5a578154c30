"""Account and partition of the site (`slurm`), in job scripts and jobs that a real Slurm of two partitions takes."""

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support import module_tool as tools
from support.command import SIFMOD
from support.command import run as run_command
from support.config import write
from support.disk_state import disk_state
from support.images import Images
from support.slurm import Slurm

IMAGE = (
    "name: {0}\nversion: '1'\naccelerator: {1}\nwrappers: [hostname]\nimage: {{sources: ['{2}']}}\nsanity_check: {{}}\n"
)
SETTINGS = """
accelerator: cuda
gpus_per_node: 7
cpus_per_gpu: 5
slurm:
  account: project_7
  partition: small
  partitions:
    small: {gpus_per_node: 0}
    accel: {gpus_per_node: 2, cpus_per_gpu: 1}
    others: {}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    """Two nodes with GPUs that are none, and partitions of one node and of two."""
    with tempfile.TemporaryDirectory(prefix="sifmod-slurm-", dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        partitions = ("PartitionName=small Nodes=n1", "PartitionName=accel Nodes=ALL")
        made = Slurm(Path(directory) / "cluster", gpus=2, more=partitions)
        try:
            made.start()
            yield made
        finally:
            made.stop()


@pytest.fixture
def here(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "pre fix"))
    write(tmp_path / "home/.config/sifmod/config.yaml", SETTINGS)
    for name, accelerator in (("Gpu", "cuda"), ("Cpu", "none")):
        write(tmp_path / f"{name}-1.yaml", IMAGE.format(name, accelerator, images.tiny_sif))
        assert run(["install", "-q", "--skip-sanity-check", "--link", "reference", f"{name}-1.yaml"]) == 0
    return tmp_path


def job(cluster: Slurm, number: int | str) -> dict[str, str]:
    """What Slurm knows of a job."""
    shown = cluster.run(("scontrol", "--oneliner", "show", "job", str(number))).ok().stdout
    return dict(field.split("=", 1) for field in shown.split() if "=" in field)


def lines(here: Path, *words: str) -> list[str]:
    """The lines for sbatch of a job script."""
    (here / "job.sh").unlink(missing_ok=True)
    assert run(["jobscript", *words, "-o", "job.sh"]) == 0
    return [line.removeprefix("#SBATCH --") for line in (here / "job.sh").read_text().splitlines() if "#SBATCH" in line]


@pytest.mark.parametrize(("name", "partition", "gpus"), [("Gpu", "accel", "gres:gpu:2"), ("Cpu", "small", None)])
def test_a_script_is_taken_and_run_as_it_is(
    cluster: Slurm, here: Path, capfd: pytest.CaptureFixture[str], name: str, partition: str, gpus: str | None
) -> None:
    """A module with GPUs goes to the first partition that has some."""
    lines(here, name)
    assert capfd.readouterr().err.splitlines()[-1] == "== `sbatch job.sh`"
    environment = {**os.environ, **tools.lmod(here / "home").run("export -f module ml").environment}
    number = cluster.sbatch((f"--output={here}/output", "job.sh"), {**environment, "PATH": os.environ["PATH"]}, here)
    assert cluster.wait(number) == 0, (here / "output").read_text()
    found = job(cluster, number)
    assert (found["Account"], found["Partition"], found.get("TresPerNode")) == ("project_7", partition, gpus)
    assert (found["NumCPUs"], found["CPUs/Task"]) == (("2", "2") if gpus else ("1", "1"))


def test_options_go_before_the_site(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert lines(here, "Gpu", "--account", "mine", "--partition", "others")[3:] == [
        "gpus-per-node=7",
        "cpus-per-task=35",
        "time=00:30:00",
        "account=mine",
        "partition=others",
    ]
    assert lines(here, "Cpu", "--partition", "accel")[3:] == ["time=00:30:00", "account=project_7", "partition=accel"]
    write(here / "home/.config/sifmod/config.yaml", SETTINGS.split("slurm:")[0] + "slurm: {partition: any}\n")
    capfd.readouterr()
    assert lines(here, "Gpu")[-2:] == ["account=PROJECT", "partition=any"]
    assert capfd.readouterr().err.splitlines()[-1] == "== fill in PROJECT, then `sbatch job.sh`"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("Cpu", "--partition", "smal"), "the site names no partition smal; did you mean small?", "known are small,"),
        (("Gpu", "--partition", "small"), "the partition small has no GPUs, which the module needs", "accel, others"),
        (("Gpu", "--partition", "small,accel"), "the partition small,accel has no GPUs", "accel, others"),
        (("Gpu", "--partition", "accel,others"), "nodes of accel and others differ in GPUs", "name one partition"),
    ],
)
def test_a_partition_that_does_not_fit_is_refused(
    here: Path, capfd: pytest.CaptureFixture[str], words: tuple[str, ...], message: str, hint: str
) -> None:
    before = disk_state(here)
    for command in (("jobscript", *words), ("test", *words, "--job")):
        assert run([*command]) == 2
        out, err = capfd.readouterr()
        assert out == ""
        assert message in err
        assert hint in err
    assert disk_state(here) == before


def test_a_default_without_gpus_where_no_partition_has_some(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(here / "home/.config/sifmod/config.yaml", "slurm: {partition: a, partitions: {a: {gpus_per_node: 0}}}\n")
    assert run(["jobscript", "Gpu"]) == 2
    assert "hint: the site has no partition with GPUs" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{account: 'a b'}", "expected a name that Slurm knows"),
        ("{partitions: {a: {gpus: 1}}}", "unknown key"),
        ("{partitions: {a: {gpus_per_node: 65}}}", "65"),
    ],
)
def test_what_cannot_stand_in_a_script_is_refused(
    here: Path, capfd: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    write(here / "home/.config/sifmod/config.yaml", f"slurm: {text}\n")
    assert run(["jobscript", "Gpu"]) == 5
    assert message in capfd.readouterr().err


def test_jobs_that_sifmod_submits(cluster: Slurm, here: Path) -> None:
    """The site's, then the variables of sbatch, then options."""
    usual = ("project_7", "small")
    for more, words, expected in (
        ({}, (), usual),
        ({"SBATCH_ACCOUNT": "theirs", "SBATCH_PARTITION": "accel"}, (), ("theirs", "accel")),
        ({"SBATCH_ACCOUNT": "theirs"}, ("-A", "mine", "-p", "accel"), ("mine", "accel")),
    ):
        done = cluster.run((*SIFMOD, "test", "Cpu", "--job", *words), {**os.environ, **more}, here)
        number = re.search("== job ([0-9]+): ", done.stderr)
        assert number, done
        found = job(cluster, number[1])
        assert (done.code, found["Account"], found["Partition"]) == (0, *expected), done
    done = cluster.run((*SIFMOD, "test", "Gpu", "--job"), os.environ, here)
    number = re.search("== job ([0-9]+): ", done.stderr)
    assert number, done
    found = job(cluster, number[1])
    assert (found["Partition"], found["TresPerNode"]) == ("accel", "gres:gpu:2")
    unknown = cluster.run((*SIFMOD, "test", "Cpu", "--job"), {**os.environ, "SBATCH_PARTITION": "main"}, here)
    assert (unknown.code, "the site names no partition main" in unknown.stderr) == (2, True)


def test_a_stack_and_its_tests(cluster: Slurm, here: Path) -> None:
    write(here / "stack.yaml", "easyconfigs: [Cpu-1.yaml, Gpu-1.yaml]\n")
    words = ("--job", "--job-cores=1", "--job-test", "--skip-sanity-check", "--wait")
    environment = {**os.environ, "SIFMOD_PREFIX": f"{here}/second"}
    done = cluster.run((*SIFMOD, "stack", "apply", "stack.yaml", *words), environment, here)
    shown = (
        cluster.run(("squeue", "--noheader", "--states=all", "--name=sifmod-stack", "--format=%P %a %b")).ok().stdout
    )
    assert sorted(set(shown.splitlines())) == ["accel project_7 gres:gpu:2", "small project_7 N/A"], (done, shown)


def test_a_new_site_has_the_partitions_of_the_machine(cluster: Slurm, here: Path) -> None:
    """And makes a script that this machine takes."""
    (here / "home/.config/sifmod/config.yaml").unlink()
    done = cluster.run((*SIFMOD, "site", "new", "hill"), os.environ, here).ok()
    text = Path(done.stdout.strip()).read_text()
    assert "  partition: main\n  partitions:\n" in text
    for name in ("main", "small", "accel"):
        assert f"    {name}: {{gpus_per_node: 2}}  # 2 processors\n" in text
    assert cluster.run((*SIFMOD, "check", done.stdout.strip()), os.environ, here).code == 0
    environment = {**os.environ, "SIFMOD_SITE": "hill"}
    cluster.run((*SIFMOD, "jobscript", "Gpu", "-o", "hill.sh"), environment, here).ok()
    script = (here / "hill.sh").read_text()
    assert "#SBATCH --gpus-per-node=2\n" in script
    assert "#SBATCH --partition=main\n" in script
    cluster.run(("sbatch", "--test-only", "hill.sh"), environment, here).ok()
    elsewhere = {**os.environ, "SLURM_CONF": str(write(here / "slurm.conf", "SlurmctldHost=none\n"))}
    unknown = run_command((*SIFMOD, "site", "new", "dale", "-o", "-"), env=elsewhere, cwd=here).ok().stdout
    assert "\n# Partitions are unknown: sinfo failed: sinfo: fatal: " in unknown
