"""Machines for which isal, rapidgzip and lz4 have no wheels (ppc64le): their imports are refused here."""

import gzip
import os
import sys
from pathlib import Path

import pytest

from support.command import Result, run
from support.images import Images
from support.oci import Entry

WITHOUT = "import sys; sys.modules.update(dict.fromkeys(('isal', 'rapidgzip', 'lz4'))); "
TYPED = "from sifmod.cli.main import run; sys.exit(run(sys.argv[1:]))"


def sifmod(*words: str | Path) -> Result:
    """A command without these packages; a module that is None cannot be imported."""
    return run((sys.executable, "-c", WITHOUT + TYPED, *words))


@pytest.mark.parametrize("compression", ["gzip:1", "zstd:1"])
def test_an_image_is_converted_and_exported_by_zlib(compression: str, tmp_path: Path, images: Images) -> None:
    """The same files as with isa-l; large enough for rapidgzip, had it been there."""
    text = os.urandom(1 << 20).hex() * 16
    layout = images.tiny_layout("without wheels", entries=(Entry("large.txt", text.encode()),))
    words = ("fetch", "-q", f"oci:{layout}", "--compression", compression, "--processors", "8", "-o")
    assert sifmod(*words, tmp_path / "without.sif").code == 0
    assert run((sys.executable, "-m", "sifmod", *words, tmp_path / "with.sif")).code == 0
    for name in ("without", "with"):
        assert sifmod("export", "-q", tmp_path / f"{name}.sif", "--to", "sandbox", "-o", tmp_path / name).code == 0
    there = {name: (tmp_path / name / "large.txt").read_text() for name in ("without", "with")}
    assert there == {"without": text, "with": text}
    assert sifmod("export", "-q", tmp_path / "without.sif", "--to", "oci-archive", "-o", tmp_path / "x.tar").code == 0


def test_a_damaged_layer_is_refused(tmp_path: Path) -> None:
    code = (
        "import io; from sifmod.image.convert.layers.decompress import uncompressed\n"
        "from sifmod.image.convert.layers.stream import Malformed\n"
        "data = open(sys.argv[1], 'rb').read()\n"
        "for bad in (data[:-9], data[:50] + b'x' + data[51:]):\n"
        "    try: list(uncompressed(io.BytesIO(bad), print))\n"
        "    except Malformed as error: print('refused:', error)\n"
        "print(len(b''.join(uncompressed(io.BytesIO(data + bytes(512)), lambda n: None))))"
    )
    packed = tmp_path / "layer.gz"
    packed.write_bytes(gzip.compress(os.urandom(5000)))
    said = run((sys.executable, "-c", WITHOUT + code, packed)).ok().stdout
    assert said.count("refused: is truncated, damaged or not supported: ") == 2
    assert said.endswith("\n5000\n")


def test_lz4_is_only_asked_for_by_lz4(tmp_path: Path, images: Images) -> None:
    words = ("fetch", "-q", f"oci:{images.tiny_layout()}", "--compression", "lz4", "-o")
    refused = sifmod(*words, tmp_path / "x.sif")
    assert refused.code == 10
    assert "needs the Python package lz4, which is not installed here" in refused.stderr
    assert "pip install 'sifmod[lz4]'" in refused.stderr
    assert not (tmp_path / "x.sif").exists()
    assert run((sys.executable, "-m", "sifmod", *words, tmp_path / "y.sif")).code == 0
    unread = sifmod("sbom", tmp_path / "y.sif")
    assert unread.code == 10
    assert "needs the Python package lz4" in unread.stderr
