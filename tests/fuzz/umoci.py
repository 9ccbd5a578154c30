"""Random OCI images as a SIF by sifmod, and unpacked by umoci: each file the same, but for docs/differences.md.

    python -m tests.fuzz.umoci [--images 300] [--seed 1]

Layers in gzip or none, tars as PAX, GNU and ustar; modes, owners, attributes, hard links, whiteouts before and behind
what they name, opaque directories, entries without their parents, of other kinds than below. Needs root. Prints what
differed and why it may, and ends with 1 for anything else.
"""

import argparse
import gzip
import json
import os
import random
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from sifmod.cli.main import run as sifmod
from support.command import run
from support.conversion import METADATA, OF_THE_TOOLS
from support.filesystem import Difference, Listing, differences, items, listing
from support.layers import Entry, tar
from support.oci import Packed, digest_of, write_layout

NAMES = ("a", "b", "c", "bin", "ü", "with blank", "x" * 120)
CREATED = "1735689600"  # of the layouts
KINDS = (
    ("file",) * 8 + ("directory",) * 4 + ("symlink", "fifo", "device") + ("link",) * 3 + ("removed",) * 2 + ("opaque",)
)
ATTRIBUTES = (("SCHILY.xattr.user.note", "text"), ("SCHILY.xattr.trusted.kept", "x"), ("SCHILY.xattr.user.empty", ""))


def layers(source: random.Random) -> Iterator[list[Entry]]:
    """Of one image, the lowest first."""
    below: dict[str, str] = {}  # kind by path
    for _ in range(source.randint(1, 4)):
        here, entries = dict[str, str](), list[Entry]()
        for number in range(source.randint(1, 25)):
            known = {**below, **here}
            directories = [path for path, kind in known.items() if kind == "directory"]
            parent = source.choice([*directories, *directories, "", source.choice(NAMES)])
            path, kind = f"{parent}/{source.choice(NAMES)}".strip("/"), source.choice(KINDS)
            if known.get(parent, "directory") != "directory" or (path in here and source.random() < 0.8):
                continue
            entry = _entry(source, kind, path, number, known, below, here)
            if entry is None:
                continue
            entries.append(replace(entry, name=source.choice(("", "./")) + entry.name))
            if kind in ("removed", "opaque"):
                gone = [one for one in below if one.startswith(f"{path}/") or (kind == "removed" and one == path)]
            else:
                here |= dict.fromkeys((one for one in _parents(path)), "directory")
                here[path] = "file" if kind == "link" else kind
                gone = [] if kind == "directory" else [one for one in known if one.startswith(f"{path}/")]
            for one in gone:
                below.pop(one, None)
                if kind not in ("removed", "opaque"):
                    here.pop(one, None)
        below |= here
        yield entries


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _entry(
    source: random.Random,
    kind: str,
    path: str,
    number: int,
    known: dict[str, str],
    below: dict[str, str],
    here: dict[str, str],
) -> Entry | None:
    mode = source.choice((0o644, 0o755, 0o600, 0o4755, 0o2711, 0o1777, 0o700))
    pax = tuple(one for one in ATTRIBUTES if source.random() < 0.1 and "trusted" not in one[0])
    uid, gid = source.choice((0, 1000, 70000)), source.choice((0, 5))
    plain = Entry(path, mode=mode, uid=uid, gid=gid, mtime=1_500_000_000 + number)
    match kind:
        case "file":
            size = source.choice((0, 3, 3000, 140_000))
            return replace(plain, content=source.randbytes(size), pax=pax)
        case "directory":
            return replace(plain, kind=tarfile.DIRTYPE, pax=pax)
        case "symlink":
            return replace(plain, kind=tarfile.SYMTYPE, target=source.choice(("a", "../b", "/c/x", "nowhere")))
        case "fifo":
            return replace(plain, kind=tarfile.FIFOTYPE)
        case "device":
            return replace(plain, kind=tarfile.CHRTYPE, device=(1, 3))
        case "link":
            files = [one for one, of in known.items() if of == "file" and one != path]
            return replace(plain, kind=tarfile.LNKTYPE, target=source.choice(files)) if files else None
        case "removed":
            head, slash, tail = path.rpartition("/")
            return Entry(f"{head}{slash}.wh.{tail}") if path in below and path not in here and len(tail) < 250 else None
        case _:
            return Entry(f"{path}/.wh..wh..opq") if below.get(path) == "directory" else None


def named(stack: Sequence[Sequence[Entry]]) -> set[str]:
    """The directories that have an entry in a layer which no later entry removes."""
    found: set[str] = set()
    for entry in (entry for entries in stack for entry in entries):
        path = entry.name.removeprefix("./")
        head, _, tail = path.rpartition("/")
        if entry.kind == tarfile.DIRTYPE:
            found.add(path)
        elif tail == ".wh..wh..opq":
            found = {one for one in found if not one.startswith(f"{head}/")}
        else:
            gone = f"{head}/{tail.removeprefix('.wh.')}".strip("/")
            found = {one for one in found if one != gone and not one.startswith(f"{gone}/")}
    return found


def layout_of(source: random.Random, stack: Sequence[Sequence[Entry]], place: Path) -> Path:
    """An OCI layout of one image with the tag `made`."""
    packed = []
    for entries in stack:
        dialect = source.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))
        plain = tar(entries, dialect)
        if source.random() < 0.7:
            packed.append(
                Packed(
                    gzip.compress(plain, 1, mtime=0), digest_of(plain), "application/vnd.oci.image.layer.v1.tar+gzip"
                )
            )
        else:
            packed.append(Packed(plain, digest_of(plain)))
    layout = write_layout(place, packed)
    index = json.loads((layout / "index.json").read_text())
    index["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": "made"}
    (layout / "index.json").write_text(json.dumps(index))
    return layout


def found_by_sifmod(layout: Path, sif: Path) -> Listing | None:
    """None where it refuses the image."""
    if sifmod(["fetch", "-q", "-f", f"oci:{layout}", "-o", str(sif)]) != 0:
        return None
    return {p: one for p, one in listing(sif).items() if p not in OF_THE_TOOLS and p.split("/")[0] != METADATA}


def found_by_umoci(layout: Path, bundle: Path) -> Listing | str:
    """The reason where it refuses the image."""
    ended = run(("umoci", "unpack", "--image", f"{layout}:made", bundle))
    if ended.code != 0:
        return ended.stderr.strip().splitlines()[-1]
    return dict(items(os.fsencode(bundle / "rootfs")))


def explained(one: Difference, ours: Listing, theirs: Listing, entries: set[str], since: float) -> str:
    """Which line of docs/differences.md this is; "" for none."""
    mine, other = ours.get(one.path), theirs.get(one.path)
    if other is None and mine is not None and mine.kind in ("directory", "file") and mine.mtime == CREATED:
        return "directories that the runtime needs"
    if mine is None or other is None:
        return ""
    if (
        one.what == "xattrs"
        and " ".join(text for text in mine.xattrs.split() if not text.endswith("=")) == other.xattrs
    ):
        return "an attribute of no bytes"
    if mine.kind == other.kind == "directory":
        implied = (mine.mode, mine.owner, mine.mtime, mine.xattrs) == ("0755", "0:0", CREATED, "")
        if implied and one.path not in entries and one.what in ("mode", "owner", "mtime", "xattrs"):
            return "a directory that no layer names"
        if one.what == "mtime" and float(other.mtime) >= since:
            return "the time of a directory in which something was removed or made"
    return ""


LINK_INSIDE = "a hard link in the place of the directory above its target"


def _refused(ours: Listing | None, theirs: Listing | str, stack: Sequence[Sequence[Entry]]) -> str:
    """Which line of docs/differences.md this is where one refuses an image; "" for none."""
    if ours is None or not isinstance(theirs, str):
        return ""
    return LINK_INSIDE if " link: no such" in theirs and has_link_inside(stack) else ""


def has_link_inside(stack: Sequence[Sequence[Entry]]) -> bool:
    """Whether a hard link in these layers takes the place of the directory above its target, which umoci refuses."""
    links = [one for entries in stack for one in entries if one.kind == tarfile.LNKTYPE]
    return any(one.target.startswith(f"{one.name.removeprefix('./')}/") for one in links)


def _told(stack: Sequence[Sequence[Entry]]) -> Iterator[str]:
    for number, entries in enumerate(stack):
        yield from (f"  layer {number}: {entry.kind!r} {entry.name} {entry.target} {entry.mode:o}" for entry in entries)


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--images", type=int, default=300)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    counts, bad = Counter[str](), 0
    for number in range(given.images):
        with tempfile.TemporaryDirectory() as name:
            here, source, since = Path(name), random.Random(f"{given.seed}-{number}"), time.time() - 2
            stack = list(layers(source))
            layout = layout_of(source, stack, here / "layout")
            ours, theirs = found_by_sifmod(layout, here / "x.sif"), found_by_umoci(layout, here / "bundle")
            if ours is None or isinstance(theirs, str):
                why = "refused by both" if ours is None and isinstance(theirs, str) else _refused(ours, theirs, stack)
                counts[why or "refused by one"] += 1
                if not why:
                    bad += 1
                    print(f"== {number}: refused by one alone: {theirs}", *_told(stack), sep="\n", flush=True)
                continue
            counts["files"] += len(theirs)
            odd = []
            for one in differences(ours, theirs):
                why = explained(one, ours, theirs, named(stack), since)
                counts[why] += bool(why)
                odd += [] if why else [one]
            if odd:
                bad += 1
                print(f"== {number}", *odd[:6], *_told(stack), sep="\n", flush=True)
    print(f"{given.images} images, {dict(counts)}, {bad} with findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
