"""An OCI layout of 150 000 small files in 40 gzip layers: much like an environment of Python packages.

    python benchmarks/many_files.py DIRECTORY

The same bytes each time, with the same zlib.
"""

import gzip
import io
import random
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.oci import OCI, Packed, digest_of, write_layout

LAYERS, FILES, IN_DIRECTORY = 40, 150_000, 75
LARGEST = 60_000  # bytes
LETTERS = "abcdefghijklmnopqrstuvwxyz_"


def write(layout: Path) -> None:
    """Make the layout; `layout` must not exist."""
    write_layout(layout, tuple(packed(tar) for tar in tars()))


def packed(tar: bytes) -> Packed:
    return Packed(gzip.compress(tar, 6, mtime=0), digest_of(tar), f"{OCI}.layer.v1.tar+gzip")


def tars() -> Iterator[bytes]:
    """The layers, uncompressed: lines of words, in files whose sizes are spread as those of sources are."""
    chance = random.Random(1)
    words = ["".join(chance.choices(LETTERS, k=chance.randint(2, 12))) for _ in range(4000)]
    texts = [" ".join(chance.choices(words, k=2000)).encode() for _ in range(400)]
    number = 0
    for layer in range(LAYERS):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for index in range(FILES // LAYERS):
                directory = f"opt/env/lib/pkg{layer:02}_{index // IN_DIRECTORY:03}"
                if index % IN_DIRECTORY == 0:
                    tar.addfile(_info(directory, tarfile.DIRTYPE, 0o755, 0))
                size = min(int(chance.lognormvariate(8.0, 1.2)), LARGEST)
                text = chance.choice(texts)[chance.randrange(4000) :] + b"".join(chance.choice(texts) for _ in range(3))
                data = (b"# file %d\n" % number + text)[:size]
                name = f"{directory}/{chance.choice(words)}_{number}.py"
                tar.addfile(_info(name, tarfile.REGTYPE, 0o644, len(data)), io.BytesIO(data))
                number += 1
        yield stream.getvalue()


def _info(name: str, kind: bytes, mode: int, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size, info.mtime = kind, mode, size, 1_700_000_000
    return info


if __name__ == "__main__":
    write(Path(sys.argv[1]))
