"""The same image as a SIF by two tools: `apptainer pull` run by root, and `sifmod fetch`."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from support.command import Result, run
from support.filesystem import AS_ROOT, Difference, Listing, differences, listing
from support.identity import sifmod
from support.registry import Registry
from support.runtime import RUNTIME

SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
NOW = "now"
FEWER = "fewer"
# seconds that a pull may have taken before the SIF was there
PULL = 900
# what the tools put into every image: nobody's content. Below the metadata directory everything is theirs
OF_THE_TOOLS = frozenset(
    (".exec", ".run", ".shell", ".test", "environment", "singularity", "runscripts", "user-software")
)
METADATA = ".singularity.d"


def push(registry: Registry, layout: Path, name: str) -> str:
    """Push a layout as it is, plain layers too, and return its `docker://` reference."""
    reference = f"docker://{registry.address}/{name}"
    options = ("--insecure-policy", "copy", "--preserve-digests", "--dest-tls-verify=false", "--quiet")
    run(("skopeo", *options, f"oci:{layout}", reference)).ok()
    return reference


def apptainer_pull(reference: str, sif: Path) -> Result:
    """`apptainer pull` at its defaults, by root, with an empty cache."""
    return _apptainer(("pull", "--no-https", sif, reference), sif)


def apptainer_build(reference: str, sif: Path) -> Result:
    """The same by `apptainer build`, whose mksquashfs can be told to take a tenth of the time for the same files."""
    return _apptainer(("build", "--no-https", *RUNTIME.fast, sif, reference), sif)


def _apptainer(words: Sequence[str | Path], sif: Path) -> Result:
    with tempfile.TemporaryDirectory(dir=sif.parent) as work:
        variables = {"PATH": SEARCH_PATH, "HOME": work, "APPTAINER_USERNS": "1"}
        variables |= dict.fromkeys(("APPTAINER_CACHEDIR", "APPTAINER_TMPDIR"), work)
        env = ("env", "-i", *(f"{name}={value}" for name, value in variables.items()))
        result = run((*AS_ROOT, *env, "apptainer", *words))
        run((*AS_ROOT, "find", work, "-mindepth", "1", "-delete")).ok()
    return result


def sifmod_fetch(reference: str, sif: Path, options: Sequence[str] = ()) -> Result:
    """`sifmod fetch` into a file, by whoever runs the tests, in an empty prefix."""
    with tempfile.TemporaryDirectory(dir=sif.parent) as prefix:
        return sifmod(("fetch", reference, "-o", sif, *options), {**os.environ, "SIFMOD_PREFIX": prefix}, Path.cwd())


def content(sif: Path) -> Listing:
    """What the SIF holds but for the tools' own files; the times of what its maker made anew are NOW."""
    made = sif.stat().st_mtime
    return {
        path: replace(item, mtime=NOW) if made - PULL < float(item.mtime) <= made else item
        for path, item in listing(sif).items()
        if path not in OF_THE_TOOLS and path.split("/")[0] != METADATA
    }


def compared(ours: Listing, theirs: Listing) -> frozenset[Difference]:
    """Every difference, without what changes from run to run.

    Apptainer's mksquashfs gives one name of a symlink that has several an inode of its own, now this and now that.
    """
    return frozenset(
        replace(found, theirs=FEWER) if found.what == "names" and ours[found.path].kind == "symlink" else found
        for found in differences(ours, theirs)
    )
