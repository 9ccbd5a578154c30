"""A module put into a tree with the tree's own functions: a few text files, and an image of a few bytes."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from sifmod.actions.reporter import Reporter
from sifmod.config.input import Input
from sifmod.config.name import ModuleName
from sifmod.module.plan import File
from sifmod.tree.generation import HeldModule, module_lock, publish, staged_generation, tidy
from sifmod.tree.layout import Chain, Layout
from sifmod.tree.locking import Tree
from sifmod.tree.provenance import CommandLine, ImageChoice, Provenance
from sifmod.tree.receipt import ImageRecord, Installation
from sifmod.tree.stage import Stage
from sifmod.tree.store import Store
from support.command import User

MODULE = ModuleName("Tiny", "1.0")
LEASE = 30.0


def nobody(who: str) -> None:
    """For a lock that nobody else may hold."""
    raise AssertionError(f"had to wait for {who}")


ALONE = Reporter(nobody)


def tree_of(layout: Layout, lease: float = LEASE, on_wait: Callable[[str], None] = nobody) -> Tree:
    """The tree, whose locks are waited for so."""
    return Tree(layout, lease, lambda _what: on_wait)


def chain_at(directory: Path) -> Chain:
    """The lock with this directory in a tree that is two levels above it."""
    return Chain(directory, directory.parents[1])


def say(who: str) -> None:
    """For a lock that others may hold."""
    print(f"waiting for {who}", flush=True)


def image_bytes(tag: str) -> bytes:
    """An image that only the store sees."""
    return f"image {tag}\n".encode() * (1000 + ord(tag[0]))  # each of another size


def put_image(store: Store, tag: str) -> tuple[str, Path]:
    """The digest and the stored path of the image, brought in when it is not there."""
    data = image_bytes(tag)
    sha256 = hashlib.sha256(data).hexdigest()
    found = store.find(sha256)
    if found is None:
        with store.incoming() as incoming:
            incoming.write_bytes(data)
            found = store.add(incoming, sha256)
    return sha256, found


def fill(stage: Stage, store: Store, tag: str, syntaxes: tuple[str, ...] = ("lua",)) -> Installation:
    """Write everything a generation has; all of it says `tag`."""
    module = stage.module
    sha256, path = put_image(store, tag)
    names = [f"modulefile.{syntax}" for syntax in syntaxes]
    stage.write(File(name, f"{tag} {name} of {stage.root}\n") for name in names)
    stage.write((File("bin/python", f"#!/bin/sh\necho {tag} '{stage.root}'\n", executable=True),))
    stage.write((File("easyconfig.yaml", f"name: {module.name}\n"),))
    ends = {"lua": ".lua", "tcl": ""}
    stage.write_stubs(File(f"{module}{ends[syntax]}", f"stub {syntax}\n") for syntax in syntaxes)
    stage.link("tiny.sif", path)
    stage.link_user_software()
    stage.carry_over()
    inputs = (Input("/easyconfigs/tiny.yaml", hashlib.sha256(tag.encode()).hexdigest()), Input("/none.yaml", None))
    choice = ImageChoice(tag)
    made = Provenance(
        "0.1", "/easyconfigs/tiny.yaml", "1.0", None, "test", "none", inputs, (), CommandLine(), choice, tag
    )
    image = ImageRecord(sha256, len(image_bytes(tag)), "tiny.sif", "amd64", "copy", "tiny.sif", str(path))
    return stage.record(made, image)


def install(
    layout: Layout,
    tag: str,
    module: ModuleName = MODULE,
    *,
    lease: float = LEASE,
    on_wait: Callable[[str], None] = nobody,
    syntaxes: tuple[str, ...] = ("lua",),
) -> Installation:
    """A new generation, live."""
    tidy(tree_of(layout, lease, on_wait))
    with module_lock(tree_of(layout, lease, on_wait), module) as held:
        return install_under(tag, held, syntaxes=syntaxes)


def install_under(tag: str, held: HeldModule, *, syntaxes: tuple[str, ...] = ("lua",)) -> Installation:
    """The same with a lock that is held already."""
    with staged_generation(held) as stage:
        installation = fill(stage, Store(held.layout, held.held), tag, syntaxes)
    publish(held, installation)
    return installation


def become(user: User) -> None:
    """Be that user for good, when this process may choose; for a child that is about to end."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(user.gid)
        os.setuid(user.uid)


def names(layout: Layout) -> set[str]:
    """Every path of the tree, relative to the prefix, except the log and what locks leave: the sign of litter."""
    found = set()
    for directory, directories, files in os.walk(layout.prefix):
        inside = Path(directory).relative_to(layout.prefix)
        if inside == Path():
            directories[:] = [name for name in directories if name not in (".locks", "log")]
        found |= {str(inside / name) for name in (*directories, *files)}
    return found


def kept_for(module: object) -> str:
    """What `uninstall` says about the return of a module, and about its space."""
    now = f"`sifmod uninstall --purge {module}` at once"
    return f"`sifmod rollback {module}` restores it; `sifmod gc --yes` frees its space after 14 days, {now}"
