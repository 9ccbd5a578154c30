"""An MPI profile: a site's host MPI, which is used instead of an image's own."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import model_validator

from sifmod.config.bind import BindItem, BindSpec, expand
from sifmod.config.easyconfig import ContainerEnv, Easyconfig
from sifmod.config.find import shipped
from sifmod.config.input import Input, read_input
from sifmod.config.kinds import MpiUse
from sifmod.config.prefix import settings_directories
from sifmod.config.site import Site
from sifmod.config.text import BindPath, Name, OpenNotEmpty, SearchDirectory, Version, expecting
from sifmod.config.yaml.validate import Model, load_model
from sifmod.errors import OptionError

HOST_MPI = "/host-mpi"  # the directory of the host's libraries in the container
# by ABI: the sonames that programs need; Debian's MPICH is libmpich
_NAMES = {
    "mpich": ("libmpi.so.12", "libmpich.so.12"),
    "openmpi 2": ("libmpi.so.20",),
    **dict.fromkeys(("openmpi 3", "openmpi 4", "openmpi 5"), ("libmpi.so.40",)),
}


class ProfileFile(Model):
    """The keys of a profile file."""

    description: OpenNotEmpty
    version: Version
    """The version of the MPI; the major version of Open MPI decides which images it fits."""
    abi: Literal["mpich", "openmpi"]
    library: Annotated[BindPath, expecting(r"/[^*?\[]*", "the absolute path of one file")]
    """The host's MPI library, which must exist wherever the module is loaded."""
    libraries: tuple[BindPath, ...] = ()
    """Further host libraries that the MPI library needs, usually patterns with `*`; they are put beside it."""
    library_path: tuple[SearchDirectory, ...] = ()
    """Further directories for the loader to search, which other binds provide."""
    binds: tuple[BindItem, ...] = ()
    """Bind paths beside those of the site."""
    env: ContainerEnv = ()
    """Variables inside the container."""
    srun: Name | None = None
    """The value for `srun --mpi=`; a load sets SLURM_MPI_TYPE to it unless the user has set it."""

    @model_validator(mode="after")
    def _is_known(self) -> Self:
        if self.abi_name not in _NAMES:
            raise ValueError(f"Open MPI {self.version} has no known ABI: versions 2 to 5 are supported")
        return self

    @property
    def abi_name(self) -> str:
        """mpich, or openmpi and its major version."""
        return self.abi if self.abi == "mpich" else f"openmpi {self.version.partition('.')[0]}"


@dataclass(frozen=True)
class Profile:
    """The host's MPI: its file, and all binds on this machine."""

    name: str
    file: ProfileFile
    binds: tuple[BindSpec, ...]

    @property
    def abi(self) -> str:
        return self.file.abi_name

    def __str__(self) -> str:
        """The profile, and the kind and version of its MPI, for people."""
        return f"the host's MPI of profile {self.name} ({self.file.abi} {self.file.version})"


@dataclass(frozen=True)
class WantedMpi:
    """The MPI that a module wants, before its image is known."""

    use: MpiUse = "image"
    stated: bool = False  # by the easyconfig: then an image without MPI is an error
    profile: Profile | None = None  # None: the image's own is used


IMAGES_OWN = WantedMpi()


def wanted_mpi(easyconfig: Easyconfig, site: Site, environ: Mapping[str, str]) -> tuple[WantedMpi, tuple[Input, ...]]:
    """The MPI that a module wants here, and the inputs. An easyconfig that binds the host's MPI itself gets no profile.

    Raises OptionError if the host's MPI is required and the site has no profile, and the errors of read_profile.
    """
    use = easyconfig.mpi or site.mpi
    if use == "image" or (use == "auto" and not site.mpi_profile):
        return IMAGES_OWN, ()
    if not site.mpi_profile:
        by = "the easyconfig" if easyconfig.mpi else f"site {site.name}"
        raise OptionError(
            f"{easyconfig.module}: mpi: host in {by}, but site {site.name} has no profile of the host's MPI",
            "set `mpi_profile` in the settings, or use mpi: auto, which then uses the image's own",
        )
    directories = (shipped(), *settings_directories(environ))
    profile, inputs = read_profile(site.mpi_profile, tuple(place / "mpi" for place in directories), environ)
    if any(Path(profile.file.library).is_relative_to(bind.source) for bind in easyconfig.binds):
        return IMAGES_OWN, inputs
    return WantedMpi(use, easyconfig.mpi is not None, profile), inputs


def read_profile(
    name: str, directories: tuple[Path, ...], environ: Mapping[str, str]
) -> tuple[Profile, tuple[Input, ...]]:
    """The profile `name` in the last of the directories that has it, and the inputs.

    Raises OptionError if there is none, ConfigError with all problems of its file.
    """
    absent: list[Input] = []
    for directory in reversed(directories):
        path = directory / f"{name}.yaml"
        if path.is_file():
            profile, read = profile_of(path, environ)
            return profile, (*absent, *read)
        absent.append(Input(str(path), None))
    looked = ", ".join(str(directory) for directory in directories)
    raise OptionError(
        f"mpi_profile: there is no profile {name}; searched in {looked}", "`sifmod config show` shows where it was set"
    )


def profile_of(path: Path, environ: Mapping[str, str]) -> tuple[Profile, tuple[Input, ...]]:
    """The profile of one file, its patterns expanded here, and the inputs. Raises ConfigError, PatternError."""
    file, document = load_model(ProfileFile, path)
    own = [BindSpec(source=file.library, target=f"{HOST_MPI}/{name}") for name in _NAMES[file.abi_name]]
    beside = [
        BindSpec(source=source, target=HOST_MPI if "*" in source else f"{HOST_MPI}/{Path(source).name}", optional=True)
        for source in file.libraries
    ]
    binds, inputs = expand((*own, *beside, *file.binds), environ)
    profile = Profile(path.stem, file, binds)
    return profile, (document.input, *inputs, read_input(f"?{file.library}", environ))
