"""Users refer to images of a site's tree while publishers install, uninstall and collect there, killed at random.

    python -m tests.fuzz.references [--seconds 60] [--publishers 8] [--users 24] [--seed 1]

Every user has a group and a prefix of their own. A third of all commands is killed. Before each command of a user, and
at the end, a module that is live in the user's tree has its image; nobody else changes that tree. Prints counts and
findings, and ends with 1 where there is one. Needs root.
"""

import argparse
import os
import random
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from grp import getgrnam
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.images import Images
from support.trial import Place, make_place
from support.victim import Victim

GROUP, UID = "staff", 73_000
TAGS = "abc"
_QUIETLY = ("--yes", "--now", "--rollbacks", "--ignore-jobs")


class Runs:
    """What all have done and found."""

    def __init__(self, place: Place, until: float) -> None:
        self.place, self.until = place, until
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []

    def publish(self, number: int, seed: int) -> None:
        """One publisher, until the time is up."""
        easyconfigs = [self.place.directory / tag / "Tiny-1.0.yaml" for tag in TAGS]
        verbs: list[Sequence[str | Path]] = [("install", one, "--skip-sanity-check") for one in easyconfigs]
        verbs += [("uninstall", "Tiny/1.0"), ("rollback", "Tiny/1.0"), *[("gc", *_QUIETLY)] * 3]
        who = (UID + number, getgrnam("users").gr_gid, (0o077, 0o002)[number % 2], getgrnam(GROUP).gr_gid)
        self._run(random.Random(seed), verbs, who, ())

    def use(self, number: int, seed: int) -> None:
        """One user."""
        home = self.place.directory / f"home-{number}"
        home.mkdir(mode=0o700)
        os.chown(home, UID + number, UID + number)
        own, mine = home / "tree", self.place.directory / "mine"
        words = ("--skip-sanity-check", "--link", "reference", "--offline", "--prefix", own)
        verbs: list[Sequence[str | Path]] = [("install", mine / f"Mine-{tag}.yaml", *words) for tag in TAGS]
        verbs += [("uninstall", f"Mine/{tag}", "--prefix", own) for tag in TAGS]
        verbs += [("rollback", f"Mine/{tag}", "--to", "1", "--prefix", own) for tag in TAGS]
        verbs += [("gc", *_QUIETLY, "--prefix", own)]
        self._run(random.Random(seed), verbs, (UID + number, UID + number, 0o022), (own,))

    def _run(
        self, chance: random.Random, verbs: Sequence[Sequence[str | Path]], who: tuple[int, ...], trees: Sequence[Path]
    ) -> None:
        with Victim(self.place.env) as victim:
            victim.warm((*self.place.install("a"), "--extended-dry-run"))
            while time.monotonic() < self.until:
                self._look(trees)
                words = chance.choice(verbs)
                how = "shot" if chance.random() < 1 / 3 else "whole"
                outcome = victim.run(words, how, delay=chance.uniform(0.01, 0.5), who=who)
                self.counts[f"{'site' if not trees else 'user'} {words[0]}: {outcome.code}"] += 1
                if outcome.code not in (0, -9, 10, 18, 24):
                    self.findings.append(f"{words} of {who[0]} ended with {outcome.code}: {outcome.stderr}")
            self._look(trees)

    def _look(self, trees: Sequence[Path]) -> None:
        for tree in trees:
            for switch in tree.glob("software/Mine/[a-z]"):
                self.counts["live modules seen"] += 1
                if not (switch / "mine.sif").exists():
                    self.findings.append(f"{switch} is live without {os.readlink(switch / 'mine.sif')}")


def prepare(directory: Path) -> Place:
    """The site's settings, and easyconfigs of both."""
    place = make_place(Images(), directory)
    settings, mine = Path(place.env["SIFMOD_CONFIG_DIR"]), directory / "mine"
    settings.mkdir()
    mine.mkdir()
    (settings / "a.yaml").write_text(f"sharing: site\ngroup: {GROUP}\nprefix: {place.prefix}\n")
    for tag in TAGS:
        built, sif = Images().tiny(f"crash-{tag}"), directory / f"{tag}.sif"
        shutil.copyfile(built, sif)
        easyconfig = directory / tag / "Tiny-1.0.yaml"
        easyconfig.write_text(easyconfig.read_text().replace(str(built), str(sif)))
        sha256 = os.popen(f"sha256sum {sif}").read().split()[0]
        (mine / f"Mine-{tag}.yaml").write_text(
            f"name: Mine\nversion: {tag}\naccelerator: none\n"
            f"image: {{sources: ['https://127.0.0.1:9/none.sif'], sha256: {sha256}, filename: mine.sif}}\n"
        )
    return place


def main(arguments: Sequence[str]) -> int:
    """Run; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("seconds", 60), ("publishers", 8), ("users", 24), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args(arguments)
    with TemporaryDirectory(dir="/tmp", prefix="sifmod-references-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        place = prepare(directory)
        directory.chmod(0o1777)
        runs = Runs(place, time.monotonic() + given.seconds)
        people = [(runs.publish, number) for number in range(given.publishers)]
        people += [(runs.use, given.publishers + number) for number in range(given.users)]
        threads = [threading.Thread(target=do, args=(number, given.seed * 1000 + number)) for do, number in people]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for what, count in sorted(runs.counts.items()):
        print(f"{count:7} {what}")
    for finding in runs.findings:
        print(finding)
    return 1 if runs.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
