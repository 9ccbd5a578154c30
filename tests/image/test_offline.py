"""Without a network: what is pinned by its digest and in the store is taken from there, and nothing is asked."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.errors import FetchError
from sifmod.image.artifact import Artifact
from sifmod.image.settings import DEFAULT, Settings
from sifmod.module.plan import Plan
from support.command import run as call
from support.config import write
from support.fetching import Prefix, plan
from support.images import Images
from support.oci_index import entry, put_index, write_multi
from support.options import options_of_commands
from support.registry import Registry
from support.web import Web


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Registry]:
    """A registry that a test stops."""
    registry = Registry(tmp_path / "mortal")
    registry.start()
    yield registry
    registry.stop()


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path / "prefix")


def push(registry: Registry, layout: Path, name: str) -> str:
    """Push a layout, index and all, with the digests that it has, and return its `docker://` reference."""
    reference = f"docker://{registry.address}/{name}"
    options = ("--insecure-policy", "copy", "--all", "--preserve-digests", "--dest-tls-verify=false", "--quiet")
    call(("skopeo", *options, f"oci:{layout}", reference)).ok()
    return reference


def indexed(layout: Path, to: Path, tag: str) -> str:
    """A copy of `layout` whose image stands behind an index, another one for every `tag`; gives the index's digest."""
    call(("cp", "-r", layout, to)).ok()
    one = {**entry(to), "platform": {"architecture": "amd64", "os": "linux"}, "annotations": {"tag": tag}}
    return str(put_index(to, [one])["digest"])


def refused(prefix: Prefix, wanted: Plan, settings: Settings = DEFAULT) -> str:
    """The message, asserting that the disk is as before."""
    before = prefix.state()
    with pytest.raises(FetchError) as caught:
        prefix.fetch(wanted, settings=settings)
    assert prefix.state() == before
    return caught.value.message


def taken(prefix: Prefix, source: str, settings: Settings = DEFAULT) -> Artifact:
    """The image without asking anybody, with and without --offline, asserting that the disk is as before."""
    before = prefix.state()
    online = prefix.fetch(plan(source), settings=settings)
    assert prefix.fetch(plan(source, offline=True), settings=settings) == online
    assert prefix.state() == before
    return online


@pytest.mark.parametrize("word", ["--offline", "--quiet"])
def test_an_install_after_fetch_needs_no_registry(images: Images, mortal: Registry, tmp_path: Path, word: str) -> None:
    digest = indexed(images.tiny_layout(), tmp_path / "layout", "1")
    source = push(mortal, tmp_path / "layout", "tiny:1.0")
    easyconfig = tmp_path / "Tiny-1.0.yaml"
    image = {"sources": [f"{source}@{digest}"]}
    easyconfig.write_text(json.dumps({"name": "Tiny", "version": "1.0", "image": image}))
    words = ["install", "--prefix", str(tmp_path / "tree"), str(easyconfig)]
    assert run([*words, "--fetch"]) == 0
    mortal.stop()
    assert run([*words, word]) == 0
    receipt = json.loads((tmp_path / "tree" / "software" / "Tiny" / "1.0" / "receipt.json").read_text())
    assert receipt["image"]["origin"]["index"] == digest
    assert run([*words, "--force"]) == 10
    assert run([*words, "--force", "--offline"]) == 10


def test_index_and_manifest_name_the_same_image(
    images: Images, mortal: Registry, tmp_path: Path, prefix: Prefix
) -> None:
    index = indexed(images.tiny_layout(), tmp_path / "layout", "1")
    source = push(mortal, tmp_path / "layout", "group/tiny:1.0")
    first = prefix.fetch(plan(source))
    manifest = first.origin.manifest
    mortal.stop()
    by_index, by_manifest = (taken(prefix, f"{source}@{digest}") for digest in (index, manifest))
    assert by_index.origin == first.origin
    assert by_manifest.origin == replace(first.origin, index="")
    assert {by_index.path, by_manifest.path} == {first.path}
    assert by_index.notes == ()
    for other in (source, f"{source}@sha256:{'0' * 64}", f"{source.replace('group', 'other')}@{manifest}"):
        assert "skipped: it needs the network" in refused(prefix, plan(other, offline=True))
        assert "cannot be reached" in refused(prefix, plan(other))


def test_an_index_that_came_to_name_an_image_of_the_store(
    images: Images, mortal: Registry, tmp_path: Path, prefix: Prefix
) -> None:
    digests = []
    for tag in ("1", "2"):
        digests.append(indexed(images.tiny_layout(), tmp_path / tag, tag))
        source = push(mortal, tmp_path / tag, "moving:1.0")
        prefix.fetch(plan(source))
    assert len(prefix.images()) == 1
    mortal.stop()
    found = [taken(prefix, f"{source}@{digest}") for digest in digests]
    assert [one.origin.index for one in found] == digests


def test_another_compression_and_force_are_another_image(images: Images, mortal: Registry, prefix: Prefix) -> None:
    gzip, zstd = Settings(compression="gzip:2"), Settings(compression="zstd:3")
    source = push(mortal, images.tiny_layout(), "compressed:1.0")
    first = prefix.fetch(plan(source), settings=gzip)
    pinned = f"{source}@{first.origin.manifest}"
    mortal.stop()
    assert taken(prefix, pinned, gzip).path == first.path
    assert "skipped: it needs the network" in refused(prefix, plan(pinned, offline=True), zstd)
    assert "skipped: it needs the network" in refused(prefix, plan(pinned, offline=True), replace(gzip, fresh=True))
    assert "cannot be reached" in refused(prefix, plan(pinned), replace(gzip, fresh=True))


def test_an_index_gives_each_architecture_its_own(mortal: Registry, tmp_path: Path, prefix: Prefix) -> None:
    layout = tmp_path / "multi"
    layout.mkdir()
    digest = str(entry(write_multi(layout, ("amd64", "arm64")))["digest"])
    pinned = f"{push(mortal, layout, 'multi:1.0')}@{digest}"

    def of(arch: str) -> Plan:
        wanted = plan(pinned)
        return replace(wanted, image=replace(wanted.required_image, arch=arch))

    arm = prefix.fetch(of("arm64"))
    assert "skipped: it needs the network" in refused(prefix, replace(plan(pinned, offline=True)))
    amd = prefix.fetch(of("amd64"))
    mortal.stop()
    assert [prefix.fetch(of(arch)).path for arch in ("arm64", "amd64")] == [arm.path, amd.path]


@pytest.mark.parametrize("there", [True, False], ids=["there before", "downloaded"])
def test_a_sif_of_a_registry(images: Images, mortal: Registry, prefix: Prefix, there: bool) -> None:
    source = mortal.push_sif(images.tiny_sif, "lab/tool:1.0")
    if there:
        prefix.fetch(plan(images.tiny_sif))
    first = prefix.fetch(plan(source))
    mortal.stop()
    pinned = f"{source}@{first.origin.manifest}"
    found = taken(prefix, pinned)
    assert (found.path, found.origin, found.source) == (first.path, first.origin, pinned)
    assert "skipped: it needs the network" in refused(prefix, plan(source, offline=True))
    assert "skipped: it needs the network" in refused(prefix, plan(pinned.replace("lab", "other"), offline=True))


def test_a_sif_that_was_converted_here_and_comes_from_a_registry_too(
    images: Images, mortal: Registry, prefix: Prefix
) -> None:
    source = push(mortal, images.tiny_layout(), "both:1.0")
    converted = prefix.fetch(plan(source))
    given = prefix.fetch(plan(mortal.push_sif(converted.path, "lab/both:1.0")))
    assert given.path == converted.path
    mortal.stop()
    pinned = (f"{source}@{converted.origin.manifest}", f"{given.source}@{given.origin.manifest}")
    assert [taken(prefix, one).origin for one in pinned] == [converted.origin, given.origin]


def test_a_damaged_or_removed_image_is_not_taken(images: Images, mortal: Registry, prefix: Prefix) -> None:
    source = push(mortal, images.tiny_layout(), "gone:1.0")
    first = prefix.fetch(plan(source))
    first.path.unlink()
    assert "skipped: it needs the network" in refused(prefix, plan(f"{source}@{first.origin.manifest}", offline=True))


COMMANDS = {  # how each command with the option is typed, and what it ends with
    "install Far-1.yaml": 10,
    "fetch {far}": 10,
    "new {far}": 10,
    "stack plan far.yaml": 0,
    "stack apply far.yaml": 10,
}


def test_each_command_with_the_option_is_listed() -> None:
    have = {" ".join(verb) for verb, spellings in options_of_commands() if "--offline" in spellings}
    assert have == {*(verb for verb in have if any(words.startswith(verb) for words in COMMANDS)), "upgrade"}


def test_an_upgrade_looks_at_easyconfigs_alone(
    images: Images, mortal: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    source = push(mortal, images.tiny_layout(), "tiny:1.0")
    write(tmp_path / "Tiny-1.0.yaml", json.dumps({"name": "Tiny", "version": "1.0", "image": {"sources": [source]}}))
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "tree"))
    assert run(["install", str(tmp_path / "Tiny-1.0.yaml"), "--skip-sanity-check", "--compression", "gzip:1"]) == 0
    mortal.stop()
    capfd.readouterr()
    assert run(["upgrade", "--all", "--offline"]) == 0
    assert capfd.readouterr().err == "== nothing newer was found for 1 module\n"
    assert run(["upgrade", "--all"]) == 10
    assert f"{source} could not be asked" in capfd.readouterr().err


@pytest.mark.parametrize("words", COMMANDS)
def test_no_command_asks_a_server(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Web()
    server.start()
    far = f"docker://127.0.0.1:{server.server_address[1]}/group/far:1"
    write(tmp_path / "Far-1.yaml", f"name: Far\nversion: '1'\nimage: {{sources: ['{far}']}}\n")
    write(tmp_path / "far.yaml", "easyconfigs: [Far-1.yaml]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "tree"))
    command = words.format(far=far).split()
    try:
        assert run([*command, "--offline"]) == COMMANDS[words]
        assert server.asked == []
        run(command)
        assert server.asked != []
    finally:
        server.stop()
