"""`sifmod push` to a real registry, and what skopeo, apptainer and sifmod then pull from there."""

import hashlib
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sifmod.cli.main import run as sifmod
from sifmod.digest import sha256_file
from sifmod.errors import FetchError
from sifmod.image.oci.manifest import OCI_MANIFEST, SIF_LAYER, Descriptor
from sifmod.image.registry.http import Http
from sifmod.image.registry.mirrors import own_place
from sifmod.image.registry.registry import Repository
from sifmod.image.registry.upload import Blob, put_manifest, read_manifest, upload
from sifmod.image.sources.source_kinds import parse
from sifmod.module.image_origin import ImageOrigin
from sifmod.tree.layout import Layout
from support.between import Between
from support.command import run
from support.conversion import apptainer_pull, content
from support.disk_state import disk_state
from support.fetching import Prefix
from support.identity import call_as
from support.images import Images
from support.misbehaving import log_in
from support.oci import Entry, layer, write_layout
from support.registry import PASSWORD, USER, Registry, with_password, with_tokens
from support.runtime import RUNTIME
from support.signing import Signer
from support.small_disk import small_disk
from support.tokens import TokenServer
from support.user import OrdinaryUser

MB = 1_000_000
Push = Callable[..., dict[str, object]]


@pytest.fixture
def push(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Push:
    """What `push --json` prints, or the error; the image is as it was afterwards."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))

    def push(image: Path | str, target: str, *options: str, code: int = 0) -> dict[str, object]:
        before = disk_state(tmp_path)
        capfd.readouterr()
        assert sifmod(["push", "--json", str(image), target, *options]) == code
        assert disk_state(tmp_path) == before
        answer: dict[str, object] = json.loads(capfd.readouterr().out)
        return answer

    return push


@pytest.fixture
def between(registry: Registry) -> Iterator[Between]:
    """In front of the registry."""
    server = Between(registry.address)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def large(images: Images) -> Path:
    """A SIF of some 61 MB."""
    return images.tiny("for-push", entries=(Entry("opt/noise", random.Random(3).randbytes(60 * MB), mode=0o644),))


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Path]:
    """The SIF of a reference, in the prefix."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))

    def fetched(reference: str, *options: str) -> Path:
        assert sifmod(["fetch", "--json", *options, reference]) == 0
        return Path(json.loads(capfd.readouterr().out)["path"])

    return fetched


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def skopeo(*words: str | Path) -> dict[str, object]:
    result = run(("skopeo", "--insecure-policy", *words)).ok().stdout
    return dict(json.loads(result)) if result.startswith("{") else {}


def test_a_signed_sif_goes_as_apptainer_pushes_it(
    images: Images, registry: Registry, shared_tmp: Path, push: Push
) -> None:
    signer = Signer(shared_tmp / "a", "Ann")
    try:
        sif = shared_tmp / "tool.sif"
        sif.write_bytes(images.tiny("signed").read_bytes())
        signer.sign(sif)
        pushed = push(sif, f"oras://{registry.address}/push/sif:1.0")
        assert pushed["sent"] == pushed["size"] == sif.stat().st_size + 2
        registry.push_sif(sif, "push/by-apptainer:1.0")
        theirs = skopeo("inspect", "--raw", "--tls-verify=false", f"docker://{registry.address}/push/by-apptainer:1.0")
        ours = skopeo("inspect", "--raw", "--tls-verify=false", f"docker://{registry.address}/push/sif:1.0")
        assert ours == theirs
        pulled = shared_tmp / "pulled.sif"
        env = {**os.environ, **RUNTIME.userns}
        run((RUNTIME.path, "pull", "--no-https", pulled, f"oras://{registry.address}/push/sif:1.0"), env=env).ok()
        assert pulled.read_bytes() == sif.read_bytes()
        signer.verify(pulled).ok()
        again = push(sif, f"oras://{registry.address}/push/sif:1.0")
        assert (again["sent"], again["there"], again["digest"]) == (0, True, pushed["digest"])
        assert pushed["reference"] == f"oras://{registry.address}/push/sif:1.0@{pushed['digest']}"
    finally:
        signer.expire()


def test_a_module_by_its_name(
    images: Images, registry: Registry, tmp_path: Path, push: Push, capfd: pytest.CaptureFixture[str]
) -> None:
    """What is printed is a source of an easyconfig, which installs the same SIF."""
    easyconfig = tmp_path / "Tiny-1.0.yaml"
    text = "name: Tiny\nversion: '1.0'\ndescription: x\nhomepage: https://example.org\naccelerator: none\nimage:\n"
    easyconfig.write_text(f"{text}  filename: tool.sif\n  sources: ['{images.tiny_sif}']\n")
    assert sifmod(["install", "-q", "--skip-sanity-check", str(easyconfig)]) == 0
    target = f"oras://{registry.address}/push/module:1.0"
    assert sifmod(["push", "Tiny/1.0", target]) == 0
    out, err = capfd.readouterr()
    reference = out.splitlines()[-1]
    assert f"as a source of an easyconfig:  sources: ['{reference}']" in err
    raw = skopeo("inspect", "--raw", "--tls-verify=false", target.replace("oras://", "docker://"))
    assert raw["layers"][0]["annotations"] == {"org.opencontainers.image.title": "tool.sif"}  # type: ignore[index]
    easyconfig.write_text(f"{text}  sources: ['{reference}']\n")
    assert sifmod(["install", "-q", "--skip-sanity-check", str(easyconfig)]) == 0
    assert push("Tiny/1.0@2", target, "--force")["sent"] == 0
    stored = Layout(Path(os.environ["SIFMOD_PREFIX"])).images / f"{sha256_file(images.tiny_sif)}.sif"
    stored.chmod(0o644)
    with stored.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes((last[0] ^ 1,)))
    capfd.readouterr()
    assert sifmod(["push", stored.stem, target.replace("1.0", "2.0")]) == 10  # it was sent under another digest
    assert f"{stored} is damaged: its SHA-256 is {sha256_file(stored)}; nothing was pushed" in capfd.readouterr().err


def test_another_user_pulls_it_by_each_tool(
    images: Images, registry: Registry, push: Push, ordinary_user: OrdinaryUser
) -> None:
    digest = push(images.tiny_sif, f"docker://{registry.address}/push/pulled:1")["digest"]
    home = ordinary_user.home
    copy = ("copy", "--src-tls-verify=false", f"docker://{registry.address}/push/pulled@{digest}")
    ordinary_user.run(("skopeo", "--insecure-policy", *copy, f"oci:{home}/layout:1")).ok()
    pull = ("pull", "--no-https", home / "by-apptainer.sif", f"docker://{registry.address}/push/pulled:1")
    ordinary_user.run((RUNTIME.path, *pull)).ok()
    fetch = ["fetch", "-q", "-o", str(home / "by-sifmod.sif"), f"docker://{registry.address}/push/pulled:1"]

    def by_sifmod() -> int:
        os.environ |= {"HOME": str(home), "SIFMOD_PREFIX": str(home), "SIFMOD_CONFIG_DIR": "/no/such"}
        return sifmod(fetch)

    assert call_as(ordinary_user.user, by_sifmod) == 0
    said = ordinary_user.run((RUNTIME.path, "exec", home / "by-sifmod.sif", "cat", "/etc/variant")).ok().stdout
    assert said == ordinary_user.run((RUNTIME.path, "exec", home / "by-apptainer.sif", "cat", "/etc/variant")).stdout
    assert said == "tiny\n"
    assert json.loads((home / "layout/index.json").read_text())["manifests"][0]["digest"] == digest


def test_one_layer_holds_all_files_of_any_sif(
    images: Images, registry: Registry, tmp_path: Path, push: Push, fetched: Callable[..., Path]
) -> None:
    """Of three layers with hard links, modes, owners, long names and links: the files come back as they were."""
    original = fetched(f"oci:{images.umoci_layout}")
    copy = tmp_path / "copy.sif"
    copy.write_bytes(original.read_bytes())
    source = f"docker://{registry.address}/push/whole:1"
    pushed = push(copy, source)
    assert pushed["digest"] == push(original, source)["digest"]
    assert content(fetched(source)) == content(original)
    theirs = tmp_path / "theirs.sif"
    apptainer_pull(source, theirs).ok()
    assert content(theirs).keys() == content(original).keys()


def test_the_config_is_that_of_the_image(images: Images, registry: Registry, push: Push) -> None:
    sif = images.tiny("told", labels={"maintainer": "me"}, env=("ODD=a $b 'c' \"d\"",))
    push(sif, f"docker://{registry.address}/push/told:1")
    config = skopeo("inspect", "--config", "--tls-verify=false", f"docker://{registry.address}/push/told:1")
    assert config["config"] == {
        "Cmd": ["/bin/sh"],
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "ODD=a $b 'c' \"d\""],
        "Labels": {"maintainer": "me"},
    }
    assert (config["architecture"], config["os"]) == ("amd64", "linux")


def test_a_definitions_runscript_and_environment(
    images: Images, registry: Registry, push: Push, tmp_path: Path, fetched: Callable[..., Path]
) -> None:
    """They have no config; the shell that the runscript names gets its text."""
    definition, sif = tmp_path / "x.def", tmp_path / "x.sif"
    definition.write_text(
        f"Bootstrap: oci\nFrom: {images.tiny_layout()}\n"
        "%environment\nexport GREETING='hello there'\nexport WHERE=$(pwd)\n"
        '%runscript\n#!/bin/sh\necho "$GREETING: $*"\n'
    )
    run((RUNTIME.path, "build", sif, definition), env={**os.environ, **RUNTIME.userns}).ok()
    source = f"docker://{registry.address}/push/script:1"
    pushed = push(sif, source)
    assert pushed["notes"] == ["left out of the environment: WHERE (differs between two starts, as by user or host)"]
    said = run((RUNTIME.path, "run", fetched(source), "you"), env={**os.environ, **RUNTIME.userns}).ok().stdout
    assert said == "hello there: you\n"


def test_a_runscript_of_another_program(images: Images, registry: Registry, push: Push, tmp_path: Path) -> None:
    definition, sif = tmp_path / "x.def", tmp_path / "x.sif"
    definition.write_text(
        f"Bootstrap: oci\nFrom: {images.tiny_layout()}\n%runscript\n#!/usr/bin/env python3\nprint('hello')\n"
    )
    run((RUNTIME.path, "build", sif, definition), env={**os.environ, **RUNTIME.userns}).ok()
    pushed = push(sif, f"docker://{registry.address}/push/python:1")
    assert pushed["notes"] == [
        "the runscript is left out: its first line is not only `#!` and a shell in /bin or /usr/bin"
    ]
    config = skopeo("inspect", "--config", "--tls-verify=false", f"docker://{registry.address}/push/python:1")
    assert not {"Entrypoint", "Cmd"} & set(config["config"])  # type: ignore[call-overload]


def test_layers_of_a_registry_are_mounted_or_copied(
    images: Images, registry: Registry, between: Between, tmp_path: Path, push: Push, fetched: Callable[..., Path]
) -> None:
    registry.push_layout(images.umoci_layout, "push/original:1")
    source = f"docker://{between.address}/push/original:1"
    stored = fetched(source)
    original = skopeo("inspect", "--raw", "--tls-verify=false", source)
    mounted = push(stored, f"docker://{between.address}/push/mounted:1")
    assert (mounted["sent"], between.received < 10_000) == (0, True)
    other = Registry(tmp_path.parent / f"{tmp_path.name}-other")
    other.start()
    try:
        copied = push(stored, f"docker://{other.address}/push/copied:1")
        raw = skopeo("inspect", "--raw", "--tls-verify=false", f"docker://{other.address}/push/copied:1")
    finally:
        other.stop()
    assert copied["sent"] == copied["size"] == mounted["size"]
    assert raw == original
    assert copied["digest"] == mounted["digest"]


def test_a_layer_of_a_registry_that_knows_no_ranges(
    registry: Registry, between: Between, tmp_path: Path, push: Push, fetched: Callable[..., Path]
) -> None:
    """What is sent again after a cut begins in the middle, and what the registry gives again at its first byte."""
    noise = layer([Entry("opt/noise", random.Random(5).randbytes(10 * MB), mode=0o644)])
    layout = write_layout(tmp_path.parent / f"{tmp_path.name}-layout", [noise])
    registry.push_layout(layout, "push/whole-alone:1")
    between.whole = True
    stored = fetched(f"docker://{between.address}/push/whole-alone:1")
    other = Registry(tmp_path.parent / f"{tmp_path.name}-cut")
    other.start()
    target = Between(other.address)
    target.start()
    try:
        target.cuts = [2 * MB, 9 * MB]  # the second one when 4 MiB have been taken
        push(stored, f"docker://{target.address}/push/copied:1")
        assert target.cuts == []
        assert content(fetched(f"docker://{other.address}/push/copied:1")) == content(stored)
    finally:
        target.stop()
        other.stop()


@pytest.fixture
def built(images: Images, registry: Registry, tmp_path: Path, fetched: Callable[..., Path]) -> tuple[Path, Path]:
    """A stored image of the registry, and another one in the store that is said to be built upon it."""
    base = images.tiny_layout("base-of-push")
    (blob,) = (path for path in (base / "blobs/sha256").iterdir() if path.stat().st_size > MB)
    new = layer((Entry("opt/new", b"new\n", mode=0o644), Entry("etc/.wh.variant", b"")))
    whole = write_layout(tmp_path.parent / f"{tmp_path.name}-whole", (blob.read_bytes(), new), env=("NEW=yes",))
    below = fetched(registry.push_layout(base, "push/base:1"))
    sif = tmp_path / "built.sif"
    assert sifmod(["fetch", "-q", f"oci:{whole}", "-o", str(sif)]) == 0
    with Prefix(tmp_path / "prefix").store() as store, store.incoming() as incoming:
        incoming.write_bytes(sif.read_bytes())
        origin = ImageOrigin(manifest="sha256:" + "0" * 64, layers=(f"sha256:{below.stem}",))
        return below, store.add(incoming, sha256(sif), origin, "recipe:")


def test_of_a_build_only_the_new_layer_is_sent(
    built: tuple[Path, Path], registry: Registry, push: Push, fetched: Callable[..., Path]
) -> None:
    below, image = built
    pushed = push(image, f"docker://{registry.address}/push/built:1")
    assert int(str(pushed["sent"])) < 5000 < int(str(pushed["size"]))
    assert below.stat().st_size > 200 * int(str(pushed["sent"]))
    config = skopeo("inspect", "--config", "--tls-verify=false", f"docker://{registry.address}/push/built:1")
    assert "NEW=yes" in config["config"]["Env"]  # type: ignore[index]
    assert content(fetched(f"docker://{registry.address}/push/built:1")) == content(image)


def test_a_build_whose_base_is_gone(built: tuple[Path, Path], registry: Registry, push: Push) -> None:
    below, image = built
    below.unlink()
    pushed = push(image, f"docker://{registry.address}/push/base-gone:1")
    assert pushed["notes"] == [
        f"its base sha256:{below.stem} is no longer in the store, so everything goes into one layer"
    ]
    assert int(str(pushed["sent"])) == int(str(pushed["size"])) > 100_000


def test_layers_that_are_not_there_any_more(
    images: Images, registry: Registry, tmp_path: Path, push: Push, fetched: Callable[..., Path]
) -> None:
    other = Registry(tmp_path.parent / f"{tmp_path.name}-gone")
    other.start()
    try:
        stored = fetched(other.push_layout(images.tiny_layout("gone"), "push/gone:1"))
    finally:
        other.stop()
    told = push(stored, f"docker://{registry.address}/push/gone:1", code=10)
    assert "which the image was made from, are needed: " in str(told["error"])
    assert "a copy of the SIF by its path" in str(told["hint"])


@pytest.mark.parametrize("scheme", ["docker", "oras"])
def test_two_architectures_behind_one_tag(
    scheme: str, images: Images, registry: Registry, push: Push, fetched: Callable[..., Path]
) -> None:
    source = f"{scheme}://{registry.address}/push/both-{scheme}:1"
    first = push(images.tiny_sif, source)
    second = push(images.foreign("arm64"), source, "--add-to-index")
    raw = skopeo("inspect", "--raw", "--tls-verify=false", source.replace("oras://", "docker://"))
    listed = [(one["digest"], one["platform"]["architecture"]) for one in raw["manifests"]]  # type: ignore[attr-defined]
    assert listed == [(first["digest"], "amd64"), (second["manifest"], "arm64")]
    assert second["digest"] not in (first["digest"], second["manifest"])
    again = push(images.tiny_sif, source, "--add-to-index")
    assert (again["sent"], again["there"], again["digest"]) == (0, True, second["digest"])
    if scheme == "oras":
        assert sha256(fetched(source, "--arch", "arm64")) == sha256(images.foreign("arm64"))
        assert sha256(fetched(source)) == sha256(images.tiny_sif)
    changed = images.tiny("signed")
    told = push(changed, source, "--add-to-index", code=10)
    assert f"already has a different image for linux/amd64 under this tag: {first['digest']}" in str(told["error"])
    replaced = push(changed, source, "--add-to-index", "--force")
    raw = skopeo("inspect", "--raw", "--tls-verify=false", source.replace("oras://", "docker://"))
    assert [one["digest"] for one in raw["manifests"]] == [second["manifest"], replaced["manifest"]]  # type: ignore[attr-defined]


def test_two_variants_of_an_architecture_behind_one_tag(
    images: Images, registry: Registry, tmp_path: Path, push: Push, fetched: Callable[..., Path]
) -> None:
    source = f"docker://{registry.address}/push/variants:1"
    stored = []
    for name in ("one", "two"):
        files = layer([Entry("x", name.encode())])
        layout = write_layout(tmp_path.parent / f"{tmp_path.name}-{name}", [files], variant="v2")
        stored.append(fetched(registry.push_layout(layout, f"push/variant-{name}:1")))
    pushed = [push(images.tiny_sif, source), push(stored[0], source, "--add-to-index")]
    assert "already has a different image for linux/amd64/v2 under" in str(
        push(stored[1], source, "--add-to-index", code=10)
    )
    pushed.append(push(stored[1], source, "--add-to-index", "--force"))
    raw = skopeo("inspect", "--raw", "--tls-verify=false", source)
    listed = [(one["digest"], one["platform"].get("variant")) for one in raw["manifests"]]  # type: ignore[attr-defined]
    assert listed == [(pushed[0]["digest"], None), (pushed[2]["manifest"], "v2")]


def test_a_tag_is_overwritten_by_force_alone(images: Images, registry: Registry, push: Push) -> None:
    target = f"oras://{registry.address}/push/tag:1"
    first = push(images.tiny_sif, target)
    told = push(images.tiny("signed"), target, code=10)
    assert told["error"] == f"{registry.address}/push/tag:1 already names another image: {first['digest']}"
    assert push(images.tiny_sif, target)["there"]
    second = push(images.tiny("signed"), target, "--force")
    assert push(images.tiny("signed"), target)["digest"] == second["digest"] != first["digest"]


def test_a_connection_that_ends_at_each_tenth(
    large: Path, between: Between, registry: Registry, push: Push, fetched: Callable[..., Path]
) -> None:
    """What has come of a request is kept back, as proxies do: the registry goes on with the one before."""
    size = large.stat().st_size
    between.cuts = [size * tenth // 10 for tenth in range(1, 10)]
    pushed = push(large, f"oras://{between.address}/push/cut:1")
    assert between.cuts == []
    assert 0 < between.received - size < size
    assert between.received <= int(str(pushed["sent"])) + 10_000
    assert fetched(f"oras://{registry.address}/push/cut:1").read_bytes() == large.read_bytes()


def test_a_registry_that_forgets_a_cut_upload(
    large: Path, registry: Registry, push: Push, fetched: Callable[..., Path]
) -> None:
    """As Docker's does where it has seen a part of a request: the blob begins anew."""
    between = Between(registry.address, streams=True)
    size = large.stat().st_size
    between.cuts = [size * tenth // 10 for tenth in (3, 6, 9)]
    between.start()
    try:
        push(large, f"oras://{between.address}/push/forgotten:1")
    finally:
        between.stop()
    assert between.cuts == []
    assert between.received == pytest.approx(1.9 * size, rel=0.01)
    assert fetched(f"oras://{registry.address}/push/forgotten:1").read_bytes() == large.read_bytes()


def test_parts_that_are_too_large(large: Path, between: Between, push: Push) -> None:
    between.largest = 8 * MB
    assert push(large, f"oras://{between.address}/push/parts:1")["digest"]
    parts = [method for method, _, _ in between.asked if method == "PATCH"]
    assert len(parts) == 1 + 15 + 1  # one that is refused; 61 MB by 4 MiB; the config


@pytest.mark.parametrize("methods", ["POST", "PATCH", "PUT PUT PUT"])
def test_an_answer_that_is_lost(methods: str, images: Images, between: Between, push: Push) -> None:
    """To a blob's beginning, a part of it, or its end; and to that of the manifest."""
    between.lose = methods.split()
    name = f"lost-{methods.split()[0].lower()}"
    sif = images.tiny(name, entries=(Entry("lost", methods.encode()),))
    pushed = push(sif, f"oras://{between.address}/push/{name}:1")
    assert between.lose == []
    assert int(str(pushed["sent"])) <= 2 * (sif.stat().st_size + 2)


def test_what_the_registry_has_is_not_sent(images: Images, between: Between, push: Push) -> None:
    sif = images.tiny("sent-once")
    push(sif, f"oras://{between.address}/push/once:1")
    received = between.received
    assert push(sif, f"oras://{between.address}/push/once:2")["sent"] == 0
    assert between.received - received < 1000


def test_other_bytes_than_the_digest_says_are_not_stored(registry: Registry) -> None:
    """As from a registry whose layer is copied: one that believes the digest would have stored them."""
    target = parse(f"oras://{registry.address}/push/other:1")
    repository = Repository(Http(), own_place(target), (), "pull,push")
    right, other = b"right" * 1000, b"other" * 1000
    blob = Descriptor(SIF_LAYER, f"sha256:{hashlib.sha256(right).hexdigest()}", len(right))
    with pytest.raises(FetchError, match="has other bytes than its digest says; it was not stored"):
        upload(repository, Blob(blob, lambda start: iter((other[start:],))), lambda _: None)
    upload(repository, Blob(blob, lambda start: iter((right[start:2000], right[max(2000, start) :]))), lambda _: None)


@pytest.mark.parametrize("again", ["push/lost:1", "push/lost:2", "push/elsewhere:1"])
def test_what_the_registry_has_lost_is_sent_again(
    again: str, images: Images, shared_tmp: Path, push: Push, fetched: Callable[..., Path]
) -> None:
    """Docker's registry remembers a blob that its store has lost; the tag names the image, another has it, or none."""
    registry = Registry(shared_tmp / "cached", cached=True)
    registry.start()
    try:
        sif = images.tiny("lost-there")
        target = f"oras://{registry.address}/push/lost:1"
        push(sif, target)
        size = sif.stat().st_size
        for _ in range(2):
            blob = registry.storage / f"docker/registry/v2/blobs/sha256/{sha256(sif)[:2]}/{sha256(sif)}/data"
            blob.unlink()
            assert int(str(push(sif, f"oras://{registry.address}/{again}")["sent"])) >= size
            assert fetched(f"oras://{registry.address}/{again}", "--force").read_bytes() == sif.read_bytes()
    finally:
        registry.stop()


def test_a_registry_that_never_gives_a_blob(images: Images, between: Between, push: Push) -> None:
    sif = images.tiny("never-given")
    push(sif, f"oras://{between.address}/push/never:1")
    between.refuse = lambda method, path: 404 if method == "GET" and path.endswith(sha256(sif)) else 0
    said = push(sif, f"oras://{between.address}/push/never:2", code=10)
    assert "does not have it" in str(said)


def test_a_full_registry(large: Path, tmp_path: Path, push: Push) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-full"
    outside.mkdir()
    with small_disk(outside / "small", 12 * MB) as small:
        registry = Registry(outside / "registry", storage=small / "storage")
        registry.start()
        try:
            told = push(large, f"oras://{registry.address}/push/large:1", code=10)
            assert "answered 500 Internal Server Error" in str(told["error"])
            assert "perhaps a full disk" in str(told["hint"])
        finally:
            registry.stop()


@pytest.mark.parametrize(
    ("status", "path", "hint"),
    [
        (507, "/blobs/uploads/", "is full: remove images there"),
        (405, "/blobs/uploads/", "accepts no uploads now: it may be read-only"),
        (403, "/blobs/uploads/", "a user without a login may not push to push/refused"),
        (404, "/blobs/uploads/", "has no repository push/refused"),
        (409, "/manifests/1", "the registry may not allow overwriting a tag"),
        (403, "/manifests/1", "the registry may not allow overwriting a tag"),
    ],
)
def test_what_a_registry_refuses(
    status: int, path: str, hint: str, images: Images, between: Between, push: Push
) -> None:
    """A real one answers but for this; of registries with tags that stay, or with quotas, there is none here."""
    between.refuse = lambda method, asked: status if method in ("POST", "PUT") and asked.endswith(path) else 0
    told = push(images.tiny("refused"), f"oras://{between.address}/push/refused:1", code=10)
    assert f"answered {status} " in str(told["error"])
    assert hint in str(told["hint"])


def test_logins(images: Images, tmp_path: Path, own_home: Path, push: Push) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-password"
    outside.mkdir()
    registry = with_password(outside / "registry", outside / "storage")
    registry.start()
    try:
        target = f"oras://{registry.address}/push/guarded:1"
        assert "answered 401" in str(push(images.tiny_sif, target, code=10)["error"])
        log_in(own_home, registry.address)
        told = push(images.tiny_sif, target, code=10)
        assert "it did not accept the login in" in str(told["hint"])
        assert "secret" not in json.dumps(told)
        (own_home / ".docker/config.json").unlink()
        login = ("login", "--tls-verify=false", "-u", USER, "--password-stdin", registry.address)
        auth = own_home / ".config/containers/auth.json"
        run(("skopeo", *login, "--authfile", auth), stdin=PASSWORD).ok()
        assert push(images.tiny_sif, target)["sent"] == images.tiny_sif.stat().st_size + 2
    finally:
        registry.stop()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[Registry, TokenServer]]:
    """A registry that wants tokens, and the server that gives them."""
    outside = tmp_path.parent / f"{tmp_path.name}-tokens"
    outside.mkdir()
    tokens = TokenServer(outside)
    registry = with_tokens(outside / "registry", outside / "storage", tokens.realm, tokens.certificate)
    tokens.start()
    registry.start()
    try:
        yield registry, tokens
    finally:
        registry.stop()
        tokens.stop()


def test_a_token_is_asked_for_what_a_push_needs(
    images: Images, guarded: tuple[Registry, TokenServer], push: Push
) -> None:
    registry, tokens = guarded
    assert push(images.tiny_sif, f"oras://{registry.address}/push/token:1")["sent"]
    asked = [scope for _, query in tokens.asked for scope in query["scope"]]
    assert "repository:push/token:pull,push" in asked


@pytest.mark.parametrize("denial", [0, 401, 403])
def test_a_token_that_allows_to_pull_alone(
    images: Images, guarded: tuple[Registry, TokenServer], own_home: Path, tmp_path: Path, push: Push, denial: int
) -> None:
    """The server of tokens gives one of less than was asked for, or none: what is there stays, and nothing comes."""
    registry, tokens = guarded
    target = f"oras://{registry.address}/push/pull-alone:1"
    push(images.tiny("before"), target)
    there = disk_state(registry.storage)
    tokens.grants, tokens.denial = ("pull",), denial
    for to, option in ((target, "--force"), (f"{target}-more", "--add-to-index")):
        told = push(images.tiny_sif, to, option, code=10)
        assert f"answered {denial or 401} " in str(told["error"])
        alone = f"a user without a login may not push to push/pull-alone on {registry.address}: "
        assert str(told["hint"]).startswith("log in: `apptainer registry login" if denial == 401 else alone)
    log_in(own_home, registry.address)
    told = push(images.tiny_sif, f"{target}-more", code=10)
    refused = "it did not accept the login in" if denial == 401 else "the login in"
    assert str(told["hint"]).startswith(f"{refused} {own_home}/.docker/config.json")
    assert disk_state(registry.storage) == there
    assert sifmod(["fetch", "-q", target, "-o", str(tmp_path / "pulled.sif")]) == 0
    assert (tmp_path / "pulled.sif").read_bytes() == images.tiny("before").read_bytes()


def test_an_upload_elsewhere_gets_no_login(images: Images, tmp_path: Path, own_home: Path, push: Push) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    outside.mkdir()
    registry = with_password(outside / "registry", outside / "storage")
    registry.start()
    between, other = Between(registry.address), Between(registry.address)
    between.elsewhere = f"localhost:{other.server_address[1]}"
    between.start()
    other.start()
    try:
        log_in(own_home, between.address)
        (own_home / ".docker/config.json").write_text(
            json.dumps({"auths": {between.address: {"username": USER, "password": PASSWORD}}})
        )
        told = push(images.tiny_sif, f"oras://{between.address}/push/elsewhere:1", code=10)
        assert "answered 401" in str(told["error"])
        assert [authorization for _, _, authorization in other.asked] == [""] * len(other.asked) != []
        assert any(authorization for _, _, authorization in between.asked)
    finally:
        between.stop()
        other.stop()
        registry.stop()


def test_the_login_in_variables_is_for_the_target_alone(
    images: Images,
    registry: Registry,
    tmp_path: Path,
    push: Push,
    fetched: Callable[..., Path],
    own_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The registry of the base asked for it too, and got it."""
    outside = tmp_path.parent / f"{tmp_path.name}-base"
    outside.mkdir()
    registry.push_layout(images.tiny_layout("of-variables"), "push/of-variables:1")
    closed = with_password(outside / "registry", registry.storage)
    closed.start()
    try:
        monkeypatch.setenv("APPTAINER_DOCKER_USERNAME", USER)
        monkeypatch.setenv("APPTAINER_DOCKER_PASSWORD", PASSWORD)
        stored = fetched(f"docker://{closed.address}/push/of-variables:1")
        told = push(stored, f"docker://{registry.address}/push/variables:1", code=10)
        assert f"{closed.address} answered 401" in str(told["error"])
        assert push(stored, f"docker://{closed.address}/push/variables:1")["sent"] == 0
        auths = {closed.address: {"username": USER, "password": PASSWORD}}
        (own_home / ".docker").mkdir()
        (own_home / ".docker/config.json").write_text(json.dumps({"auths": auths}))
        assert push(stored, f"docker://{registry.address}/push/variables:2")["digest"]
    finally:
        closed.stop()


def test_an_upload_to_what_is_no_place(images: Images, between: Between, push: Push) -> None:
    between.elsewhere = "[::none"
    told = push(images.tiny_sif, f"oras://{between.address}/push/no-place:1", code=10)
    assert str(told["error"]).endswith("it is not a URL; nothing was sent there")


def test_a_tag_of_what_is_no_sif_gets_no_index(images: Images, registry: Registry, push: Push) -> None:
    target = f"oras://{registry.address}/push/short:1"
    repository = Repository(Http(), own_place(parse(target)), (), "pull,push")
    short = Descriptor(SIF_LAYER, f"sha256:{hashlib.sha256(b'short').hexdigest()}", 5)
    upload(repository, Blob(short, lambda start: iter((b"short"[start:],))), lambda _: None)
    named = {"mediaType": short.media_type, "digest": short.digest, "size": short.size}
    manifest = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": named, "layers": [named]}
    put_manifest(repository, "1", json.dumps(manifest).encode(), OCI_MANIFEST)
    told = push(images.tiny_sif, target, "--add-to-index", code=10)
    assert "does not state its architecture" in str(told["error"])
    assert read_manifest(repository, "1") == json.dumps(manifest).encode()


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("oras://127.0.0.1:1/Group/tool:1", 10, "'Group/tool' is not a valid repository name"),
        ("docker://127.0.0.1:1/a:b:c", 10, "is not a valid repository name"),
        ("oras://127.0.0.1:99999/a:1", 10, "is not a valid registry name"),
        ("docker://127.0.0.1:1/a@sha256:" + "0" * 64, 2, "is not a valid push target"),
        ("lab/tool:1", 2, "is not a valid push target"),
        ("oci:layout", 2, "is not a valid push target"),
        ("oras://me:secret@127.0.0.1:1/a:1", 10, "a source must not contain a login (the text before @)"),
    ],
)
def test_what_is_no_target(target: str, code: int, said: str, images: Images, push: Push) -> None:
    told = push(images.tiny_sif, target, code=code)
    assert said in str(told["error"])
    assert "secret" not in json.dumps(told)


def test_what_is_no_sif(tmp_path: Path, registry: Registry, push: Push) -> None:
    text = tmp_path / "x.sif"
    text.write_text("no image\n")
    for scheme in ("oras", "docker"):
        assert "is not a SIF" in str(push(text, f"{scheme}://{registry.address}/push/none:1", code=10)["error"])
