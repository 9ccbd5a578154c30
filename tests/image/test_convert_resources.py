"""What a conversion takes of a machine: threads that decompress, and how often it reads what has arrived."""

import threading
from pathlib import Path

from sifmod.image.settings import Settings
from support.fetching import Prefix, plan
from support.layers import Entry, tar
from support.oci import write_layout
from support.one_image import OneImage

MB = 1_000_000


def read_from_files() -> int:
    """Bytes that this process has read so far, but for those from sockets."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_several_layers_are_decompressed_at_once(tmp_path: Path) -> None:
    layers = [tar([Entry(f"file-{n}", content=bytes([n]) * 10 * MB)]) for n in range(4)]
    layout = write_layout(tmp_path / "layout", layers)
    at_work: list[int] = []

    def count(_what: str, _done: int, _total: int | None) -> None:
        at_work.append(sum(thread.name == "decompress" for thread in threading.enumerate()))

    Prefix(tmp_path / "prefix").fetch(plan(f"oci:{layout}"), count, Settings(processors=3))
    assert max(at_work) == 3


def test_what_has_arrived_is_read_once(tmp_path: Path) -> None:
    """For its digest and for the SIF together; what was not compressed makes the SIF small."""
    layer = tar([Entry("zeros", content=bytes(64 * MB))])
    prefix = Prefix(tmp_path / "prefix")
    server = OneImage(write_layout(tmp_path / "layout", [layer]))
    server.start()
    before = read_from_files()
    artifact = prefix.fetch(plan(server.source), settings=Settings(insecure_registries=(server.address,)))
    read = read_from_files() - before
    server.stop()
    assert artifact.size < MB
    assert len(layer) < read < 1.2 * len(layer)
