"""`sifmod jobscript`: what is in the image decides which styles there are; and what goes wrong."""

import json
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.module.jobscript import JOB
from sifmod.tree.layer import Layer, Layers, publish_layer
from sifmod.tree.layout import Layout
from sifmod.tree.locking import lock
from sifmod.tree.receipt import live
from support.answer import answer
from support.disk_state import disk_state
from support.elf import library
from support.inside import Files, programs, sif
from support.runtime import RUNTIME
from support.tree import LEASE, nobody

TOOLS = ModuleName("Tools", "1")
PYTHON = "opt/env/lib/python3.11/site-packages"
EASYCONFIG = """
name: Tools
version: '1'
image: {{sources: ['{image}']}}
venv: /opt/env
accelerator: {accelerator}
wrappers: [python]
runscripts: [{runscripts}]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "pre fix"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def install(
    here: Path, files: Files, runscripts: str = "conda-python-distributed, torchrun-distributed", gpus: str = "none"
) -> None:
    image = sif(here / "image.sif", {**programs("opt/env/bin/python", "bin/sh"), "opt/env/pyvenv.cfg": "", **files})
    (here / "Tools-1.yaml").write_text(EASYCONFIG.format(image=image, runscripts=runscripts, accelerator=gpus))
    assert run(["install", "-q", "--skip-sanity-check", "--link", "reference", "Tools-1.yaml"]) == 0


def refused(here: Path, capfd: pytest.CaptureFixture[str], words: tuple[str, ...], code: int) -> str:
    capfd.readouterr()
    before = disk_state(here)
    assert run(["jobscript", "Tools", *words]) == code
    assert disk_state(here) == before
    out, err = capfd.readouterr()
    assert out == ""
    return err


def test_to_the_screen_and_into_a_file(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    install(here, {})
    capfd.readouterr()
    assert run(["jobscript", "Tools", "--nodes", "3", "--time", "1-0"]) == 0
    text, _ = capfd.readouterr()
    assert "#SBATCH --nodes=3\n" in text
    assert f"module use '{here}/pre fix/modules'\n" in text
    assert text.endswith(f'srun {RUNTIME.kind} exec "$SIF" conda-python-distributed -u train.py\n')
    made = answer(capfd, ("jobscript", "Tools", "--nodes", "3", "--time", "1-0", "-o", "job.sh"), 0)
    assert made == {"module": "Tools/1", "style": "srun", "path": str(here / "job.sh"), "text": text}
    assert (here / "job.sh").read_text() == text
    assert "exists already" in refused(here, capfd, ("-o", "job.sh"), 2)
    assert "hint: create it: mkdir -p 'no dir'" in refused(here, capfd, ("-o", "no dir/job.sh"), 2)


def test_what_is_decided_about_a_module_is_said(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By each verb that is for users, in the words of a load."""
    install(here, {"bin/rank": "#!/bin/sh\n"})
    end = "warning: Tools/1 was retired on "
    for decide, told in (
        (("hide", "Tools/1"), "warning: Tools/1 is hidden\n"),
        (
            ("deprecate", "Tools/1", "--since", "2026-01-02", "--message", "use 2"),
            "warning: Tools/1 is deprecated: use 2\n",
        ),
        (("retire", "Tools/1"), end),
    ):
        assert run(list(decide)) == 0
        for words in (("jobscript", "Tools"), ("jupyter", "Tools"), ("test", "Tools"), ("show", "Tools")):
            capfd.readouterr()
            run(list(words))
            assert capfd.readouterr().err.startswith(f"== {told}")
    assert run(["retire", "Tools/1", "--undo"]) == run(["deprecate", "Tools/1", "--undo"]) == 0
    assert run(["hide", "Tools/1", "--undo"]) == 0
    capfd.readouterr()
    assert run(["show", "Tools"]) == 0
    assert capfd.readouterr().err == ""


def test_what_is_said_of_a_file_can_be_typed(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    install(here, {})
    assert run(["jobscript", "Tools", "--account", "a", "--partition", "p", "-o", "my job.sh"]) == 0
    assert capfd.readouterr().err.endswith("`sbatch 'my job.sh'`\n")


@pytest.mark.parametrize("time", ["UNLIMITED", "infinite", "90", "1-0", "1-00:30", "10:00"])
def test_times_as_sbatch_takes_them(here: Path, capfd: pytest.CaptureFixture[str], time: str) -> None:
    install(here, {})
    text = answer(capfd, ("jobscript", "Tools", "--time", time), 0)["text"]
    assert f"#SBATCH --time={time}\n" in text


def test_styles_that_the_module_lacks(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    install(here, {}, "conda-python-distributed")
    assert "`sifmod add Tools/1 lightning` adds it" in refused(here, capfd, ("--style", "lightning"), 2)
    assert "`runscripts+: [torchrun-distributed]`" in refused(here, capfd, ("--style", "torchrun"), 2)
    assert "has no all_reduce_perf" in refused(here, capfd, ("--style", "nccl-tests"), 2)
    (here / "image.sif").unlink()
    assert "fetches it again" in refused(here, capfd, ("--style", "nccl-tests"), 24)


def test_a_hint_keeps_the_prefix(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(here, {})
    monkeypatch.delenv("SIFMOD_PREFIX")
    err = refused(here, capfd, ("--style", "lightning", "--prefix", f"{here}/pre fix"), 2)
    assert f"`sifmod add Tools/1 --prefix '{here}/pre fix' lightning` adds it" in err


def test_lightning_in_the_image(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    install(here, {f"{PYTHON}/lightning-2.5.5.dist-info/METADATA": "", "opt/env/bin/python3.11": "#!"})
    text = answer(capfd, ("jobscript", "Tools", "--style", "lightning"), 0)["text"]
    assert 'Trainer(num_nodes=int(os.environ["SLURM_NNODES"])' in text
    assert text.endswith('"$SIF" conda-python-distributed -u train.py\n')


@pytest.mark.parametrize(
    ("linked", "needed", "said", "expected"),
    [
        ("libmpi.so.40", (), b"Open MPI v%d", "srun --mpi=pmix "),
        ("libmpi.so.12", (), b"MPICH Version", "srun --mpi=pmi2 "),
        ("libmpich.so.12", (), b"MPICH Version", "srun --mpi=pmi2 "),
        ("libmpi.so.12", ("libpmix.so.2",), b"MPICH Version", "srun --mpi=pmix "),
        ("libmpi_cray.so.12", (), b"CRAY MPICH version", "srun --mpi=cray_shasta "),
        ("libmpi.so.12", (), b"of another one", "srun "),
    ],
)
def test_nccl_tests_start_as_the_mpi_of_the_image_wants(
    here: Path, capfd: pytest.CaptureFixture[str], linked: str, needed: tuple[str, ...], said: bytes, expected: str
) -> None:
    program = library("", ("libc.so.6", linked))
    files = {"usr/local/bin/all_reduce_perf_mpi": program, f"usr/lib64/{linked}": library(linked, needed, said)}
    install(here, files, gpus="cuda")
    text = answer(capfd, ("jobscript", "Tools", "--style", "nccl-tests", "--nodes", "4"), 0)["text"]
    assert f"\n{expected}{RUNTIME.kind} exec" in text
    assert "#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=4\n" in text
    assert text.endswith('"$SIF" /usr/local/bin/all_reduce_perf_mpi -b 8 -e 1G -f 2 -g 1\n')


def test_nccl_tests_without_mpi_stay_on_one_node(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    install(here, programs("usr/local/bin/all_reduce_perf"), gpus="cuda")
    text = answer(capfd, ("jobscript", "Tools", "--style", "nccl-tests"), 0)["text"]
    assert "#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=4\n" in text
    assert text.endswith("/all_reduce_perf -b 8 -e 1G -f 2 -g 4\n")
    assert "without MPI" in refused(here, capfd, ("--style", "nccl-tests", "--nodes", "2"), 2)


def test_a_command_of_the_module_cannot_be_copied_to_the_nodes(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    install(here, {}, "")
    assert "leave --bcast out" in refused(here, capfd, ("--bcast",), 2)


@pytest.mark.parametrize(
    "words", [("--time", "soon"), ("--account", "a b"), ("--partition", "x\n#SBATCH"), ("--nodes", "0")]
)
def test_values_that_cannot_stand_in_a_script(
    here: Path, capfd: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert "Invalid value" in refused(here, capfd, words, 2)


def test_a_generation_without_its_part(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    install(here, {})
    place = here / "pre fix/software/Tools/1" / JOB
    for text in ("{}", None):
        place.parent.chmod(0o755)
        place.unlink()
        if text is not None:
            place.write_text(text)
        err = refused(here, capfd, (), 24)
        assert "share/job.json is damaged or gone" in err
        assert "install --module-only --installed" in err
    assert run(["install", "-q", "--module-only", "--installed"]) == 0
    assert json.loads((here / "pre fix/software/Tools/1" / JOB).read_text())["module"] == "Tools/1"


@pytest.mark.parametrize(
    ("module", "stale", "name", "asked", "code"),
    [
        (TOOLS, False, "default", None, 0),
        (TOOLS, False, "other", "other", 0),
        (TOOLS, False, "other", None, 2),
        (TOOLS, False, "default", "other", 2),
        (TOOLS, True, "default", None, 2),
        (ModuleName("Tools", "2"), False, "default", None, 2),
    ],
)
def test_lightning_in_a_layer(
    module: ModuleName,
    stale: bool,
    name: str,
    asked: str | None,
    code: int,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(here, {})
    layout = Layout(here / "pre fix")
    there = live(layout, TOOLS)
    assert there
    if asked:
        monkeypatch.setenv("SIFMOD_LAYER", asked)
    layers = Layers(layout.prefix / "layers", layout.prefix)
    with lock(layers, str(module), LEASE, nobody) as held:
        directory = held.path("layer")
        (directory / "tree").mkdir(parents=True)
        (directory / "pylock.toml").write_text("lock")
        image = "f" * 64 if stale else there.image_sha256
        added = (("lightning", "2.5"),)
        made = Layer(
            words=(),
            constraints=(),
            digests=(),
            module=module,
            name=name,
            image=image,
            number=1,
            python="/opt/env",
            version="3.11",
            requirements=("lightning",),
            editable=(),
            places=(),
            added=added,
            kept=(),
            packed=False,
        )
        publish_layer(layers, made, directory, held)
    assert run(["jobscript", "Tools/1", "--style", "lightning"]) == code
