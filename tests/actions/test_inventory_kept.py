"""The inventory that is kept beside an image of the store."""

import json
import os
import shutil
from pathlib import Path

import pytest

from sifmod.actions.garbage import plan_gc
from sifmod.actions.gc import apply_gc
from sifmod.actions.inventory import inventory_at, inventory_of, kept_inventory, to_json
from sifmod.actions.verify import verify
from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.errors import FetchError, ImageError, ModuleError
from sifmod.image.inspect.package import Inventory, Package
from sifmod.tree.layout import Layout
from sifmod.tree.locking import lock
from sifmod.tree.receipt import Installation, live
from sifmod.tree.store import GC
from sifmod.tree.stored_image import entries
from support.disk_state import disk_state
from support.identity import call_as
from support.inside import sif
from support.tree import ALONE, LEASE, install, nobody, tree_of
from support.user import OrdinaryUser

TORCH = {"opt/venv/lib/python3.12/site-packages/torch-2.4.0.dist-info/METADATA": "Name: torch\nVersion: 2.4.0\n"}
PACKAGE = Package("python", "torch", "2.4.0", "/opt/venv")
TINY = "name: Tiny\nversion: '1.0'\nimage: {sources: [./image.sif]}\nwrappers: [sh]\n"


@pytest.fixture
def here(shared_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an installed module, whose image has one package."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(shared_tmp / "prefix"))
    monkeypatch.chdir(shared_tmp)
    sif(shared_tmp / "image.sif", {**TORCH, "bin/sh": "#!"})
    (shared_tmp / "Tiny-1.0.yaml").write_text(TINY)
    assert run(["install", "-q", "--skip-sanity-check", "Tiny-1.0.yaml"]) == 0
    return shared_tmp


def installed(here: Path) -> tuple[Layout, Installation]:
    layout = Layout(here / "prefix")
    found = live(layout, ModuleName("Tiny", "1.0"))
    assert found is not None
    return layout, found


def test_it_is_made_when_asked_for_and_goes_with_its_image(here: Path) -> None:
    layout, tiny = installed(here)
    sha256 = tiny.required_image.sha256
    place = layout.inventory(sha256)
    assert not place.exists()
    assert inventory_of(layout, sha256) == kept_inventory(layout, sha256) == Inventory((PACKAGE,))
    before = disk_state(layout.images)
    assert inventory_at(Path(tiny.root, tiny.required_image.filename)) == inventory_of(layout, sha256)
    assert disk_state(layout.images) == before  # it is read, and not written again
    assert [image.sha256 for image in entries(layout)] == [sha256]
    shutil.copytree(layout.prefix, here / "copy", symlinks=True)
    assert kept_inventory(Layout(here / "copy"), sha256) == Inventory((PACKAGE,))
    assert run(["uninstall", "Tiny"]) == 0
    apply_gc(tree_of(layout), plan_gc(layout, 0, ask_jobs=False, rollbacks=True), ALONE)
    assert list(layout.images.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        json.dumps({"format": 1, "sha256": "SHA", "system": "", "notes": [], "packages": []}),
        json.dumps({"format": 2, "sha256": "0" * 64, "system": "", "notes": [], "packages": []}),
        json.dumps({"format": 2, "sha256": "SHA", "system": "", "notes": [], "packages": [["exe", "a", "1", "/", ""]]}),
        json.dumps({"format": 2, "sha256": "SHA", "system": "", "notes": [], "packages": [["deb", "a", 1, "/", ""]]}),
        json.dumps({"format": 2, "sha256": "SHA", "system": 3, "notes": [], "packages": []}),
        "[" * 100_000,
    ],
)
def test_one_that_is_none_is_made_again(text: str, here: Path) -> None:
    layout, tiny = installed(here)
    place = layout.inventory(tiny.required_image.sha256)
    place.write_text(text.replace("SHA", tiny.required_image.sha256))
    assert kept_inventory(layout, tiny.required_image.sha256) is None
    assert verify(layout, tiny) == ()
    assert inventory_of(layout, tiny.required_image.sha256).packages == (PACKAGE,)
    assert kept_inventory(layout, tiny.required_image.sha256) == Inventory((PACKAGE,))


def test_verify_tells_of_one_that_lists_something_else(here: Path) -> None:
    layout, tiny = installed(here)
    inventory_of(layout, tiny.required_image.sha256)
    assert verify(layout, tiny) == ()
    place = layout.inventory(tiny.required_image.sha256)
    place.unlink()
    place.write_bytes(to_json(Inventory(()), tiny.required_image.sha256))
    (finding,) = verify(layout, tiny)
    assert (finding.kind, finding.path, finding.fault) == ("changed", str(place), True)


@pytest.mark.usefixtures("needs_root")
def test_who_may_not_write_reads_the_image(here: Path, ordinary_user: OrdinaryUser) -> None:
    layout, tiny = installed(here)
    before = disk_state(layout.prefix)
    found = call_as(ordinary_user.user, lambda: inventory_of(layout, tiny.required_image.sha256).packages)
    assert found == (PACKAGE,)
    assert disk_state(layout.prefix) == before


def test_a_gc_at_the_same_time_is_not_waited_for(here: Path) -> None:
    layout, tiny = installed(here)
    with lock(layout, GC, LEASE, nobody):
        assert inventory_of(layout, tiny.required_image.sha256).packages == (PACKAGE,)
    assert not layout.inventory(tiny.required_image.sha256).exists()


def test_as_open_as_its_image(here: Path) -> None:
    layout, tiny = installed(here)
    before = os.umask(0o077)
    try:
        inventory_of(layout, tiny.required_image.sha256)
    finally:
        os.umask(before)
    assert (
        layout.inventory(tiny.required_image.sha256).stat().st_mode & 0o777
        == Path(tiny.required_image.path).stat().st_mode & 0o777
    )


def test_an_image_that_is_gone_or_none(here: Path) -> None:
    layout = Layout(here / "prefix")
    with pytest.raises(ModuleError):
        inventory_of(layout, "0" * 64)
    before = disk_state(here)
    with pytest.raises(FetchError):
        inventory_at(here / "none.sif")
    assert disk_state(here) == before
    text = install(layout, "a")  # a few bytes, which are no SIF
    before = disk_state(here)
    with pytest.raises(ImageError):
        inventory_of(layout, text.required_image.sha256)
    assert disk_state(here / "prefix/images") == {
        path: state for path, state in before.items() if path.startswith(f"{here}/prefix/images")
    }
