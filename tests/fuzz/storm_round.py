"""One round of the storm: all users at once, until each has been killed so often; and the quiet after it."""

import os
import random
import shutil
import stat
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from storm_verbs import PASSING, STEADY, TAGS, Supply, Verb

from sifmod.actions.verify import verify
from sifmod.tree.layout import Layout
from sifmod.tree.lease import newest
from sifmod.tree.receipt import installations
from support.command import SIFMOD, User, run
from support.identity import call_as
from support.trial import Command
from support.victim import Outcome, Victim

KINDS = ("whole", "shot", "killed")
SHARES = (4, 3, 3)
LIMIT = 40  # commands of a user for each kill that is asked for: so many, and something is wrong
THE_TREE = {"modules", "software", "user-software", "images", ".locks", ".staging", "log", "life", "stacks"}
SETTLERS = 3  # of the users, one with each umask, who do in the quiet what takes long


@dataclass(frozen=True)
class Member:
    """One of the users: who and with what umask, and the server of that user's commands."""

    user: User
    umask: int
    victim: Victim

    def run(self, words: Command, how: str = "whole", step: int = 0, delay: float = 0) -> Outcome:
        """One command line."""
        return self.victim.run(words, how, step, delay, (self.user.uid, self.user.gid, self.umask))


@dataclass(frozen=True)
class Measure:
    """How much a verb does when it is not disturbed."""

    steps: int
    seconds: float


@dataclass(frozen=True)
class Storm:
    """The users on their prefix, and what has been seen."""

    prefix: Path
    supply: Supply
    members: tuple[Member, ...]
    measures: dict[str, Measure]
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def round(self, seed: str, kills: int, stops: int, stopped: int) -> None:
        """Each user is killed `kills` times, and the one of the number `stopped` is stopped `stops` times."""
        with ThreadPoolExecutor(len(self.members)) as pool:
            tasks = [
                pool.submit(
                    self._disturbed, number, random.Random(f"{seed} {number}"), kills, stops * (number == stopped)
                )
                for number in range(len(self.members))
            ]
        for task in tasks:
            task.result()

    def _disturbed(self, number: int, dice: random.Random, kills: int, stops: int) -> None:
        """One user's commands."""
        member, verbs = self.members[number], self.supply.verbs()
        weights = [verb.weight for verb in verbs]
        for _ in range(LIMIT * (kills + stops)):
            if kills <= 0 and stops <= 0:
                return
            (verb,) = dice.choices(verbs, weights)
            words, measure = verb.words(dice), self.measures[verb.name]
            how = "stopped" if stops > 0 and dice.random() < 0.5 else dice.choices(KINDS, SHARES)[0]
            step, delay = dice.randint(1, measure.steps + 1), dice.uniform(0, 4 * measure.seconds)
            outcome = member.run(words, how, step, delay)
            if outcome.code is None:
                stops -= self._stopped(number, verb, words, outcome)
            elif outcome.code == -9:
                kills -= 1
                self.counts["killed"] += 1
                self.counts[f"{verb.name}: killed"] += 1
            else:
                self._judge(verb, words, outcome)
        if kills > 0 or stops > 0:
            self.findings.append(f"user {number} came to an end with {kills} kills and {stops} stops to go")

    def _stopped(self, number: int, verb: Verb, words: Command, stopped: Outcome) -> int:
        """Another user types the same; then the stopped one goes on: 1 when it had held a lock."""
        held = leases(self.prefix, stopped.pid)
        other = self.members[(number + 1) % len(self.members)]
        who = Member(other.user, other.umask, self.members[number].victim)  # the server of this thread
        self._judge(verb, words, who.run(words))
        overtaken = held - leases(self.prefix, stopped.pid)
        woken = self.members[number].victim.resume(stopped)
        self._judge(verb, words, woken, overtaken=bool(overtaken))
        if held:
            self.counts["stopped with a lock"] += 1
        if overtaken:
            self.counts["overtaken while stopped"] += 1
        return int(bool(held))

    def _judge(self, verb: Verb, words: Command, outcome: Outcome, *, overtaken: bool = False) -> None:
        self.counts[f"{verb.name}: {outcome.code}"] += 1
        lost = outcome.code == 18 and "was taken over" in outcome.stderr
        if lost and not overtaken:
            self.counts["overtaken while running"] += 1  # on a machine so busy that a second was too short
        if "Traceback" in outcome.stderr or not (lost or verb.may_end(outcome)):
            told = " ".join(map(str, words))
            self.findings.append(f"{told}: exit code {outcome.code}: {outcome.stderr.strip()}")

    def settle(self, seed: str) -> None:
        """After the wind: each could remove all of it, the next runs of each succeed, and all is clean."""
        self.everything_can_go()
        dice = random.Random(seed)
        for number, member in enumerate(dice.sample(self.members, SETTLERS)):
            for module in STEADY:
                member.run(("rollback", "--release", module))  # 24 where nothing is held
                self.succeeds(member, self.supply.install(module, dice.choice(TAGS), "--rebuild"))
            if not number:  # no other command of one host completes what died on the other for a module of its own
                self.succeeds(member, ("gc", "--yes", "--ignore-jobs"))
            self.succeeds(member, ("verify",))
        layout = Layout(self.prefix)
        for installation in installations(layout):
            self.findings.extend(f"{installation.module}: {wrong}" for wrong in verify(layout, installation))
        self.findings.extend([f"left behind: {path}" for path in self._litter()])

    def calm(self) -> None:
        """All is uninstalled, by one user what another has installed: the log is left, and what locks leave."""
        one, two, three = self.members[:SETTLERS]
        for module in (*STEADY, *PASSING):
            one.run(("rollback", "--release", module))  # 24 where nothing is held
            self.succeeds(one, self.supply.install(module, TAGS[0]))
        self.succeeds(two, ("uninstall", *STEADY, *PASSING))
        self.succeeds(one, self.supply.forget(TAGS[0]))  # the stack of each build has the same name
        self.succeeds(three, ("gc", "--yes", "--ignore-jobs", "--now", "--rollbacks"))
        empty = {self.prefix / path for path in (".staging", "modules", "images", "images/sha256")}
        kept = (self.prefix / ".locks", self.prefix / "log", self.prefix / "stacks")
        left = {path for path in self.prefix.rglob("*") if not any(path.is_relative_to(place) for place in kept)}
        if left := left - empty:
            why = run((*SIFMOD, "gc", "--ignore-jobs", "--now", "--rollbacks", "--prefix", self.prefix))
            print(why.stdout, why.stderr)
        self.findings.extend(f"left at the end: {path}" for path in sorted(left))

    def succeeds(self, member: Member, words: Command) -> None:
        """A command that nothing disturbs."""
        outcome = member.run(words)
        if outcome.code != 0:
            told = " ".join(map(str, words))
            said = f"{outcome.stdout.strip()[-500:]} {outcome.stderr.strip()}"
            self.findings.append(f"in the quiet: {told}: exit code {outcome.code}: {said}")

    def everything_can_go(self) -> None:
        """Each of the users in turn removes a copy of all that is there."""
        for member in self.members[:SETTLERS]:
            copy = self.prefix.with_name("copy")
            if run(("cp", "-a", self.prefix, copy)).code != 0:  # what a killed one has started removes its remains
                time.sleep(1)
                shutil.rmtree(copy)
                run(("cp", "-a", self.prefix, copy)).ok()
            call_as(member.user, lambda copy=copy: remove_as_owner(copy))  # type: ignore[misc]
            left = [str(path.relative_to(copy)) for path in copy.rglob("*") if not path.is_dir()]
            left += [str(path.relative_to(copy)) for path in copy.glob("*")]
            if left:
                self.findings.append(f"user {member.user.uid} cannot remove {', '.join(sorted(left)[:5])}")
            shutil.rmtree(copy)

    def _litter(self) -> Iterator[str]:
        """What no run has made for good."""
        yield from (str(path) for path in self.prefix.iterdir() if path.name not in THE_TREE)
        yield from map(str, self.prefix.glob(".staging/*"))
        images = set(self.prefix.glob("images/sha256/*"))
        yield from (str(path) for path in images if not {path.with_suffix(".sif"), path.with_suffix(".json")} <= images)
        for path in self.prefix.glob("software/*/.generations/*/*"):
            if not (path / "receipt.json").exists() and path.name != "history.json":
                yield str(path)


def remove_as_owner(top: Path) -> None:
    """`chmod -R u+rwx` on what is one's own, as far as it goes, then `rm -rf` of all below."""
    for directory, _, _ in os.walk(top):
        if os.stat(directory).st_uid == os.geteuid():
            os.chmod(directory, stat.S_IMODE(os.stat(directory).st_mode) | 0o700)
    for path in top.iterdir():
        run(("rm", "-rf", path))


def leases(prefix: Path, pid: int) -> set[str]:
    """The locks that the process of this number holds, as the tree shows it."""
    found = {chain.name: newest(Layout(prefix).chain(chain.name)) for chain in prefix.glob(".locks/*")}
    return {name for name, lease in found.items() if not lease.free and lease.holder and lease.holder.pid == pid}
