"""The five verbs that change a tree, each with the tree that it starts from and what it leaves when undisturbed."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support import outlook
from support.images import Images
from support.outlook import Known
from support.victim import Victim

Command = tuple[str | Path, ...]

EASYCONFIG = """
name: Tiny
version: '1.0'
description: build {tag}
accelerator: none
image: {{sources: ['{source}'], filename: tiny.sif}}
env: {{TAG: '{tag}'}}
"""
VERBS = ("install", "reinstall", "rollback", "uninstall", "gc")


@dataclass(frozen=True)
class Place:
    """A directory with a tree in it, and easyconfigs of three builds of one module: a, b and c."""

    directory: Path

    @property
    def prefix(self) -> Path:
        """The tree."""
        return self.directory / "tree"

    @property
    def env(self) -> dict[str, str]:
        """For sifmod: nobody's home and sites, and no squeue, which would have gc keep everything.

        The site is named: to look for it takes a third of the time of a run.
        """
        missing = {name: str(self.directory / f"no-{name}") for name in ("PATH", "SIFMOD_CONFIG_DIR")}
        return {"HOME": str(self.directory), "SIFMOD_SITE": "generic", **missing}

    def write(self, tag: str, source: str | Path) -> None:
        """Make the easyconfig of one build."""
        (self.directory / tag).mkdir()
        (self.directory / tag / "Tiny-1.0.yaml").write_text(EASYCONFIG.format(tag=tag, source=source))

    def install(self, tag: str) -> Command:
        """The command line that installs a build."""
        return ("install", self.directory / tag / "Tiny-1.0.yaml", "--prefix", self.prefix, "--skip-sanity-check")


def make_place(images: Images, directory: Path) -> Place:
    """The easyconfigs, each with an image of its own; no tree yet."""
    place = Place(directory)
    for tag in "abc":
        place.write(tag, images.tiny(f"crash-{tag}"))
    return place


@dataclass(frozen=True)
class Case:
    """A verb on a tree: what it starts from, and what may be seen of the module meanwhile, the last one at the end."""

    start: Path
    arguments: Command
    may_be_seen: tuple[str, ...]
    done: set[str]  # every path after an undisturbed run
    steps: int
    seconds: float


@dataclass(frozen=True)
class Trial:
    """A victim for every verb; the tree is replaced each time."""

    victim: Victim
    place: Place
    known: Known
    cases: dict[str, Case]

    @property
    def prefix(self) -> Path:
        """The tree."""
        return self.place.prefix

    def reset(self, case: Case) -> None:
        """The tree that the verb starts from."""
        outlook.copy(case.start, self.prefix)

    def check_and_finish(self, case: Case) -> str:
        """What is seen now is one of the allowed; then the same command again succeeds and leaves no litter."""
        found = outlook.seen(self.prefix, self.known)
        assert found in case.may_be_seen
        outcome = self.victim.run(case.arguments)
        assert outcome.code == 0, outcome.stderr
        assert outlook.seen(self.prefix, self.known) == case.may_be_seen[-1]
        assert outlook.paths(self.prefix) == case.done
        outlook.published_are_whole(self.prefix, self.known)
        return found


Planned = tuple[str, Command, tuple[str, ...]]  # the builds before it, its command line, what may be seen


def make_trial(
    images: Images, directory: Path, more: Mapping[str, Planned] = {}, command: Sequence[str] = ()
) -> Iterator[Trial]:
    """Run every verb undisturbed, those of `more` too, and keep what each starts from and leaves.

    `command` comes in front of the victim.
    """
    place = make_place(images, directory)
    prefix = place.prefix
    with Victim(place.env, *command) as victim:
        assert victim.warm((*place.install("a"), "--extended-dry-run")).code == 0
        known, starts = _builds(victim, place)
        plain = ("Tiny/1.0", "--prefix", prefix)
        verbs: dict[str, Planned] = {
            "install": ("", place.install("a"), ("none", "a")),
            "reinstall": ("a", place.install("b"), ("a", "b")),
            "rollback": ("ab", ("rollback", *plain, "--to", "1"), ("b", "a")),
            "uninstall": ("ab", ("uninstall", *plain), ("b", "none")),
            "gc": ("abc", ("gc", "--yes", "--days", "0", "--prefix", prefix), ("c",)),
        }
        cases = {}
        for verb, (start, arguments, may_be_seen) in {**verbs, **more}.items():
            outlook.copy(starts[start], prefix)
            before = time.monotonic()
            outcome = victim.run(arguments)
            seconds = time.monotonic() - before
            assert outcome.code == 0, outcome.stderr
            cases[verb] = Case(starts[start], arguments, may_be_seen, outlook.paths(prefix), outcome.steps, seconds)
        yield Trial(victim, place, known, cases)


def _builds(victim: Victim, place: Place) -> tuple[Known, dict[str, Path]]:
    """Install a, b, c one over the other: what each is, and the tree after each."""
    contents = {}
    starts = {"": place.directory / "nothing"}
    for tags in ("a", "ab", "abc"):
        outcome = victim.run(place.install(tags[-1]))
        assert outcome.code == 0, outcome.stderr
        contents[tags[-1]] = outlook.generation(place.prefix, outlook.live_number(place.prefix) or "")
        starts[tags] = place.directory / f"after-{tags}"
        outlook.copy(place.prefix, starts[tags])
    return Known(contents, (place.prefix / "modules" / "Tiny" / "1.0.lua").read_bytes()), starts
