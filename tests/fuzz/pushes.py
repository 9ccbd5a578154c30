"""Random images pushed as OCI images to a registry of this machine, and read back: each file the same as in the SIF.

    python -m tests.fuzz.pushes [--images 60] [--seed 1]

A SIF from nowhere goes as one layer, one of a registry with that registry's layers, one that was built upon a stored
image with a layer of what differs; trees by mksquashfs too. What the registry has then is converted by sifmod and
unpacked by umoci. Needs root. Prints what differed and why it may, and ends with 1 for anything else.
"""

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

from extend import COMPRESSIONS, FLAGS, random_tree
from umoci import LINK_INSIDE, explained, found_by_sifmod, found_by_umoci, has_link_inside, layers, layout_of, named

from sifmod.cli.main import run as sifmod
from sifmod.digest import sha256_file
from sifmod.module.image_origin import ImageOrigin
from support.command import run
from support.conversion import METADATA, OF_THE_TOOLS
from support.extending import base_of
from support.fetching import Prefix
from support.filesystem import Difference, Listing, differences, listing
from support.layers import Entry
from support.registry import Registry

RUNTIMES = {"dev", "etc", "etc/hosts", "etc/resolv.conf", "home", "proc", "root", "sys", "tmp", "var", "var/tmp"}
WAYS = ("alone", "of a registry", "built upon another", "built upon another", "by mksquashfs")


def quietly(*words: str) -> int:
    """The exit code of sifmod."""
    with contextlib.redirect_stdout(io.StringIO()):
        return sifmod(list(words))


def stored(prefix: Prefix, layout: Path, registry: Registry, name: str) -> Path:
    """The image of a layout, through the registry, in the store."""
    before = set(prefix.layout.images.glob("*.sif"))
    assert quietly("fetch", "-q", registry.push_layout(layout, name)) == 0
    return next(iter(set(prefix.layout.images.glob("*.sif")) - before))


class Pushed(NamedTuple):
    """A SIF to push, the directories that an entry of its layers names, and whether umoci refuses these layers."""

    sif: Path
    entries: set[str]
    link_inside: bool = False


def pushed_image(way: str, source: random.Random, here: Path, registry: Registry) -> Pushed | None:
    """One made in this way; None if the image is refused."""
    if way == "by mksquashfs":
        random_tree(here / "tree", source)
        options = [flag for flag in FLAGS if source.random() < 0.2]
        compressed = source.choice([one for one in COMPRESSIONS if one != "lz4"])  # mksquashfs 4.5.1 writes it damaged
        sif = base_of(here / "tree", here / "tree.sif", *options, "-comp", compressed)
        return Pushed(sif, {path for path, one in listing(sif).items() if one.kind == "directory"})
    stack: list[list[Entry]] = list(layers(source))
    layout = layout_of(source, stack, here / "layout")
    sif, prefix = here / "x.sif", Prefix(here / "prefix")
    if found_by_sifmod(layout, sif) is None:
        return None
    if way == "alone":
        return Pushed(sif, set(listing(sif)))
    if way == "of a registry":
        return Pushed(stored(prefix, layout, registry, f"{here.name}/original:1"), named(stack), has_link_inside(stack))
    below = stack[: source.randrange(len(stack))] or [next(layers(source))]
    base_layout = layout_of(source, below, here / "below")
    if found_by_sifmod(base_layout, here / "below.sif") is None:
        return None
    base = stored(prefix, base_layout, registry, f"{here.name}/below:1")
    changed = {one.path for one in differences(of_the_image(sif), of_the_image(base))}
    with prefix.store() as store, store.incoming() as incoming:
        shutil.copyfile(sif, incoming)
        origin = ImageOrigin(manifest="sha256:" + "0" * 64, layers=(f"sha256:{base.stem}",))
        path = store.add(incoming, sha256_file(sif), origin, "recipe:")
        return Pushed(path, named(below) | changed, has_link_inside(below))


def read_back(reference: str, here: Path) -> Iterator[tuple[str, Listing | str]]:
    """What each tool has of the image, or why it has nothing."""
    back = here / "back.sif"
    yield "sifmod", of_the_image(back) if quietly("fetch", "-q", reference, "-o", str(back)) == 0 else "refused"
    layout = here / "pulled"
    run(("skopeo", "--insecure-policy", "copy", "-q", "--src-tls-verify=false", reference, f"oci:{layout}:made")).ok()
    unpacked = found_by_umoci(layout, here / "bundle")
    yield "umoci", unpacked if isinstance(unpacked, str) else without_tools(unpacked)


def of_the_image(sif: Path) -> Listing:
    return without_tools(listing(sif))


def without_tools(found: Listing) -> Listing:
    return {path: one for path, one in found.items() if path not in OF_THE_TOOLS and path.split("/")[0] != METADATA}


def why(tool: str, one: Difference, right: Listing, found: Listing, entries: set[str], since: float) -> str:
    """Which line of docs/differences.md this is; "" for none."""
    if right.get(one.path) and right[one.path].kind == "socket" and one.path not in found:
        return "a socket, which no layer can hold"
    if tool == "sifmod" and one.path in RUNTIMES and one.path not in right:
        return "directories that the runtime needs"
    if tool == "umoci":
        return explained(one, right, found, entries, since)
    return ""


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--images", type=int, default=60)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    counts, bad = Counter[str](), 0
    with TemporaryDirectory() as name:
        registry = Registry(Path(name, "registry"))
        registry.start()
        try:
            for number in range(given.images):
                here, source, since = Path(name, f"n{number}"), random.Random(f"{given.seed}-{number}"), time.time() - 2
                here.mkdir()
                os.environ["SIFMOD_PREFIX"] = str(here / "prefix")
                way = WAYS[number % len(WAYS)]
                made = pushed_image(way, source, here, registry)
                counts[f"{way}{'' if made else ', refused'}"] += 1
                if made is None:
                    continue
                right, reference = of_the_image(made.sif), f"docker://{registry.address}/pushed/{here.name}:1"
                odd = list[str]()
                if quietly("push", "-q", str(made.sif), reference) != 0:
                    odd.append("the push is refused")
                for tool, found in read_back(reference, here) if not odd else ():
                    if isinstance(found, str):
                        named_there = tool == "umoci" and made.link_inside and " link: no such" in found
                        counts[LINK_INSIDE] += named_there
                        odd += [] if named_there else [f"{tool}: {found}"]
                        continue
                    counts[f"files by {tool}"] += len(found)
                    for one in differences(right, found):
                        reason = why(tool, one, right, found, made.entries, since)
                        counts[reason] += bool(reason)
                        odd += [] if reason else [f"{tool}: {one}"]
                if odd:
                    bad += 1
                    print(f"== {number}, {way}", *odd[:8], sep="\n", flush=True)
                shutil.rmtree(here)
        finally:
            registry.stop()
    print(f"{given.images} images, {json.dumps(dict(counts))}, {bad} with findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
