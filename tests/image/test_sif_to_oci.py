"""A SIF as an OCI image over a base: the new layer brings exactly what the base has not."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from sifmod.cli.main import run as sifmod
from sifmod.image.oci.manifest import parse_config, parse_manifest
from sifmod.image.sif_to_oci import Base, convert, layer_bytes
from support.conversion import content
from support.layer_stacks import MERGED
from support.oci import write_layout


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
    made = convert(whole, base, lambda _piece, _size: None)
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
    made = convert(base.path, base, lambda _piece, _size: None)
    assert gzip.decompress(b"".join(layer_bytes(made.content, 0))) == bytes(1024)
