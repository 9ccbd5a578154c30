"""LUMI's 65 modules in Lmod: what EasyBuild's modules of the same recipes set is set, with the same meaning."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from loads import users
from plans import Published, publish
from sifmod.config.find import find_easyconfig, shipped
from sifmod.config.load_easyconfig import load_easyconfig
from sifmod.module.make_plan import Choices, make_plan
from support.config import Configuration
from support.images import Images
from support.lumi import AS_VARIANT, KINDS, SIFS
from support.module_tool import ModuleTool, Step

JANSSON = "/usr/lib64/libjansson.so.4"
# what every one of LUMI's modules binds, beside /runscripts
BINDS = (
    *("/var/spool/slurmd", "/opt/cray", "/usr/lib64/libcxi.so.1"),
    *("/pfs", "/scratch", "/projappl", "/project", "/flash", "/appl"),
)
# what a module of EasyBuild sets and ours does not, on purpose
NOT_SET = ("CMAKE_PREFIX_PATH", "XDG_DATA_DIRS", "SINGULARITY_BIND", "APPTAINER_BIND")
CONDA = {
    "CONDA_DEFAULT_ENV": "pytorch",
    "CONDA_EXE": "/opt/miniconda3/bin/conda",
    "CONDA_PREFIX": "/opt/miniconda3/envs/pytorch",
}
PREPEND = "SINGULARITYENV_PREPEND_PATH"
VENV = "/user-software/venv/pytorch"


@dataclass(frozen=True)
class Expected:
    """What EasyBuild's module of one kind sets. `{root}` is the module's directory."""

    host: Mapping[str, str]
    inside: Mapping[str, str]  # SINGULARITYENV_…
    path: str | None  # SINGULARITYENV_PREPEND_PATH
    jansson: bool = True
    user_software: bool = False
    runscripts: bool = True
    with_conda: str = "source /opt/miniconda3/bin/activate {env}"  # the image's own there, exported here


ROOT = {"CONTAINERROOT": "{root}"}
NCCL = {"NCCL_SOCKET_IFNAME": "hsn", "NCCL_NET_GDR_LEVEL": "3"}
BEFORE = Expected({}, {}, None)
SECOND = Expected(
    ROOT,
    {
        **CONDA,
        "VIRTUAL_ENV": VENV,
        "WITH_VENV": f"source {VENV}/bin/activate",
        "WITH_CONDA_VENV": "source /runscripts/init-conda-venv",
    },
    f"/runscripts:{VENV}/bin:/opt/miniconda3/envs/pytorch/bin:/opt/miniconda3/condabin",
    user_software=True,
)
ROCM = replace(BEFORE, runscripts=False, with_conda="true")
EXPECTED = {
    "before": BEFORE,
    "before, no jansson": replace(BEFORE, jansson=False),
    "rocm": ROCM,
    "rocm, no jansson": replace(ROCM, jansson=False),
    "generation 1": replace(BEFORE, path="/runscripts"),
    "generation 2": SECOND,
    "generation 2, no jansson": replace(SECOND, jansson=False),
    "generation 2, preload": replace(
        SECOND, inside={**SECOND.inside, "LD_PRELOAD": "/opt/rocm-5.6.1/lib/libpreload-me.so"}
    ),
    "generation 3": Expected(
        {**ROOT, **NCCL},
        {"VIRTUAL_ENV": VENV, "WITH_VENV": "true", "WITH_CONDA_VENV": "true"},
        f"/runscripts:{VENV}/bin",
        jansson=False,
        user_software=True,
        with_conda="true",
    ),
    # without the empty entry of LUMI's recipes, /runscripts::/user-software/…
    "jax of 2025": Expected(
        {**ROOT, **NCCL},
        {"VIRTUAL_ENV": "/user-software/venv/jax"},
        "/runscripts:/user-software/venv/jax/bin",
        jansson=False,
        user_software=True,
        with_conda="true",
    ),
}


@pytest.fixture(scope="module")
def tiny(images: Images) -> Path:
    return images.tiny_sif


@pytest.fixture
def repository(shared_tmp: Path) -> Path:
    """A place like /appl/local/containers, which LUMI_CONTAINER_REPOSITORY_ROOT names."""
    central = shared_tmp / "containers" / "easybuild-sif-images"
    central.mkdir(parents=True)
    return central


def installed(module: str, directory: Path, repository: Path, tiny: Path) -> Published:
    """The module as an install on LUMI leaves it, but that the sources of its binds are below `directory`."""
    configuration = Configuration(directory, {"LUMI_CONTAINER_REPOSITORY_ROOT": str(repository.parent)})
    site = configuration.site(site="lumi-g", prefix=str(directory / "prefix"))
    name, variant = ("PyTorch-2.2.0", "rocm") if module == AS_VARIANT else (module.replace("/", "-", 1), None)
    path = find_easyconfig(name, (shipped(),))
    loaded = load_easyconfig(path, site, variant, {}, configuration.environ)
    plan = make_plan(loaded.easyconfig, site.site, Choices(path.name, "copy"), loaded.quirks)
    binds = tuple(replace(bind, source=f"{directory}/lumi{bind.source}") for bind in plan.binds)
    for bind in binds:
        Path(bind.source).mkdir(parents=True)
    made = publish(replace(plan, binds=binds), image=False)
    shutil.copyfile(tiny, made.image)
    for place in ("user-software", "user-software.squashfs"):
        (made.root / place).symlink_to(f"{directory}/prefix/user-software/{module}/{place}")
    Path(f"{directory}/prefix/user-software/{module}").mkdir(parents=True)
    return made


def check(made: Published, expected: Expected, before: Step, loaded: Step, image: Path, users_bind: str) -> None:
    """Everything that EasyBuild's module sets, and nothing of what is not set on purpose."""
    loaded.ok()
    assert loaded.stderr == ""
    module, root, environment = made.plan.module, str(made.root), loaded.environment
    assert environment["SIF"] == environment[f"SIF{module.variable}"] == str(image)
    assert environment[f"EBROOT{module.variable}"] == root
    assert environment[f"EBVERSION{module.variable}"] == made.plan.version
    for name in ("make-squashfs", "unmake-squashfs"):
        assert (made.root / "bin" / name).is_file() == expected.user_software
    if expected.runscripts:
        assert environment["RUNSCRIPTS"] == environment[f"RUNSCRIPTS{module.variable}"] == f"{root}/runscripts"
        assert (made.root / "runscripts" / "conda-python-simple").is_file()
    for name, value in expected.host.items():
        assert environment[name] == value.format(root=root), name
    for name, value in expected.inside.items():
        assert environment[f"SINGULARITYENV_{name}"] == value, name
    if expected.path is None or expected.path == "/runscripts":
        # more than EasyBuild's sets: the conda environment is active
        assert f"{environment[PREPEND]}:".startswith("/runscripts:")
    else:
        assert environment[PREPEND] == expected.path
    assert environment["WITH_CONDA"] == expected.with_conda.format(env=module.name.lower())
    assert environment["SINGULARITYENV_WITH_CONDA"] == environment["WITH_CONDA"]
    assert environment["PATH"] == f"{root}/bin:{before.environment['PATH']}"
    entries = (entry.split(":") for entry in environment["SINGULARITY_BINDPATH"].split(",") if ":" in entry)
    bound = {entry[1]: entry[0] for entry in entries}
    lumi = f"{made.plan.prefix.removesuffix('/prefix')}/lumi"
    wanted = (*BINDS, JANSSON) if expected.jansson else BINDS
    users_own = {"/user-software": users_bind} if users_bind else {}
    assert bound == {"/runscripts": f"{root}/runscripts", **{path: f"{lumi}{path}" for path in wanted}, **users_own}
    assert not [name for name in environment if name in NOT_SET or name.startswith("EBDEVEL")]


@pytest.mark.parametrize("module", sorted(SIFS))
def test_what_easybuilds_module_sets_is_set(
    lmod: ModuleTool, shared_tmp: Path, repository: Path, tiny: Path, module: str
) -> None:
    """Its own image; a directory, then a squashfs of the user's; the central image only; none."""
    expected = EXPECTED[KINDS[module]]
    made = installed(module, shared_tmp, repository, tiny)
    place = Path(os.path.realpath(made.root / "user-software"))
    assert place == shared_tmp / "prefix" / "user-software" / module / "user-software"
    central = repository / SIFS[module]
    assert made.image.name == central.name
    load, unload = f"module load {module}", f"module unload {module}"
    steps = (
        *("true", load, unload),
        *(f"mkdir '{place}'", load, unload),
        *(f"touch '{place}.squashfs'", load, unload),
        *(f"cp '{tiny}' '{central}'; {load}", 'rm "$SIF"; module reload', unload),
        *(f"rm '{central}'", load),
    )
    done = lmod.session(steps, made.modules)
    before = done[0]
    layer = f"{made.root}/user-software" if expected.user_software else ""
    check(made, expected, before, done[1], made.image, "")
    check(made, expected, before, done[4], made.image, layer)
    check(made, expected, before, done[7], made.image, layer and f"{layer}.squashfs")
    assert ("image-src=" in done[7].environment["SINGULARITY_BINDPATH"]) == expected.user_software
    check(made, expected, before, done[9], made.image, layer and f"{layer}.squashfs")
    check(made, expected, before, done[10], central, layer and f"{layer}.squashfs")
    for number in (2, 5, 8, 11):
        assert users(done[number].ok()) == users(before)  # type: ignore[arg-type]
    failed = done[13]
    assert failed.code != 0
    assert SIFS[module] in "".join(failed.stderr.split())
    assert users(failed) == users(before)


def test_the_kinds_are_all_there_are() -> None:
    assert set(KINDS.values()) == set(EXPECTED)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "/appl/local/containers"),
        ({"LUMI_CONTAINER_REPOSITORY_ROOT": ""}, "/appl/local/containers"),
        ({"LUMI_CONTAINER_REPOSITORY_ROOT": "/elsewhere"}, "/elsewhere"),
    ],
)
@pytest.mark.parametrize("name", ["lumi-g", "lumi-c"])
def test_the_central_repository(tmp_path: Path, name: str, variables: dict[str, str], expected: str) -> None:
    site = Configuration(tmp_path, variables).site(site=name).site
    assert site.image_dirs == (f"{expected}/easybuild-sif-images",)
