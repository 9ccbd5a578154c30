"""wrappers: auto. What the plan leaves to the image: its commands, found in its files, once for each image.

What is found is kept in the receipt, so that the plan can be completed from there as long as image and question are the
same; the plan of the easyconfig, without it, stays what the receipt's digest is of.
"""

from collections.abc import Sequence
from dataclasses import replace

from sifmod.actions.install.image import ChosenImage
from sifmod.digest import sha256_bytes
from sifmod.errors import ImageError
from sifmod.image.artifact import Artifact
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.find_wrappers import Found, Search, find_wrappers
from sifmod.image.inspect.rootfs import open_rootfs
from sifmod.image.inspect.sif import describe_sif
from sifmod.image.printable import line
from sifmod.image.sources.kinds import parse
from sifmod.module.decide import SCRIPT_WRAPPERS
from sifmod.module.plan import RUNSCRIPTS_TARGET, Plan, Wrapper
from sifmod.tree.provenance import FoundCommands
from sifmod.tree.receipt import Installation

_RULES = 2  # one more when what is found changes
_SHOWN = 12


def with_found_wrappers(plan: Plan, before: Installation | None, image: ChosenImage) -> tuple[Plan, ChosenImage, str]:
    """The plan with the wrappers that `auto` stands for, the image with what its receipt keeps of that, and a note.

    The image is read only where `before` does not say what is in it; without `auto` the plan stays as it is.
    Raises ImageError where the files of the image cannot be read.
    """
    if not plan.wrappers_auto:
        return plan, image.with_commands(None), ""
    known, note = _recorded(plan, before, image.artifact.sha256), ""
    if known is None:
        found = _search(plan, image.artifact)
        known, note = FoundCommands(_question(plan, image.artifact.sha256), _spelled(found)), _note(found)
    return _completed(plan, known), image.with_commands(known), note


def with_recorded_wrappers(plan: Plan, before: Installation | None) -> Plan:
    """The plan as an install with the image of `before` would have it, from its receipt alone; for what only shows."""
    known = _recorded(plan, before, before.image.sha256) if before and before.image and plan.image else None
    return plan if known is None else _completed(plan, known)


def _question(plan: Plan, sha256: str) -> str:
    """What is looked for, in which image: the same text means the same answer."""
    asked = (
        _RULES,
        plan.path,
        plan.activation,
        plan.own_image.filename,
        tuple(wrapper.name for wrapper in plan.wrappers),
    )
    return f"{sha256} {sha256_bytes(repr(asked).encode())[:12]}"


def _recorded(plan: Plan, before: Installation | None, sha256: str) -> FoundCommands | None:
    known = before.provenance.image.commands if before else None
    return known if plan.wrappers_auto and known and known.question == _question(plan, sha256) else None


def _search(plan: Plan, artifact: Artifact) -> Found:
    search = Search(
        parse(f"/{plan.own_image.filename}"),
        plan.path,
        plan.activation.command,
        frozenset(wrapper.name for wrapper in plan.wrappers),
    )
    described = describe_sif(artifact.path, plan.own_image.filename)
    try:
        with open_rootfs(artifact.path, read_sif(artifact.path)) as rootfs:
            return find_wrappers(rootfs, described, search)
    except ImageError as error:
        hint = error.hint or "name the commands in `wrappers`, instead of auto"
        raise ImageError(f"wrappers: auto: {error.message}", hint) from error


def _spelled(found: Found) -> str:
    """As the receipt keeps it: names, each with `=` and its path where PATH does not lead there."""
    return " ".join(f"{name}={path}" if path else name for name, path in found.commands)


def _completed(plan: Plan, found: FoundCommands) -> Plan:
    wrappers = [_wrapper(*word.partition("=")[::2]) for word in found.commands.split()]
    scripts = [wrapper.name for wrapper in wrappers if wrapper.name in SCRIPT_WRAPPERS]
    return replace(
        plan,
        wrappers=tuple({wrapper.name: wrapper for wrapper in (*wrappers, *plan.wrappers)}.values()),
        runscripts=tuple(dict.fromkeys((*plan.runscripts, *scripts))),
    )


def _wrapper(name: str, path: str) -> Wrapper:
    return Wrapper(name, (f"{RUNSCRIPTS_TARGET}/{name}",) if name in SCRIPT_WRAPPERS else (path or name,))


def _note(found: Found) -> str:
    parts = [f"wrappers found in the image: {_listed([name for name, _ in found.commands])}"]
    if found.refused:
        parts.append(f"left to the host, unless `wrappers` names them: {_listed(found.refused)}")
    if found.unusable:
        parts.append(f"no wrapper can be called {_listed([line(ascii(name), 60) for name in found.unusable])}")
    return "; ".join(parts)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
