"""jobscript: a Slurm script for an installed module, and checks that the image supports it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from sifmod.actions.install.found_in_image import srun_mpi
from sifmod.actions.inventory import image_path
from sifmod.actions.layer.places import found_layers, module_words
from sifmod.config.name import ModuleName
from sifmod.config.partition import Nodes, SlurmKeys, partition_for
from sifmod.errors import ModuleError, OptionError
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.inspect.mpi import read_dynamic
from sifmod.image.inspect.python_environments import find_environments
from sifmod.image.inspect.rootfs import Rootfs, find_command, open_rootfs, search_path
from sifmod.image.inspect.sif import describe_sif
from sifmod.module.jobscript import DISTRIBUTED, JOB, TORCHRUN, Job, JobOptions, Style, from_json, job_script
from sifmod.module.quote import shell
from sifmod.result import Described
from sifmod.tree.durable import read
from sifmod.tree.layer import DEFAULT
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import Installation

_LIGHTNING = frozenset({"lightning", "pytorch-lightning"})
_PERF = ("all_reduce_perf_mpi", "all_reduce_perf")  # NVIDIA's images have both; the first one uses MPI
_PERF_PLACES = ("/usr/local/bin", "/usr/bin", "/opt/nccl-tests/build", "/opt/rccl-tests/build")
_SIZES = "-b 8 -e 1G -f 2"
_LARGEST = 1 << 28


@dataclass(frozen=True)
class JobScript:
    """A job script, and the module that it is for."""

    module: ModuleName
    style: Style
    path: Annotated[Path | None, Described("the written file; null without -o")]
    text: str


def jobscript(installation: Installation, options: JobOptions, slurm: SlurmKeys, trees: tuple[Layout, ...]) -> str:
    """The text of a script in the requested style for a partition of the site; a layer of `trees` may add lightning.

    Raises OptionError if module, image or partition lack what is needed, ModuleError if the module is damaged or its
    image gone, ImageError for a damaged image.
    """
    job = _job(installation)
    given = None if options.partition == JobOptions.partition else options.partition
    partition, nodes = partition_for(slurm, given, Nodes(job.gpus, job.cpus, job.cpu_bind))
    job = replace(job, gpus=nodes.gpus, cpus=nodes.cpus, cpu_bind=nodes.cpu_bind)
    options = replace(options, partition=partition or JobOptions.partition)
    match options.style:
        case "torchrun":
            _check_runscript(job, TORCHRUN)
            options = replace(options, words=f"{TORCHRUN} train.py", launchers=True)
        case "lightning":
            _check_lightning(installation, job, trees)
            options = replace(options, words=f"{DISTRIBUTED} -u train.py")
        case "nccl-tests":
            options = _nccl_tests(installation, job, options)
    if options.bcast and not (job.inside or options.words):
        raise OptionError(
            f"the job of {job.module} runs the module's command {job.command}, which starts the module's own image",
            "leave --bcast out; it only helps programs that are started with $SIF",
        )
    modules = installation.prefix / "modules"
    return job_script(job, options, shell(str(modules)))


def _job(installation: Installation) -> Job:
    place = Path(installation.root, JOB)
    try:
        return from_json(read(place))
    except (ValueError, KeyError, TypeError, RecursionError, FileNotFoundError) as error:
        raise ModuleError(
            f"{installation.module}: there is nothing to make a job script from: {place} is damaged or gone",
            "`sifmod install --module-only --installed` renders it again",
        ) from error


def _check_lightning(installation: Installation, job: Job, trees: tuple[Layout, ...]) -> None:
    _check_runscript(job, DISTRIBUTED)
    name = os.environ.get("SIFMOD_LAYER", DEFAULT)
    wanted = installation.module, installation.required_image.sha256, name
    layers = (one for one in found_layers(trees, os.environ) if (one.module, one.image, one.name) == wanted)
    if (layer := next(layers, None)) and _LIGHTNING & dict(layer.added).keys():
        return
    with _files(installation) as (rootfs, environment):
        if not any(_LIGHTNING & one.packages.keys() for one in find_environments(rootfs, environment)):
            raise OptionError(
                f"{job.module} has no lightning in its image or in a layer",
                f"`sifmod add {module_words(installation, os.environ)} lightning` adds it",
            )


def _nccl_tests(installation: Installation, job: Job, options: JobOptions) -> JobOptions:
    with _files(installation) as (rootfs, environment):
        places = (*search_path(environment.get("PATH", "")), *_PERF_PLACES)
        found = next(filter(None, (find_command(rootfs, name, places) for name in _PERF)), "")
        if not found:
            raise OptionError(
                f"the image of {job.module} has no all_reduce_perf of nccl-tests or rccl-tests",
                "NVIDIA's PyTorch images have it: `sifmod search ngc`",
            )
        dynamic = read_dynamic(rootfs.data(found, _LARGEST))
    # a script that starts the program has the program's name
    mpi = any(name.startswith("libmpi") for name in dynamic.needed) if dynamic else found.endswith("_mpi")
    if mpi:
        return replace(options, words=f"{found} {_SIZES} -g 1", mpi=srun_mpi(installation))
    if options.nodes > 1:
        raise OptionError(f"{found} in the image was built without MPI and runs on one node only", "give --nodes 1")
    return replace(options, words=f"{found} {_SIZES} -g {job.gpus or 1}", nodes=1, launchers=True)


def _check_runscript(job: Job, name: str) -> None:
    if name not in job.runscripts:
        raise OptionError(
            f"{job.module} has no runscript {name}",
            f"install an easyconfig that `extends` the module's own with `runscripts+: [{name}]`",
        )


@contextmanager
def _files(installation: Installation) -> Iterator[tuple[Rootfs, Mapping[str, str]]]:
    path = image_path(installation)
    described = describe_sif(path)
    with open_rootfs(path, read_sif(path)) as rootfs:
        yield rootfs, dict(described.config.environment)
