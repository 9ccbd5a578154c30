"""`sifmod new`: first easyconfigs for images of every shape, which load, install and work."""

import hashlib
import os
import re
import shutil
from pathlib import Path

import pytest

from sifmod.actions.author.new import NewOptions, make_draft
from sifmod.actions.author.new_file import write_text
from sifmod.actions.reporter import Reporter
from sifmod.cli.main import run
from sifmod.config.easyconfig import Easyconfig
from sifmod.errors import OptionError
from support.answer import answer
from support.command import run as run_command
from support.config import Configuration
from support.disk_state import disk_state
from support.identity import call_as
from support.images import Images
from support.oci import Entry
from support.registry import Registry
from support.runtime import RUNTIME
from support.user import OrdinaryUser

SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LUMI = "lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.1-dockerhash-0d479e852886.sif"
SCRIPT = b"#!/bin/sh\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and a prefix of the test's own."""
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    return directory


def python(directory: str, version: str, *commands: str, **packages: str) -> tuple[Entry, ...]:
    """Files as a Python environment has them, without a Python that runs; package names with _ for -."""
    site = f"{directory}/lib/python{version}/site-packages"
    names = ("python", "python3", *commands)
    programs = tuple(Entry(f"{directory}/bin/{name}", SCRIPT) for name in names)
    dists = (f"{site}/{name}-{number}.dist-info/METADATA" for name, number in packages.items())
    return (*programs, *(Entry(path, b"Name: x\n", mode=0o644) for path in dists))


def text(path: str, content: str = "") -> Entry:
    return Entry(path, content.encode(), mode=0o644)


def drafted(sif: Path, name: str, *options: str) -> tuple[Path, Easyconfig]:
    """What `sifmod new` writes for a copy of the image that is called `name`."""
    copy = Path(shutil.copy(sif, Path.cwd().parent / name))
    assert run(["new", "-q", str(copy), *options]) == 0
    (written,) = Path.cwd().glob("*.yaml")
    return written, Configuration(Path.cwd().parent / "config").load(written).easyconfig


def test_a_conda_image_with_pytorch_for_cuda(images: Images) -> None:
    site = "opt/conda/lib/python3.10/site-packages"
    sif = images.tiny(
        "conda",
        entries=(
            *python("opt/conda", "3.10", "pip", "torchrun", torch="2.2.0", torchvision="0.17.0", six="1.16.0"),
            text("opt/conda/conda-meta/history"),
            text("opt/conda/bin/activate"),
            text(f"{site}/torch/version.py", "__version__ = '2.2.0'\ncuda: Optional[str] = '12.1'\nhip = None\n"),
        ),
        env=(f"PATH=/opt/conda/bin:{SYSTEM}", "NVIDIA_VISIBLE_DEVICES=all"),
        labels={"org.opencontainers.image.ref.name": "ubuntu", "org.opencontainers.image.version": "22.04"},
    )
    path, made = drafted(sif, "pytorch.sif")
    assert path.name == "PyTorch-2.2.0-cuda-12.1-python-3.10.yaml"
    assert str(made.module) == "PyTorch/2.2.0-cuda-12.1-python-3.10"
    assert made.accelerator == "cuda"
    assert made.conda is not None
    assert (made.conda.prefix, made.conda.env) == ("/opt/conda", "base")
    assert made.contents == (("torch", "2.2.0"), ("torchvision", "0.17.0"))
    assert made.wrappers == ("python", "python3", "pip", "torchrun", "start-shell", "list-packages")
    assert made.sanity_check.commands == ('python -c "import torch"',)
    comments = path.read_text()
    assert "# from the package torch\nversion: '2.2.0'" in comments
    assert "# torch/version.py has cuda 12.1\n" in comments
    assert "1 more" in comments


def test_an_image_as_lumi_has_them(images: Images) -> None:
    sif = images.tiny(
        "lumi",
        entries=(
            *python("opt/miniconda3/envs/pytorch", "3.12", "pip", "accelerate", "ray", torch="2.7.1+gitb4f5c4d"),
            *python("opt/miniconda3", "3.12", "conda"),
            text("opt/miniconda3/conda-meta/history"),
            text("opt/miniconda3/bin/activate"),
            text("opt/rocm-6.2.4/.info/version", "6.2.4-139\n"),
            Entry("opt/rocm", link="rocm-6.2.4"),
        ),
        env=("WITH_CONDA=source /opt/miniconda3/bin/activate pytorch", "ROCM_PATH=/opt/rocm"),
    )
    _, made = drafted(sif, LUMI)
    assert str(made.module) == "PyTorch/2.7.1-rocm-6.2.4-python-3.12"
    assert made.accelerator == "rocm"
    assert made.conda is not None
    assert (made.conda.prefix, made.conda.env) == ("/opt/miniconda3", "pytorch")
    assert made.required_image.filename == LUMI
    assert "accelerate" in made.wrappers
    assert "ray" in made.wrappers


def test_a_venv_beside_the_systems_python(images: Images) -> None:
    sif = images.tiny(
        "venv",
        entries=(
            *python("usr", "3.12"),
            *python("opt/venv", "3.12", "pip", "vllm", torch="2.8.0+rocm6.4.1", vllm="0.10.1", jax="0.5.0"),
            text("opt/venv/pyvenv.cfg", "home = /usr/bin\n"),
            text("opt/venv/bin/activate"),
        ),
        env=("VIRTUAL_ENV=/opt/venv",),
    )
    path, made = drafted(sif, "vllm-serve-0.10.sif")
    assert str(made.module) == "vLLM/0.10.1-rocm-6.4.1-python-3.12"
    assert made.venv == "/opt/venv"
    assert made.conda is None
    assert "vllm" in made.wrappers
    assert made.sanity_check.commands == ()
    assert "# the package torch 2.8.0+rocm6.4.1\n" in path.read_text()


def test_a_python_elsewhere_comes_into_the_path(images: Images) -> None:
    _, made = drafted(images.tiny("elsewhere", entries=python("opt/tool/py", "3.11", tensorflow="2.16.1")), "x.sif")
    assert made.path == ("/runscripts",)  # not among the usual places: not found
    Path.cwd().joinpath("x-1.0.yaml").unlink()
    _, made = drafted(images.tiny("elsewhere2", entries=python("opt/tf", "3.11", tensorflow="2.16.1")), "tf.sif")
    assert made.path == ("/runscripts", "/opt/tf/bin")
    assert str(made.module) == "TensorFlow/2.16.1-cpu-python-3.11"


def test_the_systems_python_as_nvidia_has_it(images: Images) -> None:
    dist = "usr/local/lib/python3.10/dist-packages"
    sif = images.tiny(
        "ngc",
        entries=(
            *python("usr", "3.10", "pip", "torchrun"),
            text("usr/lib/python3.10/os.py"),
            text(f"{dist}/torch-2.2.0a0+81ea7a4.dist-info/METADATA"),
            text("usr/local/cuda-12.3/version.json"),
        ),
        env=("CUDA_VERSION=12.3.2.001", "NVIDIA_REQUIRE_CUDA=cuda>=9.0"),
    )
    path, made = drafted(sif, "pytorch_24.01-py3.sif")
    assert str(made.module) == "PyTorch/2.2.0a0-cuda-12.3-python-3.10"
    assert (made.conda, made.venv, made.path) == (None, None, ("/runscripts",))
    assert made.wrappers[:2] == ("python", "python3")
    assert "# the variable CUDA_VERSION=12.3.2.001\n" in path.read_text()


def test_a_program_without_python(images: Images) -> None:
    labels = {
        "org.opencontainers.image.description": "Tools for alignments",
        "org.opencontainers.image.licenses": "MIT",
        "org.opencontainers.image.url": "https://www.example.org/",
        "org.opencontainers.image.documentation": "javascript:alert(1)",
    }
    sif = images.tiny("program", entries=(Entry("usr/local/bin/samtools", SCRIPT),), labels=labels)
    _, made = drafted(sif, "samtools_1.19.2.sif")
    assert str(made.module) == "samtools/1.19.2"
    assert made.wrappers == ("samtools", "start-shell")
    assert (made.description, made.license, made.homepage) == (
        "Tools for alignments",
        "MIT",
        "https://www.example.org/",
    )
    assert made.docurls == ()
    assert made.accelerator == "none"


def test_nothing_in_the_image_can_steer_the_file(images: Images) -> None:
    evil = "x'\nwrappers: [evil]\n\x1b[31m # {{ }} ${HOME} \u2028"
    names = ("title", "version", "description", "licenses", "url")
    sif = images.tiny(
        "steering",
        entries=(
            *python("opt/a: b' #", "3.11"),
            *python("opt/conda/envs/yes", "3.11", torch="1.0"),
            *python("opt/conda/envs/a, b]", "3.11"),
            text("opt/conda/conda-meta/history"),
        ),
        env=(f"VIRTUAL_ENV=/opt/x'\n{evil}", "ROCM_PATH=/opt/rocm\nwrappers: [evil]"),
        labels={f"org.opencontainers.image.{name}": evil for name in names} | {"my.cuda.version": evil},
    )
    path, made = drafted(sif, "on: [x], 'q' #.sif")
    assert "evil" not in made.wrappers
    assert made.conda is not None
    assert made.conda.env == "yes"
    assert made.description.startswith("x' wrappers: [evil] \\x1b[31m")
    assert made.homepage == ""
    assert made.required_image.sources == (str(Path.cwd().parent / "on: [x], 'q' #.sif"),)
    assert all(letter.isprintable() or letter == "\n" for letter in path.read_text())


def test_a_name_and_a_version_of_the_users(images: Images, capfd: pytest.CaptureFixture[str]) -> None:
    path, made = drafted(images.tiny_sif, "a.sif", "--name", "Mine", "--version", "7")
    assert (path.name, str(made.module)) == ("Mine-7.yaml", "Mine/7")
    assert run(["new", "../a.sif", "--version", "a b"]) == 2
    assert "--version: 'a b' cannot be used" in capfd.readouterr().err
    assert [entry.name for entry in Path.cwd().iterdir()] == ["Mine-7.yaml"]


def test_an_image_is_for_the_architecture_that_is_asked_for(
    images: Images, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["new", "-q", "--name", "Mine", f"oci:{images.tiny_layout()}", "--arch"]
    codes = {arch: run([*words, arch]) for arch in ("amd64", "arm64")}
    assert sorted(codes.values()) == [0, 10]
    made, other = sorted(codes, key=lambda arch: codes[arch])
    assert f"the image is for {made}, expected {other}" in capfd.readouterr().err
    assert [path.name for path in here.iterdir()] == ["Mine-1.0.yaml"]
    assert f"  arch: {made}\n" in (here / "Mine-1.0.yaml").read_text()


def test_no_file_is_ever_overwritten(images: Images, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.copy(images.tiny_sif, "tiny.sif")
    assert run(["new", "-q", "tiny.sif"]) == 0
    assert capfd.readouterr().out == "tiny-1.0.yaml\n"
    before = disk_state(here)
    assert run(["new", "-q", "tiny.sif"]) == 2
    assert "tiny-1.0.yaml exists already" in capfd.readouterr().err
    (here / "link.yaml").symlink_to("nowhere")
    assert run(["new", "-q", "tiny.sif", "-o", "link.yaml"]) == 2
    (here / "link.yaml").unlink()
    assert run(["new", "-q", "tiny.sif", "-o", "none/tiny.yaml"]) == 2
    assert "there is no directory none" in capfd.readouterr().err
    assert disk_state(here) == before


@pytest.mark.usefixtures("needs_root")
def test_a_directory_that_the_user_may_not_write_in(
    images: Images,
    ordinary_user: OrdinaryUser,
    shared_tmp: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in ("HOME", "SIFMOD_CONFIG_DIR", "SIFMOD_PREFIX"):
        monkeypatch.setenv(name, str(shared_tmp / "user"))
    monkeypatch.chdir(shared_tmp)
    closed, sif = shared_tmp / "closed", Path(shutil.copy(images.tiny_sif, shared_tmp / "tiny.sif"))
    closed.mkdir(mode=0o755)
    # as root first: the other user may not be able to read this interpreter's modules
    assert run(["new", "-q", str(sif), "-o", "-"]) == 0
    code = call_as(ordinary_user.user, lambda: run(["new", "-q", str(sif), "-o", str(closed / "tiny.yaml")]))
    assert code == 25
    assert f"cannot write {closed}/tiny.yaml: Permission denied" in capfd.readouterr().err
    assert list(closed.iterdir()) == []


def test_standard_output_and_json(images: Images, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["new", "-q", str(images.tiny_sif), "-o", "-"]) == 0
    shown = capfd.readouterr().out
    assert shown.startswith("# A first easyconfig")
    assert list(here.iterdir()) == []
    data = answer(capfd, ("new", "-q", str(images.tiny_sif), "-o", "-"))
    assert (data["path"], data["sif"]) == (None, str(images.tiny_sif))
    assert data["text"] == shown


def test_a_local_sif_is_not_copied(images: Images, tmp_path: Path) -> None:
    _, made = drafted(images.tiny_sif, "tiny.sif")
    assert made.required_image.sha256 is not None
    assert not (tmp_path / "prefix").exists()


def test_what_is_no_image(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "x.sif").write_text("nothing")
    for text, said in (
        ("x.sif", "is not a SIF"),
        ("none.sif", "there is no file none.sif in the current directory"),
        ("gopher://x", "unknown scheme"),
    ):
        assert run(["new", "-q", text]) == 10
        assert said in capfd.readouterr().err
    assert [entry.name for entry in here.iterdir()] == ["x.sif"]


def test_install_of_what_was_written(images: Images, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["new", "-q", str(images.python_sif)]) == 0
    (written,) = Path.cwd().glob("*.yaml")
    assert capfd.readouterr().out == f"{written.name}\n"
    assert run(["check", written.name]) == 0
    assert run(["install", "-q", written.name]) == 0
    (wrapper,) = (tmp_path / "prefix" / "software").glob("*/*/bin/python")
    told = run_command((wrapper, "-c", "import sys; print(sys.prefix)"), env=dict(os.environ)).ok()
    assert told.stdout == "/opt/miniconda3/envs/pytorch\n"


def test_install_from_a_layout(images: Images, tmp_path: Path) -> None:
    assert run(["new", "-q", f"oci:{images.python_layout}"]) == 0
    (written,) = Path.cwd().glob("*.yaml")
    assert re.search(r"sources: \['oci:/.*@sha256:[0-9a-f]{64}'\]", written.read_text())
    assert run(["install", "-q", written.name]) == 0
    stored = tmp_path / "prefix" / "images" / "sha256"
    assert len(list(stored.glob("*.sif"))) == 1  # the one that `new` fetched
    (wrapper,) = (tmp_path / "prefix" / "software").glob("*/*/bin/python")
    told = run_command((wrapper, "-c", "import sys; print(sys.prefix)"), env=dict(os.environ)).ok()
    assert told.stdout == "/opt/miniconda3/envs/pytorch\n"


def test_pytorch(images: Images, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["new", "-q", str(images.pytorch_sif)]) == 0
    assert capfd.readouterr().out == "PyTorch-2.13.0-cpu-python-3.11.yaml\n"
    (written,) = Path.cwd().glob("*.yaml")
    assert run(["install", "-q", "--link", "reference", written.name]) == 0
    (wrapper,) = (tmp_path / "prefix" / "software").glob("*/*/bin/python")
    told = run_command((wrapper, "-c", "import torch; print(torch.__version__)"), env=dict(os.environ)).ok()
    assert told.stdout == "2.13.0+cpu\n"


def test_a_registrys_image_is_pinned(
    images: Images, registry: Registry, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reference = registry.push_layout(images.tiny_layout(), "tools/tiny:1.2")
    assert run(["new", "-q", reference]) == 0
    assert capfd.readouterr().out == "tiny-1.2.yaml\n"
    made = Configuration(tmp_path / "config").load(Path("tiny-1.2.yaml")).easyconfig
    (source,) = made.required_image.sources
    assert re.fullmatch(re.escape(reference) + "@sha256:[0-9a-f]{64}", source)
    assert made.required_image.arch == "amd64"
    assert run(["install", "-q", "tiny-1.2.yaml"]) == 0


NUMPY = (*python("opt/tool", "3.12", "pip", numpy="2.4.6"), text("opt/tool/lib/python3.12/os.py"))


@pytest.mark.parametrize("labels", [{}, {"org.opencontainers.image.title": "numpy"}], ids=["no label", "a title"])
def test_one_image_is_called_the_same_wherever_it_is(
    images: Images, registry: Registry, tmp_path: Path, capfd: pytest.CaptureFixture[str], labels: dict[str, str]
) -> None:
    layout = images.tiny_layout("numpy", entries=NUMPY, env=(f"PATH=/opt/tool/bin:{SYSTEM}",), labels=labels)
    first, second = (registry.push_layout(layout, f"w/numpy:{tag}") for tag in ("2.4", "3.12"))
    sif, pulled = tmp_path / "n.sif", tmp_path / "p.sif"
    assert run(["fetch", "-q", second, "-o", str(sif)]) == 0
    run_command((RUNTIME.path, "--silent", "pull", "--no-https", pulled, second), env=dict(os.environ)).ok()
    capfd.readouterr()
    for reference in (first, second, str(sif), str(pulled)):
        assert run(["new", "-q", reference]) == 0
        assert capfd.readouterr().out == "numpy-2.4.6.yaml\n"
        content = Path("numpy-2.4.6.yaml").read_text()
        assert "# from the package numpy\nversion: '2.4.6'" in content
        assert "numpy: '2.4.6'" in content
        Path("numpy-2.4.6.yaml").unlink()


def test_a_build_upon_an_image_is_not_that_image(images: Images, registry: Registry, tmp_path: Path) -> None:
    layout = images.tiny_layout("numpy", entries=NUMPY, env=(f"PATH=/opt/tool/bin:{SYSTEM}",))
    reference = registry.push_layout(layout, "w/numpy:2.4").removeprefix("docker://")
    definition, sif = tmp_path / "mine.def", tmp_path / "mine.sif"
    definition.write_text(f"Bootstrap: docker\nFrom: {reference}\n\n%environment\n  export MINE=1\n")
    build = (RUNTIME.path, "--silent", "build", "--no-https", sif, definition)
    run_command(build, env={**os.environ, f"{RUNTIME.prefix}_NOHTTPS": "1"}).ok()
    assert run(["new", "-q", str(sif)]) == 0
    assert [path.name for path in Path.cwd().glob("*.yaml")] == ["mine-1.0.yaml"]


def test_a_path_is_written_without_detours(images: Images, tmp_path: Path) -> None:
    shutil.copy(images.tiny_sif, tmp_path / "n.sif")
    (tmp_path / "far" / "away").mkdir(parents=True)
    shutil.copy(images.tiny_sif, tmp_path / "far" / "n.sif")
    (tmp_path / "link").symlink_to("far/away")
    shutil.copytree(images.tiny_layout(), tmp_path / "x.oci")
    for given, expected in (
        ("../here/.././n.sif", tmp_path / "n.sif"),
        ("../link/../n.sif", tmp_path / "far" / "n.sif"),
        ("../link/../../link/../n.sif", tmp_path / "far" / "n.sif"),
    ):
        assert run(["new", "-q", given, "-o", "made.yaml"]) == 0
        assert Configuration(tmp_path / "config").load(Path("made.yaml")).easyconfig.required_image.sources == (
            str(expected),
        )
        Path("made.yaml").unlink()
    assert run(["new", "-q", "oci:../here/../x.oci", "-o", "made.yaml"]) == 0
    (source,) = Configuration(tmp_path / "config").load(Path("made.yaml")).easyconfig.required_image.sources
    assert source.startswith(f"oci:{tmp_path / 'x.oci'}@sha256:")


def test_nothing_is_hashed_for_a_name_that_is_taken(images: Images, tmp_path: Path) -> None:
    shutil.copy(images.tiny_sif, tmp_path / "tiny.sif")
    told: list[str] = []
    reporter = Reporter(told.append, lambda what, *_: told.append(what))
    site = Configuration(tmp_path / "config").site()
    found = make_draft("../tiny.sif", site, NewOptions(own_name=True), reporter)
    assert set(told) == {"hashing tiny.sif"}
    write_text(found.text, Path(found.filename))
    told.clear()
    with pytest.raises(OptionError, match="exists already"):
        make_draft("../tiny.sif", site, NewOptions(own_name=True), reporter)
    assert told == []
    assert make_draft("../tiny.sif", site, NewOptions(), reporter).text == found.text


def test_the_command_hashes_nothing_for_a_name_that_is_taken(
    images: Images, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(images.tiny_sif, tmp_path / "tiny.sif")
    assert run(["new", "../tiny.sif"]) == 0
    assert "hashing tiny.sif" in capsys.readouterr().err
    assert run(["new", "../tiny.sif"]) == 2
    told = capsys.readouterr().err
    assert "exists already" in told
    assert "hashing" not in told


def test_a_sif_from_a_registry_is_promised(images: Images, registry: Registry, tmp_path: Path) -> None:
    reference = registry.push_sif(images.tiny_sif, "tools/signed:2.0")
    assert run(["new", "-q", reference, "-o", "made.yaml"]) == 0
    made = Configuration(tmp_path / "config").load(Path("made.yaml")).easyconfig
    assert made.required_image.sha256 == hashlib.sha256(images.tiny_sif.read_bytes()).hexdigest()
    assert str(made.module) == "signed/2.0"
