import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sifmod.config.input import Input
from sifmod.config.name import ModuleName
from sifmod.tree.layout import RECEIPT, Layout
from sifmod.tree.provenance import CommandLine, FileState, FoundCommands, FoundMpi, ImageChoice, Provenance
from sifmod.tree.receipt import (
    FileRecord,
    ImageRecord,
    Installation,
    LinkRecord,
    from_json,
    installations,
    known_modules,
    live,
    live_modules,
    live_number,
    numbers,
    read_receipt,
    to_json,
)
from support.tree import MODULE, install

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
NAME = st.from_regex("[A-Za-z0-9][a-z._+-]{0,9}", fullmatch=True).filter(lambda text: ".." not in text)
PATH = st.lists(NAME, min_size=1).map("/".join)
DIGEST = st.from_regex("[0-9a-f]{64}", fullmatch=True)
PAIRS = st.lists(st.tuples(TEXT, TEXT)).map(tuple)
INPUTS = st.lists(st.builds(Input, TEXT, st.none() | DIGEST)).map(tuple)
FILES = st.lists(st.builds(FileRecord, PATH, DIGEST, st.integers(0, 0o777))).map(tuple)
ASKED = st.builds(CommandLine, TEXT, PAIRS, st.booleans())
CHOICE = st.builds(
    ImageChoice,
    TEXT,
    st.booleans(),
    st.lists(st.builds(FileState, TEXT, TEXT)).map(tuple),
    st.lists(TEXT).map(tuple),
    st.none() | st.builds(FoundCommands, TEXT, TEXT),
    st.none() | st.builds(FoundMpi, TEXT, st.lists(TEXT).map(tuple), TEXT),
)
PROVENANCE = st.builds(Provenance, TEXT, TEXT, TEXT, st.none() | TEXT, TEXT, TEXT, INPUTS, PAIRS, ASKED, CHOICE, TEXT)
REFERENCED = st.builds(
    ImageRecord,
    DIGEST,
    st.integers(0, 1 << 40),
    TEXT,
    TEXT,
    st.just("reference"),
    NAME.map("{}.sif".format),
    PATH | PATH.map("/elsewhere/{}".format) | PATH.map("/apps/{}".format),
)
INSTALLATIONS = st.builds(
    lambda name, version, number, made, image, files, links, modules: Installation(
        ModuleName(name, version),
        number,
        f"/apps/software/{name}/.generations/{version}/{number}",
        made,
        None if modules else image if image.path.startswith("/") else image._replace(path=f"/apps/{image.path}"),
        files,
        links,
        tuple(FileRecord(f"{name}/{version}{end}", image.sha256, 0o644) for end in ("", ".lua")),
        modules=modules,
    ),
    NAME,
    NAME,
    st.integers(1, 10**9),
    PROVENANCE,
    REFERENCED,
    FILES,
    st.lists(st.builds(LinkRecord, PATH, TEXT)).map(tuple),
    st.just(()) | st.lists(TEXT).map(tuple),
)


@given(INSTALLATIONS)
@settings(max_examples=30)
def test_a_receipt_gives_back_what_was_put_in(installation: Installation) -> None:
    assert from_json(to_json(installation), installation.root) == installation
    assert to_json(from_json(to_json(installation), installation.root)) == to_json(installation)


def test_what_is_installed_is_what_was_recorded(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    first = install(layout, "a")
    second = install(layout, "b")
    assert live(layout, MODULE) == second
    assert live_number(layout, MODULE) == 2
    found = tuple(read_receipt(layout.generation(MODULE, number)) for number in numbers(layout, MODULE))
    assert found == (first, second)
    assert numbers(layout, MODULE) == (1, 2)
    assert {file.path for file in second.files} == {
        "modulefile.lua",
        "bin/python",
        "easyconfig.yaml",
        "share/modules/Tiny/1.0.lua",
    }


def test_nothing_is_installed_in_a_prefix_that_does_not_exist(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "none")
    assert live(layout, MODULE) is None
    assert installations(layout) == ()
    assert known_modules(layout) == ()
    assert not layout.prefix.exists()


def test_installations_are_sorted_and_each_is_seen_once(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    modules = [ModuleName(name, version) for name in ("B", "a", "A") for version in ("2", "1.0-x")]
    for module in modules:
        install(layout, "x", module)
        install(layout, "y", module)
    assert [found.module for found in installations(layout)] == sorted(modules)
    assert live_modules(layout) == tuple((module, 2) for module in sorted(modules))
    assert known_modules(layout) == tuple(sorted(modules))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"format": 99}', '{"format": 1}', '{"format": 1, "name": "x", "provenance": []}']
)
def test_a_receipt_that_cannot_be_read_is_none_and_hides_no_other_module(tmp_path: Path, text: str) -> None:
    layout = Layout(tmp_path)
    other = install(layout, "a", ModuleName("Other", "1"))
    root = Path(install(layout, "a").root)
    (root / RECEIPT).unlink()
    assert read_receipt(root) is None
    (root / RECEIPT).write_text(text)
    assert read_receipt(root) is None
    assert live(layout, MODULE) is None
    assert live_number(layout, MODULE) == 1
    assert installations(layout) == (other,)


@pytest.mark.parametrize("target", ["../x", ".generations/2.0/1", ".generations/1.0/x", "/tmp", ".generations/1.0/1/"])
def test_a_link_that_is_not_a_switch_is_no_module(tmp_path: Path, target: str) -> None:
    layout = Layout(tmp_path)
    install(layout, "a")
    layout.switch(MODULE).unlink()
    layout.switch(MODULE).symlink_to(target)
    assert live_number(layout, MODULE) is None
    assert installations(layout) == ()


def test_stray_files_are_no_modules(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    there = install(layout, "a")
    (layout.software / "file").write_text("")
    (layout.software / "Tiny" / "directory").mkdir()
    (layout.software / "Tiny" / "file").write_text("")
    (layout.generations(MODULE) / "notes.txt").write_text("")
    assert installations(layout) == (there,)
    assert numbers(layout, MODULE) == (1,)


def test_listing_imports_only_what_is_cheap() -> None:
    code = "import sys, sifmod.actions.list; print(*sys.modules)"
    loaded = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True).stdout.split()
    heavy = {"pydantic", "yaml", "jinja2", "requests", "click", "filelock", "subprocess", "threading"}
    assert not heavy & set(loaded)


def test_a_receipt_of_another_format_is_none_that_can_be_read(tmp_path: Path) -> None:
    root = Path(install(Layout(tmp_path / "prefix"), "a").root)
    assert read_receipt(root) is not None
    receipt = root / RECEIPT
    text = receipt.read_text()
    receipt.chmod(0o644)
    receipt.write_text(text.replace('"format":2', '"format":3'))
    assert receipt.read_text() != text
    assert read_receipt(root) is None
