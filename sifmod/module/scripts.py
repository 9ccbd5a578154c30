"""Render a plan to the scripts of its generation: the wrappers in bin/, their shared parts, and the runscripts."""

import json
import re
from collections.abc import Hashable
from functools import lru_cache
from pathlib import Path
from posixpath import relpath
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sifmod.config.redact import LOCAL
from sifmod.digest import sha256_bytes
from sifmod.module.deciding import image_data
from sifmod.module.plan import (
    LAYER_TARGET,
    PIP_TARGET,
    PREFIX,
    ROOT,
    RUNSCRIPTS_TARGET,
    USER_SOFTWARE_TARGET,
    VENVS,
    File,
    Plan,
    Wrapper,
)
from sifmod.module.quote import shell, users_place
from sifmod.module.variables import host_variables, image_variables, own_variables, python_key, python_path, state_key

LAUNCHER = "share/launch.sh"
ANY = 10**40  # a placeholder number, in texts that are rendered once for all generations
PROTECTED = "share/protected"  # one package per line
NO_LAYER = 24  # the exit code of the launcher if the layer that SIFMOD_LAYER names does not exist
# the directory of runscripts is always bound and set in RUNSCRIPTS
NO_RUNSCRIPTS = "The easyconfig of this module has no runscripts.\n"
_KEPT_OUT = ("PYTHONPATH", "LD_PRELOAD")  # the host's variables do not reach the container if the plan sets them
_HOST_PYTHON = ("PYTHONHOME", "PYTHONEXECUTABLE", "PYTHONPLATLIBDIR")  # nor these, which say where the host's is
_DEVICES = {"nv": "/dev/nvidiactl", "nvccli": "/dev/nvidiactl", "rocm": "/dev/kfd"}
_NEEDS = {"conda-python-distributed": "get-master", "torchrun-distributed": "get-master"}  # scripts that call others
_SOURCED = ("init-conda-venv",)  # sourced by a shell, not executed
_PIP = f"runscripts/{relpath(PIP_TARGET, RUNSCRIPTS_TARGET)}/pip/__init__.py"
_INSTALLERS = ("pip", "pip3")
# the Python of the active environment, which may only be called python3
_PYTHON = ("sh", "-c", 'command -v python >/dev/null && exec python "$@"; exec python3 "$@"', "sh")
# cache variables of libraries that compile at run time, and their directories
_CACHES = {
    "any": (("TRITON_CACHE_DIR", "triton"), ("TORCHINDUCTOR_CACHE_DIR", "inductor")),
    "rocm": (("MIOPEN_USER_DB_PATH", "miopen"), ("MIOPEN_CUSTOM_CACHE_DIR", "miopen"), ("AITER_JIT_DIR", "aiter")),
    "cuda": (("CUDA_CACHE_PATH", "cuda"),),
    "none": (),
}
# one GPU for each task of a node: on AMD like LUMI; for CUDA only if a site asks for it
_MASKS = {("slurm", "rocm"): "ROCR_VISIBLE_DEVICES", ("localid", "rocm"): "ROCR_VISIBLE_DEVICES"} | {
    ("localid", "cuda"): "CUDA_VISIBLE_DEVICES"
}
_PATHS = {ROOT: '"$sifmod_root"', PREFIX: '"$sifmod_prefix"'}
_DIRECTORY = rf'"((?:(?:{"|".join(LOCAL)}):)?)/[^"]*/(?=[^"/]*")'  # of a local file, in JSON
_CACHE_KEY = "\0cache key"  # a placeholder in the text shared by all modules
_VENDORS = {"rocm": "amd", "cuda": "nvidia", "none": "any"}


def _here(text: str) -> str:
    """A text with placeholders for paths, as one word of a script that has sourced the launcher; see plan.ROOT."""
    parts = [part for part in re.split(f"({'|'.join(_PATHS)})", text) if part]
    return "".join(_PATHS[part] if part in _PATHS else shell(part) for part in parts) or "''"


def environment(**more: Any) -> Environment:
    """An environment for the templates of this package, without HTML escaping, with `more` options."""
    loader = FileSystemLoader(Path(__file__).with_name("templates"))
    options = {"undefined": StrictUndefined, "trim_blocks": True, "auto_reload": False, **more}
    return Environment(loader=loader, autoescape=False, **options)  # noqa: S701


TEMPLATES = environment(lstrip_blocks=True, keep_trailing_newline=True)  # shell: every value uses its filter
TEMPLATES.filters |= {"shell": shell, "here": _here, "scratch": users_place}


@lru_cache(maxsize=256)
def rendered(template: str, **values: Hashable) -> str:
    """The text of a template of TEMPLATES; usually the same for every module of a tree."""
    return TEMPLATES.get_template(template).render(values)


def numbered(plan: Plan, text: str, number: int) -> str:
    """`text`, which was rendered for the generation ANY, with the path of the generation of this number instead."""
    return text.replace(plan.place_of(ANY), plan.place_of(number))


def scripts(plan: Plan, number: int) -> tuple[File, ...]:
    """Every script of the generation of this number: POSIX sh, the same for the same plan and number, in any prefix.

    Names are not quoted: `render` checks them against the rules of the configuration.
    """
    runscripts = dict.fromkeys((*plan.runscripts, *(_NEEDS[name] for name in plan.runscripts if name in _NEEDS)))
    return (
        *(_wrapper(plan, wrapper) for wrapper in plan.wrappers),
        *(_packer(plan, name) for name in plan.packers),
        File(LAUNCHER, numbered(plan, _launcher(plan, ANY), number)),
        *(() if plan.protected is None else (File(PROTECTED, "".join(f"{name}\n" for name in plan.protected)),)),
        *(File(f"runscripts/{name}", _runscript(plan, number, name), name not in _SOURCED) for name in runscripts),
        *(() if runscripts else (File("runscripts/README", NO_RUNSCRIPTS),)),
        *((File(_PIP, rendered("scripts/pip", module=str(plan.module))),) if plan.layers else ()),
    )


def _wrapper(plan: Plan, wrapper: Wrapper) -> File:
    words, installs = plan.activation.activated(wrapper.command), wrapper.name in _INSTALLERS
    text = rendered("scripts/wrapper", launcher=LAUNCHER, command=words, installs=installs)
    return File(f"bin/{wrapper.name}", text, executable=True)


def _packer(plan: Plan, name: str) -> File:
    text = rendered(
        f"scripts/{name}",
        module=str(plan.module),
        launcher=LAUNCHER,
        target=USER_SOFTWARE_TARGET,
        reinstall=_reinstall(plan),
        start=f"{plan.runtime.kind} {plan.verb}",
    )
    return File(f"bin/{name}", text, executable=True)


def _reinstall(plan: Plan) -> str:
    return f"{plan.reinstall(PREFIX)} brings it back"


@lru_cache(maxsize=2)
def _launcher(plan: Plan, number: int) -> str:
    plain = dict(plan.plain_env)
    own = own_variables(plan, ROOT)
    others = {**dict(plan.default_env), **dict(host_variables(plan, ROOT))}
    return TEMPLATES.get_template("scripts/launch.sh").render(
        plan=plan,
        generation=plan.place_of(number),
        images=plan.images_of(ROOT),
        reinstall=_reinstall(plan),
        binds=plan.binds_of(ROOT),
        user_software=plan.user_software_of(ROOT),
        path=":".join(plan.prepend_path),
        plain_path=":".join(plan.path),
        python_key=python_key(plan),
        python_path=":".join(python_path(plan)),
        kept_out=(*(name for name in _KEPT_OUT if name in plain), *_HOST_PYTHON),
        env=tuple((name, value, plain[name]) for name, value in plan.container_env),
        loaded=f"_SIFMOD_GENERATION_{state_key(plan.module)}",
        image_variables=image_variables(plan.module),
        own=own,
        others=tuple((name, value) for name, value in others.items() if name not in own),
        layer_target=LAYER_TARGET,
        active=plan.activation.activated(("",))[:-1],
        gpus=tuple((flag.upper(), _DEVICES[flag]) for flag in plan.gpu_flags),
    )


def _runscript(plan: Plan, number: int, name: str) -> str:
    text = rendered(
        f"runscripts/{name}",
        python=plan.activation.activated(_PYTHON),
        torchrun=plan.activation.activated((*_PYTHON, "-m", "torch.distributed.run")),
        bash=plan.activation.activated(("bash",)),
        venvs=VENVS,
        runscript_env=plan.runscript_env,
        gpu_mask=_MASKS.get((plan.gpu_selection, plan.accelerator), ""),
        vendors=_VENDORS[plan.accelerator],
        cache_directory=plan.cache_directory,
        cache_key=_CACHE_KEY,
        caches=(*_CACHES["any"], *_CACHES[plan.accelerator]),
    )
    # distinguishes the caches of different images, but not the places of their local files, which differ in a bundle
    key = json.dumps([str(plan.module), number, image_data(plan.required_image)], sort_keys=True)
    key = re.sub(_DIRECTORY, r'"\1', key)
    return text.replace(_CACHE_KEY, sha256_bytes(key.encode())[:12])
