"""The fixtures give what they promise: each test here runs the real tool behind one of them."""

import os
from pathlib import Path

import pytest

from support.command import run
from support.images import Images
from support.longest import LONGEST
from support.module_tool import ModuleTool
from support.oci import Entry
from support.registry import Registry
from support.runtime import RUNTIME
from support.slurm import Slurm
from support.user import OrdinaryUser


def test_the_tiny_image_runs_for_root_and_for_a_user(
    images: Images, ordinary_user: OrdinaryUser, shared_tmp: Path
) -> None:
    sif = shared_tmp / "tiny image.sif"
    sif.write_bytes(images.tiny_sif.read_bytes())
    command = (RUNTIME.path, "-q", "exec", sif, "printf", "%s|", "a b", "$HOME", "ü")
    for result in (run(command), ordinary_user.run(command)):
        assert (result.code, result.stdout, result.stderr) == (0, "a b|$HOME|ü|", "")


def test_tiny_images_are_small_and_differ(images: Images) -> None:
    labelled = images.tiny("labelled", entries=(Entry("opt/note", b"one\n", mode=0o644),), labels={"who": "]==] $(id)"})
    assert labelled.read_bytes() != images.tiny_sif.read_bytes()
    assert labelled.stat().st_size < 4_000_000
    assert "who: ]==] $(id)" in run((RUNTIME.path, "inspect", labelled)).ok().stdout
    assert run((RUNTIME.path, "-q", "exec", labelled, "cat", "/opt/note")).ok().stdout == "one\n"


def test_the_runtime_refuses_the_foreign_image(images: Images) -> None:
    result = run((RUNTIME.path, "-q", "exec", images.foreign("arm64"), "true"))
    assert result.code != 0
    assert "arm64" in result.stderr


def test_the_python_image_has_a_conda_environment(images: Images) -> None:
    script = "source /opt/miniconda3/bin/activate pytorch && python -c 'import sys; print(sys.prefix)' && pip --version"
    result = run((RUNTIME.path, "-q", "exec", images.python_sif, "bash", "-c", script)).ok()
    assert result.stdout.startswith("/opt/miniconda3/envs/pytorch\npip ")
    assert result.stderr == ""


def test_a_module_is_loaded_and_unloaded(module_tool: ModuleTool, shared_tmp: Path) -> None:
    text = {"lua": 'setenv("GREETING", "hello there")\n', "tcl": '#%Module\nsetenv GREETING "hello there"\n'}
    module = shared_tmp / "modules" / "Greeting" / ("1.0.lua" if module_tool.syntax == "lua" else "1.0")
    module.parent.mkdir(parents=True)
    module.write_text(text[module_tool.syntax])
    steps = ("true", "module load Greeting/1.0", "echo $GREETING; false", "module unload Greeting")
    before, loaded, said, after = module_tool.session(steps, shared_tmp / "modules", {"MINE": "a\nb"})
    assert (loaded.code, loaded.stderr) == (0, "")
    assert loaded.environment["GREETING"] == "hello there"
    assert (said.stdout, said.code) == ("hello there\n", 1)
    assert "GREETING" not in after.environment
    assert before.environment["MINE"] == after.environment["MINE"] == "a\nb"


def test_a_missing_module_is_an_error(module_tool: ModuleTool, shared_tmp: Path) -> None:
    result = module_tool.run("module load Nothing", shared_tmp)
    assert result.code != 0
    assert "Nothing" in result.stderr


def test_the_ordinary_user_is_not_root(ordinary_user: OrdinaryUser, shared_tmp: Path) -> None:
    secret = shared_tmp / "secret"
    secret.touch(mode=0o600)
    result = ordinary_user.run(("sh", "-c", 'id -u; touch "$HOME/mine"; pwd'))
    assert result.code == 0
    assert result.stdout.split() == [str(ordinary_user.user.uid), str(ordinary_user.home)]
    assert ordinary_user.user.uid != 0
    assert (ordinary_user.home / "mine").stat().st_uid == ordinary_user.user.uid
    if os.geteuid() == 0:
        assert ordinary_user.run(("cat", secret)).code != 0
        assert ordinary_user.run(("cat", ordinary_user.own(secret))).code == 0


def test_slurm_runs_on_two_nodes(slurm: Slurm) -> None:
    script = 'echo "$SLURMD_NODENAME $SLURM_PROCID $SLURM_STEP_NODELIST"'
    result = slurm.srun(("-N2", "-n4", "sh", "-c", script)).ok()
    assert sorted(result.stdout.splitlines()) == [
        f"{node} {rank} n[1-2]" for node, rank in zip(("n1", "n1", "n2", "n2"), range(4), strict=True)
    ]


def test_slurm_runs_a_batch_script(slurm: Slurm, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\nsrun -N2 -n2 hostname\nexit 7\n")
    assert slurm.wait(slurm.sbatch(("-N2", "-n2", f"--output={tmp_path}/out", script))) == 7
    assert len((tmp_path / "out").read_text().split()) == 2


def test_two_slurm_jobs_share_the_nodes(slurm: Slurm, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"  # each job waits inside its step until it has seen the other's file
    script.write_text(
        '#!/bin/bash\nsrun -N2 -n4 sh -c \'touch "$0/$1"; while [ ! -e "$0/$2" ]; do sleep 0.05; done\' "$@"\n'
    )
    options = ("-N2", "-n4", f"--output={tmp_path}/%j.out", "--time=1", script, tmp_path)
    jobs = (slurm.sbatch((*options, "a", "b")), slurm.sbatch((*options, "b", "a")))
    assert [slurm.wait(job) for job in jobs] == [0, 0]


@pytest.mark.parametrize("scheme", ["docker", "oras"])
def test_the_registry_gives_back_what_was_pushed(
    registry: Registry, images: Images, tmp_path: Path, scheme: str
) -> None:
    if scheme == "docker":
        reference = registry.push_layout(images.tiny_layout(), "tests/tiny:1.0")
    else:
        reference = registry.push_sif(images.tiny_sif, "tests/sif:1.0")
    sif = tmp_path / "pulled.sif"
    run((RUNTIME.path, "pull", "--no-https", sif, reference)).ok()
    assert run((RUNTIME.path, "-q", "exec", sif, "cat", "/etc/variant")).ok().stdout == "tiny\n"


def test_the_home_is_not_the_real_one(own_home: Path, tmp_path: Path) -> None:
    assert Path("~").expanduser() == own_home == tmp_path / "home"
    assert list(own_home.iterdir()) == []


def test_the_files_that_take_longest_are_there() -> None:
    assert [name for name in LONGEST if not list(Path(__file__).parents[1].glob(f"*/test_{name}.py"))] == []
