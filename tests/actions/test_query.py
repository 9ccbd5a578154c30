"""What a search finds: queries as researchers type them, asked of the easyconfigs that ship, and of some made up."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from sifmod.actions.search import Answer, Found, ask, find_all, order
from sifmod.config.find import shipped
from sifmod.config.index import IndexEntry
from sifmod.config.load_site import LoadedSite
from sifmod.errors import Problem


def no_site() -> LoadedSite:
    raise AssertionError("the index is not what the easyconfigs are")


@cache
def collection() -> tuple[Found, ...]:
    return find_all((shipped(),), no_site, {})


def modules(answer: Answer) -> list[str]:
    return [each.module for each in sorted((each for found in answer.found for each in found.variants), key=order)]


LUMI_2_2_2 = [
    "PyTorch/2.2.2-rocm-5.6.1-python-3.10-vllm-0.4.0.post1-singularity-20240404",
    "PyTorch/2.2.2-rocm-5.6.1-python-3.10-vllm-0.4.0.post1-singularity-20240617",
]
ROCM_2_4 = [
    "PyTorch/2.4.1-rocm-6.1.3-python-3.12-singularity-20241007",
    "PyTorch/2.4.1-rocm-6.1.3-python-3.12-singularity-20241125",
    "PyTorch/2.4.1-rocm-6.4.2-python-3.12",
]
CUDA_12_4 = [
    "PyTorch/2.3.0-cuda-12.4-python-3.10-ngc-24.04",
    "PyTorch/2.4.1-cuda-12.4-cudnn-9",
    "PyTorch/2.4.1-cuda-12.4-volta",
    "PyTorch/2.5.1-cuda-12.4-cudnn-9",
]
LIGHTNING = "Lightning/2.2.0-cuda-12.3-python-3.10-ngc-24.01"  # built upon the other
NGC_24_01 = ["PyTorch/2.2.0-cuda-12.3-python-3.10-ngc-24.01"]
HOROVOD = [
    *(f"TensorFlow/2.11.1-rocm-5.5.1-python-3.10-horovod-0.28.1-singularity-{date}" for date in (20231110, 20240207)),
    "TensorFlow/2.11.1-rocm-5.5.1-python-3.10-horovod-0.28.1-singularity-20240617",
    "TensorFlow/2.16.1-rocm-6.2.0-python-3.10-horovod-0.28.1-singularity-20241007",
]
NUMPY_2_2 = ("community-0.5.0-rocm-6.2.4", "0.4.28-rocm-6.2.0", "0.4.35-rocm-6.2.4")
ALPHAFOLD = [f"AlphaFold/69afc4d-rocm-5.5.1-python-3.9-singularity-{date}" for date in (20231108, 20240207)]
PYTORCH_2_2_0 = [
    "PyTorch/2.2.0-cpu",
    *NGC_24_01,
    "PyTorch/2.2.0-rocm-5.6.1-python-3.10-singularity-exampleVenv-20240315",
    *(f"PyTorch/2.2.0-rocm-5.6.1-python-3.10-singularity-{date}" for date in (20240208, 20240209, 20240315)),
]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("pytorch 2.4 rocm", ROCM_2_4),
        ("PyTorch 2.4 AMD", ROCM_2_4),
        ("rocm pytorch==2.4.1", ROCM_2_4),
        ("pytorch cuda 12.4", CUDA_12_4),
        ("torch cuda12.4", CUDA_12_4),
        ("PyTorch-2.2.0", PYTORCH_2_2_0),
        ("pytorch/2.2.0-rocm-5.6.1-python-3.10-singularity-2024020", PYTORCH_2_2_0[3:5]),
        ("pytorch python 3.8", ["PyTorch/2.0.0-cuda-12.1-python-3.8-ngc-23.03"]),
        ("pytorch cpu", ["PyTorch/2.2.0-cpu", "PyTorch/2.13.0-cpu"]),
        ("ngc 24.01", [LIGHTNING, *NGC_24_01]),
        ("nvcr.io/nvidia/pytorch:24.01-py3", [LIGHTNING, *NGC_24_01]),
        ("vllm 0.4.0 lumi", LUMI_2_2_2),
        ("2.2.2 vllm lumi", LUMI_2_2_2),  # the keywords of others name it too
        ("tensorflow horovod lumi", HOROVOD),
        ("AlphaFold", [*ALPHAFOLD, "ColabFold/1.6.3-cuda-12"]),
        ("jax 0.4.35", ["jax/0.4.35-rocm-6.2.4-python-3.12-singularity-20250404"]),
        ("jax numpy 2.2", [f"jax/{each}-python-3.12-singularity-20250404" for each in NUMPY_2_2]),
        ("lumi-g2 pytorch 2.5", ["PyTorch/2.5.1-rocm-6.2.3-python-3.12-singularity-20241125"]),
        ("machine learning nvcr.io 2.10", ["PyTorch/2.10.0-cuda-13.1-python-3.12-ngc-25.12"]),
        ("amd pytorch 2.14", ["PyTorch/2.14.0-rocm-10.1.0-python-3.12"]),
        ("docker.io/rocm/pytorch 2.14", ["PyTorch/2.14.0-rocm-10.1.0-python-3.12"]),
        ("pytorch*2.2.0*ngc*", NGC_24_01),
        ("laif 20251219", ["PyTorch/2.9.1-rocm-6.4.4-python-3.12-laif-20251219"]),
        ("lumi-pytorch-rocm-5.6.1-python-3.10-pytorch-v2.2.0-dockerhash-f72ddd8ef883.sif", PYTORCH_2_2_0[4:5]),
        ("rocm 5.6.0", ["rocm/5.6.0-singularity-20240315"]),
    ],
)
def test_a_query_finds_what_was_meant(query: str, found: list[str]) -> None:
    for words in ([query], query.split()):
        answer = ask(collection(), words)
        assert modules(answer) == found
        assert (answer.note, answer.hint) == ("", "")


@pytest.mark.parametrize(
    ("query", "is_meant"),
    [
        ("", lambda _: True),
        ("nvidia", lambda each: each.accelerator == "cuda"),
        ("rocm", lambda each: each.accelerator == "rocm"),
        ("gpu", lambda each: each.accelerator != "none"),
        ("2.2.0", lambda each: each.version == "2.2.0"),
        ("2.2", lambda each: re.fullmatch(r"2\.2(\..*)?", each.version)),
        ("2.1", lambda each: re.fullmatch(r"2\.1(\..*)?", each.version)),
        ("pytorch 2", lambda each: each.name == "PyTorch" and each.version.startswith("2.")),
        ("2.20", lambda each: each.version.startswith("2.20")),
    ],
)
def test_a_query_finds_all_that_was_meant_and_nothing_else(
    query: str, is_meant: Callable[[IndexEntry], object]
) -> None:
    expected = {each.module for found in collection() for each in found.variants if is_meant(each)}
    assert set(modules(ask(collection(), [query]))) == expected


def test_modules_come_in_the_order_of_names_and_versions() -> None:
    everything = modules(ask(collection(), []))
    minors = [int(module.split(".")[1]) for module in everything if module.startswith("PyTorch/2.")]
    assert minors == sorted(minors)
    assert minors[-1] > 10
    assert [module.partition("/")[0].lower() for module in everything] == sorted(
        module.partition("/")[0].lower() for module in everything
    )


@pytest.mark.parametrize(
    ("query", "note", "found"),
    [
        ("rocm 2.4 pytorch", "no module matches rocm 2.4 exactly; these have version 2.4", ROCM_2_4),
        (
            "24.01",
            "no module matches the version 24.01 exactly; these have a package of version 24.01",
            [LIGHTNING, *NGC_24_01],
        ),
    ],
)
def test_a_version_in_another_place_is_found_and_that_is_said(query: str, note: str, found: list[str]) -> None:
    answer = ask(collection(), [query])
    assert (answer.note, modules(answer)) == (note, found)


PATTERN = "regular expressions do not work here: use `*` and `?` to match a whole name, as in `*torch*`"


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("pytoch", "did you mean PyTorch or torch?"),
        ("nvdia alphafld", "did you mean nvidia or AlphaFold or alphafold3?"),
        ("cuda 11.9 pytorch", "the nearest versions: 11.7, 12.1, 12.2"),
        ("alphafold rocm 2.12", "the nearest versions: 5.5.1"),
        ("^PyTorch.*cuda$", PATTERN),
        ("?", PATTERN),
        ("nvhpc 26.3 rocm", "without `nvhpc 26.3` there are 104 modules, without `rocm` there is 1 module"),
        ("zzzzzz", "`sifmod search` lists all modules"),
        ("9" * 5000, "`sifmod search` lists all modules"),
        ("pytorch==2.15", "the nearest versions: 2.13.0, 2.14.0, 20240801, 20240918"),
        ("pytorch 2.15", "the nearest versions: 2.13.0, 2.14.0, 20240801, 20240918"),
        ("lumi-g2 alphafold", "without `lumi-g2` there are 3 modules, without `alphafold` there are 15 modules"),
    ],
)
def test_where_nothing_is_found_what_is_nearest_is_told(query: str, hint: str) -> None:
    answer = ask(collection(), [query])
    assert (answer.found, answer.note, answer.hint) == ((), "", hint)


PROBLEM = Problem("/site/Bad-1.yaml", 1, 1, "", "wrong")


APP = IndexEntry(None, "App", "1", "", "none", "", (), {}, ("a.sif", "/b.sif"), "", "")


def test_a_file_with_problems_answers_by_its_name() -> None:
    everything = (
        Found(Path("/site/Bad-1.yaml"), (), (PROBLEM,)),
        Found(Path("/site/App-1.yaml"), (APP,)),
    )
    assert [found.path.stem for found in ask(everything, []).found] == ["App-1", "Bad-1"]
    assert [found.path.stem for found in ask(everything, ["BAD", "1"]).found] == ["Bad-1"]
    assert ask(everything, ["Bad", "2"]).found == ()


@pytest.mark.parametrize(
    ("sources", "public", "where"),
    [
        (("docker://rocm/pytorch:1",), True, "docker.io/rocm/pytorch:1"),
        (("docker://docker.io/library/x:1",), True, "docker.io/library/x:1"),
        (("docker://localhost/x:1",), True, "localhost/x:1"),
        (("docker://host:5000/x:1",), True, "host:5000/x:1"),
        (("x.sif", "oras://host/x:1"), True, "oras://host/x:1"),
        (("https://host/x.sif",), True, "https://host/x.sif"),
        (("x.sif",), False, "not public: On LUMI"),
        (("/data/x.sif", "oci:/layout", "file:/x.sif", "docker-archive:/x.tar"), False, "not public: On LUMI"),
        (("build:/x/recipe.def",), False, "not public: On LUMI"),
    ],
)
def test_where_an_image_comes_from(sources: tuple[str, ...], public: bool, where: str) -> None:
    module = replace(APP, sources=sources, available="On\nLUMI")
    assert (module.public, module.where) == (public, where)
    assert APP.where == "not public: a.sif, /b.sif"
    assert replace(APP, sources=("build:x.def",), available="").where == "built from x.def"
    assert replace(APP, sources=("build:../base.sif",), available="").where == "built from ../base.sif"
