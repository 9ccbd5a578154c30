"""add, remove, sync: what a layer holds, resolved against its image, installed, packed and switched to."""

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sifmod.actions.layer.image_python import ImagePython, is_protected
from sifmod.actions.layer.inside import Inside, wrapper_of
from sifmod.actions.layer.resolve import Resolved, Wanted, given_lock, resolve
from sifmod.actions.layer.start import command, start_file
from sifmod.actions.reporter import Reporter
from sifmod.config.name import ModuleName
from sifmod.config.site import Site
from sifmod.errors import InstallError, ModuleError, OptionError
from sifmod.image.convert.budget import threads
from sifmod.image.convert.packed import pack
from sifmod.image.inspect.host_commands import HOST_COMMANDS
from sifmod.image.inspect.python import normalized
from sifmod.image.program import Program, ask, limits
from sifmod.image.startable import reads
from sifmod.tree.layer import (
    IMAGE,
    LOCK,
    TREE,
    Layer,
    Layers,
    image_key,
    layers_lock,
    live_layer,
    next_number,
    publish_layer,
    remove_old,
    withdraw_layer,
)
from sifmod.tree.lock import Held
from sifmod.tree.receipt import Installation

_KEPT_GENERATIONS = 3  # for what still runs with an earlier one


@dataclass(frozen=True)
class LayerChange:
    """What the command line asks of a layer."""

    name: str
    add: Wanted = Wanted(())
    remove: tuple[str, ...] = ()
    lock: str | None = None  # the text of a lock to follow, in the place of a resolution
    upgrade: bool = False  # take newer versions than those of the layer
    unpacked: bool = False
    protected: tuple[str, ...] = ()
    everything: bool = False  # is removed


def change_layer(
    installation: Installation, layers: Layers, change: LayerChange, site: Site, reporter: Reporter
) -> tuple[Layer | None, bool]:
    """Make the layer what is asked for: the layer in use (None where nothing is left of it), and whether it changed.

    It is there whole or as it was before. Raises OptionError for what does not fit the image, FetchError where an
    index cannot be asked, InstallError, PermissionsError or LockError where it cannot be written.
    """
    module, key = installation.module, image_key(installation.image.sha256)
    with layers_lock(layers, module, site.lock_lease, reporter.waiting(f"the layers of {module}")) as held:
        before = live_layer(layers, module, change.name, key)
        wanted = Wanted(()) if change.everything else _wanted(before, change)
        if not wanted.requirements and not wanted.editable and change.lock is None:
            if before is not None:
                withdraw_layer(layers, before, held)
            return None, before is not None
        with held.changing(f"cannot make the layer {change.name} of {module}"):
            inside = _begin(installation, wanted, held)
        python = inside.look()
        kept = python.protected(change.protected) if change.protected else python.protected()
        if change.lock is not None:
            resolved = given_lock(python, kept, change.lock, inside)
        else:
            earlier = "" if before is None or change.upgrade else before.lock
            resolved = resolve(python, kept, wanted, earlier, inside)
        _tell(python, resolved, kept, reporter)
        if (
            before
            and (before.lock, before.editable) == (resolved.lock, wanted.editable)
            and before.packed != change.unpacked
        ):
            return before, False
        program = ask(site.runtime_path)
        packed = not (change.unpacked or wanted.editable or _cannot_bind(program))
        layer = Layer(
            module, change.name, installation.image.sha256, next_number(layers, module, change.name, key), "",
            python.prefix, python.short, wanted.requirements, wanted.editable, tuple(sorted(resolved.added.items())),
            tuple((one.name, one.version) for one in kept.values()), 0, 0, packed,
        )  # fmt: skip
        with held.changing(f"cannot make the layer {change.name} of {module}"):
            _install(inside, python, resolved, wanted)
            _compile(inside, site)
            layer = _finish(
                inside.directory, layer, resolved, python, _module_link(installation, layers), program, site
            )
        layer = replace(layer, root=str(layers.place(module, change.name, key) / str(layer.number)))
        publish_layer(layers, layer, inside.directory, held)
        remove_old(layers, layer, _KEPT_GENERATIONS, held)
        return layer, True


def _wanted(before: Layer | None, change: LayerChange) -> Wanted:
    """What the layer is asked to hold: as before, without what is removed, and with what is added in its place."""
    replaced = {name_of(text) for text in (*change.add.requirements, *change.remove)}
    known = {name_of(text) for text in before.requirements} if before else set()
    known |= {Path(path).name for path in before.editable} if before else set()
    for name in change.remove:
        if normalized(name) not in known and name not in known:
            there = ", ".join(sorted(known)) or "nothing"
            raise OptionError(
                f"{name} was not added to the layer {change.name}", f"it holds {there}, and what these need"
            )
    requirements = tuple(text for text in before.requirements if name_of(text) not in replaced) if before else ()
    editable = tuple(path for path in before.editable if Path(path).name not in change.remove) if before else ()
    return replace(
        change.add,
        requirements=(*requirements, *change.add.requirements),
        editable=tuple(dict.fromkeys((*editable, *change.add.editable))),
    )


def like(change: LayerChange, module: ModuleName, there: Iterable[tuple[Layers, Layer]]) -> LayerChange:
    """The change that asks for what the layer of another module, or of another image, was asked to hold.

    Raises ModuleError where there is none.
    """
    models = [layer for _, layer in there if (layer.module, layer.name) == (module, change.name)]
    if not models:
        raise ModuleError(f"{module} has no layer {change.name}", "`sifmod layers` lists those that there are")
    model = max(models, key=lambda one: Path(one.root).stat().st_mtime)
    known = {name_of(text) for text in change.add.requirements}
    requirements = tuple(text for text in model.requirements if name_of(text) not in known)
    more = replace(
        change.add,
        requirements=(*requirements, *change.add.requirements),
        editable=tuple(dict.fromkeys((*model.editable, *change.add.editable))),
    )
    return replace(change, add=more)


def name_of(requirement: str) -> str:
    """The normalized name of what a requirement asks for. Raises OptionError for what is none."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return normalized(Requirement(requirement).name)
    except InvalidRequirement as error:
        raise OptionError(
            f"{requirement!r} is no requirement", "write it as for pip: transformers==4.57.1, or 'torchmetrics>=1.4'"
        ) from error


def _begin(installation: Installation, wanted: Wanted, held: Held) -> Inside:
    """A directory in which a layer is made, and the module's Python that sees it."""
    directory = held.path("layer")
    (directory / "work").mkdir(parents=True)
    visible = (*wanted.editable, *(link for link in wanted.find_links if link.startswith("/")))
    return Inside(wrapper_of(installation), directory, visible)


def _tell(python: ImagePython, resolved: Resolved, kept: Mapping[str, object], reporter: Reporter) -> None:
    stays = next(
        (f"{one.name} {one.version}" for key, one in python.distributions.items() if key in kept and key == "torch"),
        next((f"{python.distributions[key].name} {python.distributions[key].version}" for key in kept), ""),
    )
    others = f" and {len(kept) - 1} more that go with it" if len(kept) > 1 else ""
    stays = f"the image keeps {stays}{others}; " if stays else ""
    count = len(resolved.added)
    reporter.say(f"{stays}{count} package{'' if count == 1 else 's'} {'is' if count == 1 else 'are'} added")
    for key, version in resolved.added.items():
        if held := python.distributions.get(key):
            reporter.say(f"{key} {version} is taken in the place of the image's {held.version}")
        elif is_protected(key):
            reporter.say(f"warning: {key} {version} is not in the image; its compiled code may want another torch")
    for told in python.broken_by(dict(resolved.added)):
        reporter.say(f"warning: {told}")


def _install(inside: Inside, python: ImagePython, resolved: Resolved, wanted: Wanted) -> None:
    lock = inside.directory / "work" / LOCK
    lock.write_text(resolved.lock)
    words = (
        "pip",
        "install",
        "--python",
        python.executable,
        "--target",
        f"{inside.target}/lib",
        "--no-deps",
        "--quiet",
    )
    links = tuple(word for link in wanted.find_links for word in ("--find-links", link))
    (inside.directory / "lib").mkdir()
    calls: list[Sequence[str]] = []
    if resolved.added:
        calls.append(("--requirements", f"{inside.target}/work/{LOCK}"))
    calls += [("--editable", path) for path in wanted.editable]
    for call in calls:
        ended = inside.uv(*words, *wanted.options, *links, *call)
        if ended.code != 0:
            raise InstallError("the packages could not be installed:\n" + "\n".join(ended.lines[-12:]))


def _compile(inside: Inside, site: Site) -> None:
    """Bytecode for every module, which nobody could write later. What does not compile is left to who imports it."""
    jobs = threads(site.processors, site.memory)
    words = ("-m", "compileall", "-q", "-j", str(jobs), "--invalidation-mode", "unchecked-hash", f"{inside.target}/lib")
    inside.python(*words)


def _finish(
    directory: Path,
    layer: Layer,
    resolved: Resolved,
    python: ImagePython,
    link: Path,
    program: Program | None,
    site: Site,
) -> Layer:
    """Everything that a generation is made of, from what uv has installed."""
    shutil.rmtree(directory / "work")
    (directory / "start").mkdir()
    (directory / "start" / "sitecustomize.py").write_text(start_file(python.prefix, python.version[:2]))
    scripts = directory / "lib" / "bin"
    if scripts.is_dir():
        scripts.rename(directory / "bin")
    tree = directory / TREE
    tree.mkdir()
    for name in ("start", "lib", "bin"):
        if (directory / name).exists():
            (directory / name).rename(tree / name)
    if layer.packed:
        how = site.compression if site.compression != "auto" else "zstd" if reads("zstd", program) else "gzip"
        files, size = pack(tree, directory / IMAGE, how, threads(site.processors, site.memory))
    else:
        found = [Path(top, name) for top, _, names in os.walk(tree) for name in names]
        files, size = len(found), sum(path.lstat().st_size for path in found)
    (directory / LOCK).write_text(resolved.lock)
    (directory / "bin").mkdir()
    for name in sorted(os.listdir(tree / "bin")) if (tree / "bin").is_dir() else ():
        if name not in HOST_COMMANDS and os.access(tree / "bin" / name, os.X_OK):
            (directory / "bin" / name).write_text(command(name, layer.name))
            (directory / "bin" / name).chmod(0o755)
    (directory / "module").symlink_to(link)
    if layer.packed:
        shutil.rmtree(tree)
    return replace(layer, files=files, size=size)


def _cannot_bind(program: Program | None) -> bool:
    return program is not None and any(limit.subject == "image bind" for limit in limits(program))


def _module_link(installation: Installation, layers: Layers) -> Path:
    """The way to the module's stable place; relative where the layers are in its prefix."""
    root = Path(installation.root)
    prefix = root.parents[4]
    switch = prefix / "software" / installation.module.name / installation.module.version
    place = layers.place(installation.module, "layer", "key") / "number"
    return Path(os.path.relpath(switch, place)) if layers.prefix.is_relative_to(prefix) else switch


def check_layer_name(name: str) -> str:
    """A layer's name, which is a directory's. Raises OptionError."""
    from sifmod.config.name import is_part

    if not is_part(name):
        raise OptionError(f"{name!r} cannot be the name of a layer", "use letters, digits, `.`, `_`, `+` and `-`")
    return name


def check_takes_layers(installation: Installation) -> None:
    """Raise ModuleError for a generation that an earlier sifmod has made, whose wrappers know no layers."""
    if not Path(installation.root, "share", "image").is_file():
        raise ModuleError(
            f"{installation.module} was installed by an earlier sifmod, whose commands know no layers",
            f"`sifmod install --module-only --installed` renders it anew; sifmod {installation.provenance.sifmod} made it",
        )
