"""The easyconfigs that ship with sifmod: what they say, against the facts they were made from."""

from pathlib import Path

import pytest

from sifmod.config.build import requirement
from sifmod.config.find import shipped
from sifmod.config.load_easyconfig import LoadedEasyconfig, load_easyconfig
from support.collection import FILES, modules
from support.config import Configuration


def variant(tmp_path: Path, name: str, chosen: str | None, **site: str) -> LoadedEasyconfig:
    configuration = Configuration(tmp_path)
    path = shipped() / "PyTorch" / f"{name}.yaml"
    return load_easyconfig(path, configuration.site(**site), chosen, {}, configuration.environ)


def test_every_variant_says_what_it_is_and_is_named_like_its_file() -> None:
    for loaded in modules():
        path, made = loaded.path, loaded.easyconfig
        assert path.parent.name == made.name
        # one file for a version, or for one build of it
        assert path.stem in (f"{made.name}-{made.version}", f"{made.name}-{made.module.version}")
        assert made.description, path
        assert made.homepage.startswith("https://"), path
        assert made.contents, path
        # what stands before an image's commands may want a GPU, which the machine that installs lacks
        assert made.sanity_check.commands or made.verb == "run", path


def test_the_rocm_variant_is_lumis_module(tmp_path: Path) -> None:
    """LUMI's recipe PyTorch-2.2.0-rocm-5.6.1-python-3.10-singularity-20240209, field by field."""
    loaded = variant(tmp_path, "PyTorch-2.2.0", None, site="lumi-g")
    made = loaded.easyconfig
    assert loaded.variant == "rocm"
    assert str(made.module) == "PyTorch/2.2.0-rocm-5.6.1-python-3.10-singularity-20240209"
    assert (
        made.required_image.filename == "lumi-pytorch-rocm-5.6.1-python-3.10-pytorch-v2.2.0-dockerhash-f72ddd8ef883.sif"
    )
    assert made.required_image.sources == (made.required_image.filename,)
    assert made.required_image.arch == "amd64"
    assert "/appl/local/containers/easybuild-sif-images" in made.required_image.available
    assert made.conda is not None
    assert (made.conda.prefix, made.conda.env) == ("/opt/miniconda3", "pytorch")
    site = Configuration(tmp_path).site(site="lumi-g").site
    assert {bind.source for bind in (*site.binds, *made.binds)} == {
        *("/var/spool/slurmd", "/opt/cray", "/usr/lib64/libcxi.so.1", "/usr/lib64/libjansson.so.4"),
        *("/pfs", "/scratch", "/projappl", "/project", "/flash", "/appl"),
    }
    assert dict((*site.runscript_env, *made.runscript_env)) == {
        "NCCL_SOCKET_IFNAME": "hsn0,hsn1,hsn2,hsn3",
        "NCCL_NET": "AWS Libfabric",
        "NCCL_NET_GDR_LEVEL": "3",
    }
    assert set(made.runscripts) >= {"conda-python-simple", "conda-python-distributed", "get-master"}


@pytest.mark.parametrize(
    ("site", "chosen", "source", "module"),
    [
        ("generic-cuda", "cuda", "docker://nvcr.io/nvidia/pytorch:24.01-py3", "2.2.0-cuda-12.3-python-3.10-ngc-24.01"),
        ("generic", "cpu", "docker://pytorch/pytorch:2.2.0-cuda12.1-cudnn8-runtime", "2.2.0-cpu"),
    ],
)
def test_the_other_variants_of_2_2_0(tmp_path: Path, site: str, chosen: str, source: str, module: str) -> None:
    loaded = variant(tmp_path, "PyTorch-2.2.0", None, site=site)
    assert (loaded.variant, loaded.easyconfig.required_image.sources) == (chosen, (source,))
    assert loaded.easyconfig.module.version == module
    assert loaded.easyconfig.accelerator == {"cuda": "cuda", "cpu": "none"}[chosen]


def test_conda_of_pytorchs_own_image(tmp_path: Path) -> None:
    conda = variant(tmp_path, "PyTorch-2.2.0", "cpu").easyconfig.conda
    assert conda is not None
    assert (conda.prefix, conda.env) == ("/opt/conda", "base")


def test_2_13_0_takes_the_layout_that_the_demo_builds(tmp_path: Path) -> None:
    public = variant(tmp_path, "PyTorch-2.13.0", None, site="generic")
    assert str(public.easyconfig.module) == "PyTorch/2.13.0-cpu"
    assert public.easyconfig.required_image.sources == ("docker://pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime",)
    configuration = Configuration(tmp_path, {"PYTORCH_OCI_LAYOUT": "/build/layout"})
    demo = configuration.load(shipped() / "PyTorch/PyTorch-2.13.0.yaml")
    assert demo.easyconfig.required_image.sources[0] == "oci:/build/layout"
    assert "/opt/miniconda3/envs/pytorch/bin" in demo.easyconfig.path


def test_no_shipped_file_names_another_that_is_not_shipped() -> None:
    for path in FILES:
        for line in path.read_text().splitlines():
            if line.strip().startswith("preset:"):
                assert (shipped() / "presets" / f"{line.partition(':')[2].strip()}.yaml").is_file()


def test_what_a_shipped_recipe_names_is_shipped() -> None:
    built = [found.easyconfig.required_image.build for found in modules() if found.easyconfig.required_image.build]
    assert len(built) == 6
    for build in built:
        named = (build.requirements, build.definition, build.dockerfile, *(path for path, _ in build.files))
        for path in filter(None, named):
            assert Path(path).exists(), path
            assert Path(path).is_relative_to(shipped())
        for line in Path(build.requirements).read_text().splitlines() if build.requirements else ():
            assert requirement(line) == line


def test_servers_of_models_serve_their_own_node_alone() -> None:
    """Their images say 0.0.0.0, and what an image says goes before the host's variables: it has to be set inside."""
    found = {
        str(each.easyconfig.module): dict(each.easyconfig.env).get(name)
        for each in modules()
        for program, name in (("Ollama", "OLLAMA_HOST"), ("llama.cpp", "LLAMA_ARG_HOST"))
        if each.easyconfig.name == program
    }
    assert len(found) == 4
    assert set(found.values()) == {"127.0.0.1", "127.0.0.1:11434"}
