"""A SIF as an OCI image over a base: the new layer brings exactly what the base has not."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from sifmod.cli.main import run as sifmod
from sifmod.config import limits
from sifmod.config.limits import Limits
from sifmod.errors import ImageError
from sifmod.image.convert.extend import Addition, extend
from sifmod.image.convert.squashfs import reader
from sifmod.image.oci.manifest import parse_config, parse_manifest
from sifmod.image.sif_to_oci import Base, convert, layer_bytes
from support.conversion import content
from support.inside import sif
from support.layer_stacks import MERGED
from support.oci import Entry, layer, write_layout
from support.runtime import RUNTIME
from support.tars import extended, header


def sif_of(layout: Path) -> Path:
    """Converted, beside the layout."""
    sif = layout.with_suffix(".sif")
    assert sifmod(["fetch", "-q", "-f", f"oci:{layout}", "-o", str(sif)]) == 0
    return sif


def base_of(layout: Path) -> Base:
    """What a registry would say of the only image in the layout."""

    def blob(descriptor: dict[str, str]) -> bytes:
        return (layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()

    raw = blob(json.loads((layout / "index.json").read_text())["manifests"][0])
    manifest = parse_manifest(raw, "base")
    config = parse_config(blob(json.loads(raw)["config"]), "base")
    return Base(sif_of(layout), config, manifest.layers)


@pytest.mark.parametrize("name", ["whiteouts", "replacements", "hard-links", "symlinked-paths"])
def test_base_and_layer_give_the_files_of_the_sif(name: str, tmp_path: Path) -> None:
    lower, *upper = MERGED[name]()
    base = base_of(write_layout(tmp_path / "base", (lower,)))
    whole = sif_of(write_layout(tmp_path / "whole", (lower, *upper)))
    made = convert(whole, base, RUNTIME.plan, lambda _piece, _size: None)
    blob = b"".join(layer_bytes(made.content, 0))
    assert (f"sha256:{hashlib.sha256(blob).hexdigest()}", len(blob)) == (made.layer.digest, made.layer.size)
    assert b"".join(layer_bytes(made.content, len(blob) - 7)) == blob[-7:]
    layout = tmp_path / "base"
    for raw in (blob, made.config, made.manifest):
        (layout / "blobs/sha256" / hashlib.sha256(raw).hexdigest()).write_bytes(raw)
    digest = f"sha256:{hashlib.sha256(made.manifest).hexdigest()}"
    index = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": len(made.manifest)}
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [index]}))
    assert content(sif_of(layout)) == content(whole)


def test_nothing_new_is_an_empty_layer(tmp_path: Path) -> None:
    base = base_of(write_layout(tmp_path / "base", MERGED["hard-links"]()[:1]))
    made = convert(base.path, base, RUNTIME.plan, lambda _piece, _size: None)
    assert gzip.decompress(b"".join(layer_bytes(made.content, 0))) == bytes(1024)


def no_piece(_piece: bytes, _size: int) -> None: ...


@pytest.mark.parametrize("data", [bytes(8 << 20), b"x" * (8 << 20)], ids=["hole", "blocks"])
def test_a_sif_whose_files_have_no_end(data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """300 kB describe a hole of 2 TB, and files can share blocks: an export took hours."""
    path = sif(tmp_path / "x.sif", {"a": data})
    monkeypatch.setattr(reader, "_FREE", 1 << 20)
    monkeypatch.setattr(limits, "_current", Limits(layer_ratio=1 << 20))
    convert(path, None, RUNTIME.plan, no_piece)
    monkeypatch.setattr(limits, "_current", Limits(layer_ratio=3))
    with pytest.raises(ImageError, match=r"files have over 3 times its size \(`limits: {layer_ratio: N}` in"):
        convert(path, None, RUNTIME.plan, no_piece)


@pytest.mark.parametrize("name", ["opt/.wh.data", "opt/.wh..wh..opq", ".wh.x/y"])
def test_a_name_that_would_remove_another_file_is_refused(name: str, tmp_path: Path) -> None:
    base = base_of(write_layout(tmp_path / "base", MERGED["hard-links"]()[:1]))
    extend(base.path, Addition(documents=((name, b"text"),)), tmp_path / "new.sif", 2)
    for below in (None, base):
        with pytest.raises(ImageError, match=r"\.wh\.\S* cannot be in an OCI image: a name that begins with \.wh\."):
            convert(tmp_path / "new.sif", below, RUNTIME.plan, no_piece)


def test_a_whiteout_that_would_be_too_long_is_none(tmp_path: Path) -> None:
    """Then the layer has everything, over no base."""
    names = ("o/" + "a" * 251, "o/" + "b" * 252)
    base = base_of(write_layout(tmp_path / "base", (layer([Entry(name, b"x") for name in names]),)))
    for number, name in enumerate(names):
        extend(base.path, Addition(removed=(name,)), tmp_path / f"{number}.sif", 2)
        made = convert(tmp_path / f"{number}.sif", base, RUNTIME.plan, no_piece)
        assert len(parse_manifest(made.manifest, "made").layers) == 2 - number
        found = gzip.decompress(b"".join(layer_bytes(made.content, 0)))
        assert (b".wh." in found) == (number == 0)


def test_an_attribute_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    header_of_pax = extended(b"30 SCHILY.xattr.user.n\xff=value\n", b"x")
    sif = sif_of(write_layout(tmp_path / "odd", (header_of_pax + header(name=b"file"),)))
    with pytest.raises(ImageError, match="/file cannot be in an OCI image: the name of one of its attributes"):
        convert(sif, None, RUNTIME.plan, no_piece)
