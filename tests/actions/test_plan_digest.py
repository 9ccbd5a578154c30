"""What decides an installation: each field of a plan does, but for those named here, and no name of a class does."""

from dataclasses import fields, replace
from typing import Any

import pytest

from plans import IMAGE, PLAN
from sifmod.actions.install.decision import image_request, plan_digest
from sifmod.config.easyconfig import Conversion, SanityCheck
from sifmod.config.mpi_profile import WantedMpi
from sifmod.config.name import ModuleName
from sifmod.module.deciding import image_data
from sifmod.module.plan import (
    Activation,
    Bind,
    BuildPlan,
    ImagePlan,
    Plan,
    Runtime,
    Wrapper,
)

OTHERS: dict[str, Any] = {
    "module": ModuleName("PyTorch", "2.2.1"),
    "version": "2.2.1",
    "easyconfig": "PyTorch-2.2.1",
    "syntaxes": ("lua",),
    "accelerator": "cuda",
    "gpu_flags": (),
    "runtime": Runtime("singularity", "/usr/bin/singularity"),
    "image": None,
    "activation": Activation("true", ""),
    "binds": (Bind("/usr", "/usr/other"),),
    "env": (("NCCL_DEBUG", "INFO"),),
    "host_env": (),
    "path": ("/runscripts",),
    "wrappers": (Wrapper("python", ("python3",)), Wrapper("pip", ("pip",))),
    "runscripts": ("get-master",),
    "runscript_env": (("A", "b"),),
    "conflict": ("Other",),
    "family": "python",
    "help": replace(PLAN.help, description="another"),
    "sanity_check": SanityCheck(commands=("python --version",)),
    "verb": "run",
    "user_software": True,
    "gpu_selection": "none",
    "gpus_per_node": 8,
    "cpus_per_gpu": 7,
    "cpu_bind": "map_cpu:1",
    "scratch": ("/scratch/$USER",),
    "cache_directory": "/tmp/caches",
    "default_env": (("X", "y"),),
    "depends_on": ("Other/1",),
    "protected": ("torch",),
    "wrappers_auto": True,
    "warn_without_version": True,
    "stale_layer": "refuse",
    "mpi": WantedMpi("host", stated=True),
    "modules": ("Other/1",),
}
OTHER_IMAGES: dict[str, Any] = {
    "filename": "other.sif",
    "sources": ("docker://registry.example/pytorch:2.2.1",),
    "image_dirs": ("/appl/images",),
    "build": BuildPlan(definition="/x.def"),
    "sha256": "1" * 64,
    "arch": "arm64",
    "link": "hardlink",
    "conversion": Conversion.model_validate({"compression": "zstd:3", "tools": {}, "tree": "0" * 64}),
}
OTHER_BUILDS: dict[str, Any] = {
    "base": IMAGE,
    "pip": ("six",),
    "requirements": "/r.txt",
    "files": (("/a", "/b"),),
    "env": (("A", "b"),),
    "labels": (("A", "b"),),
    "post": "true",
    "test": "true",
    "definition": "/y.def",
    "dockerfile": "/Dockerfile",
    "arguments": (("A", "b"),),
    "path": ("/opt",),
    "protected": ("torch",),
    "indexes": (("cu126", "https://packages.example.org/cu126"),),
}


def digest(plan: Plan) -> str:
    return plan_digest(plan, image_request(plan).request)


def test_each_field_is_tried() -> None:
    assert {field.name for field in fields(Plan)} - OTHERS.keys() == {"prefix"}
    assert {field.name for field in fields(ImagePlan)} - OTHER_IMAGES.keys() == {"offline", "available"}
    assert {field.name for field in fields(BuildPlan)} == OTHER_BUILDS.keys()


@pytest.mark.parametrize("name", OTHERS)
def test_another_value_is_another_installation(name: str) -> None:
    assert digest(replace(PLAN, **{name: OTHERS[name]})) != digest(PLAN)


@pytest.mark.parametrize("name", OTHER_IMAGES)
def test_another_image_is_another_installation(name: str) -> None:
    assert digest(replace(PLAN, image=replace(IMAGE, **{name: OTHER_IMAGES[name]}))) != digest(PLAN)


@pytest.mark.parametrize("name", OTHER_BUILDS)
def test_another_build_is_another_image(name: str) -> None:
    build = BuildPlan(definition="/x.def")
    before, after = (replace(IMAGE, build=one) for one in (build, replace(build, **{name: OTHER_BUILDS[name]})))
    assert image_data(after) != image_data(before)


def test_what_does_not_decide() -> None:
    moved = replace(PLAN, prefix="/elsewhere", image=replace(IMAGE, offline=True, available="on LUMI"))
    assert digest(moved) == digest(PLAN)


def test_no_class_or_field_of_python_is_in_it() -> None:
    class Renamed(Activation):
        pass

    renamed = replace(PLAN, activation=Renamed(PLAN.activation.with_conda, PLAN.activation.command))
    assert digest(renamed) == digest(PLAN)
