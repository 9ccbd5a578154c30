"""Generations: publish one by a single switch, and clean up after a run that died."""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sifmod.config.kinds import SYNTAXES, stub_path
from sifmod.config.name import ModuleName
from sifmod.digest import sha256_bytes, sha256_file
from sifmod.errors import InstallError, SifmodError
from sifmod.tree import lease as leases
from sifmod.tree.change import Change, change, replace_text
from sifmod.tree.durable import READ_ONLY, is_directory, is_full, is_there, make_directory, names, read, write
from sifmod.tree.explain import reported
from sifmod.tree.history import read_history, recorded, with_event, without_holds
from sifmod.tree.layout import RECEIPT, Layout, LockRoot
from sifmod.tree.lease import NO_LOOK, Lease, Look
from sifmod.tree.locking import HeldLock, Tree, left_over, lock, locks_with_files
from sifmod.tree.provenance import Provenance
from sifmod.tree.receipt import FileRecord, Installation, is_number, live, live_number, numbers, read_receipt, to_json
from sifmod.tree.removal import prune, removable
from sifmod.tree.stage import PLACED, STUBS, USER_SOFTWARE, Stage
from sifmod.tree.write_life import LOCK, complete_life, renew_life

_POLL = 0.2  # seconds
# `N.going` in the holder's directory: the module is being unpublished; `N.retired`: by a gc of what was retired
_GOING, _RETIRED = "going", "retired"


@dataclass(frozen=True)
class HeldModule:
    """A module whose lock is held, and which can be changed."""

    tree: Tree
    module: ModuleName
    held: HeldLock

    @property
    def layout(self) -> Layout:
        """The layout of the module's tree."""
        return self.tree.layout


@contextmanager
def module_lock(tree: Tree, module: ModuleName) -> Iterator[HeldModule]:
    """Hold the lock of `module` (see `lock`), after cleaning up what a dead run left of it.

    A generation that was placed but not published inside the block is removed at its end.
    """
    with tree.lock(str(module)) as held:
        mine = HeldModule(tree, module, held)
        for directory in (*held.remains, held.directory):
            with held.changing(f"cannot clean up after a run for {module} that died"):
                _withdraw(mine, directory)
        _catch_up(mine)
        if held.remains:
            with suppress(SifmodError, OSError):  # then the next run for this module reports it
                _complete(mine)
        try:
            yield mine
        finally:
            with suppress(OSError):  # then the next run removes it
                _withdraw(mine, held.directory)


def tidy(tree: Tree) -> None:
    """Clean up after every run that died on this node; costs one directory listing if there is none."""
    _clean_up(tree, left_over(tree.layout))


def tidy_all_nodes(tree: Tree) -> None:
    """Like `tidy`, also after runs on other nodes that stayed silent for their lease time, which it waits for."""
    tidy(tree)
    with reported("cannot read the locks"):
        looks = _silent(tree, tree.layout)
    _clean_up(replace(tree, looks=looks), sorted(looks))


def tidy_place(tree: Tree, place: LockRoot) -> None:
    """Remove what dead runs left under other locks, such as those of layers; as `tidy_all_nodes` otherwise."""
    with reported("cannot read the locks"):
        looks = dict.fromkeys(left_over(place), NO_LOOK) | _silent(tree, place)
    for name, look in sorted(looks.items()):
        with lock(place, name, tree.lease, tree.waiting(name), look):
            pass


def _clean_up(tree: Tree, locks: Iterable[str]) -> None:
    for name in locks:
        if name.startswith(LOCK):
            complete_life(tree, name.removeprefix(LOCK))
            continue
        with module_lock(tree, ModuleName(*name.split("/", 1))) if "/" in name else tree.lock(name):
            pass


def _silent(tree: Tree, place: LockRoot) -> dict[str, Look]:
    """The locks of holders on other nodes that left files and gave no sign of life, and what was seen of each.

    Waits until each other holder there has given a sign of life, for at most the longer of its lease time and the
    tree's. Raises OSError.
    """
    since = time.monotonic()
    chains = locks_with_files(place)
    watched = {name: seen for name, chain in chains.items() if _is_elsewhere(seen := leases.newest(chain))}
    for who in sorted({str(seen.holder or "another process") for seen in watched.values()}):
        tree.waiting("the tree")(who)
    found: dict[str, Look] = {}
    while watched := {name: seen for name, seen in watched.items() if leases.newest(chains[name]) == seen}:
        silence = time.monotonic() - since
        found |= {name: Look(seen, since) for name, seen in watched.items() if silence >= _patience(tree, seen)}
        if found.keys() == watched.keys():
            break
        time.sleep(_POLL)
    return {name: look for name, look in found.items() if name in watched}


def _is_elsewhere(lease: Lease) -> bool:
    return not lease.vacant and (lease.holder is None or not leases.is_here(lease.holder))


def _patience(tree: Tree, lease: Lease) -> float:
    return max(tree.lease, lease.holder.seconds if lease.holder else 0.0)


@contextmanager
def staged_generation(mine: HeldModule) -> Iterator[Stage]:
    """A new generation to fill; placed at the end of the block, not live. After an exception nothing of it remains."""
    layout, module = mine.layout, mine.module
    used = {event.generation or 0 for event in read_history(layout, module)}
    stage = Stage(layout, module, 1 + max((*used, *numbers(layout, module)), default=0), mine.held)
    try:
        yield stage
        stage.place()
    except BaseException:
        with suppress(OSError):
            _withdraw(mine, mine.held.directory)
            prune(Path(stage.root).parent, layout.prefix)
        raise


def publish(mine: HeldModule, installation: Installation, *, same_content: bool = False) -> None:
    """Make a placed generation live; with the `same_content` as the live one, holds stay in force.

    In this order: obsolete stubs are removed, the switch moves, its stubs are written, the history gets the event.
    Idempotent. If it is killed, the module is the old one, missing, or the new one. On an error nothing has changed.
    Raises InstallError if a foreign file is in the way, PermissionsError, LockError if the lock was lost.
    """
    layout, module, held = mine.layout, mine.module, mine.held
    place = layout.user_software(module) / USER_SOFTWARE[0]
    with held.changing(f"cannot publish {module}"):
        steps = _publication(mine, installation, same_content)
        made = not place.exists()
        try:
            make_directory(place, layout.prefix)
            steps.apply()
        except BaseException:
            if made:
                prune(place, layout.prefix)
            raise
    renew_life(layout, module.name, held.lease)


def _publication(mine: HeldModule, installation: Installation, same_content: bool) -> Change:
    layout, module = mine.layout, mine.module
    wanted = {stub.path for stub in installation.stubs}
    _check_switch(layout, module)
    stale = [stub for stub in _stubs_in_place(layout, module, wanted) if stub not in wanted]
    steps = Change(mine.held)
    for path in stale:
        steps.remove(layout.modules / path)
    if live_number(layout, module) != installation.generation:
        # relative, so that a tree can be moved as a whole
        steps.link(layout.switch(module), f".generations/{module.version}/{installation.generation}")
    for stub in installation.stubs:
        if not _is(layout.modules / stub.path, stub.sha256):
            copy = Path(installation.root, STUBS, stub.path)
            if sha256_bytes(data := read(copy, top=layout.prefix)) != stub.sha256:
                raise InstallError(
                    f"{copy} was changed since it was installed, so it is not published",
                    f"install {module} again with --rebuild",
                )
            steps.file(layout.modules / stub.path, data.decode())
    events = read_history(layout, module)
    text = with_event(events, installation.generation, same_content=same_content)
    steps.file(layout.history(module), text)
    return steps


def release_hold(mine: HeldModule) -> None:
    """End the holds of the module: the content of held generations may become live again. Idempotent."""
    text = without_holds(read_history(mine.layout, mine.module))
    replace_text(mine.held, mine.layout.history(mine.module), text, f"cannot write the history of {mine.module}")


def restore(mine: HeldModule, installation: Installation) -> None:
    """Restore the links and stubs of a live installation, without a new generation. Idempotent.

    A missing link to the image is not restored if the image file is missing too: then the user removed the link so
    that the module uses the site's central image, as on LUMI.
    """
    root = Path(installation.root)
    image = installation.image
    missing_image = image.filename if image and not Path(image.path).exists() else None
    with change(mine.held, f"cannot restore {installation.module}") as steps:
        for link in installation.links:
            if link.path != missing_image and not os.path.lexists(root / link.path):
                steps.link(root / link.path, link.target)
    publish(mine, installation)


def replace_provenance(mine: HeldModule, installation: Installation, provenance: Provenance) -> None:
    """Replace the provenance in the receipt of `installation`, so that the next run sees at once that it is current."""
    with change(mine.held, f"cannot write the receipt of {installation.module}") as steps:
        receipt = to_json(replace(installation, provenance=provenance))
        steps.file(Path(installation.root, RECEIPT), receipt, READ_ONLY)


def unpublish(mine: HeldModule, *, retired: bool = False) -> None:
    """Unpublish the module: remove its stubs and switch; generations stay for `rollback` and `gc`. Idempotent.

    `retired`: not an uninstall, so that holds last until the module is installed again.
    """
    layout, module, held = mine.layout, mine.module, mine.held
    with change(held, f"cannot uninstall {module}") as steps:
        _check_switch(layout, module)
        for path in _stubs_in_place(layout, module, set()):
            steps.remove(layout.modules / path)
        steps.remove(layout.switch(module))
        if is_directory(layout.generations(module)):
            with _space_or_later():  # without the event `read_history` sees that the switch is gone
                text = with_event(read_history(layout, module), None, retired=retired)
                steps.file(layout.history(module), text)
        with _space_or_later():  # after a kill the module is restored completely
            write(held.path(_RETIRED if retired else _GOING), b"", layout.prefix)
    prune(layout.modules / module.name, layout.modules)
    prune(layout.user_software(module) / USER_SOFTWARE[0], layout.prefix)
    renew_life(layout, module.name, held.lease)


def _withdraw(mine: HeldModule, directory: Path) -> None:
    """Remove the generations that the run of this directory placed and that were never live."""
    notes: list[str] = []
    with suppress(PermissionError):  # another user's, and closed
        notes = [name.removesuffix(PLACED) for name in names(directory) if name.endswith(PLACED)]
    if not (placed := [int(stem) for stem in notes if is_number(stem)]):
        return
    published = {event.generation for event in read_history(mine.layout, mine.module)}
    for number in placed:
        root = mine.layout.generation(mine.module, number)
        if number not in published and is_directory(root) and removable(root):  # else another user's, and harmless
            mine.held.discard(root)
            prune(root.parent, mine.layout.prefix)


def _complete(mine: HeldModule) -> None:
    """Continue where a run died between the switch and the stubs: the module is then complete or absent."""
    layout, held = mine.layout, mine.held
    installation = live(layout, mine.module)
    notes = {name.rpartition(".")[2] for directory in held.remains for name in os.listdir(directory)}  # noqa: PTH208
    if _RETIRED in notes:
        unpublish(mine, retired=True)
    elif installation is None or all(_is(layout.modules / stub.path, stub.sha256) for stub in installation.stubs):
        return
    elif _GOING in notes:
        unpublish(mine)
    else:
        publish(mine, installation)


def _catch_up(mine: HeldModule) -> None:
    """Record the new live generation, if the run died before it could."""
    layout, module = mine.layout, mine.module
    number = live_number(layout, module)
    events = recorded(layout, module)
    if number is not None and (not events or events[-1].generation != number):
        events = read_history(layout, module)
        with change(mine.held, f"cannot write the history of {module}") as steps, _space_or_later():
            steps.file(layout.history(module), with_event(events, number))


@contextmanager
def _space_or_later() -> Iterator[None]:
    """Ignore a full disk: a later run writes what this one cannot."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise


def _check_switch(layout: Layout, module: ModuleName) -> None:
    switch = layout.switch(module)
    if is_there(switch) and live_number(layout, module) is None:
        raise InstallError(
            f"{switch} is not a link made by sifmod, so it is neither replaced nor removed",
            "move it away, then repeat the command",
        )


def _stubs_in_place(layout: Layout, module: ModuleName, wanted: set[str]) -> tuple[str, ...]:
    """The paths of the module's own existing stubs; InstallError for other content at a wanted or recorded path."""
    there = []
    for path in sorted(stub_path(module, syntax) for syntax in SYNTAXES):
        file, known = layout.modules / path, path in wanted
        if not is_there(file):
            continue
        for stub in _own_stubs(layout, module):
            if stub.path == path and _is(file, stub.sha256):
                there.append(path)
                break
            known |= stub.path == path
        else:
            if known:
                raise InstallError(
                    f"{file} was not written by sifmod, or was changed since, so it is neither replaced nor removed",
                    f"move it away, then repeat the command; it has the path of {module}'s modulefile",
                )
    return tuple(there)


def _own_stubs(layout: Layout, module: ModuleName) -> Iterator[FileRecord]:
    """The stubs of every generation on disk, newest first: from its receipt, else from its own copies."""
    for number in reversed(numbers(layout, module)):
        root = layout.generation(module, number)
        if (known := read_receipt(root)) is not None:
            yield from known.stubs
            continue
        for path in (stub_path(module, syntax) for syntax in SYNTAXES):
            with suppress(OSError):
                yield FileRecord(path, sha256_bytes(read(root / STUBS / path, top=layout.prefix)), 0o644)


def _is(path: Path, sha256: str) -> bool:
    return path.is_file() and not path.is_symlink() and sha256_file(path) == sha256
