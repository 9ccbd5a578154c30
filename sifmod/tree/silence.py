"""Holders of locks on other nodes that are silent: nothing else shows that a process there has died."""

import time

from sifmod.tree import lease as leases
from sifmod.tree.lease import Lease, Look
from sifmod.tree.locking import Tree, locks_with_files

_POLL = 0.2  # seconds


def silent(tree: Tree) -> dict[str, Look]:
    """The locks of holders on other nodes that left files and gave no sign of life, and what was seen of each.

    Waits until each other holder there has given a sign of life, for at most the longer of its lease time and the
    tree's. Raises OSError.
    """
    since = time.monotonic()
    chains = locks_with_files(tree.layout)
    watched = {name: seen for name, chain in chains.items() if _is_elsewhere(seen := leases.newest(chain))}
    for who in sorted({str(seen.holder or "another process") for seen in watched.values()}):
        tree.waiting("the tree")(who)
    found: dict[str, Look] = {}
    while watched := {name: seen for name, seen in watched.items() if leases.newest(chains[name]) == seen}:
        silence = time.monotonic() - since
        found |= {name: Look(seen, since) for name, seen in watched.items() if silence >= _patience(tree, seen)}
        if found.keys() == watched.keys():
            break
        time.sleep(_POLL)
    return {name: look for name, look in found.items() if name in watched}


def _is_elsewhere(lease: Lease) -> bool:
    return not lease.vacant and (lease.holder is None or not leases.is_here(lease.holder))


def _patience(tree: Tree, lease: Lease) -> float:
    return max(tree.lease, lease.holder.seconds if lease.holder else 0.0)
