"""A stack of one module with a layer, which a member has made in staging, and its promotion."""

import os
from pathlib import Path

from sifmod.actions.layer_commands import command
from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.digest import sha256_bytes
from sifmod.tree.layer import Layer, Layers, live_layer, publish_layer
from sifmod.tree.layout import Layout
from sifmod.tree.locking import lock
from sifmod.tree.receipt import live
from support.config import write
from support.disk_state import State, disk_state
from support.user import OrdinaryUser

GOOD = ModuleName("Good", "1")
PACKED = b"hsqs: packages\n" * 1000
SKIP = "--skip-sanity-check"


class Promotion:
    """A stack of one module with a layer, which a member has made in staging, and its lock."""

    def __init__(self, here: Path, source: Path, member: OrdinaryUser) -> None:
        self.here, self.member = here, member
        self.staging, self.production = here / "sta ging", here / "pro duction"
        write(here / "stack.yaml", "name: small\neasyconfigs: [Good-1.yaml]\n")
        self.take(source)
        self.add(PACKED)

    def take(self, source: Path) -> None:
        """The module with this image, in staging."""
        image = f"image: {{sources: ['{source}'], filename: tiny.sif}}\nwrappers: [sh]\n"
        write(self.here / "Good-1.yaml", f"name: Good\nversion: '1'\n{image}")
        assert run(["stack", "apply", "stack.yaml", SKIP, "--prefix", str(self.staging)]) == 0

    def hook(self, moment: str, line: str) -> None:
        """A hook of the site, of one line."""
        program = write(self.here / "hook", f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
        write(Path(os.environ["SIFMOD_CONFIG_DIR"], "hooks.yaml"), f"hooks: {{{moment}: ['{program}']}}\n")

    def state(self) -> State:
        """What is published, without what locks leave."""
        found = disk_state(*(self.production / name for name in ("software", "modules", "layers")))
        return {path: state for path, state in found.items() if "/.locks/" not in path}

    def add(self, packed: bytes) -> None:
        """A layer that a member makes in staging."""
        self.root = Path(self._made(packed).root)
        self.member.own(self.staging / "layers")

    def _made(self, packed: bytes) -> Layer:
        found = live(Layout(self.staging), GOOD)
        assert found
        layers = Layers(self.staging / "layers", self.staging)
        with lock(layers, str(GOOD), 30.0, print) as held:
            directory = held.path("layer")
            (directory / "bin").mkdir(parents=True)
            for name in ("demo", "de-mo2"):
                write(directory / "bin" / name, command(name, "site")).chmod(0o755)
            write(directory / "pylock.toml", "lock-version = '1.0'\n")
            (directory / "layer.squashfs").write_bytes(packed)
            (directory / "layer.squashfs").chmod(0o664)
            made = Layer(
                words=(),
                constraints=(),
                digests=(),
                module=GOOD,
                name="site",
                image=found.image_sha256,
                number=0,
                python="/opt",
                version="3.11",
                requirements=("demo",),
                editable=(),
                places=("/wheels",),
                added=(("demo", "1"),),
                kept=(),
                packed=True,
                files=2,
                size=len(packed),
                digest=sha256_bytes(packed),
            )
            return publish_layer(layers, made, directory, held)

    def lock(self) -> None:
        assert run(["stack", "lock", "stack.yaml", "--prefix", str(self.staging)]) == 0

    def apply(self) -> int:
        return self._promote("apply")

    def plan(self) -> int:
        return self._promote("plan")

    def _promote(self, verb: str) -> int:
        words = ["stack", verb, "stack.yaml", SKIP, "--locked", "--from", str(self.staging)]
        return run([*words, "--prefix", str(self.production)])

    def published(self) -> Path | None:
        found = live(Layout(self.production), GOOD)
        layers = Layers(self.production / "layers", self.production)
        layer = live_layer(layers, GOOD, "site", found.image_sha256) if found else None
        return Path(layer.root) if layer else None

    def verify(self) -> int:
        return run(["verify", str(GOOD), "--prefix", str(self.production)])
