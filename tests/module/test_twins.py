"""modulefiles/: the twins are what is rendered now, and a load of them gives what is written down here by hand."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sifmod import __version__
from support.module_tool import ModuleTool

ROOT = Path(__file__).parents[2]
TWINS = ROOT / "modulefiles"
SHARE = ROOT / "sifmod" / "module" / "templates" / "share"
PYTHON = {"LD_PRELOAD": "", "PIP_USER": "0", "PYTHONNOUSERSITE": "1", "PYTHONPATH": "/runscripts/.pip"}
CONDA_BASE = {
    "CONDA_DEFAULT_ENV": "base",
    "CONDA_EXE": "/opt/conda/bin/conda",
    "CONDA_PREFIX": "/opt/conda",
    "WITH_CONDA": "source /opt/conda/bin/activate base",
}
CONDA_PYTORCH = {
    "CONDA_DEFAULT_ENV": "pytorch",
    "CONDA_EXE": "/opt/miniconda3/bin/conda",
    "CONDA_PREFIX": "/opt/miniconda3/envs/pytorch",
    "WITH_CONDA": "source /opt/miniconda3/bin/activate pytorch",
}
LUMI_SIF = "lumi-pytorch-rocm-5.6.1-python-3.10-pytorch-v2.2.0-dockerhash-f72ddd8ef883.sif"

# version, version without suffix, image, inside, PATH inside, on the host, prefixes
CASES = [
    (
        "2.2.0-rocm-5.6.1-python-3.10-singularity-20240209",
        "2.2.0",
        LUMI_SIF,
        CONDA_PYTORCH | PYTHON,
        "/runscripts:/opt/miniconda3/envs/pytorch/bin:/opt/miniconda3/condabin",
        {},
        ("SINGULARITY",),
    ),
    (
        "2.2.0-cuda-12.3-python-3.10-ngc-24.01",
        "2.2.0",
        "PyTorch-2.2.0-cuda-12.3-python-3.10-ngc-24.01.sif",
        {"WITH_CONDA": "true"} | PYTHON,
        "/runscripts",
        {"SINGULARITY_NV": "1", "APPTAINER_NV": "1"},
        ("SINGULARITY", "APPTAINER"),
    ),
    (
        "2.2.0-cpu",
        "2.2.0",
        "PyTorch-2.2.0-cpu.sif",
        CONDA_BASE | PYTHON,
        "/runscripts:/opt/conda/bin:/opt/conda/condabin",
        {},
        ("SINGULARITY", "APPTAINER"),
    ),
    (
        "2.13.0-cpu",
        "2.13.0",
        "PyTorch-2.13.0-cpu.sif",
        {"WITH_CONDA": "true"} | PYTHON,
        "/runscripts:/opt/miniconda3/envs/pytorch/bin",
        {},
        ("SINGULARITY", "APPTAINER"),
    ),
]


def test_twins_are_what_is_rendered() -> None:
    result = subprocess.run(
        [sys.executable, ROOT / "scripts" / "modulefiles", "--check"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", ""), "run scripts/modulefiles"


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_a_load_gives_what_is_written_here(
    case: tuple[str, str, str, dict[str, str], str, dict[str, str], tuple[str, ...]],
    module_tool: ModuleTool,
    shared_tmp: Path,
) -> None:
    version, plain, image, inside, path, host, prefixes = case
    prefix = shared_tmp / "prefix"
    root = prefix / "software" / "PyTorch" / ".generations" / version / "1"
    (root / "runscripts").mkdir(parents=True)
    (root / image).write_bytes(b"the load only looks whether it is there")
    shutil.copytree(SHARE, root / "share")
    file = prefix / "modules" / "PyTorch" / (f"{version}.lua" if module_tool.syntax == "lua" else version)
    file.parent.mkdir(parents=True)
    text = (TWINS / "PyTorch" / file.name).read_text().replace("/opt/sifmod", str(prefix))
    (python,) = re.findall(r'python_key\W+"?([0-9a-f]{8})\b', text)
    file.write_text(text if module_tool.syntax == "lua" else f"#%Module\n{text}")

    before, loaded, unloaded = module_tool.session(
        ("true", f"module load PyTorch/{version}", f"module unload PyTorch/{version}"), prefix / "modules"
    )

    assert (loaded.code, loaded.stderr, unloaded.code, unloaded.stderr) == (0, "", 0, "")
    expected = {
        "SIF": f"{root}/{image}",
        "SIFPYTORCH": f"{root}/{image}",
        "RUNSCRIPTS": f"{root}/runscripts",
        "RUNSCRIPTSPYTORCH": f"{root}/runscripts",
        "WITH_CONDA": inside["WITH_CONDA"],
        "CONTAINERROOT": str(root),
        "EBROOTPYTORCH": str(root),
        "EBVERSIONPYTORCH": plain,
        "PATH": f"{root}/bin:{before.environment['PATH']}",
        **host,
    }
    for name in prefixes:
        expected[f"{name}_BINDPATH"] = f"{root}/runscripts:/runscripts:ro"
        expected[f"{name}ENV_PREPEND_PATH"] = path
        expected |= {f"{name}ENV_{key}": value for key, value in inside.items()}
        expected[f"{name}ENV_SIFMOD_CONTAINER"] = f":{python}:{root}/{image}"
    changed = {key: value for key, value in loaded.environment.items() if before.environment.get(key) != value}
    assert {key: value for key, value in changed.items() if not own(key)} == expected
    left = {key: value for key, value in unloaded.environment.items() if not own(key)}
    assert left == {key: value for key, value in before.environment.items() if not own(key)}


def test_a_twin_says_that_it_is_not_installed(module_tool: ModuleTool) -> None:
    """`module use CLONE/modulefiles` shows the twins too; a load says in one line what makes a module of one."""
    before, step = module_tool.session(("true", "module load PyTorch/2.13.0-cpu"), TWINS)
    said = " ".join(step.stderr.split())
    assert "PyTorch/2.13.0-cpu is not installed here: " in said
    assert " cannot be read; sifmod install PyTorch-2.13.0.yaml --variant cpu installs it" in said
    assert not [word for word in ("nil", "stack traceback", "invoked from") if word in step.stderr]
    assert step.environment.get("SIF") is before.environment.get("SIF") is None
    assert module_tool.run("module whatis PyTorch/2.13.0-cpu", TWINS).code == 0


def test_the_module_of_sifmod_itself(module_tool: ModuleTool) -> None:
    step = module_tool.run(f"module load sifmod/{__version__}", TWINS)
    assert (step.code, step.stderr) == (0, "")
    assert step.environment["PATH"].split(":")[0] == str(ROOT / ".venv" / "bin")
    pages, *rest = step.environment["MANPATH"].split(":")
    assert pages == str(ROOT / ".venv" / "share" / "man")
    assert "" in rest  # the machine's own


def own(name: str) -> bool:
    """The module systems' own variables, and sifmod's record of what is loaded."""
    return name.startswith(("_", "LMOD_", "MODULES_", "MODULESHOME")) or name in ("LOADEDMODULES", "MODULEPATH")
