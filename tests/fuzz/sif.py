"""Mutated SIFs for the readers of headers, tables, documents and signatures: nothing but our own errors may come out.

    python tests/fuzz/sif.py [INPUTS] [SEED]

Prints what it has seen every 10 000 inputs, and ends with 1 at the first input that breaks a rule, which it keeps.
"""

import random
import shutil
import sys
import tempfile
from pathlib import Path

from inputs import change, try_inputs

sys.path.insert(0, str(Path(__file__).parent.parent))

from sifmod.errors import SifmodError
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.convert.sif.write import DataObject, partition_offset, write_header
from sifmod.image.inspect.sif import describe_sif
from sifmod.image.signature.signatures import check, signatures
from support.images import Images
from support.signing import Signer
from support.squashfs_trees import build, from_directory

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
        low, high = (max(0, len(data) + low), len(data)) if low < 0 else (min(low, len(data) - 9), min(high, len(data)))
        change(chance, data, chance.randrange(low, max(low + 1, high - 8)))


def attempt(path: Path, keys: tuple[Path, ...]) -> str:
    """How one input ended; with keys, its signatures are checked."""
    try:
        info = read_sif(path)
        describe_sif(path)
        signatures(path, info)
        if keys:
            check(path, info, keys)
    except SifmodError as error:
        return " ".join(error.message.replace(str(path), "it").split()[:4])
    return "read"


def main(inputs: int, seed: int) -> int:
    """Run; return the exit status."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        directory = Path(name)
        signer = Signer(directory / "k", "Ada")
        keys = (signer.public(),)
        images = (converted(directory), signed(directory, signer))
        path = directory / "input.sif"
        return try_inputs(
            path, images, mutate, lambda n: attempt(path, () if n % CHECKED else keys), range(seed, seed + inputs)
        )


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, int(sys.argv[2]) if len(sys.argv) > 2 else 1))
