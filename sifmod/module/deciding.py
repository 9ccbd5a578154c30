"""Data that decides an installation in addition to its rendered files, for JSON.

The digest of a plan includes it and is in every receipt, so the keys here are a format. A changed value gives a new
generation of each module; renaming a class or field of the plan does not.
"""

from sifmod.config.mpi_profile import Profile
from sifmod.module.plan import BuildPlan, ImagePlan, Plan

FORMAT = 1
Data = dict[str, object]


def image_data(image: ImagePlan) -> Data:
    """Data that decides which image is fetched, but not where it is put, nor whether the network may be used."""
    return {
        "sources": image.sources,
        "build": image.build and build_data(image.build),
        "sha256": image.sha256,
        "arch": image.arch,
    }


def build_data(build: BuildPlan) -> Data:
    """Data that decides what is built; whether the network may be used does not."""
    base = build.base
    return {
        "base": base
        and {"sources": base.sources, "build": base.build and build_data(base.build), "sha256": base.sha256},
        "pip": build.pip,
        "requirements": build.requirements,
        "files": build.files,
        "env": build.env,
        "labels": build.labels,
        "post": build.post,
        "test": build.test,
        "definition": build.definition,
        "dockerfile": build.dockerfile,
        "arguments": build.arguments,
        "path": build.path,
        "protected": build.protected,
        "indexes": build.indexes,
    }


def deciding_data(plan: Plan) -> Data:
    """Data that decides the installation of a module, and is not, or not clearly, in its rendered files."""
    image, mpi = plan.image, plan.mpi
    return {
        "format": FORMAT,
        "module": str(plan.module),
        "link": image and [image.link, image.filename, image.image_dirs],
        "conversion": image and image.conversion and [image.conversion.compression, image.conversion.tools],
        "runtime": [plan.runtime.kind, plan.runtime.path],
        "accelerator": plan.accelerator,
        "wrappers": [plan.wrappers_auto, [[wrapper.name, wrapper.command] for wrapper in plan.wrappers]],
        "activation": [plan.activation.with_conda, plan.activation.command, plan.activation.users_venv],
        "path": plan.path,
        "mpi": [mpi.use, mpi.stated, mpi.profile and _profile_data(mpi.profile)],
        "protected": plan.protected,
        "sanity_check": [plan.sanity_check.commands, plan.sanity_check.paths],
        "loads": [plan.modules, plan.depends_on],
    }


def _profile_data(profile: Profile) -> Data:
    binds = [(bind.source, bind.target, bind.options, bind.optional) for bind in profile.binds]
    return {"name": profile.name, "file": profile.file.model_dump(mode="json"), "binds": binds}
