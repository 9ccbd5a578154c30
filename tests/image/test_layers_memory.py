"""The memory that the tree of an image takes: little for each file, and an error where it is more than there may be."""

import os
import tarfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from sifmod.errors import ImageError
from sifmod.image.convert.budget import LEAST, Budget
from sifmod.image.convert.layers.merge_layers import merge_layers
from sifmod.image.convert.squashfs.compression import parse
from sifmod.image.convert.squashfs.writer import SquashfsWriter
from sifmod.system import size_text
from support.command import SIFMOD, run
from support.fetching import Prefix
from support.layers import EPOCH, Entry, Memory, Stored, hard_link, tar
from support.oci import write_layout

FILES, IN_DIRECTORY = 10_000, 50
NO_PROGRESS = lambda _read, _total: None  # noqa: E731


def many(files: int) -> bytes:
    """Files of one byte, those of a directory with the same time."""
    entries = (
        Entry(f"lib/package{n // IN_DIRECTORY:04}/module_{n}.py", content=b"x", mtime=n // IN_DIRECTORY)
        for n in range(files)
    )
    return tar(entries, tarfile.USTAR_FORMAT)


def test_a_file_takes_few_bytes(tmp_path: Path) -> None:
    layer = Stored(many(FILES))
    with (tmp_path / "image").open("w+b") as file, SquashfsWriter(file, 0, parse("lz4"), 1, 0) as writer:
        tracemalloc.start()
        merged = merge_layers([layer], writer, epoch=EPOCH, progress=NO_PROGRESS)
        writer.flush()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        writer.close(merged.root)
    assert held / FILES < 240


@pytest.mark.parametrize(
    "layers",
    (
        (many(2000),),
        (many(10), many(2000)),
        (tar([Entry("target")]), tar([hard_link("link", "target")]), many(2000)),
    ),
    ids=("one layer", "the upper one", "one by one"),
)
def test_a_tree_that_outgrows_its_memory_is_an_error(layers: Sequence[bytes]) -> None:
    blobs = [Stored(layer) for layer in layers]
    with pytest.raises(ImageError) as caught:
        merge_layers(blobs, Memory(), epoch=EPOCH, progress=NO_PROGRESS, budget=Budget(1, 20 << 20))
    assert "21.0 MB: after about 256 of its entries" in caught.value.message
    assert "SIFMOD_MEMORY" in caught.value.hint
    merge_layers(blobs, Memory(), epoch=EPOCH, progress=NO_PROGRESS, budget=Budget(1, 1 << 40))


def test_an_image_that_is_too_large_for_the_sites_memory_leaves_nothing(tmp_path: Path) -> None:
    """Attributes take memory as names do, and more of it in fewer files."""
    value = "v" * 60_000
    layer = tar(Entry(f"{n}", pax=(("SCHILY.xattr.user.large", f"{n}{value}"),)) for n in range(5000))
    layout = write_layout(tmp_path / "layout", [layer])
    prefix = Prefix(tmp_path / "prefix")
    before = prefix.state()
    env = {**os.environ, "SIFMOD_PREFIX": str(prefix.path), "SIFMOD_MEMORY": "256MB"}
    done = run((*SIFMOD, "fetch", "-q", f"oci:{layout}"), env=env)
    assert (done.code, prefix.images()) == (10, [])
    assert f"more files than fit in the memory limit, {size_text(LEAST)}" in done.stderr
    assert prefix.state() == before
