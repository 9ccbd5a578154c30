"""A storm: users of one group on one prefix, with all verbs, killed at random instants and stopped with locks.

    python -m tests.fuzz.storm [--actors 3] [--kills 1000] [--stops 50] [--seed 1]

The users have umasks of 077, 022 and 002 and work at once, on two hosts, while what stays installed is loaded in a loop
in Lmod and in Environment Modules. Half of the kills come at an instant, the others just before a change to the disk. A
stopped run is overtaken by another user's, and goes on afterwards. In the quiet after each round three of the users
remove a copy of all that is there, type the next commands (the first also gc) and verify. Prints counts, and a line for
each finding: a load that fails, a verb that ends otherwise than it may, what `verify` finds, what is left, what one of
them cannot remove. Ends with 1 where there is one. The seed decides the commands and the instants; how they interleave
is the machine's.

Needs root and both module systems.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

from storm_loads import Loads
from storm_round import Measure, Member, Storm
from storm_verbs import PASSING, STEADY, TAGS, Supply, make_supply

from support.command import User
from support.hosts import on_host
from support.images import Images
from support.members import make_members
from support.module_tool import environment_modules, lmod
from support.one_image import OneImage
from support.user import ordinary_user
from support.victim import Victim

UMASKS = (0o077, 0o022, 0o002)
HOSTS = ("one", "one", "two")  # where they work; a host cannot ask about another's processes
LEASE = 1  # second, the shortest that a site may set
KILLS_IN_A_ROUND = 12  # of each user


def main(arguments: Sequence[str]) -> int:
    """Run; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actors", type=int, default=3, metavar="N", help="users at once, three or more (3)")
    parser.add_argument("--kills", type=int, default=1000, metavar="N", help="at least so many (1000)")
    parser.add_argument("--stops", type=int, default=50, metavar="N", help="at least so many holders (50)")
    parser.add_argument("--seed", type=int, default=1, help="which commands, and when (1)")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="sifmod-storm-") as directory:
        Path(directory).chmod(0o755)
        return 1 if blow(Path(directory), given.kills, given.stops, given.seed, given.actors) else 0


def blow(directory: Path, kills: int, stops: int, seed: int, actors: int = 3) -> list[str]:
    """The whole storm in a directory that every user can reach: the findings, which are printed too."""
    begin = time.monotonic()
    rounds = max(1, kills // (KILLS_IN_A_ROUND * actors))
    told = 0
    with made_storm(directory, actors) as storm:
        each = -(-kills // (rounds * len(storm.members)))
        with loads(storm, directory / "shells"):
            for number in range(rounds):
                stops_now = stops * (number + 1) // rounds - stops * number // rounds
                storm.round(f"{seed} {number}", each, stops_now, number % len(storm.members))
                storm.settle(f"{seed} {number}")
                told = tell(storm, told, f"round {number + 1} of {rounds}, {time.monotonic() - begin:.0f} s")
        storm.calm()
        tell(storm, told, "the end")
    for name, count in sorted(storm.counts.items()):
        print(f"{count:6} {name}")
    print(f"{len(storm.findings)} findings", flush=True)
    return storm.findings


def tell(storm: Storm, told: int, when: str) -> int:
    """Print what is new: how many findings have been told now."""
    kills, stops = storm.counts["killed"], storm.counts["stopped with a lock"]
    print(f"{when}: {kills} killed, {stops} stopped with a lock, {len(storm.findings)} findings", flush=True)
    for finding in storm.findings[told:]:
        print(f"finding: {finding}", flush=True)
    return len(storm.findings)


@contextmanager
def made_storm(directory: Path, actors: int) -> Iterator[Storm]:
    """The users, what they install, and how long that takes undisturbed."""
    for name in ("supply", "user", "group"):
        (directory / name).mkdir()
    images = Images()
    registry = OneImage(images.tiny_layout("crash-c"))
    supply = make_supply(directory / "supply", images, registry)
    group = make_members(directory / "group", ordinary_user(directory / "user"))
    env = environment(directory, group.prefix)
    registry.start()
    with ExitStack() as stack:
        stack.callback(registry.stop)
        hosts = (HOSTS[number % len(HOSTS)] for number in range(actors))
        victims = [stack.enter_context(Victim(env, *on_host(host))) for host in hosts]
        for victim in victims:
            warm(victim, supply, directory / "warm")
        write_locks(victims[0], supply, directory / "warm")
        users = (group.ann, *(User(group.bob.uid + number, group.bob.gid) for number in range(actors - 1)))
        members = tuple(map(Member, users, cycle(UMASKS), victims))
        yield Storm(group.prefix, supply, members, measured(members[0], supply))


@contextmanager
def loads(storm: Storm, home: Path) -> Iterator[None]:
    """Inside, a user of another group loads in both module systems."""
    home.mkdir()
    home.chmod(0o777)
    last = storm.members[-1].user
    with ExitStack() as stack:
        for tool in (lmod(home), environment_modules(home)):
            stack.enter_context(Loads(tool, storm.prefix / "modules", User(last.uid + 1, last.gid + 1), storm))
        yield


def environment(directory: Path, prefix: Path) -> dict[str, str]:
    """For sifmod: the prefix, and nothing of the machine; no squeue, which would have gc keep everything."""
    missing = {name: str(directory / f"no-{name}") for name in ("PATH", "HOME", "SIFMOD_CONFIG_DIR")}
    given = {"SIFMOD_PREFIX": str(prefix), "SIFMOD_LOCK_LEASE": str(LEASE), "SIFMOD_MODULE_SYNTAX": "both"}
    return {**missing, **given}


def warm(victim: Victim, supply: Supply, prefix: Path) -> None:
    """Have the server load what its children need, which cannot read root's Python."""
    apply = ("stack", "apply", supply.stack("a"), "--skip-sanity-check", "--quiet")
    for words in (*(supply.install(STEADY[0], tag, "--quiet") for tag in "ac"), apply, ("verify",)):
        assert victim.warm((*words, "--prefix", prefix)).code == 0
    shutil.rmtree(prefix)


def write_locks(victim: Victim, supply: Supply, prefix: Path) -> None:
    """The lock of each stack, of a tree that it was applied to."""
    for tag in TAGS:
        for verb, *more in (("apply", "--skip-sanity-check"), ("lock",)):
            outcome = victim.run(("stack", verb, supply.stack(tag), *more, "--prefix", prefix))
            assert outcome.code == 0, outcome.stderr
    shutil.rmtree(prefix)


def measured(member: Member, supply: Supply) -> dict[str, Measure]:
    """What every verb does undisturbed; afterwards the modules that stay are installed."""
    measures = {}
    dice = random.Random(0)
    for module in STEADY + PASSING:
        for tag in TAGS:
            assert member.run(supply.install(module, tag)).code == 0
    for verb in supply.verbs():
        begin = time.monotonic()
        outcome = member.run(verb.words(dice))
        assert verb.may_end(outcome), outcome.stderr
        measures[verb.name] = Measure(outcome.steps, time.monotonic() - begin)
    return measures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
