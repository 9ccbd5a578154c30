"""Short runs that compare sifmod with other tools on random input; docs/reliability.md has the long ones."""

import random
import sys
import tarfile
from pathlib import Path

import pytest

from support.command import ROOT, run
from support.layers import Entry

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))

from umoci import found_by_sifmod, found_by_umoci, layout_of

RUNS = {
    "umoci": ("--images", "12"),
    "pushes": ("--images", "5"),
    "servers": ("--servers", "10"),
    "environments": ("--definitions", "4"),
}


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("name", RUNS)
def test_no_difference_without_a_reason(name: str) -> None:
    seed = str(random.randrange(1 << 32))
    done = run((sys.executable, "-m", f"tests.fuzz.{name}", *RUNS[name], "--seed", seed), cwd=ROOT)
    assert (done.code, done.stdout.splitlines()[-1][-15:]) == (0, "0 with findings"), f"seed {seed}\n{done}"


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("gone", [".wh.a", "a/.wh..wh..opq"])
def test_the_order_in_a_layer_does_not_decide_what_a_directory_is(tmp_path: Path, gone: str) -> None:
    """E12: umoci gives a directory that only a file's path names the lower one's mode, or not, by the order."""
    below = [Entry(name, kind=tarfile.DIRTYPE, mode=0o700, uid=5, mtime=9) for name in ("a", "a/b")]
    above = [Entry("a/b/file"), Entry(gone)]
    found = []
    for number, entries in enumerate((above, above[::-1])):
        layout = layout_of(random.Random(1), [below, entries], tmp_path / f"layout{number}")
        ours, theirs = (
            found_by_sifmod(layout, tmp_path / f"{number}.sif"),
            found_by_umoci(layout, tmp_path / f"{number}"),
        )
        assert ours
        assert not isinstance(theirs, str)
        found += [(ours["a/b"].mode, ours["a/b"].owner, theirs["a/b"].mode, theirs["a/b"].owner)]
    assert found == [("0755", "0:0", "0700", "5:0"), ("0755", "0:0", "0755", "0:0")]
