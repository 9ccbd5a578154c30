"""The runscripts: what Python finds in its environment, in a Slurm step and outside, and in real containers."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plans import plan
from sifmod.module.plan import Activation, Plan
from support.command import Result, run
from support.generation import SHELLS, make_generation
from support.images import Images

DISTRIBUTED = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK", "NODE_RANK")
MASKS = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
ALL = ("conda-python-simple", "conda-python-distributed", "get-master", "start-shell", "list-packages")
SHOW = ("-c", "import json, os, sys; json.dump([dict(os.environ), sys.argv[1:]], sys.stdout)")
EPHEMERAL = tuple(int(end) for end in Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
PYTHON = Path(sys.executable).parent


def step(task: int, tasks_per_node: str = "2(x2)", *, job: int = 4711, step: int = 0) -> dict[str, str]:
    """What srun gives to one task of a step with two tasks on each node but the last."""
    return {
        "SLURM_JOB_ID": str(job),
        "SLURM_STEP_ID": str(step),
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_STEP_TASKS_PER_NODE": tasks_per_node,
        "SLURM_STEP_NODELIST": "nid[000007-000009]",
        "SLURM_JOB_NODELIST": "nid[000001-000099]",
        "SLURM_PROCID": str(task),
        "SLURM_LOCALID": str(task % 2),
        "SLURM_NODEID": str(task // 2),
    }


class Runscripts:
    """Runs the runscripts of one plan on the host, where they need no more than a Python."""

    def __init__(self, prefix: Path, wanted: Plan) -> None:
        self.directory = make_generation(replace(wanted, prefix=str(prefix), runscripts=ALL), None) / "runscripts"
        self._base = {"PATH": f"{PYTHON}:/usr/bin:/bin", "TMPDIR": str(prefix)}

    def run(
        self, name: str, *args: str, env: Mapping[str, str] | None = None, shell: tuple[str, ...] = ("dash",)
    ) -> Result:
        return run((*shell, self.directory / name, *args), env={**self._base, **(env or {})})

    def environment(self, env: Mapping[str, str] | None = None, shell: tuple[str, ...] = ("dash",)) -> dict[str, str]:
        """What Python is given by conda-python-distributed beyond what was there."""
        result = self.run("conda-python-distributed", *SHOW, env=env, shell=shell).ok()
        assert result.stderr == ""
        found = json.loads(result.stdout)[0]
        known = {**self._base, **(env or {})}
        own = ("PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE")
        return {key: value for key, value in found.items() if key not in own and known.get(key) != value}


@pytest.fixture
def runscripts(tmp_path: Path) -> Runscripts:
    return Runscripts(tmp_path, plan(accelerator="none"))


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_each_task_of_a_step_is_one_process(runscripts: Runscripts, shell: tuple[str, ...]) -> None:
    found = [runscripts.environment(step(task), shell) for task in range(4)]
    ports = {environment.pop("MASTER_PORT") for environment in found}
    assert len(ports) == 1
    assert found == [
        {
            "MASTER_ADDR": "nid000007",
            "WORLD_SIZE": "4",
            "RANK": str(task),
            "LOCAL_WORLD_SIZE": "2",
            "LOCAL_RANK": str(task % 2),
            "NODE_RANK": str(task // 2),
        }
        for task in range(4)
    ]


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_outside_a_step_there_is_one_process(runscripts: Runscripts, shell: tuple[str, ...]) -> None:
    batch = {name: value for name, value in step(0).items() if not name.startswith("SLURM_STEP_")}
    for environment in ({}, batch):  # nothing of Slurm, and a batch script
        found = runscripts.environment(environment, shell)
        assert int(found.pop("MASTER_PORT")) not in range(EPHEMERAL[0], EPHEMERAL[1] + 1)
        assert found == {
            "MASTER_ADDR": "127.0.0.1",
            "WORLD_SIZE": "1",
            "RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "LOCAL_RANK": "0",
            "NODE_RANK": "0",
        }


@pytest.mark.parametrize("name", DISTRIBUTED)
@pytest.mark.parametrize("value", ["mine", ""])
def test_what_the_user_has_set_stays(runscripts: Runscripts, name: str, value: str) -> None:
    for slurm in (step(3), {}):
        assert name not in runscripts.environment({**slurm, name: value})


@pytest.mark.parametrize(
    ("tasks_per_node", "each"),
    [("4", (4,)), ("2(x2),1", (2, 2, 1)), ("1(x3)", (1, 1, 1)), ("3,1(x2),2", (3, 1, 1, 2)), ("8(x10)", (8,) * 10)],
)
def test_the_tasks_on_each_node(runscripts: Runscripts, tasks_per_node: str, each: tuple[int, ...]) -> None:
    for node, tasks in enumerate(each):
        environment = {**step(0, tasks_per_node), "SLURM_NODEID": str(node)}
        assert runscripts.environment(environment)["LOCAL_WORLD_SIZE"] == str(tasks)


def test_ports_of_neighbouring_jobs_and_steps_differ(runscripts: Runscripts) -> None:
    around = [(job, number) for job in (9_999_998, 9_999_999, 10_000_000) for number in (0, 1, 2, 7)]
    ports = [runscripts.environment(step(0, job=job, step=number))["MASTER_PORT"] for job, number in around]
    assert len(set(ports)) == len(around)


@given(job=st.integers(1, 2**26), number=st.integers(0, 1000) | st.just(4294967290))
def test_ports_are_outside_the_ephemeral_range(port_script: Path, job: int, number: int) -> None:
    port = int(run(("dash", port_script, str(job), str(number))).ok().stdout)
    assert port in range(1024, 65536)
    assert port not in range(EPHEMERAL[0], EPHEMERAL[1] + 1)


@pytest.mark.parametrize(
    ("ephemeral", "allowed"),
    [
        ("32768 60999", range(1024, 32768)),
        ("9215 65000", range(1024, 9215)),
        ("1024 57343", range(57344, 65536)),
        ("1024 65535", range(1024, 65536)),  # nothing is outside
    ],
)
def test_ports_for_other_ephemeral_ranges(port_script: Path, tmp_path: Path, ephemeral: str, allowed: range) -> None:
    setting = tmp_path / "ip_local_port_range"
    setting.write_text(f"{ephemeral}\n")
    script = tmp_path / "port"
    script.write_text(port_script.read_text().replace("/proc/sys/net/ipv4/ip_local_port_range", str(setting)))
    ports = {int(run(("dash", script, str(job), "0")).ok().stdout) for job in range(4000, 4040)}
    assert len(ports) == 40
    assert ports <= set(allowed)
    setting.unlink()
    assert int(run(("dash", script, "4000", "0")).ok().stdout) in range(1024, 32768)


@pytest.fixture(scope="module")
def port_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runscript's own function, by itself."""
    directory = tmp_path_factory.mktemp("port")
    text = (Runscripts(directory, plan()).directory / "conda-python-distributed").read_text()
    function = text[text.index("port() (") :].partition("\n)\n")[0]
    script = directory / "port"
    script.write_text(f'{function}\n)\nport "$@"\n')
    return script


@pytest.mark.parametrize("accelerator", ["rocm", "cuda", "none"])
def test_a_gpu_for_each_task_only_on_rocm(tmp_path: Path, accelerator: str) -> None:
    runscripts = Runscripts(tmp_path, plan(accelerator=accelerator))
    for task in range(4):
        found = runscripts.environment(step(task))
        assert found.get("ROCR_VISIBLE_DEVICES") == (str(task % 2) if accelerator == "rocm" else None)
        assert not set(found) & set(MASKS[1:])


def test_no_mask_where_there_is_one_already_or_one_task_has_the_node(tmp_path: Path) -> None:
    runscripts = Runscripts(tmp_path, plan(accelerator="rocm"))
    for mask in MASKS:
        for value in ("3", ""):
            assert not set(runscripts.environment({**step(1), mask: value})) & set(MASKS)
    assert not set(runscripts.environment(step(1, "1(x4)"))) & set(MASKS)
    assert not set(runscripts.environment()) & set(MASKS)


def test_miopen_caches_are_the_jobs_and_the_users_own(tmp_path: Path) -> None:
    runscripts = Runscripts(tmp_path, plan(accelerator="rocm"))
    found = runscripts.environment(step(0))
    expected = tmp_path / f"miopen-{os.getuid()}-4711"
    assert found["MIOPEN_USER_DB_PATH"] == found["MIOPEN_CUSTOM_CACHE_DIR"] == str(expected)
    assert expected.stat().st_mode & 0o777 == 0o700
    (expected / "kernels").write_text("compiled")
    assert runscripts.environment(step(1))["MIOPEN_USER_DB_PATH"] == str(expected)
    assert (expected / "kernels").read_text() == "compiled"
    assert runscripts.environment(step(0, job=4712))["MIOPEN_USER_DB_PATH"] != str(expected)
    mine = runscripts.environment({**step(0), "MIOPEN_USER_DB_PATH": "/mine"})
    assert "MIOPEN_USER_DB_PATH" not in mine
    assert mine["MIOPEN_CUSTOM_CACHE_DIR"] == str(expected)


def test_no_cache_where_somebody_else_has_made_the_directory(tmp_path: Path) -> None:
    runscripts = Runscripts(tmp_path, plan(accelerator="rocm"))
    theirs = tmp_path / f"miopen-{os.getuid()}-4711"
    if os.getuid() == 0:
        theirs.mkdir(mode=0o777)
        os.chown(theirs, 65534, 65534)
    else:
        theirs.symlink_to("/")
    for environment in (step(0), {**step(0), "TMPDIR": "/nonexistent"}):
        assert not [name for name in runscripts.environment(environment) if name.startswith("MIOPEN")]


def test_other_accelerators_have_no_miopen(tmp_path: Path) -> None:
    found = Runscripts(tmp_path, plan(accelerator="cuda")).environment(step(0))
    assert not [name for name in found if name.startswith("MIOPEN")]
    assert not list(tmp_path.glob("miopen*"))


def test_the_easyconfigs_variables_where_the_user_has_none(tmp_path: Path) -> None:
    wanted = (("NCCL_SOCKET_IFNAME", "hsn"), ("ODD", "it's $(touch x) `id` \"\\ é"))
    runscripts = Runscripts(tmp_path, plan(accelerator="none", runscript_env=wanted))
    found = runscripts.environment()
    assert (found["NCCL_SOCKET_IFNAME"], found["ODD"]) == ("hsn", wanted[1][1])
    assert set(runscripts.environment({"NCCL_SOCKET_IFNAME": "eth0"})) & {"NCCL_SOCKET_IFNAME", "ODD"} == {"ODD"}
    assert "NCCL_SOCKET_IFNAME" not in runscripts.environment({"NCCL_SOCKET_IFNAME": ""})


@pytest.mark.parametrize("name", ["conda-python-simple", "conda-python-distributed"])
@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_arguments_and_the_exit_code_pass(runscripts: Runscripts, name: str, shell: tuple[str, ...]) -> None:
    odd = ("a b", "", "*", "$HOME", "'\"", "new\nline", "é", "-x")
    assert json.loads(runscripts.run(name, *SHOW, *odd, shell=shell).ok().stdout)[1] == list(odd)
    assert runscripts.run(name, "-c", "raise SystemExit(7)", shell=shell).code == 7


def test_python_is_activated_by_a_command(images: Images, tmp_path: Path) -> None:
    command = "source /opt/miniconda3/bin/activate pytorch"
    wanted = plan(accelerator="none", activation=Activation(command, command), wrappers=())
    directory = Runscripts(tmp_path, wanted).directory
    inside = ("apptainer", "exec", "-B", f"{directory}:/runscripts", images.python_sif)
    ask = ("-c", "import sys; print(sys.prefix, sys.argv[1:])", "a b")
    for name in ("conda-python-simple", "conda-python-distributed"):
        result = run((*inside, f"/runscripts/{name}", *ask)).ok()
        assert (result.stdout, result.stderr) == ("/opt/miniconda3/envs/pytorch ['a b']\n", "")
    listed = run((*inside, "/runscripts/list-packages")).ok()
    assert listed.stdout.startswith("Package ")
    assert listed.stderr == ""
    shell = run((*inside, "/runscripts/start-shell", "-c", 'echo "$BASH_VERSION|$CONDA_PREFIX|$1"', "bash", "a b")).ok()
    assert shell.stdout.endswith("|/opt/miniconda3/envs/pytorch|a b\n")
    assert not shell.stdout.startswith("|")


def test_activation_that_fails_runs_nothing(images: Images, tmp_path: Path) -> None:
    wanted = plan(accelerator="none", activation=Activation("false", "false"), wrappers=())
    directory = Runscripts(tmp_path, wanted).directory
    inside = ("apptainer", "exec", "-B", f"{directory}:/runscripts", images.python_sif)
    result = run((*inside, "/runscripts/conda-python-simple", "-c", "print('ran')"))
    assert (result.code, result.stdout) == (1, "")


def test_a_shell_in_an_image_without_bash(images: Images, tmp_path: Path) -> None:
    directory = Runscripts(tmp_path, plan(accelerator="none", wrappers=())).directory
    inside = ("apptainer", "exec", "-B", f"{directory}:/runscripts", images.tiny_sif)
    result = run((*inside, "/runscripts/start-shell", "-c", 'echo "$0 $1"', "sh", "a b")).ok()
    assert (result.stdout, result.stderr) == ("sh a b\n", "")
