"""What a tree writes down and reads back: history, receipts, stored images, what uses them, and what Slurm knows."""

import errno
import json
import os
import time
from datetime import datetime
from pathlib import Path

import pytest

from sifmod.actions.slurm import Jobs, ask_slurm
from sifmod.config.input import Input
from sifmod.config.name import ModuleName
from sifmod.module.image_origin import NO_ORIGIN, ImageOrigin
from sifmod.tree.history import Event, previous, read_history, recorded, superseded, with_event
from sifmod.tree.layout import Layout
from sifmod.tree.provenance import CommandLine, FileState, FoundCommands, ImageChoice, Provenance
from sifmod.tree.receipt import (
    FileRecord,
    ImageRecord,
    Installation,
    LinkRecord,
    as_data,
    from_json,
    live_number,
    numbers,
    to_json,
)
from sifmod.tree.state import missing
from sifmod.tree.stored_image import (
    Given,
    StoredImage,
    all_used_images,
    given_by,
    has_its_size,
    is_whole,
    read_stored,
    used_images,
)
from support.identity import call_as
from support.tree import MODULE, install
from support.user import OrdinaryUser

EVENTS = (Event(1, 2e9), Event(2, 2e9 + 2), Event(1, 2e9 + 3), Event(None, 2e9 + 4))


def test_since_when_a_generation_is_superseded() -> None:
    assert [superseded(EVENTS, number) for number in (1, 2, 3)] == [2e9 + 4, 2e9 + 3, None]
    assert [superseded(EVENTS[:3], number) for number in (1, 2, 3)] == [None, 2e9 + 3, None]
    assert superseded((), 1) is None


@pytest.mark.parametrize("wrong", [0.0, 1.0, 1577836800.0])
def test_under_a_clock_that_was_wrong_it_is_not_known(wrong: float) -> None:
    """A node begins in 1970 until it has asked a server of times: gc would take what was live a moment ago."""
    assert superseded((Event(1, 2e9), Event(2, wrong)), 1) is None


def test_which_generation_was_live_before() -> None:
    assert previous(EVENTS, {1, 2}) == 1
    assert previous(EVENTS, {2}) == 2
    assert previous(EVENTS[:3], {1, 2}) == 2
    assert previous(EVENTS[:3], {1}) is None
    assert previous((*EVENTS, Event(3, 5.0)), {1, 2, 3}) == 1
    assert previous((), {1}) is None


def test_an_event_is_added_when_something_changes() -> None:
    before = time.time()
    for number in (3, 1):
        *old, (generation, since, held) = json.loads(with_event(EVENTS, number))
        assert old == [[event.generation, event.time, []] for event in EVENTS]
        assert (generation, held) == (number, [])
        assert before - 0.001 <= since <= time.time() + 0.001
        assert since == round(since, 3)
    assert with_event(EVENTS, None) == json.dumps([event[:3] for event in EVENTS]) + "\n"
    assert json.loads(with_event((), None))[0][0] is None


@pytest.mark.parametrize("text", ["", "{", "3", "[[1]]", "[1]", '{"a": 1}'])
def test_a_history_without_sense_is_none(text: str, tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    place = layout.history(MODULE)
    assert recorded(layout, MODULE) == ()
    place.parent.mkdir(parents=True)
    place.write_text(text)
    assert recorded(layout, MODULE) == read_history(layout, MODULE) == ()
    place.write_text("[[1, 5.0, []], [null, 6.0, []]]")
    assert recorded(layout, MODULE) == read_history(layout, MODULE) == (Event(1, 5.0), Event(None, 6.0))
    before = layout.software.stat().st_mtime
    place.write_text("[[1, 5.0, []]]")
    first, second = read_history(layout, MODULE)
    assert (first, second.generation) == (Event(1, 5.0), None)
    assert before <= second.time <= time.time()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE, errno.EMFILE])
def test_a_history_that_cannot_be_read_now_is_an_error(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken for none it would be written anew, and nothing old would ever go."""

    def refused(*_: object, **__: object) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("sifmod.tree.history.read", refused)
    with pytest.raises(OSError, match=os.strerror(number)):
        recorded(Layout(tmp_path), MODULE)


def test_what_is_no_regular_file_is_no_history(tmp_path: Path) -> None:
    place = Layout(tmp_path).history(MODULE)
    place.mkdir(parents=True)
    assert recorded(Layout(tmp_path), MODULE) == ()
    place.rmdir()
    place.symlink_to("elsewhere")
    assert recorded(Layout(tmp_path), MODULE) == ()


# Slurm


def squeue(directory: Path, monkeypatch: pytest.MonkeyPatch, lines: str, scontrol: str = "") -> Path:
    """A squeue that notes its arguments: where. Beside it a scontrol."""
    programs, said = directory / "bin", directory / "said"
    programs.mkdir(exist_ok=True)
    for name, does in (("squeue", f'echo "$@" > {said}\n{lines}'), ("scontrol", scontrol)):
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return said


# what Slurm 22 says where there is no cluster
NO_SRV = "echo 'squeue: error: resolve_ctls_from_dns_srv: Unknown host' >&2"
NO_SOURCE = "echo 'squeue: fatal: Could not establish a configuration source' >&2"


@pytest.mark.parametrize(
    ("lines", "jobs"),
    [
        ("", Jobs(None)),
        (
            "printf '2024-01-02T03:04:05\\n\\n 2023-01-02T03:04:05 \\n2025-01-01T00:00:00\\n'",
            Jobs(datetime(2023, 1, 2, 3, 4, 5).timestamp()),
        ),
        ("echo >&2; echo first >&2; echo second >&2; exit 1", Jobs(None, "squeue failed: first")),
        ("echo; exit 3", Jobs(None, "squeue failed: exit code 3")),
        (f"{NO_SRV}; {NO_SOURCE}; exit 1", Jobs(None)),
        (
            f"{NO_SOURCE}; exit 1",
            Jobs(None, "squeue failed: squeue: fatal: Could not establish a configuration source"),
        ),
        (f"{NO_SRV}; exit 1", Jobs(None, "squeue failed: squeue: error: resolve_ctls_from_dns_srv: Unknown host")),
        (
            "echo N/A",
            Jobs(None, "squeue printed an invalid time: Invalid isoformat string: 'N/A'"),
        ),
    ],
)
def test_what_squeue_says(lines: str, jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = squeue(tmp_path, monkeypatch, lines)
    assert ask_slurm(tmp_path / "none") == jobs
    assert said.read_text() == "--noheader --all --format=%V\n"


@pytest.mark.parametrize("name", ["SLURM_CONF", "SLURM_CONF_SERVER"])
def test_a_cluster_that_is_named_may_come_back(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    squeue(tmp_path, monkeypatch, f"{NO_SRV}; {NO_SOURCE}; exit 1")
    monkeypatch.setenv(name, "there")
    assert (
        ask_slurm(tmp_path / "none").unknown == "squeue failed: squeue: error: resolve_ctls_from_dns_srv: Unknown host"
    )


def test_where_there_is_no_squeue_there_is_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask_slurm(tmp_path) == Jobs(None)
    (tmp_path / "squeue").write_text("no program")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: (_ for _ in ()).throw(OSError(8, "Exec format error")))
    assert ask_slurm(tmp_path) == Jobs(None, "Slurm did not answer: [Errno 8] Exec format error")


def test_whether_jobs_are_hidden_has_to_be_known(
    shared_tmp: Path, ordinary_user: OrdinaryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or gc removes what a job uses that squeue does not show."""
    squeue(shared_tmp, monkeypatch, "true", "echo 'slurm_load_ctl_conf error: timed out' >&2; exit 1")
    found = call_as(ordinary_user.user, lambda: ask_slurm(shared_tmp))
    assert found.unknown == "scontrol failed: slurm_load_ctl_conf error: timed out"
    squeue(shared_tmp, monkeypatch, "true", "exec sleep 60")
    monkeypatch.setattr("sifmod.actions.slurm._TIMEOUT", 0.2)
    found = call_as(ordinary_user.user, lambda: ask_slurm(shared_tmp))
    assert found.unknown.startswith("Slurm did not answer: ")
    assert "scontrol" in found.unknown


@pytest.mark.parametrize(("mode", "alone"), [(0o700, True), (0o744, True), (0o710, False), (0o701, False)])
def test_of_a_prefix_that_is_closed_to_others_only_the_owners_jobs_count(
    mode: int, alone: bool, shared_tmp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = squeue(tmp_path, monkeypatch, "")
    shared_tmp.chmod(0o755)
    (shared_tmp / "project").mkdir()
    (shared_tmp / "project" / "prefix").mkdir()
    (shared_tmp / "project").chmod(mode)
    ask_slurm(shared_tmp / "project" / "prefix")
    assert said.read_text() == f"--noheader --all --format=%V{f' --user={os.getuid()}' if alone else ''}\n"


# stored images

FIRST = ImageOrigin("", "sha256:a", ("sha256:l",), "zstd:3", (("libzstd", "1"),))
SHA = "a" * 64


def stored(layout: Layout, fields: object, content: bytes = b"xyz") -> StoredImage | None:
    layout.images.mkdir(parents=True, exist_ok=True)
    layout.image(SHA).write_bytes(content)
    layout.image(SHA).with_suffix(".json").write_text(json.dumps(fields))
    os.utime(layout.image(SHA).with_suffix(".json"), (7, 7))
    return read_stored(layout, SHA)


def test_what_a_stored_image_says_of_itself(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert read_stored(layout, SHA) is None
    plain = {"sha256": SHA, "size": 3}
    image = stored(layout, plain)
    assert image == StoredImage(SHA, 3, 7.0, layout.image(SHA), NO_ORIGIN, ())
    given = {"source": "docker://x", "index": "sha256:i", "manifest": "sha256:m"}
    image = stored(layout, plain | {"origin": FIRST.as_data(), "given": [given]})
    assert image is not None
    assert (image.origin, image.given) == (FIRST, (Given(**given),))
    wrongs: tuple[object, ...] = (
        [],
        {"size": 3},
        {"sha256": SHA},
        plain | {"origin": 3},
        plain | {"origin": {}},
        plain | {"origin": FIRST.as_data() | {"tools": [1]}},
        plain | {"given": [{"other": 1}]},
        plain | {"given": [3]},
        plain | {"given": 3},
    )
    for wrong in wrongs:
        assert stored(layout, wrong) is None, wrong
    layout.image(SHA).with_suffix(".json").write_bytes(b"\xff")
    assert read_stored(layout, SHA) is None


def test_of_two_origins_that_of_a_conversion_counts(tmp_path: Path) -> None:
    new = Given("s", "", "sha256:a")
    image = StoredImage(SHA, 3, 7.0, tmp_path / "x")
    sif = ImageOrigin("", "sha256:a")
    assert given_by(image, FIRST, "s") == image._replace(origin=FIRST, given=(new,))
    assert given_by(image, FIRST, "") == image._replace(origin=FIRST)
    assert given_by(image, NO_ORIGIN, "s") == image
    once = given_by(image, sif, "s")
    assert once == image._replace(origin=sif, given=(new,))
    assert given_by(once, sif, "s") == once
    assert given_by(once, FIRST, "s") == once._replace(origin=FIRST)
    made = given_by(image, FIRST, "s")
    assert given_by(made, sif, "t") == made._replace(given=(new, Given("t", "", "sha256:a")))
    for redecide in (
        ImageOrigin("", "sha256:b", (), "zstd:4", FIRST.tools),
        ImageOrigin("", "sha256:b", (), "zstd:3", (("libzstd", "2"),)),
    ):
        assert given_by(made, redecide, "").origin == redecide
    assert given_by(made, ImageOrigin("", "sha256:b", (), "zstd:3", FIRST.tools), "").origin == FIRST


def test_an_image_is_whole_when_it_has_its_size_and_its_digest(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    sha = "3608bca1e44ea6c4d268eb6db02260269892c0b42b86bbf1e77a6fa16c3c9282"  # of xyz
    image = StoredImage(sha, 3, 0.0, layout.image(sha))
    assert (has_its_size(image), is_whole(image)) == (False, False)
    layout.images.mkdir(parents=True)
    for content, sized, whole in ((b"xyz", True, True), (b"xyy", True, False), (b"xyzz", False, False)):
        image.path.write_bytes(content)
        assert (has_its_size(image), is_whole(image)) == (sized, whole)
    image.path.unlink()
    image.path.mkdir()
    assert not has_its_size(image._replace(size=image.path.stat().st_size))


def test_an_image_that_the_disk_cannot_give_back_is_not_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / SHA).write_bytes(b"xyz")

    def broken(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("sifmod.tree.stored_image.sha256_file", broken)
    assert not is_whole(StoredImage(SHA, 3, 0.0, tmp_path / SHA))


def test_images_are_used_by_links_into_the_store(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    root = layout.generation(MODULE, 3)
    root.mkdir(parents=True)
    assert used_images(root) == all_used_images(layout) == frozenset()
    (root / "a").symlink_to("/x/sha256/one.sif")
    (root / "b").symlink_to("/x/sha256/two.json")
    (root / "c").symlink_to("/x/other/three.sif")
    (root / "four.sif").write_text("")
    other = layout.generation(ModuleName("Other", "2"), 1)
    other.mkdir(parents=True)
    (other / "x").symlink_to("../../sha256/five.sif")
    assert used_images(root) == {"one"}
    assert all_used_images(layout) == {"one", "five"}
    assert used_images(layout.generation(MODULE, 4)) == frozenset()  # as one that another run has just taken away


# receipts, and what a live installation lacks

INPUTS = (Input("/a", SHA), Input("/c", None))
ASKED = CommandLine("x", (("--site", "s"),), checked=False)
FOUND = FoundCommands("w", "python=/opt/python")
CHOICE = ImageChoice("q", True, (FileState("/i.sif", "3 4 5"),), ("/images", "/b"), FOUND)
INSTALLATION = Installation(
    MODULE,
    2,
    "/p/software/Tiny/.generations/1.0/2",
    Provenance("0.1", "/x.yaml", "1.0", None, "s", "rocm", INPUTS, (("f", "g"),), ASKED, CHOICE, "d"),
    ImageRecord(SHA, 3, "docker://x", "amd64", "copy", "x.sif", f"/p/images/sha256/{SHA}.sif", FIRST),
    (FileRecord("bin/é", SHA, 0o555),),
    (LinkRecord("x.sif", "../x"),),
    (FileRecord("Tiny/1.0.lua", SHA, 0o644),),
)  # fmt: skip


def test_a_receipt_is_compact_and_the_same_as_what_is_printed() -> None:
    text = to_json(INSTALLATION)
    assert text.endswith("}\n")
    assert "bin/é" in text
    assert ": " not in text
    assert ", " not in text
    assert "/p/" not in text
    data = json.loads(json.dumps(as_data(INSTALLATION)))
    assert data.pop("root") == INSTALLATION.root
    assert data["image"]["path"] == f"/p/{json.loads(text)['image']['path']}" == INSTALLATION.required_image.path
    data["image"]["path"] = f"images/sha256/{SHA}.sif"
    assert json.loads(text) == data
    assert (data["files"], data["links"]) == ([["bin/é", SHA, 0o555]], [["x.sif", "../x"]])
    assert data["stubs"] == [["Tiny/1.0.lua", SHA, 0o644]]
    assert (data["format"], data["name"], data["version"], data["generation"]) == (2, "Tiny", "1.0", 2)
    assert (data["provenance"]["inputs"], data["image"]["origin"]) == (
        [["/a", SHA], ["/c", None]],
        json.loads(json.dumps(FIRST.as_data())),
    )
    assert from_json(text, INSTALLATION.root) == INSTALLATION
    assert INSTALLATION.paths == {"receipt.json", "bin/é", "x.sif"}
    without = json.loads(text)
    del without["image"]["origin"]
    with pytest.raises(KeyError):
        from_json(json.dumps(without), INSTALLATION.root)


def test_numbers_are_sorted_as_numbers(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for name in ("10", "9", "1", "x", ".2", "1a"):
        (layout.generations(MODULE) / name).mkdir(parents=True)
    assert numbers(layout, MODULE) == (1, 9, 10)
    assert live_number(layout, MODULE) is None


def test_what_a_live_installation_lacks(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    installation = install(layout, "a")
    assert missing(layout, installation) == ()
    image = Path(installation.required_image.path)
    root = Path(installation.root)
    stub = layout.module_file(MODULE, "lua")
    image.rename(tmp_path / "away")
    (root / "tiny.sif").unlink()
    (root / "tiny.sif").symlink_to(tmp_path / "away")  # the link leads to another copy
    assert missing(layout, installation) == ()
    (tmp_path / "away").rename(image)
    (root / "tiny.sif").unlink()
    assert missing(layout, installation) == (f"the link {root}/tiny.sif is missing",)
    image.unlink()
    stub.unlink()
    stub.mkdir()
    layout.switch(MODULE).unlink()
    (layout.staging / "Tiny@1.0.9.dead").mkdir(parents=True)
    assert missing(layout, installation) == (
        f"the modulefile {stub} is missing",
        f"the link {root}/tiny.sif is missing",
        f"the image {image} is missing",
        "generation 1 is not the live one",
        f"an earlier run for {MODULE} died and left files; `sifmod gc --yes` removes them",
    )


@pytest.mark.parametrize(("name", "matters"), [("Tiny@1.0", True), ("image-1", False), ("Tiny@2.0", False)])
def test_whose_remains_matter(name: str, matters: bool, tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    installation = install(layout, "a")
    (layout.staging / f"{name}.9.dead").mkdir()
    (layout.staging / "Else@1.9.dead").mkdir()
    assert bool(missing(layout, installation)) == matters
    layout.staging.rename(tmp_path / "staging")
    assert missing(layout, installation) == ()
