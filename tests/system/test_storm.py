"""Three users of one group under kills and stops (fuzz/storm.py): a short one of what is run for longer by hand."""

import os
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))

from storm import blow

from support.steps import EVERY


def test_a_short_storm() -> None:
    """The seed is in the failure's output."""
    if os.geteuid() != 0:
        pytest.skip("only root can run commands as three different users")
    seed = random.randrange(1 << 32)
    print("seed", seed)
    with TemporaryDirectory(dir="/dev/shm", prefix="sifmod-storm-") as directory:
        Path(directory).chmod(0o755)
        assert blow(Path(directory), kills=120 if EVERY else 12, stops=1, seed=seed) == []
