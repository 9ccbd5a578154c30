"""An image that goes on where another ends: its file system is the base's and the addition, whatever made the base."""

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from sifmod.errors import FetchError, ImageError, SifmodError
from sifmod.image.convert.extend import Addition, extend
from sifmod.image.convert.sif.header import DESCRIPTOR, LABELS, read_sif
from sifmod.image.convert.sif.write import DataObject
from sifmod.image.disk import NoSpaceError
from support.extending import (
    EPOCH,
    apply,
    base_of,
    contents,
    rich_tree,
    sif_of,
    squashfs_in,
    taken_out,
    without_metadata,
)
from support.identity import call_on_small_disk
from support.squashfs_trees import mksquashfs, mounted, noise, snapshot

BASES = {
    "gzip": (),
    "gzip, small blocks": ("-b", "4096"),
    "gzip, large blocks, tails": ("-b", "1M", "-always-use-fragments"),
    "gzip with options": ("-comp", "gzip", "-Xcompression-level", "1", "-Xwindow-size", "10"),
    "xz": ("-comp", "xz"),
    "xz, small dictionary, filters": ("-comp", "xz", "-Xbcj", "x86", "-b", "64K", "-Xdict-size", "8K"),
    "lz4": ("-comp", "lz4", "-Xhc"),
    "zstd": ("-comp", "zstd", "-Xcompression-level", "19", "-b", "256K"),
    "nothing compressed": ("-noI", "-noD", "-noF", "-noX"),
    "no fragments": ("-no-fragments", "-no-exports"),
    "no duplicates": ("-no-duplicates", "-no-sparse", "-nopad"),
}


@pytest.fixture(scope="module")
def tree(needs_root: None, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001
    """What the bases have."""
    return rich_tree(tmp_path_factory.mktemp("rich") / "tree")


@pytest.fixture
def addition(tmp_path: Path) -> Addition:
    """Files of all sizes, a program, links and directories; something removed, replaced, and below a link."""
    here = tmp_path / "added"
    here.mkdir()
    for size in (0, 1, 4096, 5000, 131072, 140_000, 2_500_000):
        (here / f"{size}").write_bytes(noise(size, 2))
    (here / "holes").write_bytes(b"x" + bytes(5 << 20) + b"y")
    (here / "program").write_text("#!/bin/sh\necho works\n")
    (here / "program").chmod(0o700)
    (here / "link").symlink_to("../program")
    (here / "directory").mkdir()
    files = [(f"opt/new/{path.name}", path) for path in here.iterdir()]
    files += [("usr/lib/same", here / "5000"), ("noise131073", here / "1"), ("dangling", here / "4096")]
    files += [("fifo", here / "link"), ("usr/lib/deep", here / "directory"), ("many/0/1/2", here / "program")]
    return Addition(
        files=tuple(files),
        removed=(
            "many/a rather long name to fill the listing 7",
            "mixed",
            "noise1",
            "nothing/there",
            "absolute",
            "lib/deep",
        ),
        documents=(("opt/new/text", b"text"), ("opt/empty", b"")),
        env=(("GREETING", "it's $HOME `x`"),),
        labels=(("org.example", "yes"),),
        deffile="Bootstrap: docker\nFrom: example\n",
        epoch=EPOCH,
    )


@pytest.mark.parametrize("options", BASES)
def test_the_files_are_the_bases_and_the_additions(
    tree: Path, addition: Addition, tmp_path: Path, options: str
) -> None:
    base, new, expected = (
        base_of(tree, tmp_path / "base.sif", *BASES[options]),
        tmp_path / "new.sif",
        tmp_path / "expected",
    )
    before = base.read_bytes()
    assert extend(base, addition, new, 2) == ()
    assert base.read_bytes() == before
    contents(base, expected)
    apply(expected, addition)
    wanted = without_metadata(snapshot(expected))
    assert without_metadata(contents(new, tmp_path / "unpacked")) == wanted
    with mounted(taken_out(new, tmp_path / "new.squashfs"), tmp_path / "mounted") as top:
        found = without_metadata(snapshot(top, with_xattrs=False))
    # squashfuse numbers inodes as it likes
    assert {path: fact[:-2] for path, fact in found.items()} == {path: fact[:-2] for path, fact in wanted.items()}
    reader = squashfs_in(new)
    for path, stat, _ in reader.walk():
        if stat.kind == "f" and b"/" + path in wanted:
            data = b"".join(bytes(piece) if isinstance(piece, int) else piece for piece in reader.data(stat))
            assert hashlib.sha256(data).digest() == wanted[b"/" + path][7]
    assert reader.superblock.block_size == squashfs_in(base).superblock.block_size
    assert reader.superblock.compression == squashfs_in(base).superblock.compression


def test_each_document_of_an_image_says_what_was_added(tmp_path: Path) -> None:
    """Its files, what `inspect` reads of it, and the config that a push or an export takes say the same."""
    (tmp_path / "top").mkdir()
    config = {"Env": ["GREETING=no", "KEPT=1"], "Labels": {"of.base": "1", "of.both": "base"}, "Cmd": ["sh"]}
    squashfs = mksquashfs(tmp_path / "top", tmp_path / "base.squashfs")
    document = DataObject("json", "oci-config.json", json.dumps(config).encode())
    base, new = sif_of(squashfs, tmp_path / "base.sif", (document,)), tmp_path / "new.sif"
    env, labels = (("GREETING", "yes"), ("MINE", "a b")), (("of.both", "ours"), ("mine", "2"))
    extend(base, Addition(env=env, labels=labels, deffile="Bootstrap: docker\nFrom: x\n", epoch=EPOCH), new, 1)
    info, raw = read_sif(new), new.read_bytes()
    texts = {
        entry.name or entry.type: raw[entry.offset : entry.offset + entry.size]
        for entry in info.descriptors
        if entry.id != info.primary.id
    }
    attributes = json.loads(texts["inspect-metadata.json"])["data"]["attributes"]
    there = json.loads(texts["oci-config.json"])
    reader = squashfs_in(new)
    inside = {
        name: reader.head(stat, 1 << 16)
        for name in ("labels.json", "env/90-environment.sh")
        if (stat := reader.lookup(f".singularity.d/{name}"))
    }
    for said in (
        json.loads(inside["labels.json"]),
        json.loads(texts[LABELS]),
        attributes["labels"],
        there["Labels"],
    ):
        assert {name: said.get(name) for name, _ in labels} == dict(labels)
    script = inside["env/90-environment.sh"].decode()
    assert script.endswith("\nexport GREETING=yes\nexport MINE='a b'\n")
    assert attributes["environment"]["/.singularity.d/env/90-environment.sh"] == script.rstrip("\n")
    assert dict(one.split("=", 1) for one in there["Env"]) == {"KEPT": "1", **dict(env)}
    assert (there["Labels"]["of.base"], there["Cmd"]) == ("1", ["sh"])


def test_what_was_extended_is_extended_again(tree: Path, tmp_path: Path) -> None:
    """The second one takes all away that the first one brought, and a fragment of it that no file is in any more."""
    base = base_of(tree, tmp_path / "base.sif")
    extend(base, Addition(documents=(("opt/one/text", b"text"),), epoch=EPOCH), tmp_path / "one.sif", 2)
    extend(tmp_path / "one.sif", Addition(removed=("opt/one/text",), epoch=EPOCH), tmp_path / "two.sif", 2)
    assert without_metadata(contents(tmp_path / "two.sif", tmp_path / "two")) == contents(base, tmp_path / "base")
    assert squashfs_in(tmp_path / "two.sif").lookup(".singularity.d/bootstrap_history/Apptainer0")


def test_the_same_bytes_whatever_the_threads_and_the_order(tree: Path, addition: Addition, tmp_path: Path) -> None:
    base = base_of(tree, tmp_path / "base.sif")
    extend(base, addition, tmp_path / "one.sif", 1)
    (tmp_path / "elsewhere").mkdir()
    moved = Path(shutil.copy(base, tmp_path / "elsewhere/other.sif"))
    turned = replace(addition, files=addition.files[::-1], documents=addition.documents[::-1])
    extend(moved, turned, tmp_path / "elsewhere/two.sif", 4)
    assert (tmp_path / "one.sif").read_bytes() == (tmp_path / "elsewhere/two.sif").read_bytes()


def test_links_of_the_base_are_followed_inside_it(tmp_path: Path) -> None:
    """Absolute ones, and those that would lead out; the last part of a path is replaced itself."""
    top = tmp_path / "tree"
    (top / "usr/lib").mkdir(parents=True)
    for name, target in (("lib", "usr/lib"), ("all", "/usr"), ("up", "../../../../usr"), ("loop", "loop")):
        (top / name).symlink_to(target)
    (top / "usr/lib/old").write_text("old")
    (top / "usr/lib/link").symlink_to("old")
    base = base_of(top, tmp_path / "base.sif")
    names = ("lib/a", "all/lib/b", "up/lib/deep/c", "up/lib/link")
    documents = tuple((name, name.encode()) for name in names)
    extend(base, Addition(documents=documents, removed=("all/lib/old",), epoch=EPOCH), tmp_path / "new.sif", 1)
    found = contents(tmp_path / "new.sif", tmp_path / "unpacked")
    assert {path for path in found if path.startswith(b"/usr/lib/")} == {
        b"/usr/lib/a", b"/usr/lib/b", b"/usr/lib/deep", b"/usr/lib/deep/c", b"/usr/lib/link",
    }  # fmt: skip
    assert (tmp_path / "unpacked/usr/lib/link").read_text() == "up/lib/link"
    assert not Path("/usr/lib/deep").exists()


def refuse(base: Path, addition: Addition, to: Path, kind: type[SifmodError] = ImageError) -> str:
    """What is said; nothing is left."""
    before = sorted(to.parent.iterdir())
    with pytest.raises(kind) as caught:
        extend(base, addition, to, 2)
    assert sorted(to.parent.iterdir()) == before
    return caught.value.message


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("usr", "/usr cannot be added: the base has a directory, or a link to one, there"),
        ("lib", "/lib cannot be added: the base has a directory, or a link to one, there"),
        ("many/1", "/many/1 cannot be added: the base has a directory, or a link to one, there"),
        ("noise1/x", "/noise1/x cannot be added: a parent in the base is not a directory"),
        ("dangling/x", "/dangling/x cannot be added: a parent in the base is not a directory"),
        ("../x", "'../x' is not a path inside an image"),
        ("usr/../../x", "'usr/../../x' is not a path inside an image"),
        ("/etc/x", "'/etc/x' is not a path inside an image"),
        ("", "'' is not a path inside an image"),
        ("n" * 256, "a name of 256 bytes is too long for Linux"),
    ],
)
def test_what_cannot_be_added(small: Path, tmp_path: Path, path: str, message: str) -> None:
    one = tmp_path / "one"
    one.write_text("x")
    assert refuse(small, Addition(files=((path, one),)), tmp_path / "new.sif").startswith(message)
    assert refuse(small, Addition(documents=((path, b"x"),)), tmp_path / "new.sif").startswith(message)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base of a few files."""
    top = tmp_path_factory.mktemp("small") / "tree"
    (top / "usr/lib").mkdir(parents=True)
    (top / "many/1").mkdir(parents=True)
    (top / "noise1").write_bytes(b"x")
    (top / "lib").symlink_to("usr/lib")
    (top / "dangling").symlink_to("nowhere")
    return base_of(top, top.with_name("small.sif"))


def test_what_no_image_takes(small: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    new = tmp_path / "new.sif"
    assert refuse(small, Addition(files=(("x", tmp_path / "fifo"),)), new).endswith(
        "neither a file nor a directory nor a link"
    )
    missing = Addition(files=(("x", tmp_path / "missing"),))
    assert refuse(small, missing, new, FetchError) == f"cannot read {tmp_path}/missing: No such file or directory"
    directory = Addition(files=(("noise1", tmp_path),))
    assert refuse(small, directory, new).startswith("/noise1 cannot be added: a parent in the base")


def changed(base: Path, to: Path, at: int, data: bytes) -> Path:
    content = bytearray(base.read_bytes())
    content[at : at + len(data)] = data
    to.write_bytes(content)
    return to


def test_bases_that_cannot_be_extended(small: Path, tmp_path: Path) -> None:
    primary, new = read_sif(small).primary, tmp_path / "new.sif"
    row = small.read_bytes().index(primary.raw)
    extra = row + DESCRIPTOR.size - 384
    encrypted = changed(small, tmp_path / "encrypted.sif", extra, struct.pack("<i", 5))
    assert refuse(encrypted, Addition(), new) == f"{encrypted} is encrypted: nothing can be added to it"
    ext3 = changed(small, tmp_path / "ext3.sif", extra, struct.pack("<i", 2))
    assert refuse(ext3, Addition(), new) == f"the file system of {ext3} is not a squashfs: nothing can be added to it"
    lzo = changed(small, tmp_path / "lzo.sif", primary.offset + 20, struct.pack("<H", 3))
    assert "lzo" in refuse(lzo, Addition(), new)
    (tmp_path / "cut.sif").write_bytes(small.read_bytes()[:-5000])
    assert "is truncated" in refuse(tmp_path / "cut.sif", Addition(), new)
    assert "is not a SIF" in refuse(Path("/bin/busybox"), Addition(), new)
    assert "cannot read" in refuse(tmp_path / "none.sif", Addition(), new, FetchError)


@pytest.mark.parametrize(
    ("name", "at", "value", "message"),
    [
        ("large", -16, 0xFFFFFFF0, "is outside of its data"),
        ("large", -16, 95, "is outside of its data"),
        ("large", -12, 7, "fragment 7 of 2"),
        ("large", -8, 131072, "bytes at 131072 are outside of their fragment"),
        ("large", -4, 0xFFFFFFFF, "damaged squashfs"),
        ("large", 0, 1 << 25, "a block has the invalid size field 0x2000000"),
        ("large", 0, 131073, "a block of 131073 bytes, more than the block size 131072"),
        ("large", 0, 1 << 24, "a block has the invalid size field 0x1000000"),
        ("small", -8, 131070, "4 bytes at 131070 are outside of their fragment"),
        ("small", -12, 2, "fragment 2 of 2"),
    ],
)
def test_data_that_is_not_where_data_is(tmp_path: Path, name: str, at: int, value: int, message: str) -> None:
    """One number of an inode: start, fragment, place in that, size, and the word of the first block."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/large").write_bytes(noise(131072 + 5))
    (tmp_path / "tree/small").write_bytes(b"four")
    base = base_of(tmp_path / "tree", tmp_path / "base.sif", "-noI", "-always-use-fragments")
    stat, start = squashfs_in(base).lookup(name), read_sif(base).primary.offset
    assert stat is not None
    assert extend(base, Addition(), tmp_path / "new.sif", 1) == ()
    (tmp_path / "new.sif").unlink()
    place = start + stat.list_start + 2 + stat.list_offset + at
    bad = changed(base, tmp_path / "bad.sif", place, struct.pack("<I", value))
    assert message in refuse(bad, Addition(), tmp_path / "new.sif")


def test_more_files_than_fit_into_the_memory(small: Path, tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    with pytest.raises(ImageError, match="more files than fit in the memory"):
        extend(small, Addition(), tmp_path / "to/new.sif", 1, memory=1 << 20)
    assert list((tmp_path / "to").iterdir()) == []


def test_a_full_disk(tree: Path, tmp_path: Path) -> None:
    base = base_of(tree, tmp_path / "base.sif")
    disk = tmp_path / "disk"

    def attempt() -> tuple[str, list[str]]:
        try:
            extend(base, Addition(), disk / "new.sif", 2)
        except NoSpaceError as error:
            return error.message, os.listdir(disk)
        return "", os.listdir(disk)

    message, left = call_on_small_disk(disk, base.stat().st_size // 2, attempt)
    assert message.startswith(f"cannot write {disk}/new.sif: No space left on device")
    assert left == []


class _Touching(tuple[str, ...]):
    """Names that change the base when they are looked at."""

    base: Path

    def __iter__(self) -> Iterator[str]:
        with self.base.open("ab") as file:
            file.write(b"x")
        return super().__iter__()


def test_a_base_that_changes_meanwhile(small: Path, tmp_path: Path) -> None:
    removed = _Touching()
    removed.base = Path(shutil.copy(small, tmp_path / "base.sif"))
    assert "was changed while it was read" in refuse(removed.base, Addition(removed=removed), tmp_path / "new.sif")


EXTEND = """
import sys
from pathlib import Path
from sifmod.image.convert.extend import Addition, extend
base, new, ready = map(Path, sys.argv[1:])
ready.touch()
extend(base, Addition(documents=(("opt/x", b"x" * 3_000_000),), epoch=7), new, 2)
"""


def _differences(found: bytes, wanted: bytes) -> tuple[int, int, list[tuple[int, bytes, bytes]]]:
    """Both sizes, and where they differ, a hundred places at most: that was seen once, and what it was is not known."""
    pairs = enumerate(zip(found, wanted, strict=False))
    places = (place for place, (one, other) in pairs if one != other) if found != wanted else iter(())
    return len(found), len(wanted), [(at, found[at : at + 4], wanted[at : at + 4]) for at in islice(places, 100)]


def test_a_kill_leaves_nothing_or_all(tree: Path, tmp_path: Path) -> None:
    base, new = base_of(tree, tmp_path / "base.sif"), tmp_path / "to" / "new.sif"
    new.parent.mkdir()
    extend(base, Addition(documents=(("opt/x", b"x" * 3_000_000),), epoch=7), tmp_path / "whole.sif", 2)
    whole = (tmp_path / "whole.sif").read_bytes()
    ends = set()
    for wait in range(15):
        ready = tmp_path / f"ready{wait}"
        started = subprocess.Popen((sys.executable, "-c", EXTEND, base, new, ready))
        while not ready.exists():
            time.sleep(0.001)
        time.sleep(wait / 60)
        started.kill()
        started.wait()
        ends.add(new.exists())
        if new.exists() and new.read_bytes() != whole:
            kept = Path(tempfile.mkdtemp(prefix="sifmod-differs-"))  # seen twice, under load; why is not known
            for path in (new, tmp_path / "whole.sif"):
                shutil.copy(path, kept)
            assert _differences(new.read_bytes(), whole) == (len(whole), len(whole), []), f"see {kept}"
        new.unlink(missing_ok=True)
    assert False in ends
    extend(base, Addition(documents=(("opt/x", b"x" * 3_000_000),), epoch=7), new, 2)
    assert os.listdir(new.parent) == ["new.sif"]
