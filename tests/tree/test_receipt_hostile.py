"""Receipts that another member of the group has written: one that is not what it must be here is none."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sifmod.module.image_origin import NO_ORIGIN
from sifmod.tree.layout import RECEIPT, Layout
from sifmod.tree.receipt import live, read_receipt
from support.disk_state import disk_state
from support.tree import MODULE, install

OUT = "../../../../../home/ann/.bashrc"
IMAGE = {"sha256": "0" * 64, "size": 1, "source": "", "arch": "amd64", "link": "reference", "filename": "x.sif"}
FULL = IMAGE | {"origin": NO_ORIGIN.as_data()}
WRONG: dict[str, Any] = {
    "stub outside": ("stubs", 0, 0, OUT),
    "absolute stub": ("stubs", 0, 0, "/etc/profile"),
    "stub of another module": ("stubs", 0, 0, "Other/1.0.lua"),
    "stub that is no text": ("stubs", 0, 0, 3),
    "stub without a digest": ("stubs", 0, 1, "x"),
    "file outside": ("files", 0, 0, OUT),
    "file in the middle outside": ("files", 0, 0, "bin/../../x"),
    "absolute file": ("files", 0, 0, "/etc/passwd"),
    "file of no name": ("files", 0, 0, ""),
    "mode that is a text": ("files", 0, 2, "rw"),
    "mode that is true": ("files", 0, 2, True),
    "files that are a number": ("files", 7),
    "link outside": ("links", 0, 0, OUT),
    "link to half a surrogate pair": ("links", 0, 1, "\ud800"),
    "image's name outside": ("image", "filename", OUT),
    "image's name in a directory": ("image", "filename", "bin/x.sif"),
    "digest that is a path": ("image", "sha256", "../" * 22),
    "size that is a text": ("image", "size", "7"),
    "size below 0": ("image", "size", -1),
    "size beyond any disk": ("image", "size", 1 << 70),
    "image that is a list": ("image", []),
    "source with a NUL": ("image", "source", "a\0b"),
    "another name": ("name", "Other"),
    "another version": ("version", "2.0"),
    "another generation": ("generation", 2),
    "version that is a number": ("version", 1.0),
    "easyconfig that is a list": ("provenance", "easyconfig", []),
    "variant that is a number": ("provenance", "variant", 1),
    "variant that is nothing much": ("provenance", "variant", 0),
    "input whose digest is false": ("provenance", "inputs", [["/x", False]]),
    "input whose digest is a number": ("provenance", "inputs", [["/x", 1]]),
    "facts that are one text": ("provenance", "facts", "abc"),
    "field that is not known": ("provenance", "more", 1),
    "asked that is not known": ("provenance", "asked", "more", 1),
    "asked by a number": ("provenance", "asked", "name", 3),
    "asked option that is a list": ("provenance", "asked", "options", [["--site", ["x"]]]),
    "check that is a number": ("provenance", "asked", "checked", 1),
    "choice that is a text": ("provenance", "image", "abc"),
    "kept that is a text": ("provenance", "image", "kept", "no"),
    "state without a path": ("provenance", "image", "states", [["x"]]),
    "directory that is a number": ("provenance", "image", "directories", [1]),
    "commands that are a number": ("provenance", "image", "commands", ["x", 1]),
    "image's path outside": ("image", FULL | {"path": OUT}),
    "image's path that is a number": ("image", FULL | {"path": 1}),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG.keys())
def test_a_receipt_with_a_wrong_value_is_none(tmp_path: Path, change: tuple[Any, ...]) -> None:
    layout = Layout(tmp_path)
    root = Path(install(layout, "a").root)
    fields = json.loads((root / RECEIPT).read_text())
    *where, last, value = change
    place = fields
    for key in where:
        place = place[key]
    place[last] = value
    plant(root, json.dumps(fields).encode())
    before = disk_state(tmp_path)
    assert read_receipt(root) is None
    assert live(layout, MODULE) is None
    assert disk_state(tmp_path) == before


def test_a_receipt_deep_in_brackets_is_none(tmp_path: Path) -> None:
    root = Path(install(Layout(tmp_path), "a").root)
    plant(root, b"[" * 100_000)
    assert read_receipt(root) is None


def test_a_receipt_that_is_a_link_a_pipe_or_endless_is_none(tmp_path: Path) -> None:
    root = Path(install(Layout(tmp_path / "prefix"), "a").root)
    good = tmp_path / "good.json"
    good.write_bytes((root / RECEIPT).read_bytes())
    (root / RECEIPT).unlink()
    (root / RECEIPT).symlink_to(good)
    assert read_receipt(root) is None
    (root / RECEIPT).unlink()
    os.mkfifo(root / RECEIPT)
    assert read_receipt(root) is None
    (root / RECEIPT).unlink()
    with (root / RECEIPT).open("wb") as file:
        file.truncate(1 << 40)
    assert read_receipt(root) is None


def test_a_receipt_counts_only_where_it_was_written(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    one, two = install(layout, "a"), install(layout, "b")
    plant(Path(two.root), Path(one.root, RECEIPT).read_bytes())
    assert read_receipt(Path(one.root)) == one
    assert read_receipt(Path(two.root)) is None


def test_an_image_of_the_store_is_where_this_store_has_it(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    installation = install(layout, "a")
    root = Path(installation.root)
    text = (root / RECEIPT).read_text()
    plant(root, text.replace(installation.required_image.path, "/home/ann/secret").encode())
    assert read_receipt(root) == installation


def plant(root: Path, data: bytes) -> None:
    """Another receipt in its place."""
    (root / RECEIPT).unlink()
    (root / RECEIPT).write_bytes(data)
