"""What `sifmod jobscript` prints, submitted as it is to a real Slurm cluster; with torch: fuzz/job_styles.py."""

import os
from collections.abc import Callable
from pathlib import Path
from shlex import quote

import pytest

from sifmod.cli.main import run as sifmod
from support import module_tool as tools
from support.disk_state import disk_state
from support.images import Images
from support.oci import Entry
from support.runtime import RUNTIME
from support.slurm import Slurm
from support.small_disk import small_disk
from support.wheels import wheel

TELL = """
import glob, os, extra  # of the layer
def to(link):
    try:
        return os.readlink(link)
    except OSError:  # of a process that has ended
        return ""
# whose file is read by squashfuse
layers = {to(one) for one in glob.glob("/proc/[0-9]*/fd/*") if to(one).endswith("/layer.squashfs")}
names = ("RANK", "WORLD_SIZE", "SLURMD_NODENAME", "SINGULARITY_CONTAINER")
own = sorted(one for one in layers if one.startswith(os.getcwd()))
os.write(1, (" ".join([*(os.environ[name] for name in names), *own]) + "\\n").encode())
"""
EASYCONFIG = """
name: Job
version: '1'
image: {{sources: ['{image}']}}
conda: {{prefix: /opt/miniconda3, env: pytorch}}
path: [/runscripts]
wrappers: [{wrappers}]
runscripts: [conda-python-distributed]
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "pre fix"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def install(work: Path, image: Path, directory: Path, wrappers: str = "python") -> None:
    """The module, on a site whose nodes have this directory of their own."""
    settings = work / "home/.config/sifmod"
    settings.mkdir(parents=True)
    (settings / "config.yaml").write_text(f"cache_directory: {directory}\n")
    (work / "Job-1.yaml").write_text(EASYCONFIG.format(image=image, wrappers=wrappers))
    assert sifmod(["install", "-q", "--skip-sanity-check", "--link", "reference", "Job-1.yaml"]) == 0


@pytest.fixture
def submitted(slurm: Slurm, work: Path) -> Callable[..., tuple[int, list[str]]]:
    """Makes a job script, and gives the exit code and the lines of its job, sorted."""

    def submit(*words: str, plant: str = "") -> tuple[int, list[str]]:
        fill = ("--account", "project_1", "--partition", "main", "-o", str(work / "job.sh"))
        assert sifmod(["jobscript", "Job", *words, *fill]) == 0
        script = work / "job.sh"
        script.write_text(script.read_text().replace("\nmodule load", f"\n{plant}\nmodule load"))
        shell = {**os.environ, **tools.lmod(work / "home").run("export -f module ml").environment}
        environment = {**shell, "PATH": os.environ["PATH"]}
        slurm.run(("sbatch", "--test-only", "job.sh"), environment, work).ok()
        code = slurm.wait(slurm.sbatch((f"--output={work}/output", "job.sh"), environment, work))
        lines = (work / "output").read_text().splitlines()
        # srun says that it waits, SingularityCE that it mounts the image
        return code, sorted(line for line in lines if not line.startswith(("srun: ", "INFO: ")))

    return submit


@pytest.mark.skipif(not RUNTIME.binds_squashfs, reason="a layer is a directory there, which is not copied")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root's slurmd takes what sbcast sends")
def test_image_and_layer_are_copied_and_removed(
    images: Images, work: Path, submitted: Callable[..., tuple[int, list[str]]]
) -> None:
    """Both nodes are this machine: their copies are one file here."""
    (work / "node's own").mkdir()
    install(work, images.python_sif, work / "node's own")
    wheel(work, "extra")
    assert sifmod(["add", "Job", "extra", "--no-index", "--find-links", str(work)]) == 0
    (work / "train.py").write_text(TELL)
    code, lines = submitted("--bcast")
    assert (code, len(lines)) == (0, 2), lines
    for rank, line in enumerate(lines):
        assert line.startswith(f"{rank} 2 n{rank + 1} {work}/node's own/sifmod-image-")
        assert line.count("/node's own/sifmod-image-") == 2
        assert line.endswith("/layer.squashfs")
    assert not list((work / "node's own").glob("sifmod-image-*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to a neighbour")
@pytest.mark.parametrize("planted", ["a link", "a directory"])
def test_what_a_neighbour_has_planted_for_the_copies_is_left_alone(
    images: Images, work: Path, submitted: Callable[..., tuple[int, list[str]]], planted: str
) -> None:
    """In a directory like /tmp, at the name that follows from the job's number; a link leads to what is the user's."""
    node, mine = work / "node's own", work / "mine"
    for directory in (node, mine):
        directory.mkdir()
    node.chmod(0o1777)
    (mine / "image.sif").write_text("of years")
    install(work, images.python_sif, node)
    (work / "train.py").write_text("import os; print(os.environ['RANK'], os.environ['SIF'])")
    ways = {"a link": f'ln -s {quote(str(mine))} "$d"', "a directory": 'mkdir -m 777 "$d" && chown 71200 "$d"'}
    plant = f"d={quote(str(node))}/sifmod-image-$SLURM_JOB_ID; {ways[planted]}"
    before = disk_state(mine)
    code, lines = submitted("--bcast", plant=plant)
    assert code == 0, lines
    assert disk_state(mine) == before
    place = work / "pre fix/software/Job/.generations/1/1" / "Job-1.sif"
    assert [line for line in lines if line[0] in "01"] == [f"0 {place}", f"1 {place}"]
    assert any(line.endswith("cannot be made") for line in lines), lines
    (left,) = node.glob("sifmod-image-*")
    assert left.is_symlink() or not list(left.iterdir())


def test_where_a_node_has_no_room_the_image_stays_where_it_is(
    images: Images, work: Path, submitted: Callable[..., tuple[int, list[str]]]
) -> None:
    with small_disk(work / "small", 1 << 20) as directory:
        install(work, images.python_sif, directory)
        (work / "train.py").write_text("import os; print(os.environ['RANK'], os.environ['SIF'])")
        code, lines = submitted("--bcast")
        assert not list(directory.iterdir())
    assert code == 0
    place = work / "pre fix/software/Job/.generations/1/1" / "Job-1.sif"
    assert [line for line in lines if line[0] in "01"] == [f"0 {place}", f"1 {place}"]
    told = [line for line in lines if "no space" in line]
    assert {line.partition(":")[0] for line in told} <= {"n1", "n2"}
    assert told, lines
    assert "the image was not copied: processes read it in its own place" in lines


def test_nccl_tests(images: Images, work: Path, submitted: Callable[..., tuple[int, list[str]]]) -> None:
    """A stand-in for the program, since there is no GPU: it says who it is, and its name says that it uses MPI."""
    says = b'#!/bin/sh\necho "$SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME: $*"\n'
    image = images.tiny("all-reduce", entries=(Entry("usr/local/bin/all_reduce_perf_mpi", says),))
    install(work, image, Path("/tmp"), "sh")
    code, lines = submitted("--style", "nccl-tests")
    assert code == 0
    assert lines == [f"{rank} of 2 on n{rank + 1}: -b 8 -e 1G -f 2 -g 1" for rank in (0, 1)]
