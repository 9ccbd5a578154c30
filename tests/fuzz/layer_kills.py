"""Kill `sifmod add` and `sifmod remove` at random instants: the layer is the old one or the new one, and whole.

python tests/fuzz/layer_kills.py [--kills 200] [--seed 1]
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.images import Images
from support.layered import make_machine, old_or_new


def main() -> int:
    """Run; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, metavar="N", help="how many (200)")
    parser.add_argument("--seed", type=int, default=1, help="which (1)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sifmod-kills-", ignore_cleanup_errors=True) as directory:
        new = old_or_new(make_machine(Path(directory), Images()), given.kills, given.seed)
    print(f"{given.kills} kills: after {new} of them the new layer was there, after the others the old one")
    return 0


if __name__ == "__main__":
    sys.exit(main())
