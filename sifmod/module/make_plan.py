"""Make a Plan from an easyconfig and a site, without reading disk or network."""

import shlex
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from sifmod.config.bind import BindSpec
from sifmod.config.easyconfig import Accelerator, Easyconfig
from sifmod.config.index import components, unsupported
from sifmod.config.kinds import SYNTAXES, Syntax
from sifmod.config.mpi_profile import IMAGES_OWN, WantedMpi
from sifmod.config.quirk import Quirk, Variables
from sifmod.config.redact import shown
from sifmod.config.site import Link, Site
from sifmod.config.text import Pairs
from sifmod.module.plan import (
    PACKERS,
    RUNSCRIPTS_TARGET,
    USER_SOFTWARE_TARGET,
    Activation,
    Bind,
    BuildPlan,
    Help,
    ImagePlan,
    Plan,
    Runtime,
    Wrapper,
)

GPU_DEVICES = {"rocm": (Bind("/dev/kfd", "/dev/kfd", optional=True), Bind("/dev/dri", "/dev/dri", optional=True))}
# wrappers that run a runscript of the same name rather than a program of the image
SCRIPT_WRAPPERS = ("start-shell", "list-packages")


@dataclass(frozen=True)
class InImage:
    """What only the image decides: the commands that `wrappers: auto` finds, and the settings for its MPI."""

    wrappers: tuple[Wrapper, ...] = ()
    mpi: str = ""  # what the module's help says of the MPI
    env: Pairs = ()  # inside, whatever the easyconfig says
    default_env: Pairs = ()  # on the host, unless the easyconfig says something else
    binds: tuple[BindSpec, ...] = ()  # unless another bind has the same target


NOT_LOOKED = InImage()


@dataclass(frozen=True)
class Choices:
    """What decides one install in addition to easyconfig and site."""

    easyconfig: str  # the arguments of `sifmod install` that restore the module, quoted for a shell
    link: Link
    offline: bool = False
    syntaxes: frozenset[Syntax] = frozenset()  # of installed modulefiles, in addition to the site's
    mpi: WantedMpi = IMAGES_OWN
    found: InImage = NOT_LOOKED  # what the image decides, once it is known


def make_plan(
    easyconfig: Easyconfig,
    site: Site,
    choices: Choices,
    quirks: tuple[Quirk, ...] = (),
    bases: tuple[Easyconfig, ...] = (),
) -> Plan:
    """Make the plan. If easyconfig and site set the same bind target or variable, the easyconfig takes precedence.

    Variables that `quirks` set are in the easyconfig already; those that they unset are removed from the site's.
    `bases` are the easyconfigs of the base images, each built on the next.
    """
    image = _image((easyconfig, *bases), site, choices) if easyconfig.image else None
    if image is None:  # a view adds nothing of the site: the modules that it loads do
        site = replace(site, binds=(), env=(), host_env=())
    activation, activation_env, activation_path = _activation(easyconfig)
    found, wrappers = choices.found, _wrappers(easyconfig, choices.found)
    run = (wrapper.name for wrapper in wrappers if wrapper.name in SCRIPT_WRAPPERS)
    gpu_flags, gpu_binds = _accelerator(easyconfig.accelerator, site) if image else ((), ())
    return Plan(
        module=easyconfig.module,
        version=easyconfig.version,
        easyconfig=choices.easyconfig,
        prefix=str(site.prefix),
        syntaxes=tuple(one for one in SYNTAXES if one in (*site.module_syntax, *choices.syntaxes)),
        accelerator=easyconfig.accelerator,
        gpu_flags=gpu_flags,
        runtime=Runtime(site.runtime_kind, site.runtime_path),
        image=image,
        activation=activation,
        binds=_binds((*_spelled(easyconfig.binds), *_spelled(site.binds), *gpu_binds, *_spelled(found.binds))),
        env=_merged(_without(site.env, quirks, "env"), activation_env, easyconfig.env, found.env),
        host_env=_merged(_without(site.host_env, quirks, "host_env"), easyconfig.host_env),
        path=(*easyconfig.path, *activation_path),
        wrappers=wrappers,
        runscripts=tuple(dict.fromkeys((*easyconfig.runscripts, *run))),
        runscript_env=_merged(_without(site.runscript_env, quirks, "runscript_env"), easyconfig.runscript_env),
        conflict=easyconfig.conflict,
        family=easyconfig.family,
        help=_help(easyconfig, image, site, quirks, found.mpi),
        sanity_check=easyconfig.sanity_check,
        verb=easyconfig.verb,
        user_software=easyconfig.user_software,
        gpu_selection=easyconfig.gpu_selection or site.gpu_selection,
        gpus_per_node=site.gpus_per_node,
        cpus_per_gpu=site.cpus_per_gpu,
        cpu_bind=site.cpu_bind,
        cache_directory=site.cache_directory,
        scratch=site.scratch,
        default_env=_merged(found.default_env, easyconfig.default_env),
        depends_on=tuple(dict.fromkeys((*easyconfig.modules, *easyconfig.depends_on))),
        protected=easyconfig.protected,
        wrappers_auto=easyconfig.wrappers_auto,
        stale_layer=site.stale_layer,
        warn_without_version=site.warn_without_version,
        mpi=choices.mpi,
        modules=easyconfig.modules,
    )


def _merged(*layers: Pairs) -> Pairs:
    """One value per name, from the last of `layers` that has it; sorted by name."""
    return tuple(sorted({name: value for layer in layers for name, value in layer}.items()))


def _without(variables: Pairs, quirks: tuple[Quirk, ...], kind: Variables) -> Pairs:
    """The site's variables without those that a quirk unsets."""
    unset = {name for quirk in quirks for name in quirk.unset(kind)}
    return tuple((name, value) for name, value in variables if name not in unset)


def _spelled(binds: tuple[BindSpec, ...]) -> tuple[Bind, ...]:
    return tuple(Bind(bind.source, bind.target, bind.options, bind.optional) for bind in binds)


def _binds(binds: tuple[Bind, ...]) -> tuple[Bind, ...]:
    """One bind per target, the first one."""
    first: dict[str, Bind] = {}
    for bind in binds:
        first.setdefault(bind.target, bind)
    return tuple(first.values())


def _activation(easyconfig: Easyconfig) -> tuple[Activation, Pairs, tuple[str, ...]]:
    """The activation of Python, its variables, and its directories for PATH; only `activate` needs a command inside."""
    if easyconfig.activate is not None:
        return Activation(easyconfig.activate, easyconfig.activate, _users_venv(easyconfig)), (), ()
    env: dict[str, str] = {}
    path: list[str] = []
    command = "true"
    if easyconfig.venv is not None:
        env["VIRTUAL_ENV"] = easyconfig.venv
        path.append(f"{easyconfig.venv}/bin")
        command = f"source {easyconfig.venv}/bin/activate"
    if conda := easyconfig.conda:
        home = conda.prefix if conda.env == "base" else f"{conda.prefix}/envs/{conda.env}"
        env |= {"CONDA_DEFAULT_ENV": conda.env, "CONDA_EXE": f"{conda.prefix}/bin/conda", "CONDA_PREFIX": home}
        path += [f"{home}/bin", f"{conda.prefix}/condabin"]
        if easyconfig.venv is None:
            command = f"source {conda.prefix}/bin/activate {conda.env}"
    return Activation(command, "", _users_venv(easyconfig)), tuple(env.items()), tuple(path)


def _users_venv(easyconfig: Easyconfig) -> bool:
    """Whether to search for the user's venv: with `user_software`, unless the easyconfig sets a path in it."""
    said = (*easyconfig.path, dict(easyconfig.env).get("VIRTUAL_ENV", ""))
    return easyconfig.user_software and not any(text.startswith(USER_SOFTWARE_TARGET) for text in said)


def _accelerator(accelerator: Accelerator, site: Site) -> tuple[tuple[str, ...], tuple[Bind, ...]]:
    """The runtime's flags and the binds that the site resolves an accelerator to."""
    if accelerator == "none":
        return (), ()
    resolved = site.accelerators.rocm if accelerator == "rocm" else site.accelerators.cuda
    if resolved == "devices":
        return (), GPU_DEVICES["rocm"]
    return (() if resolved == "none" else (resolved,)), ()


def _wrappers(easyconfig: Easyconfig, found: InImage) -> tuple[Wrapper, ...]:
    """The wrappers found in the image and those of the easyconfig, without the packers that `user_software` brings."""
    commands = dict(easyconfig.wrapper_commands)
    anyway = {name for name in PACKERS if easyconfig.user_software and name not in commands}
    named = (wrapper_of(name, commands.get(name, "")) for name in easyconfig.wrappers if name not in anyway)
    return tuple({wrapper.name: wrapper for wrapper in (*found.wrappers, *named)}.values())


def wrapper_of(name: str, command: str = "") -> Wrapper:
    """The wrapper `name`. It runs `command`, split as by sh; without one, the runscript or program called `name`."""
    if command:
        return Wrapper(name, tuple(shlex.split(command)))
    return Wrapper(name, (f"{RUNSCRIPTS_TARGET}/{name}",) if name in SCRIPT_WRAPPERS else (name,))


def _image(easyconfigs: tuple[Easyconfig, ...], site: Site, choices: Choices) -> ImagePlan:
    """The image of the first easyconfig; each image is built on that of the next easyconfig."""
    easyconfig, *bases = easyconfigs
    image, build = easyconfig.required_image, None
    if recipe := image.build:
        path = (*easyconfig.path, *_activation(easyconfig)[2])
        # a base is read where it is, and no module refers to its SIF
        own = replace(choices, link="reference")
        build = BuildPlan(
            base=_image(tuple(bases), site, own) if bases else None,
            pip=recipe.pip,
            requirements=recipe.requirements or "",
            files=recipe.files,
            env=recipe.env,
            labels=recipe.labels,
            post=recipe.post,
            test=recipe.test,
            definition=recipe.definition or "",
            dockerfile=recipe.dockerfile or "",
            arguments=recipe.arguments,
            path=tuple(each for each in path if each != RUNSCRIPTS_TARGET) if bases else (),
            protected=(site.protected if easyconfig.protected is None else easyconfig.protected) if bases else (),
            indexes=site.package_indexes if bases else (),
        )
    return ImagePlan(
        filename=image.filename,
        sources=image.sources,
        image_dirs=site.image_dirs,
        build=build,
        sha256=image.sha256,
        arch=image.arch,
        link=choices.link,
        offline=choices.offline,
        available=image.available,
        conversion=image.conversion,
    )


def _whatis(easyconfig: Easyconfig) -> tuple[str, ...]:
    """The easyconfig's whatis lines, then other keys under Lmod's keywords; EasyBuild's default class is omitted."""
    category = "" if easyconfig.moduleclass == "base" else easyconfig.moduleclass
    said, own = {"Category": category, "License": easyconfig.license}, easyconfig.whatis
    more = (
        f"{key}: {value}" for key, value in said.items() if value and not any(one.startswith(f"{key}:") for one in own)
    )
    return (*own, *more)


def _help(easyconfig: Easyconfig, image: ImagePlan | None, site: Site, quirks: tuple[Quirk, ...], mpi: str) -> Help:
    origin = driver = ""
    if image:
        itself = (easyconfig.name.lower(), easyconfig.version)
        held = (itself, *components(easyconfig.contents, easyconfig.versionsuffix))
        driver = unsupported(easyconfig.accelerator, held, site.driver_runs)
        if image.sources:
            origin = shown(image.sources[0])
        elif (build := image.build) and build.base is None:  # independent of where the easyconfigs are installed
            origin = f"built from {'/'.join(str(build).rstrip('/').split('/')[-2:])}"
        else:
            origin = f"built from {build}"
        origin += f" (sha256 {image.sha256})" if image.sha256 else ""
    return Help(
        description=easyconfig.description,
        homepage=easyconfig.homepage,
        docurls=easyconfig.docurls,
        whatis=_whatis(easyconfig),
        contents=easyconfig.contents,
        extensions=tuple(
            (package, version)
            for package, version in easyconfig.contents
            if any(fnmatchcase(package.lower(), name.lower()) for name in site.extensions)
        ),
        origin=origin,
        quirks=tuple((str(quirk), f"{quirk.file.reason} ({quirk.file.link})") for quirk in quirks),
        mpi=mpi,
        driver=driver,
    )
