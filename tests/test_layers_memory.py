"""The memory that the tree of an image takes: little for each file, and an error where it is more than there may be."""

import tarfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from sifmod.errors import FetchError, ImageError
from sifmod.image.budget import LEAST, Budget
from sifmod.image.layers.merge import merge_layers
from sifmod.image.settings import Settings
from sifmod.image.squashfs.compression import parse
from sifmod.image.squashfs.writer import SquashfsWriter
from support.fetching import Prefix, plan
from support.layers import EPOCH, Entry, Memory, Stored, directory, hard_link, tar
from support.oci import OCI, Packed, digest_of, write_layout

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
    assert "21.0 MB: after 256 entries of its layers" in caught.value.message
    assert "SIFMOD_MEMORY" in caught.value.hint
    merge_layers(blobs, Memory(), epoch=EPOCH, progress=NO_PROGRESS, budget=Budget(1, 1 << 40))


def test_an_image_that_is_too_large_for_the_sites_memory_leaves_nothing(tmp_path: Path) -> None:
    """Attributes take memory as names do, and more of it in fewer files."""
    entries = [directory("d")]
    value = "v" * 60_000
    entries += [Entry(f"d/{n}", pax=(("SCHILY.xattr.user.large", f"{n}{value}"),)) for n in range(5000)]
    layer = tar(entries)
    write_layout(tmp_path / "layout", (Packed(layer, digest_of(layer), f"{OCI}.layer.v1.tar"),))
    prefix = Prefix(tmp_path / "prefix")
    before = prefix.state()
    with pytest.raises(FetchError) as caught:
        prefix.fetch(plan(f"oci:{tmp_path / 'layout'}"), settings=Settings(memory=LEAST))
    assert "more files than fit into the memory that a conversion may take, 268.4 MB" in caught.value.message
    assert caught.value.exit_code == 10
    assert prefix.images() == []
    assert prefix.state() == before
