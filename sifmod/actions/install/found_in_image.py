"""Results from the image: the commands for `wrappers: auto` and its MPI, searched once per image.

The results are separate from the plan, which stays as in the easyconfig. They are stored in the receipt, and read from
there as long as image and question are the same.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sifmod.actions.install.choose_image import ChosenImage
from sifmod.actions.lock import LockedImage
from sifmod.config.mpi_profile import HOST_MPI, Profile
from sifmod.digest import sha256_bytes
from sifmod.errors import ImageError, InstallError
from sifmod.image.artifact import Artifact
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.find_wrappers import Found, Search, find_wrappers
from sifmod.image.inspect.mpi import KINDS, LARGEST, Mpi, find_mpi, glibc, read_mpi
from sifmod.image.inspect.rootfs import open_rootfs
from sifmod.image.inspect.sif import describe_sif
from sifmod.image.printable import line
from sifmod.image.sources.source_kinds import parse
from sifmod.module.make_plan import NOT_LOOKED, InImage, wrapper_of
from sifmod.module.plan import Plan, Wrapper
from sifmod.system import abbreviated
from sifmod.tree.provenance import FoundCommands, FoundMpi, ImageChoice, MpiInUse
from sifmod.tree.receipt import Installation
from sifmod.tree.stored_image import StoredImage

_COMMAND_RULES = 2  # increase when the search for commands changes
_MPI_RULES = 1  # increase when the search for the MPI changes
_SHOWN = 12
# Without setuid each rank has its own user namespace, so UCX cannot open another rank's memory through /proc, and two
# ranks on one node fail to start. With this setting UCX uses names in /dev/shm, which work with and without setuid.
_SHARED_MEMORY = (("UCX_POSIX_USE_PROC_LINK", "n"),)
_INSTEAD = "`mpi: image` in the easyconfig uses the image's own; `mpi: auto` uses the host's only if it fits"


def find_in_image(
    plan: Plan, before: Installation | None, image: ChosenImage
) -> tuple[InImage, ChosenImage, list[str]]:
    """The results from the image, the image whose choice holds them for the receipt, and notes.

    The image is only read if `before` has no results for it. Raises ImageError if the image's files are needed and
    cannot be read, InstallError if the host's MPI is required and cannot serve the image.
    """
    known = (before.provenance.image,) if before else ()
    commands, mpi, notes = _results(plan, image.artifact.sha256, known, image.artifact)
    found, used = _in_image(plan, commands, mpi)
    if found.mpi:
        notes.append(f"MPI: {found.mpi}")
    choice = image.choice._replace(commands=commands, mpi=mpi and mpi._replace(text=found.mpi, used=used))
    return found, image._replace(choice=choice), notes


def recorded(plan: Plan, before: Installation | None) -> InImage:
    """The results for the plan from the receipt of `before` only, for commands that only show. Raises InstallError."""
    if not (before and before.image and plan.image):
        return NOT_LOOKED
    commands, mpi, _ = _results(plan, before.image_sha256, (before.provenance.image,))
    return _in_image(plan, commands, mpi)[0]


def found_by_lock(
    plan: Plan, locked: LockedImage, before: Installation | None, stored: StoredImage | None
) -> InImage | None:
    """The results for the plan from the image of a lock; None if they are unknown here.

    The lock and the receipt are tried before the image itself. Raises the errors of `find_in_image`.
    """
    given = Artifact(stored.path, stored.sha256, stored.size, "", "") if stored else None
    known = (locked, before.provenance.image) if before else (locked,)
    commands, mpi, _ = _results(plan, locked.sha256, known, given)
    if mpi is None or (plan.wrappers_auto and commands is None):
        return None
    return _in_image(plan, commands, mpi)[0]


def _results(
    plan: Plan, sha256: str, known: Sequence[ImageChoice | LockedImage], artifact: Artifact | None = None
) -> tuple[FoundCommands | None, FoundMpi | None, list[str]]:
    """The commands for `wrappers: auto` and the MPI, from the first of `known` that has them, or from the image itself.

    None for what is unknown; and a note about commands that were searched.
    """
    commands, notes = recorded_commands(plan, sha256, known), []
    if plan.wrappers_auto and commands is None and artifact:
        commands, note = _found_commands(plan, artifact)
        notes.append(note)
    there = (one.mpi for one in known if one.mpi and one.mpi.question == _mpi_question(plan, sha256))
    return commands, next(there, None) or (_search_mpi(plan, artifact) if artifact else None), notes


def recorded_commands(plan: Plan, sha256: str, known: Sequence[ImageChoice | LockedImage]) -> FoundCommands | None:
    """The commands that `wrappers: auto` found in the image, from the first of `known` for this plan; else None."""
    there = (one.commands for one in known if plan.wrappers_auto and one.commands)
    return next((one for one in there if one.question == _commands_question(plan, sha256)), None)


def srun_mpi(installation: Installation) -> str:
    """The value of `srun --mpi=` for programs that use the image's MPI.

    "" if no option is needed, because the load sets it for the host's MPI, or if nothing is known.
    """
    known = installation.provenance.image.mpi
    mpi = _mpi(known) if known else None
    return mpi.pmi if known and mpi and known.used == "image" else ""


def _commands_question(plan: Plan, sha256: str) -> str:
    """The question about an image as a text: the same text means the same answer."""
    named = tuple(wrapper.name for wrapper in plan.wrappers)
    active = (plan.activation.command, plan.activation.users_venv)
    asked = (_COMMAND_RULES, plan.path, active, plan.required_image.filename, named)
    return f"{sha256} {sha256_bytes(json.dumps(asked).encode())[:12]}"


def _found_commands(plan: Plan, artifact: Artifact) -> tuple[FoundCommands, str]:
    """The commands that `wrappers: auto` finds in an image, and a note about them."""
    found = _search_commands(plan, artifact)
    spelled = " ".join(f"{name}={path}" if path else name for name, path in found.commands)
    return FoundCommands(_commands_question(plan, artifact.sha256), spelled), _note(found)


def _search_commands(plan: Plan, artifact: Artifact) -> Found:
    named = frozenset(wrapper.name for wrapper in plan.wrappers)
    search = Search(parse(f"/{plan.required_image.filename}"), plan.path, plan.activation.command, named)
    described = describe_sif(artifact.path, plan.required_image.filename)
    try:
        with open_rootfs(artifact.path, read_sif(artifact.path)) as rootfs:
            return find_wrappers(rootfs, described, search)
    except ImageError as error:
        hint = error.hint or "name the commands in `wrappers`, instead of auto"
        raise ImageError(f"wrappers: auto: {error.message}", hint) from error


def _note(found: Found) -> str:
    parts = [f"wrappers found in the image: {abbreviated([name for name, _ in found.commands], _SHOWN)}"]
    if found.refused:
        parts.append(f"left to the host unless `wrappers` names them: {abbreviated(found.refused, _SHOWN)}")
    if found.unusable:
        parts.append(
            "skipped, because these cannot be wrapper names: "
            f"{abbreviated([line(ascii(name), 60) for name in found.unusable], _SHOWN)}"
        )
    return "; ".join(parts)


def _mpi_question(plan: Plan, sha256: str) -> str:
    return f"{sha256} {_MPI_RULES} {':'.join(plan.path)}"


def _search_mpi(plan: Plan, artifact: Artifact) -> FoundMpi:
    if not artifact.path.is_file():  # the user released it in favour of the site's copy
        return FoundMpi("")
    environment = dict(describe_sif(artifact.path, plan.required_image.filename).config.environment)
    try:
        with open_rootfs(artifact.path, read_sif(artifact.path)) as rootfs:
            found = find_mpi(rootfs, environment, plan.path)
    except ImageError:  # its files cannot be read here, for example of an encrypted image
        found = None
    return FoundMpi(_mpi_question(plan, artifact.sha256), tuple(line(text, 4096) for text in found or ()))


def _in_image(plan: Plan, commands: FoundCommands | None, known: FoundMpi | None) -> tuple[InImage, MpiInUse]:
    """The combined results, and whose MPI the module uses. Raises InstallError if `mpi: host` cannot be satisfied."""
    words = [word.partition("=")[::2] for word in commands.commands.split()] if commands else []
    found = InImage(tuple(Wrapper(name, (path,)) if path else wrapper_of(name) for name, path in words))
    mpi, wanted = _mpi(known) if known else None, plan.mpi
    if mpi is None:
        if known and wanted.use == "host" and wanted.stated:
            raise InstallError(f"{plan.module}: mpi: host, but its image has no known MPI", _INSTEAD)
        return found, ""
    own = f"{mpi} of the image; start its programs with srun --mpi={mpi.pmi}"
    found = replace(found, mpi=own, default_env=_SHARED_MEMORY)
    if wanted.profile is None:
        return found, "image"
    if why := _unfit(mpi, wanted.profile):
        if wanted.use == "host":
            raise InstallError(f"{plan.module}: {why}", _INSTEAD)
        return replace(found, mpi=f"{found.mpi} (not the host's: {why})"), "image"
    return _with_host(plan, found, mpi, wanted.profile), "host"


def _mpi(known: FoundMpi) -> Mpi | None:
    return Mpi(*known.found) if len(known.found) == len(Mpi._fields) and known.found[0] in KINDS else None


def _unfit(mpi: Mpi, profile: Profile) -> str:
    """Why the host's MPI cannot replace the image's; "" if it can, as far as this machine shows."""
    if mpi.abi != profile.abi:
        return f"the image has {mpi} ({mpi.abi or mpi.soname}), and {profile} cannot serve it"
    library = Path(profile.file.library)
    if os.path.isfile(library):  # noqa: PTH113 (closed directories)
        found = read_mpi(str(library.resolve()), library.read_bytes())
        if found is None or found.abi != profile.abi:
            return (
                f"{library} is {found or 'not a known MPI library'}, and profile {profile.name} expects {profile.abi}"
            )
    for bind in profile.binds:
        source, libc = Path(bind.source), int(mpi.glibc) if mpi.glibc.isdecimal() else 0
        beside = libc and bind.target.startswith(f"{HOST_MPI}/") and os.path.isfile(source)  # noqa: PTH113
        if beside and source.stat().st_size <= LARGEST and (needed := glibc(source.read_bytes())) > libc:
            return f"{source} needs glibc 2.{needed}, and the image has 2.{libc}"
    return ""


def _with_host(plan: Plan, found: InImage, mpi: Mpi, profile: Profile) -> InImage:
    """The results with the host's libraries bound, and on the library path before the easyconfig's or image's."""
    own = dict(plan.env)
    env = {name: value for name, value in profile.file.env if name not in own}
    behind = {**env, **own}.get("LD_LIBRARY_PATH", mpi.library_path)
    env["LD_LIBRARY_PATH"] = ":".join((HOST_MPI, *profile.file.library_path, *([behind] if behind else ())))
    srun = profile.file.srun or ""
    how = f"; srun --mpi={srun}, which is set" if srun else ""
    return replace(
        found,
        mpi=f"{profile}, instead of the image's {mpi}{how}",
        env=tuple(env.items()),
        default_env=(*found.default_env, *((("SLURM_MPI_TYPE", srun),) if srun else ())),
        binds=profile.binds,
    )
