"""Mutated SIFs for the readers of headers, tables, documents and signatures: nothing but our own errors may come out.

    python tests/fuzz/sif.py [INPUTS] [SEED]

Prints what it has seen every 10 000 inputs, and ends with 1 at the first input that breaks a rule, which it keeps.
"""

import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from sifmod.errors import SifmodError
from sifmod.image.inspect.sif import describe_sif
from sifmod.image.sif.header import read_sif
from sifmod.image.sif.write import DataObject, partition_offset, write_header
from sifmod.image.signature.check import check, signatures
from support.images import Images
from support.signing import Signer
from support.squashfs_trees import build, from_directory

SLOWEST = 10.0  # seconds of processor time that an input may take
LARGEST = 512 << 10  # KiB that the process may have
DESCRIPTOR, TABLE = 585, 4096
CHECKED = 200  # one of so many inputs goes through gpgv, which is a process of its own
CONFIG = b'{"architecture": "amd64", "config": {"Env": ["A=b"], "Cmd": ["sh"], "Labels": {"x": "y"}}, "rootfs": {}}'


def converted(directory: Path) -> bytes:
    """One as a conversion makes it."""
    top = directory / "tree"
    (top / ".singularity.d" / "env").mkdir(parents=True)
    (top / ".singularity.d" / "runscript").write_text("#!/bin/sh\nexec true\n")
    (top / ".singularity.d" / "env" / "10-docker2singularity.sh").write_text('export A="${A:-"b"}"\n')
    objects = (
        DataObject("deffile", "", b"bootstrap: docker\nfrom: busybox\n"),
        DataObject("labels", "", b'{"org.label-schema.build-arch": "amd64"}'),
        DataObject("json", "oci-config.json", CONFIG),
        DataObject("json", "oci-manifest.json", b'{"schemaVersion": 2, "layers": []}'),
    )
    build(directory / "squashfs", lambda writer: from_directory(writer, top), "zstd:3")
    squashfs = (directory / "squashfs").read_bytes()
    path = directory / "converted.sif"
    with path.open("w+b") as file:
        file.seek(partition_offset(objects))
        file.write(squashfs)
        write_header(file, objects, len(squashfs), "amd64", 1735689600)
    return path.read_bytes()


def signed(directory: Path, keys: Signer) -> bytes:
    """One that apptainer has made and signed."""
    path = directory / "signed.sif"
    shutil.copyfile(Images().tiny_sif, path)
    return keys.sign(path).read_bytes()


def mutate(chance: random.Random, data: bytearray) -> None:
    """Change a few places: of the header, of a used descriptor, of the documents, of what stands at the end."""
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        low, high = chance.choice(
            ((32, 128), (TABLE, TABLE + 8 * DESCRIPTOR), (TABLE, TABLE + 8 * DESCRIPTOR), (32000, 40000), (-4000, 0))
        )
        low, high = (len(data) + low, len(data)) if low < 0 else (low, min(high, len(data)))
        at = chance.randrange(low, max(low + 1, high - 8))
        what = chance.randrange(6)
        if what == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        elif what == 2:
            width = chance.choice((2, 4, 8))
            number = chance.choice((0, 1, 1 << 15, (1 << 16) - 1, len(data), 1 << 31, 1 << 62))
            data[at : at + width] = number.to_bytes(8, "little")[:width]
        elif what == 3:
            data[at : at + 8] = data[(other := chance.randrange(len(data) - 8)) : other + 8]
        elif what == 4 and chance.random() < 0.05:
            del data[at:]
            return
        else:
            data[at : at + 4] = chance.randbytes(4)


def attempt(path: Path, keys: tuple[Path, ...]) -> str:
    """How one input ended; with keys, its signatures are checked."""
    try:
        info = read_sif(path)
        describe_sif(path)
        signatures(path)
        if keys:
            check(path, info, keys)
    except SifmodError as error:
        return " ".join(error.message.replace(str(path), "it").split()[:4])
    return "read"


def main(inputs: int, seed: int) -> int:
    """Run; return the exit status."""
    ends: Counter[str] = Counter()
    slowest = 0.0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        directory = Path(name)
        signer = Signer(directory / "k", "Ada")
        keys = (signer.public(),)
        images = (converted(directory), signed(directory, signer))
        path = directory / "input.sif"
        for number in range(inputs):
            chance = random.Random(seed + number)
            data = bytearray(chance.choice(images))
            mutate(chance, data)
            path.write_bytes(data)
            before = time.process_time()
            try:
                ends[attempt(path, () if number % CHECKED else keys)] += 1
            except Exception as error:
                broken = f"{type(error).__name__}: {error}"
            else:
                broken = ""
            took = time.process_time() - before
            slowest = max(slowest, took)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if broken or took > SLOWEST or memory > LARGEST:
                Path(f"sif-{seed + number}.bad").write_bytes(data)
                print(f"input {seed + number}: {broken or 'too much'}: {took:.1f} s, {memory} KiB")
                return 1
            if number % 10_000 == 9_999:
                seen = dict(ends.most_common(8))
                print(number + 1, f"slowest {slowest:.2f} s, memory {memory >> 10} MiB", seen, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, int(sys.argv[2]) if len(sys.argv) > 2 else 1))
