"""Blobs that several images of one run share."""

from pathlib import Path

import pytest

from sifmod.digest import sha256_file
from sifmod.errors import FetchError
from sifmod.image.oci.image import open_image
from sifmod.image.settings import DEFAULT, Settings, SharedBlobs
from sifmod.image.sources.source_kinds import parse
from support.fetching import Prefix, plan
from support.images import Images
from support.registry import Registry


def test_what_is_kept_is_verified_like_any_other(images: Images, registry: Registry, tmp_path: Path) -> None:
    """A kept layer is read in the place of the server's; a damaged one is told, and gone the next time."""
    tagged = registry.push_layout(images.tiny_layout("shared"), "kept-layer:1")
    (wanted,) = open_image(parse(tagged), "amd64", DEFAULT).manifest.layers
    digest = wanted.digest
    (tmp_path / "kept").mkdir()
    settings = Settings(shared=SharedBlobs(tmp_path / "kept", frozenset((digest,))))
    kept = tmp_path / "kept" / digest.replace(":", "-")
    made = Prefix(tmp_path / "one").fetch(plan(tagged), settings=settings)
    assert sha256_file(kept) == digest.removeprefix("sha256:")
    damaged = bytearray(kept.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    kept.unlink()
    kept.write_bytes(damaged)
    other = Prefix(tmp_path / "other")
    with pytest.raises(FetchError):
        other.fetch(plan(tagged), settings=settings)
    assert not kept.exists()
    assert not other.images()
    assert other.fetch(plan(tagged), settings=settings).sha256 == made.sha256
