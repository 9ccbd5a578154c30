"""Fuzz the layer reader and the merge: `python tests/fuzz/layers.py [SECONDS [SEED]]`, reproducible by its seed.

Layers in every dialect are cut, flipped and spliced; a changed header mostly gets its checksum again, so that what is
behind it is reached. Compressed ones are damaged behind their compression and in it. Anything but a merged root or an
ImageError is a finding, and so is memory beyond LIMIT.
"""

import random
import resource
import sys
import tarfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from sifmod.errors import ImageError
from sifmod.image.convert.inode import PLACE, Content
from sifmod.image.convert.layers.merge_layers import merge_layers
from sifmod.image.convert.squashfs.writer import DataWriter
from support.layers import EPOCH, Entry, Stored, directory, hard_link, packed, symlink, tar

LIMIT = 300 << 10  # KiB of peak resident memory
FIELDS = ((0, 100), (100, 8), (108, 8), (116, 8), (124, 12), (136, 12), (156, 1), (157, 100), (257, 8))
FIELDS_OF_SOME = ((329, 8), (337, 8), (345, 155), (386, 96), (482, 1), (483, 12))
TYPES = b"\x0001234567xgXLKSVDMs"
NUMBERS = (
    b"77777777777\0",
    b"\x80" + b"\xff" * 11,
    b"\xff" * 12,
    b"000000000000",
    b"-1\0",
    b"  1000  \0",
    b"0000001000\0\0",
    b"1_0\0",
)
NAMES = (
    *(b"a", b"b", b"a/b/c", b"../a", b"/", b".", b"\xff", b"x" * 100, b""),
    *(b"a/.wh.b", b".wh..wh..opq", b"a/.wh.", b".wh.a"),
)
WORDS = (
    *(b"path=", b"linkpath=", b"size=", b"mtime=-", b"uid=", b"=", b"\n", b"\0", b"9999999999", b"-", b" "),
    *(b"GNU.sparse.map=0,1,", b"GNU.sparse.major=1\n", b"GNU.sparse.realsize=99999999"),
    *(b"SCHILY.xattr.user.a=", b"LIBARCHIVE.xattr.user.b="),
)


class Nowhere(DataWriter):
    """A writer that forgets, as fast as it can."""

    def __init__(self) -> None:
        self.size = 0

    def add(self, data: bytes) -> Content:
        assert len(data) < 131072
        return Content(len(data))

    def small(self, data: bytes) -> bytes:
        return PLACE.pack(0, 0, self.add(data).size)

    def start(self) -> None:
        self.size = 0

    def write(self, chunk: bytes | memoryview) -> None:
        self.size += len(chunk)

    def hole(self, size: int) -> None:
        assert size > 0
        self.size += size

    def finish(self) -> Content:
        return Content(self.size)


def seeds() -> list[bytes]:
    """Small layers that between them use everything that the reader knows."""
    long = "d" * 70 + "/" + "f" * 150
    pax = (("mtime", "1.5"), ("SCHILY.xattr.user.a", "1"), ("LIBARCHIVE.xattr.user.b", "Zg"), ("uid", "7"))
    entries = [
        directory("a"),
        Entry("a/b", content=b"content"),
        Entry("a/big", content=b"x" * 5000),
        hard_link("c", "a/b"),
        symlink("s", "a"),
        Entry("s/x", content=b"1"),
        Entry("fifo", tarfile.FIFOTYPE),
        Entry("null", tarfile.CHRTYPE, device=(1, 3)),
        Entry(".wh.b"),
        Entry("a/.wh..wh..opq"),
    ]
    dialects = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
    layers = [tar(entries, dialect) for dialect in dialects]
    layers += [tar([Entry(long, content=b"y"), symlink("l", long)], dialect) for dialect in dialects[1:]]
    layers.append(tar([Entry("p", content=b"z", pax=pax), Entry("q", pax=pax)]))
    sparse = (
        ("GNU.sparse.major", "1"),
        ("GNU.sparse.minor", "0"),
        ("GNU.sparse.realsize", "4000"),
        ("GNU.sparse.name", "n"),
    )
    layers.append(tar([Entry("sparse", content=b"2\n0\n3\n3000\n4\n".ljust(512, b"\0") + b"abcdefg", pax=sparse)]))
    old = (("GNU.sparse.size", "400000"), ("GNU.sparse.map", "0,3,300000,4"))
    layers.append(tar([Entry("sparse", content=b"abcdefg", pax=old)]))
    block = bytearray(tar([Entry("S", b"S", content=b"abcdefg")], tarfile.GNU_FORMAT))
    block[386:434] = b"00000000000\00000000003\000000010000\000000000004\0"
    block[483:495] = b"00000020000\0"
    layers.append(bytes(mend(block, 0)))
    return [layer.rstrip(b"\0") + bytes(-len(layer.rstrip(b"\0")) % 512 + 1024) for layer in layers]


def mend(data: bytearray, at: int) -> bytearray:
    """Give the header at a place its checksum."""
    if at + 512 <= len(data):
        data[at + 148 : at + 156] = b" " * 8
        data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
    return data


def mutated(data: bytes, generator: random.Random) -> bytes:
    """One to four changes."""
    changed = bytearray(data)
    for _ in range(generator.randint(1, 4)):
        if not changed:
            break
        at = generator.randrange(len(changed))
        header = at & -512
        match generator.randrange(8):
            case 0:
                changed[at] ^= 1 << generator.randrange(8)
            case 1:
                del changed[generator.choice((at, header)) :]
            case 2:
                del changed[header : header + 512]
            case 3:
                changed[header:header] = changed[(start := generator.randrange(len(changed)) & -512) : start + 1024]
            case 4:
                word = generator.choice(WORDS)
                changed[at : at + len(word)] = word
            case 5:
                changed[at : at + generator.randrange(20)] = generator.randbytes(generator.randrange(20))
            case _:
                offset, length = generator.choice(FIELDS + FIELDS_OF_SOME)
                new = generator.choice((*NUMBERS, *NAMES, generator.randbytes(length)))
                if offset == 156:
                    new = bytes((generator.choice(TYPES),))
                if header + 512 <= len(changed):
                    changed[header + offset : header + offset + length] = new[:length].ljust(length, b"\0")
        if generator.random() < 0.8:
            mend(changed, header)
    return bytes(changed)


def blob(data: bytes, generator: random.Random) -> Stored:
    """Plain for the most part; compressed, and damaged, or damaged before."""
    how = generator.choices(("plain", "gzip", "zstd"), (90, 5, 5))[0]
    stored = packed(data, how)
    if how != "plain" and generator.random() < 0.7:
        broken = bytearray(stored.data)
        for _ in range(generator.randint(1, 3)):
            broken[generator.randrange(len(broken))] = generator.randrange(256)
        stored = Stored(bytes(broken[: generator.choice((len(broken), generator.randrange(len(broken))))]))
    return stored


def main(seconds: float, seed: int) -> int:
    """Fuzz for so long; the exit code."""
    layers = seeds()
    outcomes: Counter[str] = Counter()
    begin = time.monotonic()
    number = 0
    while time.monotonic() < begin + seconds:
        number += 1
        generator = random.Random(f"{seed} {number}")
        stack = [
            blob(mutated(generator.choice(layers), generator), generator) for _ in range(generator.choice((1, 1, 2)))
        ]
        try:
            merge_layers(stack, Nowhere(), epoch=EPOCH, progress=lambda _read, _total: None)
            outcomes["merged"] += 1
        except ImageError as error:
            outcomes["refused"] += 1
            assert "\n" not in error.message
            assert len(error.message) < 1000
        except BaseException:
            print(f"finding: seed {seed}, input {number}", flush=True)
            raise
        if number % 1000 == 0 and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > LIMIT:
            print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss} KiB at seed {seed}, input {number}")
            return 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{number} stacks in {time.monotonic() - begin:.0f} s: {dict(outcomes)}; peak memory {peak} MiB; no finding")
    return 0


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(float(given[0]) if given else 600.0, int(given[1]) if len(given) > 1 else 0))
