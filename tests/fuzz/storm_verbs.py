"""What the storm's users type: every verb of sifmod that works on a tree, and the exit codes that it may give there."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from support.images import Images
from support.one_image import OneImage
from support.trial import EASYCONFIG, Command
from support.victim import Outcome

STEADY = ("Steady/1.0", "Steady/2.0")  # never uninstalled: what is loaded all the time
PASSING = ("Passing/1.0", "Passing/2.0")
TAGS = "abc"


class Verb(NamedTuple):
    """One of the verbs; `weight`: how often it comes."""

    name: str
    weight: int
    words: Callable[[random.Random], Command]
    codes: tuple[int, ...] = (0,)

    def may_end(self, outcome: Outcome) -> bool:
        """So, or because a user has rolled the module back from this content."""
        held = outcome.code == 18 and "was rolled back from the same content" in outcome.stderr
        return outcome.code in self.codes or (held and self.name.startswith("install"))


@dataclass(frozen=True)
class Supply:
    """A directory with easyconfigs of every build of every module, and what can be fetched."""

    directory: Path
    sources: tuple[str, ...]

    def easyconfig(self, module: str, tag: str) -> Path:
        """The easyconfig of one build."""
        return self.directory / tag / f"{module.replace('/', '-')}.yaml"

    def install(self, module: str, tag: str, *words: str) -> Command:
        """The words that install one build."""
        return ("install", self.easyconfig(module, tag), "--skip-sanity-check", *words)

    def stack(self, tag: str) -> Path:
        """The stack of all modules in one build; its lock is beside it."""
        return self.directory / tag / "stack.yaml"

    def forget(self, tag: str) -> Command:
        """The words after which the tree keeps no image for the lock of this build's stack."""
        return ("stack", "lock", self.stack(tag), "--forget")

    def verbs(self) -> tuple[Verb, ...]:
        """All verbs."""

        def install(*words: str) -> Callable[[random.Random], Command]:
            return lambda dice: self.install(dice.choice(STEADY + PASSING), dice.choice(TAGS), *words)

        def fixed(*words: str) -> Callable[[random.Random], Command]:
            return lambda _: words

        def of(verb: str, modules: tuple[str, ...], *words: str) -> Callable[[random.Random], Command]:
            return lambda dice: (verb, dice.choice(modules), *words)

        def apply(*words: str) -> Callable[[random.Random], Command]:
            return lambda dice: ("stack", "apply", self.stack(dice.choice(TAGS)), "--skip-sanity-check", *words)

        gc = ("gc", "--yes", "--ignore-jobs")
        return (
            Verb("install", 8, install()),
            Verb("install --rebuild", 8, install("--rebuild")),
            Verb("install --module-only", 4, install("--module-only"), (0, 24)),
            Verb("fetch", 6, lambda dice: ("fetch", dice.choice(self.sources))),
            Verb("rollback", 8, of("rollback", STEADY + PASSING), (0, 24)),
            Verb("rollback --release", 6, of("rollback", STEADY + PASSING, "--release"), (0, 24)),
            Verb("uninstall", 4, of("uninstall", PASSING), (0, 24)),
            Verb("uninstall --purge", 4, of("uninstall", PASSING, "--purge", "--ignore-jobs"), (0, 24)),
            Verb("gc --yes", 2, fixed(*gc)),
            Verb("gc --now", 4, fixed(*gc, "--now")),
            Verb("gc --now --rollbacks", 2, fixed(*gc, "--now", "--rollbacks")),
            Verb("stack apply", 6, apply()),
            Verb("stack apply --locked", 6, apply("--locked")),
            Verb("stack lock --forget", 2, lambda dice: self.forget(dice.choice(TAGS))),
            Verb("default", 2, of("default", STEADY), (0, 2)),  # 2: another user has hidden it
            Verb("default --none", 2, fixed("default", "--none", "Steady")),
            Verb("hide", 2, of("hide", STEADY + PASSING), (0, 2, 24)),  # 2: it is the default
            Verb("hide --undo", 2, of("hide", STEADY + PASSING, "--undo"), (0, 24)),
            Verb("deprecate", 2, of("deprecate", STEADY + PASSING, "--message", "old"), (0, 24)),
            Verb("deprecate --undo", 2, of("deprecate", STEADY + PASSING, "--undo"), (0, 24)),
            Verb("retire", 3, of("retire", PASSING), (0, 24)),
            Verb("retire --undo", 1, of("retire", PASSING, "--undo"), (0, 24)),
            Verb("list", 1, fixed("list")),
            Verb("verify", 1, fixed("verify"), (0, 1)),  # 1: another user changes what it is looking at
            Verb("show", 1, of("show", STEADY)),
        )


def make_supply(directory: Path, images: Images, registry: OneImage) -> Supply:
    """The easyconfigs; one build of each module comes from the registry, the others are SIFs in the directory."""
    supply = Supply(directory, (registry.source, str(directory / "a.sif"), str(directory / "b.sif")))
    for tag in TAGS:
        (directory / tag).mkdir()
        (directory / f"{tag}.sif").write_bytes(images.tiny(f"crash-{tag}").read_bytes())
        source = registry.source if tag == "c" else str(directory / f"{tag}.sif")
        for module in STEADY + PASSING:
            name, version = module.split("/")
            text = EASYCONFIG.format(tag=tag, source=source)
            text = text.replace("Tiny", name).replace("'1.0'", f"'{version}'")
            supply.easyconfig(module, tag).write_text(text)
        names = ", ".join(supply.easyconfig(module, tag).name for module in STEADY + PASSING)
        supply.stack(tag).write_text(f"name: storm\neasyconfigs: [{names}]\n")
    return supply
