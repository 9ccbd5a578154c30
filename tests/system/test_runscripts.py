"""The runscripts: what Python finds in its environment, in a Slurm step and outside, and in real containers."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plans import plan
from sifmod.module.plan import Activation
from support.command import run
from support.generation import SHELLS
from support.images import Images
from support.runscripts import SHOW, Runscripts, step
from support.runtime import RUNTIME

DISTRIBUTED = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK", "NODE_RANK")
MASKS = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
EPHEMERAL = tuple(int(end) for end in Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())


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


@pytest.mark.parametrize("name", [name for name in DISTRIBUTED if name not in ("RANK", "WORLD_SIZE")])
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


@pytest.mark.parametrize(
    ("selection", "accelerator", "mask"),
    [
        ("slurm", "rocm", "ROCR_VISIBLE_DEVICES"),
        ("slurm", "cuda", None),
        ("slurm", "none", None),
        ("localid", "rocm", "ROCR_VISIBLE_DEVICES"),
        ("localid", "cuda", "CUDA_VISIBLE_DEVICES"),
        ("localid", "none", None),
        ("none", "rocm", None),
        ("none", "cuda", None),
    ],
)
def test_who_picks_the_gpu_of_each_task(tmp_path: Path, selection: str, accelerator: str, mask: str | None) -> None:
    runscripts = Runscripts(tmp_path, plan(accelerator=accelerator, gpu_selection=selection))
    for task in range(4):
        found = runscripts.environment(step(task))
        assert {name: found[name] for name in MASKS if name in found} == ({mask: str(task % 2)} if mask else {})
    for theirs in MASKS:
        for value in ("3", ""):
            assert not set(runscripts.environment({**step(1), theirs: value})) & set(MASKS)


@pytest.mark.parametrize("selection", ["slurm", "localid"])
def test_no_mask_where_one_task_has_the_node_or_there_are_too_few_gpus(tmp_path: Path, selection: str) -> None:
    runscripts = Runscripts(tmp_path, plan(accelerator="rocm", gpu_selection=selection))
    assert not set(runscripts.environment(step(1, "1(x4)"))) & set(MASKS)
    assert not set(runscripts.environment()) & set(MASKS)
    assert not set(runscripts.environment({**step(1), "SLURM_GPUS_ON_NODE": "1"})) & set(MASKS)
    assert runscripts.environment({**step(1), "SLURM_GPUS_ON_NODE": "8"})["ROCR_VISIBLE_DEVICES"] == "1"


def test_the_easyconfigs_variables_where_the_user_has_none(tmp_path: Path) -> None:
    wanted = (("NCCL_SOCKET_IFNAME", "hsn"), ("ODD", "it's $(touch x) `id` \"\\ é"))
    runscripts = Runscripts(tmp_path, plan(accelerator="none", runscript_env=wanted))
    found = runscripts.environment()
    assert (found["NCCL_SOCKET_IFNAME"], found["ODD"]) == ("hsn", wanted[1][1])
    assert set(runscripts.environment({"NCCL_SOCKET_IFNAME": "eth0"})) & {"NCCL_SOCKET_IFNAME", "ODD"} == {"ODD"}
    assert "NCCL_SOCKET_IFNAME" not in runscripts.environment({"NCCL_SOCKET_IFNAME": ""})


@pytest.mark.parametrize("accelerator", ["rocm", "cuda", "none"])
def test_every_script_is_clean_sh(tmp_path: Path, accelerator: str) -> None:
    odd = "it's $(touch x) `id` \"\\ é"
    activation = Activation("x", f"source {odd}")
    changes: dict[str, Any] = {
        "runscript_env": (("A", odd), ("B", "2")),
        "cache_directory": f"/{odd}",
        "gpu_selection": "localid",
    }
    for number, more in enumerate(({}, changes, {**changes, "activation": activation})):
        made = Runscripts(tmp_path / str(number), plan(accelerator=accelerator, **more))
        paths = sorted(path for path in made.directory.iterdir() if path.is_file())
        assert len(paths) == 8
        for path in paths:
            for shell in SHELLS:
                assert run((*shell, "-n", path)).ok().stderr == ""
            assert bool(path.stat().st_mode & 0o111) == (path.name != "init-conda-venv")
        checked = run(("shellcheck", "--severity", "style" if number == 0 else "warning", *paths))
        assert checked.code == 0, checked.stdout


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
    inside = (RUNTIME.path, "-q", "exec", "-B", f"{directory}:/runscripts", images.python_sif)
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


@pytest.mark.parametrize(
    ("with_conda", "place"),
    [("source /opt/miniconda3/bin/activate pytorch", "venv/mine"), ("true", "venv"), ("true", "mine"), ("true", ".")],
)
def test_conda_and_the_venv_are_activated_by_sourcing(
    images: Images, tmp_path: Path, with_conda: str, place: str
) -> None:
    directory = Runscripts(tmp_path, plan(accelerator="none", wrappers=())).directory
    venv = tmp_path / "user-software" / place
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "activate").write_text(f"VENV={place}\n")
    binds = f"{directory}:/runscripts,{tmp_path}/user-software:/user-software"
    inside = (RUNTIME.path, "-q", "exec", "--env", f"WITH_CONDA={with_conda}", "-B", binds, images.python_sif)
    code = '. /runscripts/init-conda-venv; echo "${CONDA_PREFIX-none} $VENV ${sifmod_venv-unset}"'
    conda = "/opt/miniconda3/envs/pytorch" if with_conda != "true" else "none"
    result = run((*inside, "bash", "-c", code)).ok()
    assert (result.stdout, result.stderr) == (f"{conda} {place} unset\n", "")


@pytest.mark.parametrize("command", ["", ":"], ids=["variables", "command"])
def test_python_may_only_be_called_python3(tmp_path: Path, command: str) -> None:
    """As in Debian's and Ubuntu's images; where both are there, `python` is the environment's."""
    wanted = plan(accelerator="none", activation=Activation(command or "true", command), wrappers=())
    scripts, only = Runscripts(tmp_path, wanted), tmp_path / "only"
    (only / "torch/distributed").mkdir(parents=True)
    (only / "torch/distributed/run.py").write_text("print('torchrun')")
    (only / "thing-1.2.dist-info").mkdir()
    (only / "thing-1.2.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: thing\nVersion: 1.2\n")
    for name, target in (("sh", "/bin/dash"), ("bash", "/bin/bash"), ("python3", sys.executable)):
        (only / name).symlink_to(target)
    env = {"PATH": str(only), "PYTHONPATH": str(only)}
    ask = ("-c", "import sys; print(sys.argv[1:])", "a b")
    for name in ("conda-python-simple", "conda-python-distributed"):
        assert scripts.run(name, *ask, env=env, shell=("/bin/dash",)).ok().stdout == "['a b']\n"
    assert scripts.run("torchrun-distributed", "x.py", env=env, shell=("/bin/dash",)).ok().stdout == "torchrun\n"
    assert "thing " in scripts.run("list-packages", env=env, shell=("/bin/dash",)).ok().stdout
    (only / "python").write_text("#!/bin/sh\necho mine\n")
    (only / "python").chmod(0o755)
    assert scripts.run("conda-python-simple", *ask, env=env, shell=("/bin/dash",)).ok().stdout == "mine\n"
    for name in ("python", "python3"):
        (only / name).unlink()
    none = scripts.run("conda-python-simple", *ask, env=env, shell=("/bin/dash",))
    assert (none.code, "python3: not found" in none.stderr) == (127, True)


def test_activation_that_fails_runs_nothing(images: Images, tmp_path: Path) -> None:
    wanted = plan(accelerator="none", activation=Activation("false", "false"), wrappers=())
    directory = Runscripts(tmp_path, wanted).directory
    inside = (RUNTIME.path, "-q", "exec", "-B", f"{directory}:/runscripts", images.python_sif)
    result = run((*inside, "/runscripts/conda-python-simple", "-c", "print('ran')"))
    assert (result.code, result.stdout) == (1, "")


def test_packages_without_pip(images: Images, tmp_path: Path) -> None:
    """Also where `pip` of this module stands before an image's."""
    wanted = plan(accelerator="none", activation=Activation("true", ""))
    directory = Runscripts(tmp_path, wanted).directory
    without = tmp_path / "without"
    (without / "python").mkdir(parents=True)
    script = without / "python" / "python"
    script.write_text('#!/bin/sh\nexec /opt/miniconda3/envs/pytorch/bin/python -S "$@"\n')
    script.chmod(0o755)
    (without / "some_thing-1.2.dist-info").mkdir()
    (without / "some_thing-1.2.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: some-thing\nVersion: 1.2\n"
    )
    inside = (RUNTIME.path, "-q", "exec", "-B", f"{directory}:/runscripts,{without}:/without", images.python_sif)
    for places in ("/without", "/without:/runscripts/.pip"):
        env = ("env", "PATH=/without/python:/usr/bin:/bin", f"PYTHONPATH={places}")
        listed = run((*inside, *env, "/runscripts/list-packages")).ok()
        assert (listed.stdout.split(), listed.stderr) == (["some-thing", "1.2"], "")


def test_a_shell_in_an_image_without_bash(images: Images, tmp_path: Path) -> None:
    directory = Runscripts(tmp_path, plan(accelerator="none", wrappers=())).directory
    inside = (RUNTIME.path, "-q", "exec", "-B", f"{directory}:/runscripts", images.tiny_sif)
    result = run((*inside, "/runscripts/start-shell", "-c", 'echo "$0 $1"', "sh", "a b")).ok()
    assert (result.stdout, result.stderr) == ("sh a b\n", "")


def test_a_shell_reads_the_hosts_settings_where_it_is_told_to(images: Images, tmp_path: Path) -> None:
    """As `conda init` leaves ~/.bashrc: there `python` is the host's."""
    directory = Runscripts(tmp_path, plan(accelerator="none", wrappers=())).directory
    home = tmp_path / "ho me"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").write_text("#!/bin/sh\necho the hosts\n")
    (home / "bin" / "python").chmod(0o755)
    for name in (".bashrc", "env"):
        (home / name).write_text('PATH="$HOME/bin:$PATH"\n')
    ask = ("-i", "-c", "python -c 'print(\"the images\")'")
    for image, env in ((images.python_sif, ()), (images.tiny_sif, ("--env", f"ENV={home}/env"))):
        inside = (RUNTIME.path, "-q", "exec", *env, "--home", home, "-B", f"{directory}:/runscripts", image)
        path = ("env", "PATH=/opt/miniconda3/envs/pytorch/bin:/usr/bin:/bin", "/runscripts/start-shell")
        if image == images.python_sif:
            assert run((*inside, *path, *ask)).ok().stdout == "the images\n"
        else:
            assert run((*inside, *path, *ask)).code == 127
        assert run((*inside, *path, "--rc", *ask)).ok().stdout.splitlines()[-1] == "the hosts"
