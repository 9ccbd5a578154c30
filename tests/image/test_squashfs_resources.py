"""What the squashfs writer takes: bounded memory, a full disk told, no thread left behind."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sifmod.image.convert.inode import Directory, File
from sifmod.image.convert.squashfs.writer import DataWriter
from support.identity import call_on_small_disk
from support.squashfs_trees import (
    FOLDER,
    PLAIN,
    build,
    file,
    listed,
    noise,
    unpacked,
)


def test_data_of_files_that_did_not_stay_does_no_harm(tmp_path: Path) -> None:
    def make(writer: DataWriter) -> Directory:
        for i in range(100):
            last = file(writer, noise(100_000, i))
        return Directory(*FOLDER, {b"x": last})

    build(tmp_path / "image", make)
    assert (unpacked(tmp_path / "image", tmp_path / "out") / "x").read_bytes() == noise(100_000, 99)


def peak(make: str, image: Path, processors: int) -> int:
    """Most memory in MiB of a process of its own that builds what the function `make` gives."""
    program = f"""
import sys
from pathlib import Path
from sifmod.image.convert.inode import Directory, File
from support.squashfs_trees import FOLDER, PLAIN, build, noise
{make}
build(Path(sys.argv[1]), make, processors={processors})
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line))
"""
    command = [sys.executable, "-c", program, str(image)]
    search = os.pathsep.join((str(Path(__file__).parents[1]), *sys.path))
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": search})
    return int(done.stdout) >> 10


def test_300000_files_in_bounded_memory(tmp_path: Path) -> None:
    make = """
def make(writer):
    folders = {}
    for d in range(3000):
        files = {b"%d" % i: File(*PLAIN, writer.add(b"%d" % (d * i) * 1000)) for i in range(100)}
        folders[b"%d" % d] = Directory(*FOLDER, files)
    return Directory(*FOLDER, folders)
"""
    image = tmp_path / "image"
    assert peak(make, image, 2) < 200
    assert sum(line.startswith("-") for line in listed(image)) == 300_000


@pytest.mark.parametrize("processors", (1, 4, 16))
def test_memory_does_not_grow_with_a_file(tmp_path: Path, processors: int) -> None:
    make = """
def make(writer):
    block = noise(1 << 20)
    writer.start()
    for i in range(500):
        writer.write(bytes(memoryview(block)))
    return Directory(*FOLDER, {b"x": File(*PLAIN, writer.finish())})
"""
    assert peak(make, tmp_path / "image", processors) < 180


def test_a_full_disk_is_told_and_threads_end(tmp_path: Path) -> None:
    def attempt() -> tuple[str, list[str]]:
        def make(writer: DataWriter) -> Directory:
            writer.start()
            for i in range(100):
                writer.write(noise(1 << 20, i))
            return Directory(*FOLDER, {b"x": File(*PLAIN, writer.finish())})

        try:
            build(tmp_path / "small" / "image", make, processors=3)
        except OSError as error:
            return str(error.strerror), [t.name for t in threading.enumerate() if t.daemon]
        return "written", []

    assert call_on_small_disk(tmp_path / "small", 20 << 20, attempt) == ("No space left on device", [])


@pytest.mark.parametrize("most", (1, 1000, 100_001))
def test_the_rest_of_a_short_write_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """The kernel may write less than it was given: here at most so many bytes more than half of it."""
    write, sizes = os.pwrite, [0, 1, 5000, 131072, 400_001]

    def short(descriptor: int, data: bytes | memoryview, offset: int) -> int:
        return write(descriptor, data[: len(data) // 2 + most], offset)

    def make(writer: DataWriter) -> Directory:
        return Directory(*FOLDER, {b"%d" % size: file(writer, noise(size)) for size in sizes})

    build(tmp_path / "expected", make)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", lambda descriptor, pieces, at: short(descriptor, b"".join(pieces), at))
        patched.setattr(os, "pwrite", short)
        build(tmp_path / "image", make)
    assert (tmp_path / "image").read_bytes() == (tmp_path / "expected").read_bytes()
    out = unpacked(tmp_path / "image", tmp_path / "out")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {str(size): noise(size) for size in sizes}


def test_an_exception_stops_the_threads(tmp_path: Path) -> None:
    before = threading.active_count()

    def fail(writer: DataWriter) -> Directory:
        writer.start()
        for i in range(20):
            writer.write(noise(1 << 20, i))
        raise KeyError

    with pytest.raises(KeyError):
        build(tmp_path / "image", fail, "zstd:19", 4)
    assert threading.active_count() == before
    assert (tmp_path / "image").read_bytes()[:4] in (b"", bytes(4))
