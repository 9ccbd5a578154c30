"""A lock whose directory other runs remove: at any moment, and as the last thing of a first install that failed."""

import os
from pathlib import Path

import pytest

from sifmod.tree import lease as leases
from sifmod.tree.layout import Layout
from sifmod.tree.lease import Lease
from support.hold import Other
from support.tree import LEASE, MODULE, chain_at

LOCK = ".locks/Tiny@1.0"
SHARED = (".", ".locks", LOCK, ".staging", "images", "images/sha256", "software/Tiny", "modules/Tiny", "user-software")


@pytest.mark.parametrize("when", ["1+2", "2+2"])
def test_a_directory_that_goes_between_two_looks_is_made_again(tmp_path: Path, when: str) -> None:
    """The kernel says that it exists, and then it does not: another run has just removed it."""
    layout = Layout(tmp_path / "prefix")
    strace = ["strace", "-f", "-qqq", "-o", "/dev/null", "-e", f"inject=mkdir,?mkdirat:error=EEXIST:when={when}"]
    strace += [f"--trace-path={layout.prefix / place}" for place in SHARED]
    other = Other(layout.prefix, LEASE, *strace)
    try:
        assert other.take().ask("install a") == "installed 1"
        other.release()
    finally:
        other.kill()
    assert (layout.switch(MODULE) / "receipt.json").is_file()
    assert list(layout.staging.iterdir()) == []


def test_who_slept_while_the_lock_was_forgotten_takes_it_from_nobody(tmp_path: Path) -> None:
    """It looked at a lease that was free; meanwhile that was forgotten, and another holds the first of a new chain."""
    chain = tmp_path / "chain"
    for length in (1, 3):
        seen = held(chain, length)
        leases.forget(chain_at(chain))
        assert not chain.exists()
        assert not leases.claim(chain_at(chain), seen, leases.this_process(LEASE))
        assert leases.claim(chain_at(chain), leases.newest(chain_at(chain)), leases.this_process(LEASE))
        assert not leases.claim(chain_at(chain), seen, leases.this_process(LEASE))
        assert os.listdir(chain) == ["1.lease"]
        leases.free(chain_at(chain), 1)
        leases.forget(chain_at(chain))
        assert list(tmp_path.glob("chain*")) == []


def held(chain: Path, times: int) -> Lease:
    """Hold a new lock so often, and give it up: its last lease."""
    for number in range(1, times + 1):
        assert leases.claim(chain_at(chain), leases.newest(chain_at(chain)), leases.this_process(LEASE))
        leases.free(chain_at(chain), number)
    return leases.newest(chain_at(chain))


def test_a_lock_that_is_held_is_not_forgotten(tmp_path: Path) -> None:
    chain = tmp_path / "chain"
    assert leases.claim(chain_at(chain), leases.newest(chain_at(chain)), leases.this_process(LEASE))
    before = os.listdir(chain)
    leases.forget(chain_at(chain))
    assert os.listdir(chain) == before
