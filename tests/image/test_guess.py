"""What an easyconfig for an image could say, guessed from its description and its files."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from sifmod.image.guess import MAIN_PACKAGES, Guess, Named, make_guess
from sifmod.image.inspect.description import Config, ImageDescription
from sifmod.image.sources.source_kinds import parse
from support.inside import Files, programs, rootfs

VENV = programs("/venv/bin/python", "/venv/bin/python3", "/venv/bin/pip")
SYSTEM = programs("/usr/bin/python3", "/usr/bin/python3.11", "/usr/bin/pip")
DEFAULT = (("PATH", "/usr/local/bin:/usr/bin:/bin"),)


def packages(**versions: str) -> dict[str, str | bytes | None]:
    """Distributions in the venv's library."""
    below = "/venv/lib/python3.12/site-packages"
    return {f"{below}/{name.replace('_', '-')}-{version}.dist-info": None for name, version in versions.items()}


def guess(
    tmp_path: Path,
    files: Files,
    source: str = "docker://host.example/group/thing:1.0",
    *,
    entrypoint: Sequence[str] = (),
    cmd: Sequence[str] = (),
    labels: tuple[tuple[str, str], ...] = (),
    environment: tuple[tuple[str, str], ...] = DEFAULT,
    definition: str = "",
    origin: str = "",
) -> Guess:
    config = Config(labels, environment, tuple(entrypoint), tuple(cmd))
    described = ImageDescription("SIF", "amd64", 1, config=config, definition=definition, source=origin)
    with rootfs(tmp_path / "image", files) as inside:
        return make_guess(parse(source), described, inside)


def chosen(tmp_path: Path, files: Files, source: str = "docker://host.example/group/thing:1.0") -> str:
    found = guess(tmp_path, files, source).python
    return found.directory if found else ""


def test_an_image_of_a_framework(tmp_path: Path) -> None:
    files = {**VENV, **SYSTEM, **packages(torch="2.7.1+cu126", numpy="2.0.0", six="1.0", ray="2.9")}
    found = guess(tmp_path, files, "docker://host.example/group/pytorch:24.01", labels=(("a", "b"),))
    assert found.named == Named("PyTorch", "the image's name", "2.7.1", "the package torch", True, "torch")
    assert (found.gpu.accelerator, found.gpu.version) == ("cuda", "12.6")
    assert found.contents == (("torch", "2.7.1+cu126"), ("numpy", "2.0.0"), ("ray", "2.9"))
    assert found.wrappers == ("python", "python3", "pip", "start-shell", "list-packages")
    assert (found.path, found.others, found.labels) == (("/venv/bin",), (), {"a": "b"})
    assert found.versionsuffix == "-cuda-12.6-python-3.12"


def test_the_suffix_of_a_version(tmp_path: Path) -> None:
    torch = "docker://host.example/group/pytorch:1"
    assert guess(tmp_path, {**VENV, **packages(torch="2.7.1")}, torch).versionsuffix == "-cpu-python-3.12"
    assert guess(tmp_path, {**VENV, "/opt/rocm": None}).versionsuffix == "-rocm"
    assert guess(tmp_path, {**VENV, "/opt/rocm-6.2.4": None}).versionsuffix == "-rocm-6.2.4"
    assert guess(tmp_path, VENV).versionsuffix == ""


def test_a_framework_without_a_version_of_python(tmp_path: Path) -> None:
    files = {**programs("/usr/bin/python3"), "/usr/lib/python3/dist-packages/torch-2.7.1.dist-info": None}
    assert guess(tmp_path, files, "docker://host.example/group/pytorch:1").versionsuffix == "-cpu"


def test_the_environment_with_a_framework_is_the_one(tmp_path: Path) -> None:
    below = "/opt/venv/lib/python3.12/site-packages"
    files = {**programs("/a/bin/python3", "/opt/venv/bin/python", "/usr/bin/python3"), f"{below}/jax-1.dist-info": None}
    found = guess(tmp_path, files, environment=(("PATH", "/a/bin:/usr/bin"),))
    assert found.python is not None
    assert (found.python.directory, found.others) == ("/opt/venv", ("/a",))


def test_else_the_first_environment_in_path(tmp_path: Path) -> None:
    files = programs("/a/bin/python", "/b/bin/python3")
    path = (("PATH", "/a/bin:/b/bin"),)
    for name, expected in (("python3", "/b"), ("python", "/a")):
        with_both = {**files, **programs(*(f"/b/bin/{each}" for each in (name, "python")))}
        with_both = {path: text for path, text in with_both.items() if name == "python3" or not path.endswith("3")}
        found = guess(tmp_path, with_both, environment=path).python
        assert found is not None
        assert found.directory == expected
    assert chosen(tmp_path, programs("/opt/venv/bin/python", "/venv/bin/python")) == "/opt/venv"


def test_a_bare_python_of_the_system_counts_for_its_name_alone(tmp_path: Path) -> None:
    bare = {**SYSTEM, "/usr/lib/python3/dist-packages/pip-24.0.dist-info": None}
    named = "./Python_3.11.sif"
    assert chosen(tmp_path, bare) == ""
    assert chosen(tmp_path, bare, named) == "/usr"
    assert chosen(tmp_path, {**bare, **programs("/opt/venv/bin/python")}) == "/opt/venv"
    assert chosen(tmp_path, {**bare, "/usr/lib/python3/dist-packages/numpy-2.0.dist-info": None}) == "/usr"


@pytest.mark.parametrize(
    "name",
    [
        *("pip", "setuptools", "wheel", "distlib", "packaging", "six", "distro-info", "python-apt", "dbus-python"),
    ],
)
def test_what_every_python_of_a_system_has_says_nothing(tmp_path: Path, name: str) -> None:
    library = "/usr/lib/python3/dist-packages"
    files = {**SYSTEM, f"{library}/{name.replace('-', '_')}-1.0.dist-info": None}
    assert chosen(tmp_path, files) == ""


def test_an_image_of_python_itself(tmp_path: Path) -> None:
    files = programs("/usr/local/bin/python3", "/usr/local/bin/python3.12")
    found = guess(tmp_path, {**files, "/usr/local/lib/python3.12": None}, "docker://python")
    assert (found.named.name, found.named.version) == ("Python", "3.12")
    assert found.named.version_from == "the Python in /usr/local"
    tagged = guess(tmp_path, {**files, "/usr/local/lib/python3.12": None}, "docker://python:3.12-slim")
    assert (tagged.named.version, tagged.named.version_from) == ("3.12-slim", "the tag")
    unknown = guess(tmp_path, programs("/usr/local/bin/python3"), "docker://python")
    assert unknown.named.version == "1.0"


def test_packages_without_a_version_that_can_be_named_are_left_out(tmp_path: Path) -> None:
    files = {**VENV, **packages(numpy="1!2", scipy="1.2", pandas="2..0", jax="0" * 62)}
    assert guess(tmp_path, files).contents == (("scipy", "1.2"),)


def test_contents_are_what_people_ask_for_in_its_order(tmp_path: Path) -> None:
    names = {name.replace("-", "_"): "1.0" for name in reversed(MAIN_PACKAGES)}
    below = "/venv/lib/python3.12/site-packages"
    files = {**VENV, **{f"{below}/{name}-1.0.dist-info": None for name in (*names, "six", "requests")}}
    assert [name for name, _ in guess(tmp_path, files).contents] == [
        *("torch", "torchvision", "torchaudio", "triton", "pytorch-triton-rocm", "tensorflow", "tensorflow-rocm"),
        *("keras", "jax", "jaxlib", "flax", "numpy", "deepspeed", "flash-attn", "xformers", "bitsandbytes"),
        *("transformers", "accelerate", "datasets", "diffusers", "peft", "trl", "lightning", "pytorch-lightning"),
        *("vllm", "sglang", "megatron-core", "transformer-engine", "apex", "ray", "horovod", "mpi4py", "cupy"),
        *("cupy-cuda12x", "onnxruntime", "onnxruntime-gpu", "scipy", "pandas", "scikit-learn"),
    ]


COMMANDS = (
    *("python", "python3", "pip", "pip3", "ipython", "jupyter", "jupyter-lab", "torchrun", "accelerate", "deepspeed"),
    *("lightning", "vllm", "sglang", "ray", "trtllm-build", "hf", "huggingface-cli", "tensorboard"),
)


def test_wrappers_are_for_what_people_start(tmp_path: Path) -> None:
    files = programs(*(f"/venv/bin/{name}" for name in sorted((*COMMANDS, "f2py", "isort"))))
    assert guess(tmp_path, files).wrappers == (*COMMANDS, "start-shell", "list-packages")


@pytest.mark.parametrize(("name", "has_list"), [("pip", True), ("pip3", True), ("ray", False)])
def test_packages_are_listed_where_there_is_pip(tmp_path: Path, name: str, has_list: bool) -> None:
    files = programs("/venv/bin/python", f"/venv/bin/{name}")
    assert ("list-packages" in guess(tmp_path, files).wrappers) == has_list


def test_commands_of_the_system_s_python_are_those_in_path(tmp_path: Path) -> None:
    files = programs("/usr/local/bin/ray", "/usr/bin/python3", "/usr/sbin/pip", "/bin/torchrun")
    files = {**files, "/usr/lib/python3/dist-packages/ray-2.0.dist-info": None}
    found = guess(tmp_path, files)
    assert (found.wrappers, found.path) == (("python3", "torchrun", "ray", "start-shell"), ())


def test_path_is_left_where_it_leads_to_the_environment(tmp_path: Path) -> None:
    in_path = (("PATH", "/venv/bin:/usr/bin"),)
    assert guess(tmp_path, {**VENV, **SYSTEM}, environment=in_path).path == ()
    venv = {**VENV, "/venv/pyvenv.cfg": "", "/venv/bin/activate": ""}
    assert guess(tmp_path, venv).path == ()  # it is activated
    assert guess(tmp_path, VENV).path == ("/venv/bin",)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, True) for name in ("samtools", "gmx_mpi", "a-b.c+d", "x" * 61, "env2", "tinitools")),
        *((name, False) for name in ("sh", "bash", "dash", "zsh", "ksh", "ash", "csh", "tcsh", "fish", "env", "tini")),
        *((name, False) for name in ("dumb-init", "busybox", "apptainer", "singularity", "docker-entrypoint", "x.sh")),
        *((name, False) for name in ("a b", "-x", "a--b", "x" * 62)),
    ],
)
def test_an_entrypoint_or_command_that_can_have_a_wrapper(tmp_path: Path, name: str, expected: bool) -> None:
    files = programs(f"/usr/bin/{name}")
    for words in ({"entrypoint": (name, "ls")}, {"cmd": (f"/anywhere/{name}", "ls")}):
        wrappers = guess(tmp_path, {**files, **programs("/usr/bin/ls")}, **words).wrappers  # type: ignore[arg-type]
        assert wrappers == ((name, "start-shell") if expected else ("start-shell",))


def test_a_command_of_the_software_s_name_has_a_wrapper_once(tmp_path: Path) -> None:
    files = programs("/usr/bin/gromacs", "/usr/bin/GROMACS", "/sbin/hidden")
    source = "docker://host.example/x/GROMACS:1"
    found = guess(tmp_path, files, "./GROMACS_1.sif", entrypoint=("GROMACS",), cmd=("hidden",))
    assert found.wrappers == ("GROMACS", "gromacs", "start-shell")
    assert guess(tmp_path, {}, source.lower(), entrypoint=("gromacs",)).wrappers == ("start-shell",)


FROM = "bootstrap: docker\nfrom: host.example/group/pytorch:24.01\n"
ORIGIN = "docker://host.example/group/pytorch:24.01"


def test_a_converted_file_without_a_version_is_called_as_its_source(tmp_path: Path) -> None:
    found = guess(tmp_path, {}, "./image.sif", definition=FROM, origin=ORIGIN).named
    assert (found.name, found.version, found.version_from) == ("pytorch", "24.01", "the tag")
    assert found.name_from == "the image that its definition names"


def test_a_label_stays_what_a_name_comes_from(tmp_path: Path) -> None:
    title = (("org.opencontainers.image.title", "Tool"),)
    found = guess(tmp_path, {}, "./image.sif", definition=FROM, origin=ORIGIN, labels=title).named
    assert (found.name, found.name_from) == ("Tool", "the label org.opencontainers.image.title")
    assert found.version == "24.01"


@pytest.mark.parametrize(
    ("source", "definition", "origin"),
    [
        ("./image_2.0.sif", FROM, ORIGIN),
        ("./image.sif", f"{FROM}\n  %post\n  true", ORIGIN),
        ("./image.sif", FROM, ""),
        ("./image.sif", FROM, "docker://"),
        ("./image.sif", FROM, "oci:/data/pytorch:24.01"),
        ("docker://host.example/group/image", FROM, ORIGIN),
    ],
)
def test_what_is_called_as_it_is(tmp_path: Path, source: str, definition: str, origin: str) -> None:
    assert guess(tmp_path, {}, source, definition=definition, origin=origin).named.name == "image"


@pytest.mark.parametrize("origin", ["oras://host.example/group/tool:3", "library://group/set/tool:3"])
@pytest.mark.parametrize("source", ["image.sif", "/data/image.sif", "https://host.example/image.sif"])
def test_sources_that_a_conversion_can_have(tmp_path: Path, source: str, origin: str) -> None:
    found = guess(tmp_path, {}, source, origin=origin).named
    assert (found.name, found.version) == ("tool", "3")
