"""Every command of sifmod as every user, under every umask, in a tree that is shared in every way.

    python -m tests.fuzz.roles [--pairwise] [--only WORD]

After each command its exit code is right for the user who typed it; a user without the right has changed nothing; each
writer can go on, and each reader can load. Prints a line for each finding, then counts; ends with 1 where there is a
finding. Needs root.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.images import Images
from support.roles import Unchanged, every, pairwise, tried
from support.writing_commands import made_world


def main(arguments: Sequence[str]) -> int:
    """Run; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairwise", action="store_true", help="what the tests try: each command as each user once")
    parser.add_argument("--only", default="", metavar="WORD", help="commands with this in them")
    given = parser.parse_args(arguments)
    begin, findings, count = time.monotonic(), 0, 0
    unchanged: Unchanged = {}
    with made_world(Images()) as world:
        for row in pairwise() if given.pairwise else every():
            if given.only in str(row):
                count += 1
                for wrong in tried(world, row, unchanged):
                    findings += 1
                    print(f"{row}: {wrong}", flush=True)
    print(f"{count} combinations, {findings} findings, {(time.monotonic() - begin) / 60:.1f} minutes")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
