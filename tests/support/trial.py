"""The five verbs that change a tree, each with the tree that it starts from and what it leaves when undisturbed."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support import outlook
from support.images import Images
from support.outlook import Known
from support.victim import Victim

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
class Case:
    """A verb on a tree: what it starts from, and what may be seen of the module at any time, the last one at the end."""

    start: Path
    arguments: tuple[str | Path, ...]
    may_be_seen: tuple[str, ...]
    done: set[str]  # every path after an undisturbed run
    steps: int
    seconds: float


@dataclass(frozen=True)
class Trial:
    """Everything that the tests of this file share."""

    victim: Victim
    prefix: Path  # where every command works; what is there is replaced each time
    known: Known
    cases: dict[str, Case]
    env: dict[str, str]

    def install(self, tag: str) -> tuple[str | Path, ...]:
        """The command line that installs the build `tag`: a, b or c."""
        return install_command(self.prefix.parent, tag, self.prefix)

    def reset(self, case: Case) -> None:
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


def make_trial(images: Images, tmp: Path) -> Iterator[Trial]:
    env = {
        "HOME": str(tmp),
        "PATH": str(tmp / "no-programs"),  # no squeue, which would have gc keep everything
        "SIFMOD_CONFIG_DIR": str(tmp / "no-sites"),
    }
    prefix = tmp / "tree"
    for tag in "abc":
        (tmp / tag).mkdir()
        source = images.tiny(f"crash-{tag}")
        (tmp / tag / "Tiny-1.0.yaml").write_text(EASYCONFIG.format(tag=tag, source=source))
    with Victim(env) as victim:

        assert victim.warm((*install_command(tmp, "a"), "--extended-dry-run")).code == 0
        starts = {"": tmp / "nothing"}
        contents = {}
        for tag in "abc":
            assert victim.run(install_command(tmp, tag)).code == 0
            contents[tag] = outlook.generation(prefix, outlook.live_number(prefix) or "")
            starts["abc"[: "abc".index(tag) + 1]] = tmp / f"after-{tag}"
            outlook.copy(prefix, tmp / f"after-{tag}")
        known = Known(contents, (prefix / "modules" / "Tiny" / "1.0.lua").read_bytes())
        plain = ("Tiny/1.0", "--prefix", prefix)
        verbs: dict[str, tuple[str, tuple[str | Path, ...], tuple[str, ...]]] = {
            "install": ("", install_command(tmp, "a"), ("none", "a")),
            "reinstall": ("a", install_command(tmp, "b"), ("a", "b")),
            "rollback": ("ab", ("rollback", *plain, "--to", "1"), ("b", "a")),
            "uninstall": ("ab", ("uninstall", *plain), ("b", "none")),
            "gc": ("abc", ("gc", "--yes", "--days", "0", "--prefix", prefix), ("c",)),
        }
        cases = {}
        for verb, (start, arguments, may_be_seen) in verbs.items():
            outlook.copy(starts[start], prefix)
            before = time.monotonic()
            outcome = victim.run(arguments)
            seconds = time.monotonic() - before
            assert outcome.code == 0, outcome.stderr
            cases[verb] = Case(starts[start], arguments, may_be_seen, outlook.paths(prefix), outcome.steps, seconds)
        yield Trial(victim, prefix, known, cases, env)
