"""What the store has already: taken as what it is, never as what would be made today, and never when it is damaged."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.config.easyconfig import Conversion
from sifmod.digest import sha256_file
from sifmod.errors import FetchError
from sifmod.image.artifact import Artifact
from sifmod.image.convert import oci_to_sif
from sifmod.image.convert.sif.header import read_sif
from sifmod.module.plan import Plan
from support.fetching import Prefix, conversion_of, plan
from support.images import Images
from support.registry import Registry

FORMATS = ("sif-format", "squashfs-format")


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path / "prefix")


def as_if_made_by(made: Artifact, tool: str, version: str) -> None:
    """The store's record of an image says that another version of one tool made it."""
    record = made.path.with_suffix(".json")
    fields = json.loads(record.read_text())
    fields["origin"]["tools"] = [[name, version if name == tool else now] for name, now in fields["origin"]["tools"]]
    record.write_text(json.dumps(fields))


def as_if_other_bytes(prefix: Prefix, made: Artifact) -> Path:
    """The image lies in the store as another tool would have made it: the same files, and a few bytes more."""
    other = prefix.path / "other.sif"
    other.write_bytes(made.path.read_bytes() + b"\0" * 4096)
    sha256 = sha256_file(other)
    record, moved = made.path.with_suffix(".json"), prefix.layout.image(sha256)
    fields = {**json.loads(record.read_text()), "sha256": sha256, "size": other.stat().st_size}
    made.path.unlink()
    record.unlink()
    other.rename(moved)
    moved.with_suffix(".json").write_text(json.dumps(fields))
    return moved


def library(made: Artifact) -> str:
    return next(name for name, _ in made.origin.tools if name not in FORMATS)


def promising(wanted: Plan, by: Artifact, conversion: Conversion | None) -> Plan:
    return replace(wanted, image=replace(wanted.required_image, sha256=by.sha256, conversion=conversion))


def converted_again(prefix: Prefix, wanted: Plan) -> tuple[Artifact, bool]:
    told: list[str] = []
    found = prefix.fetch(wanted, lambda what, *_: told.append(what))
    return found, any(what.startswith("converting") for what in told)


@pytest.mark.parametrize("kind", ["layout", "tag", "digest"])
def test_what_another_library_made_is_taken_and_said_to_be_its(
    images: Images, registry: Registry, prefix: Prefix, kind: str
) -> None:
    layout = images.tiny_layout("libraries")
    source = f"oci:{layout}" if kind == "layout" else registry.push_layout(layout, "libraries:1.0")
    made = prefix.fetch(plan(source))
    if kind == "digest":
        source = f"{source}@{made.origin.manifest}"
    as_if_made_by(made, library(made), "0.9")
    before = prefix.state()
    found, again = converted_again(prefix, plan(source))
    assert (found.path, again) == (made.path, False)
    assert dict(found.origin.tools)[library(made)] == "0.9"
    after = prefix.state()
    records = {str(made.path.with_suffix(".json"))}
    assert {path for path in after if after[path] != before.get(path)} <= records


@pytest.mark.parametrize("tool", FORMATS)
@pytest.mark.parametrize("kind", ["layout", "digest"])
def test_what_an_older_format_made_is_converted_anew(
    images: Images, registry: Registry, prefix: Prefix, tool: str, kind: str
) -> None:
    layout = images.tiny_layout(f"older-{tool}")
    source = f"oci:{layout}" if kind == "layout" else registry.push_layout(layout, f"older-{tool}:1.0")
    made = prefix.fetch(plan(source))
    if kind == "digest":
        source = f"{source}@{made.origin.manifest}"
    as_if_made_by(made, tool, "0")
    old = as_if_other_bytes(prefix, made)
    before = prefix.state()
    found, again = converted_again(prefix, plan(source))
    assert (found.sha256, again) == (made.sha256, True)
    assert dict(found.origin.tools)[tool] != "0"
    after = prefix.state()
    assert {path: after[path] for path in before} == before, "what was there stays for who uses it"
    assert old.exists()
    assert converted_again(prefix, plan(source)) == (found, False)


def test_a_format_whose_bytes_are_the_same_is_noted_once(images: Images, prefix: Prefix) -> None:
    source = f"oci:{images.tiny_layout('noted')}"
    made = prefix.fetch(plan(source))
    as_if_made_by(made, "sif-format", "0")
    found, again = converted_again(prefix, plan(source))
    assert (found.path, found.origin, again) == (made.path, made.origin, True)
    assert converted_again(prefix, plan(source)) == (found, False)


def test_a_raised_format_is_another(images: Images, prefix: Prefix, monkeypatch: pytest.MonkeyPatch) -> None:
    source = f"oci:{images.tiny_layout('raised')}"
    made = prefix.fetch(plan(source))
    monkeypatch.setattr(oci_to_sif, "FORMAT", oci_to_sif.FORMAT + 1)
    found, again = converted_again(prefix, plan(source))
    assert again
    assert dict(found.origin.tools)["sif-format"] == str(oci_to_sif.FORMAT)
    assert found.path == made.path  # as no byte was changed by it


@pytest.mark.parametrize("with_tools", [True, False], ids=["and its tools", "alone"])
def test_a_promise_that_todays_tools_fulfil_is_converted_anew(images: Images, prefix: Prefix, with_tools: bool) -> None:
    source = f"oci:{images.tiny_layout('promised')}"
    made = prefix.fetch(plan(source))
    conversion = conversion_of(made) if with_tools else None
    as_if_made_by(made, library(made), "0.9")
    as_if_other_bytes(prefix, made)
    found, again = converted_again(prefix, promising(plan(source), made, conversion))
    assert (found.sha256, found.notes, again) == (made.sha256, (), True)
    assert found.origin == made.origin


def test_a_promise_of_other_tools_is_held_against_the_files(images: Images, prefix: Prefix) -> None:
    source = f"oci:{images.tiny_layout('others')}"
    made = prefix.fetch(plan(source))
    tools = tuple((name, "9.9" if name == library(made) else version) for name, version in made.origin.tools)
    conversion = conversion_of(made).model_copy(update={"tools": tools})
    as_if_made_by(made, library(made), "0.9")
    old = as_if_other_bytes(prefix, made)
    before = prefix.state()
    wanted = promising(plan(source), made, conversion)
    found, again = converted_again(prefix, wanted)
    assert (found.path, again) == (old, False)
    assert found.notes == (
        "other versions of the tools made a SIF with another digest than expected; its files are the same",
    )
    assert prefix.state() == before
    wrong = replace(
        wanted, image=replace(wanted.required_image, conversion=conversion.model_copy(update={"tree": "0" * 64}))
    )
    with pytest.raises(FetchError) as caught:
        prefix.fetch(wrong)
    assert "differ from the expected ones" in caught.value.message
    assert prefix.state() == before


def cut_header(sif: Path) -> None:
    _overwrite(sif, 32, b"XXXXXXXXXX")


def cut_squashfs(sif: Path) -> None:
    _overwrite(sif, read_sif(sif).primary.offset, b"XXXX")


def _overwrite(path: Path, offset: int, data: bytes) -> None:
    """Bytes of a stored image rot: its size stays."""
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)
    path.chmod(0o444)


@pytest.mark.parametrize("damage", [cut_header, cut_squashfs])
@pytest.mark.parametrize("kind", ["oras", "docker", "digest", "layout"])
def test_a_stored_image_that_is_seen_to_be_damaged_is_brought_again(
    images: Images, registry: Registry, prefix: Prefix, damage: Callable[[Path], None], kind: str
) -> None:
    layout = images.tiny_layout("damaged")
    source = f"oci:{layout}"
    if kind == "oras":
        source = registry.push_sif(images.tiny_sif, "damaged-sif:1.0")
    elif kind != "layout":
        source = registry.push_layout(layout, "damaged:1.0")
    made = prefix.fetch(plan(source))
    if kind in ("digest", "oras"):
        source = f"{source.rpartition(':')[0]}@{made.origin.manifest}"
    before = prefix.state()
    damage(made.path)
    found = prefix.fetch(plan(source))
    assert (found.path, sha256_file(found.path)) == (made.path, made.sha256)
    after = prefix.state()
    assert after.keys() == before.keys()
    assert after[str(made.path)][0] == before[str(made.path)][0], "read-only as before"
