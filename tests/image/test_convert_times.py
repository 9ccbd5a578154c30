"""The time of creation of a converted image: what a squashfs and a SIF can hold, whatever the config says."""

from pathlib import Path

import pytest

from sifmod.image.fetch import fetch_image
from sifmod.module.plan import ImagePlan, Runtime
from sifmod.tree.layout import Layout
from sifmod.tree.target_store import target_store
from support.command import run
from support.oci import Entry, layer, write_layout
from support.tree import tree_of


@pytest.mark.parametrize(
    ("created", "year"),
    [("0001-01-01T00:00:00Z", "1970"), ("2106-02-07T06:28:15Z", "2106"), ("9999-12-31T23:59:59Z", "2106")],
)
def test_far_away(tmp_path: Path, created: str, year: str) -> None:
    layout = write_layout(tmp_path / "layout", (layer((Entry("etc/x", b"x"),)),), created=created)
    target = tmp_path / "x.sif"
    image = ImagePlan("x.sif", (f"oci:{layout}",), (), None, None, "amd64", "copy", offline=True)
    with target_store(target, tree_of(Layout(target.parent))) as store:
        fetch_image(image, Runtime("apptainer", ""), store)
    assert f"{year}-" in run(("siftool", "info", "1", target)).ok().stdout
