"""`sifmod test` on nodes with GPUs, for which a runtime stands that prints what such nodes print.

What is a fake is the runtime alone, since no machine of the tests has a GPU. Slurm is real.
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from sifmod.cli.main import run
from support.answer import answer
from support.command import SIFMOD
from support.config import write
from support.disk_state import State, disk_state
from support.images import Images
from support.nccl_logs import IB, SOCKET
from support.slurm import Slurm

RUNTIME = r"""#!/bin/sh
# -q exec IMAGE COMMAND...: on a node with four GPUs, or three
shift 3
node=${SLURMD_NODENAME:-g1}
echo "$*" | cut -c1-80 >>"$0.asked"
gpus=4 perf=false
if [ "$node" = n2 ]; then gpus=3; fi
if [ -s "$0.perf" ]; then perf=true; fi
rank() { # the second one is the slowest
  seconds=0.0$((($1 + 2) % 4 + 1))
  printf '\nsifmod: {"node": "%s", "rank": %s, "world": 4, "seconds": %s, "torch": "2.9"}\n' "$node" "$1" $seconds
}
case $* in
  */bin/sh*conda-python-simple*)
    printf '\nsifmod: {"node": "%s", "torch": true, "gpus": %s, "all_reduce_perf": %s}\n' "$node" $gpus $perf ;;
  */bin/sh*) exit 0 ;; # the sanity check
  gpu-check*) . "$0.gpu-check" ;;
  all_reduce_perf*) cat "$0.perf" ;;
  torchrun-distributed*)
    if [ -n "${NCCL_DEBUG-}" ]; then cat "$0.log"; fi
    . "$0.does"
    for number in 0 1 2 3; do if [ $number -lt "$3" ]; then rank $number; fi; done ;;
  conda-python-distributed*)
    if [ "$SLURM_PROCID" = 0 ]; then cat "$0.log"; fi
    rank "$SLURM_PROCID" ;;
  *) echo "not expected: $*"; exit 9 ;;
esac
"""
PERF = """# nThread 1 nGpus 4 minBytes 1048576 maxBytes 268435456 step: 256(factor) warmup iters: 5 iters: 20
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1     61.4   17.08   25.62      0     60.9   17.22   25.83      0
   268435456      67108864     float     sum      -1   1638.2  163.86  245.79      0   1640.1  163.67  245.51      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 135.69
"""
EASYCONFIG = "name: Gpu\nversion: '1.0'\naccelerator: cuda\nwrappers: [sh]\nimage: {{sources: ['{}']}}\n"
SITE = (
    "name: hill\naccelerator: cuda\nmodule_syntax: lua\nruntime: {}\ngpus_per_node: 2\n"
    "runscript_env: {{NCCL_NET: IB}}\n"
)


@dataclass(frozen=True)
class Node:
    """A module for GPUs, and what is printed inside."""

    directory: Path

    @property
    def runtime(self) -> Path:
        return self.directory / "apptainer"

    def prints(self, name: str, text: str) -> None:
        Path(f"{self.runtime}.{name}").write_text(text)

    @property
    def asked(self) -> list[str]:
        return Path(f"{self.runtime}.asked").read_text().splitlines()


@pytest.fixture
def node(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Node:
    found = Node(tmp_path)
    found.runtime.write_text(RUNTIME)
    found.runtime.chmod(0o755)
    for name, text in (("log", IB), ("gpu-check", "echo 'result  usable'\n"), ("does", ""), ("perf", PERF)):
        found.prints(name, text)
    site = write(tmp_path / "hill.yaml", SITE.format(found.runtime))
    easyconfig = write(tmp_path / "Gpu-1.0.yaml", EASYCONFIG.format(images.tiny_sif))
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    assert (
        run(["install", "-q", "--skip-sanity-check", "--site", str(site), "--link", "reference", str(easyconfig)]) == 0
    )
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return found


def outcomes(data: Any) -> dict[str, str]:
    return {step["name"]: step["outcome"] for step in data["steps"]}


def test_all_is_well(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    before = state_but_log(node.directory)
    data = answer(capfd, ("test", "Gpu", "--network"))
    assert outcomes(data) == dict.fromkeys(
        ("sanity check", "start", "gpu-check", "collective, torchrun", "bandwidth", "network"), "passed"
    )
    assert (data["module"], data["nodes"], data["passed"]) == ("Gpu/1.0", ["g1"], True)
    assert data["steps"][0]["text"] == "1 wrapper"
    assert data["bandwidth"] == {
        "tool": "all_reduce_perf", "ranks": 4, "size": 1 << 28, "algorithm": 163.86, "bus": 245.79
    }  # fmt: skip
    assert (data["network"]["transport"], data["network"]["gpu_direct"]) == ("InfiniBand", True)
    assert run(["test", "Gpu"]) == 0
    out = capfd.readouterr().out
    assert "163.86 GB/s, bus 245.79 GB/s (256 MiB, all_reduce_perf)" in out
    assert "network" not in out
    assert any(line.startswith("torchrun-distributed -n 4 --no-python conda-python-simple -c") for line in node.asked)
    assert state_but_log(node.directory) == before
    written = [(one["what"], one["generation"], one["before"]) for one in answer(capfd, ("log", "Gpu"))]
    assert written == [("installed", 1, None), ("test passed", 1, 1), ("test passed", 1, 1)]


def test_one_connection_without_gpu_direct_is_enough(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    node.prints("log", f"{IB}a1:924:1153 [1] NCCL INFO Channel 01/0 : 7[7] -> 8[0] [receive] via NET/IB/1\n")
    assert answer(capfd, ("test", "Gpu", "--network"))["network"]["gpu_direct"] is False
    assert run(["test", "Gpu", "--network"]) == 0
    assert "; without GPU Direct RDMA" in capfd.readouterr().out


def state_but_log(directory: Path) -> State:
    return disk_state(*(directory / name for name in ("prefix/modules", "prefix/software", "work")))


def test_tcp_on_a_site_with_a_fabric_fails(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    node.prints("log", SOCKET)
    report = node.directory / "report.xml"
    data = answer(capfd, ("test", "Gpu", "--network", "--junit", str(report)), 22)
    assert [name for name, outcome in outcomes(data).items() if outcome == "failed"] == ["network"]
    step = data["steps"][-1]
    assert step["text"] == "TCP (Socket); ens7; NCCL 2.19.3+cuda12.3 on g3, though site hill has IB"
    assert step["hint"].startswith("no InfiniBand or RoCE device was found")
    assert data["network"]["tcp_hosts"] == ["g3"]
    suite = ElementTree.parse(report).getroot()[0]
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "6", "failures": "1", "errors": "0", "skipped": "0"
    }  # fmt: skip
    assert [(case.get("name"), [part.tag for part in case]) for case in suite][-1] == ("network", ["failure"])
    assert run(["test", "Gpu", "--network"]) == 22
    assert "\nnetwork:\n  hint: no InfiniBand or RoCE device" in capfd.readouterr().out


def test_without_a_fabric_tcp_is_no_failure(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    node.prints("log", SOCKET)
    site = node.directory / "hill.yaml"
    site.write_text(site.read_text().replace("NCCL_NET: IB", "NCCL_NET: Socket"))
    data = answer(capfd, ("test", "Gpu", "--network"))
    assert data["steps"][-1]["text"] == "TCP (Socket); ens7; NCCL 2.19.3+cuda12.3; chosen but not used on a single node"


def test_each_step_fails_by_itself(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    node.prints("gpu-check", "printf '\\036gpu-check: no GPU is visible\\037run it elsewhere\\036\\n' >&2; exit 1\n")
    node.prints("does", "printf '\\033[31m[rank1]: torch.DistError: \\001<broken>\\n'; exit 1\n")
    (node.directory / "Gpu-1.0.yaml").unlink()  # the copy in the module is asked
    report = node.directory / "report.xml"
    data = answer(capfd, ("test", "Gpu", "--network", "--minimum", "1", "--junit", str(report)), 22)
    assert list(outcomes(data).values()) == ["passed", "passed", "failed", "failed", "failed", "passed"]
    assert data["steps"][2]["text"] == "exit code 1: gpu-check: no GPU is visible"
    assert (data["steps"][2]["said"], data["steps"][2]["hint"]) == (
        ["gpu-check: no GPU is visible"],
        "run it elsewhere",
    )
    assert data["steps"][3]["text"] == "exit code 1: [rank1]: torch.DistError:  <broken>"
    assert data["steps"][4]["text"] == "no collective succeeded, and --minimum requires 1 GB/s"
    failure = ElementTree.parse(report).getroot().findall(".//failure")[1]
    assert failure.get("message") == "exit code 1: [rank1]: torch.DistError:  <broken>"


def test_too_little_bandwidth(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    for minimum, code in (("245", 0), ("246", 22)):
        assert answer(capfd, ("test", "Gpu", "--minimum", minimum), code)["bandwidth"]["bus"] == 245.79
    node.prints("perf", "# Out of bounds values : 0 OK\n")
    data = answer(capfd, ("test", "Gpu"), 22)
    assert data["steps"][-1]["text"] == "all_reduce_perf printed no table"


def test_the_slowest_rank_counts(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    """Of four, in an image without all_reduce_perf; what is to be reached is the bandwidth of the bus."""
    node.prints("perf", "")
    for minimum, code in (("10", 0), ("10.1", 22)):
        found = answer(capfd, ("test", "Gpu", "--minimum", minimum), code)["bandwidth"]
        assert (found["tool"], found["ranks"], found["size"]) == ("torch", 4, 1 << 28)
        assert (round(found["algorithm"], 3), round(found["bus"], 3)) == (6.711, 10.066)  # by 0.04 s
    assert run(["test", "Gpu", "--minimum", "10.1"]) == 22
    assert "6.71 GB/s, bus 10.07 GB/s (256 MiB, torch), less than 10.1\n" in capfd.readouterr().out
    assert run(["test", "Gpu"]) == 0
    assert "4 ranks over nccl, the sum is right" in capfd.readouterr().out


def test_an_image_that_is_gone(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    link = next((node.directory / "prefix/software/Gpu/1.0").glob("*.sif"))
    link.unlink()
    data = answer(capfd, ("test", "Gpu"), 22)
    assert list(outcomes(data).values()) == ["skipped", "failed", "failed", "skipped", "skipped"]
    assert f"the image is missing; looked for {link.resolve()}" in data["steps"][1]["text"]
    assert data["steps"][1]["hint"].endswith("brings it back")


def test_files_of_the_current_directory_are_out_of_reach(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    """Python imports what is there: a `json.py` of the user's would fail the test."""
    node.prints("does", 'pwd -P >"$0.where"\n')
    answer(capfd, ("test", "Gpu"))
    assert Path(f"{node.runtime}.where").read_text() == "/\n"


def test_a_report_that_cannot_be_written_hides_no_answer(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    node.prints("does", f"mkdir -p {node.directory}/report.xml\n")
    report = node.directory / "report.xml"
    assert run(["test", "Gpu", "--junit", str(report)]) == 10
    out, err = capfd.readouterr()
    assert "245.79 GB/s" in out
    assert f"cannot write {report}" in err
    report.rmdir()
    assert answer(capfd, ("test", "Gpu", "--junit", str(report)), 10)["passed"]


@pytest.mark.usefixtures("node")
def test_an_interruption_promises_nothing(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sifmod.actions.test.test.look", interrupted)
    assert answer(capfd, ("test", "Gpu"), 130)["error"] == "interrupted"


def test_a_rank_that_says_nothing(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    node.prints("does", "rank 0; exit 0\n")
    data = answer(capfd, ("test", "Gpu"), 22)
    assert data["steps"][3]["text"] == "1 of 4 processes answered"


def test_what_takes_too_long_is_ended_with_its_children(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    node.prints("does", 'sleep 600 & echo "$!" >"$0.pid"; wait\n')
    data = answer(capfd, ("test", "Gpu", "--timeout", "1"), 22)
    step = data["steps"][3]
    assert (step["text"], step["said"]) == ("not finished within 1 s, without output", [])
    assert step["hint"] == "`--timeout SECONDS` gives each command more time"
    pid = Path(f"{node.runtime}.pid").read_text().strip()
    until = time.monotonic() + 5
    while (running := Path("/proc", pid).exists()) and time.monotonic() < until:
        time.sleep(0.05)
    assert not running


@pytest.mark.parametrize(
    ("words", "job", "message"),
    [
        ("Gpu --nodes 2", "", "--nodes 2 needs an allocation of Slurm, and this is not one"),
        ("Gpu --nodes 2", "1", "job 7 has 1 node(s), and --nodes asks for 2"),
        ("Gpu --account mine", "", "hint: add --job to submit the test as a job"),
        ("Gpu --junit no/report.xml", "", "there is no directory no to write report.xml in"),
        ("Gpu --minimum nan", "", "expected a number such as 14 or 2.5, got 'nan'"),
        ("Gpu --junit .", "", ". is a directory"),
        ("Gpu --nodes 0", "", "0 is not in the range x>=1"),
    ],
)
def test_what_cannot_be_asked(
    words: str, job: str, message: str, node: Node, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if job:
        monkeypatch.setenv("SLURM_JOB_ID", "7")
        monkeypatch.setenv("SLURM_JOB_NUM_NODES", job)
    before = disk_state(node.directory)
    assert run(["test", *words.split()]) == 2
    assert message in capfd.readouterr().err
    assert disk_state(node.directory) == before


SBATCH = """#!/bin/sh
for word; do :; done
sh -c "${word#--wrap=}" >sifmod-test-7.json 2>sifmod-test-7.log
echo 7
"""
SQUEUE = "#!/bin/sh\necho 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1\n"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs stand for those of Slurm; a job runs at once."""
    directory = tmp_path / "programs"
    directory.mkdir()
    for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE)):
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=":")
    return directory


@pytest.mark.usefixtures("node", "programs")
def test_a_job_imports_nothing_of_the_current_directory(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(Path("click.py"), "raise SystemExit('mine')\n")
    for places in ("", str(Path.cwd())):
        monkeypatch.setenv("PYTHONPATH", places)
        assert answer(capfd, ("test", "Gpu", "--job"))["passed"]
        assert os.listdir() == ["click.py"]


@pytest.mark.usefixtures("node")
def test_a_job_does_not_start_where_others_can_plant_links(programs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path.cwd().chmod(0o1777)
    before = disk_state(Path.cwd()), disk_state(programs)
    why = answer(capfd, ("test", "Gpu", "--job"), 2)["error"]
    assert why == f"other users can write in {Path.cwd()}, and could lead the job's output into another file of yours"
    assert (disk_state(Path.cwd()), disk_state(programs)) == before


@pytest.mark.usefixtures("node")
def test_a_job_without_an_answer_leaves_its_log(
    programs: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sifmod.actions.test.test.LAG", 0.0)
    write(programs / "sbatch", "#!/bin/sh\n>sifmod-test-7.json; echo killed >sifmod-test-7.log; echo 7\n")
    message = answer(capfd, ("test", "Gpu", "--job"), 22)["error"]
    assert message.startswith("job 7 ended without an answer")
    assert message.endswith("\nkilled")
    assert os.listdir() == ["sifmod-test-7.log"]
    os.unlink("sifmod-test-7.log")
    write(programs / "sbatch", "#!/bin/sh\necho 7\n")
    told = answer(capfd, ("test", "Gpu", "--job"), 22)
    assert told["error"] == "job 7 ended without an answer"
    assert told["hint"].startswith("it wrote no log: it was cancelled")


@pytest.mark.usefixtures("node")
def test_slurm_that_is_not_set_up(programs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(programs / "sbatch", "#!/bin/sh\necho 'sbatch: fatal: Could not establish a configuration source'; exit 1\n")
    told = answer(capfd, ("test", "Gpu", "--job"), 2)
    assert told["error"].startswith("Slurm is not set up here: sbatch: fatal: ")
    assert told["hint"] == "run the command on a node where jobs are submitted"


@pytest.mark.usefixtures("node")
def test_as_a_job_on_two_nodes(slurm: Slurm) -> None:
    """Both launchers; of nodes with four and three GPUs each takes three: Slurm has none that it could hand out."""
    environment = {**os.environ, "SBATCH_GRES": "none"}
    done = slurm.run((*SIFMOD, "test", "Gpu", "--nodes", "2", "--job", "--network", "--json"), environment, Path.cwd())
    data = json.loads(done.stdout)
    assert (done.code, data["nodes"]) == (0, ["n1", "n2"]), done
    assert outcomes(data)["collective, srun"] == outcomes(data)["collective, torchrun"] == "passed"
    assert (data["bandwidth"]["tool"], data["bandwidth"]["ranks"]) == ("torch", 6)
    assert "== job " in done.stderr
    assert list(Path.cwd().iterdir()) == []
    refused = slurm.run((*SIFMOD, "test", "Gpu", "--job", "-p", "none"), environment, Path.cwd())
    assert (refused.code, "sbatch rejected the job" in refused.stderr) == (2, True)
    assert list(Path.cwd().iterdir()) == []
