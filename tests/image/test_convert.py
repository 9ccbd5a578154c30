"""Conversion as a source: what an OCI image becomes, where it is looked for first, and what a failure leaves."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.config.easyconfig import Conversion
from sifmod.errors import FetchError
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.disk import NoSpaceError
from sifmod.image.settings import Settings
from sifmod.module.plan import Plan, Runtime
from sifmod.tree.generation import tidy
from sifmod.tree.partial import partials
from support.command import run
from support.disk_state import disk_state
from support.fetching import Prefix, conversion_of, plan
from support.identity import call_as, call_on_small_disk
from support.images import Images
from support.oci import Entry
from support.processes import marked, wait_until, with_mark
from support.registry import Registry
from support.runtime import RUNTIME
from support.tree import tree_of
from support.user import OrdinaryUser
from support.web import Web, answer, raw


@pytest.fixture(params=["prefix", "a prefix @ü+"])
def prefix(tmp_path: Path, request: pytest.FixtureRequest) -> Prefix:
    return Prefix(tmp_path / request.param)


@pytest.fixture
def one_prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path / "prefix")


def inside(sif: Path, *command: str) -> str:
    with tempfile.TemporaryDirectory() as home:
        return run((RUNTIME.path, "-q", "exec", sif, *command), env={**os.environ, "HOME": home}).ok().stdout


def variant(sif: Path) -> str:
    """Which of the tiny images it is; the real runtime looks inside, with a home of its own."""
    return inside(sif, "cat", "/etc/variant").strip()


def copy(source: str, target: str) -> None:
    run(("skopeo", "--insecure-policy", "copy", "--quiet", source, target)).ok()


def refused(prefix: Prefix, wanted: Plan) -> FetchError:
    """The error, asserting that the disk is as before."""
    before = prefix.state()
    with pytest.raises(FetchError) as caught:
        prefix.fetch(wanted)
    assert prefix.state() == before
    return caught.value


def manifest_of(layout: Path) -> str:
    return str(json.loads((layout / "index.json").read_text())["manifests"][0]["digest"])


def promising(wanted: Plan, sha256: str, conversion: Conversion | None = None) -> Plan:
    return replace(wanted, image=replace(wanted.required_image, sha256=sha256, conversion=conversion))


def test_a_layout_becomes_a_sif_in_the_store(images: Images, prefix: Prefix, own_home: Path) -> None:
    layout = images.tiny_layout("first")
    before = disk_state(layout)
    told: list[str] = []
    artifact = prefix.fetch(plan(f"oci:{layout}"), lambda what, *_: told.append(what))
    assert artifact.path == prefix.layout.image(artifact.sha256)
    assert run(("sha256sum", artifact.path)).ok().stdout.split()[0].lstrip("\\") == artifact.sha256
    assert read_sif(artifact.path).arch == artifact.arch == "amd64"
    assert artifact.size == artifact.path.stat().st_size
    assert artifact.notes == ()
    assert artifact.origin.manifest == manifest_of(layout)
    assert variant(artifact.path) == "first"
    assert "converting tiny.sif" in told
    assert disk_state(layout) == before
    assert list(own_home.iterdir()) == []
    assert prefix.images() == [artifact.path.name]


@pytest.mark.parametrize("tag", ["one", "two"])
def test_a_tag_chooses_the_image_of_a_layout(images: Images, one_prefix: Prefix, tmp_path: Path, tag: str) -> None:
    layout = tmp_path / "a layout: with @ signs"
    for name in ("one", "two"):
        copy(f"oci:{images.tiny_layout(name)}", f"oci:{tmp_path / 'layout'}:{name}")
    (tmp_path / "layout").rename(layout)
    assert variant(one_prefix.fetch(plan(f"oci:{layout}:{tag}")).path) == tag


@pytest.mark.parametrize("kind", ["oci-archive", "docker-archive"])
def test_archives_are_sources(images: Images, one_prefix: Prefix, tmp_path: Path, kind: str) -> None:
    archive = tmp_path / "an archive.tar"
    name = {"oci-archive": "one", "docker-archive": "some/name:1.0"}[kind]
    copy(f"oci:{images.tiny_layout('one')}", f"{kind}:{tmp_path}/x.tar:{name}")
    (tmp_path / "x.tar").rename(archive)
    assert variant(one_prefix.fetch(plan(f"{kind}:{archive}")).path) == "one"
    assert variant(one_prefix.fetch(plan(f"{kind}:{archive}:{name}")).path) == "one"
    assert "other" in refused(one_prefix, plan(f"{kind}:{archive}:other")).message


def test_a_registry_is_a_source(
    images: Images, one_prefix: Prefix, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = registry.push_layout(images.tiny_layout("pushed"), "tiny:1.0")
    inspect = ("skopeo", "inspect", "--tls-verify=false", "--format={{.Digest}}", reference)
    digest = run(inspect).ok().stdout.strip()
    home = tmp_path / "a home that skopeo has not written to"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    first = one_prefix.fetch(plan(reference))
    assert (variant(first.path), first.source) == ("pushed", reference)
    assert first.notes == (
        f"no digest is pinned; to pin this image write its source as  docker://{registry.address}/tiny@{digest}",
    )
    pinned = one_prefix.fetch(plan(f"{reference}@{digest}"))
    assert (pinned.path, pinned.notes) == (first.path, ())
    assert list(home.iterdir()) == []
    assert not one_prefix.layout.partials.exists()


def test_what_was_converted_before_is_not_converted_again(
    images: Images, one_prefix: Prefix, registry: Registry
) -> None:
    reference = registry.push_layout(images.tiny_layout("pushed"), "again:1.0")
    first = one_prefix.fetch(plan(reference))
    told: list[str] = []
    again = one_prefix.fetch(plan(reference), lambda what, *_: told.append(what))
    assert (again.path, again.origin, told) == (first.path, first.origin, [])
    fresh = one_prefix.fetch(plan(reference), lambda what, *_: told.append(what), Settings(fresh=True))
    assert fresh.sha256 == first.sha256
    assert "converting tiny.sif" in told


def test_the_same_image_gives_the_same_bytes(images: Images, registry: Registry, tmp_path: Path) -> None:
    layout = images.tiny_layout("pushed")
    reference = registry.push_layout(layout, "same:1.0")
    registry.push_layout(layout, "same:2.0")
    copied = tmp_path / "copied"
    run(("cp", "-r", layout, copied)).ok()
    one, two = (
        [
            Prefix(tmp_path / f"{number}{processors}").fetch(plan(source), settings=Settings(processors=processors))
            for number, source in enumerate(sources)
            for processors in (1, 3)
        ]
        for sources in ((f"oci:{layout}", f"oci:{copied}"), (reference, reference.replace(":1.0", ":2.0")))
    )
    assert len({artifact.sha256 for artifact in one}) == 1
    assert len({artifact.sha256 for artifact in two}) == 1


# SingularityCE starts no zstd
EVERY = ["gzip:1", "gzip:6", "lz4", *(["zstd:1", "zstd:19"] if RUNTIME.compression == "zstd" else [])]


@pytest.mark.parametrize("how", EVERY)
def test_every_compression_runs(images: Images, one_prefix: Prefix, how: str) -> None:
    artifact = one_prefix.fetch(plan(f"oci:{images.tiny_layout()}"), settings=Settings(compression=how))
    assert artifact.origin.compression == how
    assert variant(artifact.path) == "tiny"


def fake_runtime(directory: Path, says: str) -> Runtime:
    """A program that says which version it is, and nothing else."""
    program = directory / "runtime"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    return Runtime("apptainer", str(program))


@pytest.mark.parametrize(
    ("says", "how"),
    [
        ("apptainer version 1.4.0", "zstd:3"),
        ("apptainer version 1.10.2-1.el9", "zstd:3"),
        ("apptainer version 1.3.6", "gzip:2"),
        ("singularity-ce version 4.1.2", "gzip:2"),
        ("singularity version 3.8.7-1.el8", "gzip:2"),
        ("something else", "gzip:2"),
    ],
)
def test_the_runtime_decides_the_compression(
    images: Images, one_prefix: Prefix, tmp_path: Path, says: str, how: str
) -> None:
    wanted = replace(plan(f"oci:{images.tiny_layout()}"), runtime=fake_runtime(tmp_path, says))
    assert one_prefix.fetch(wanted).origin.compression == how


def test_no_runtime_is_needed(images: Images, one_prefix: Prefix) -> None:
    for path in ("", "/no/such"):
        wanted = replace(plan(f"oci:{images.tiny_layout()}"), runtime=Runtime("apptainer", path))
        artifact = one_prefix.fetch(wanted)
        assert artifact.origin.compression == "gzip:2"
    assert variant(artifact.path) == "tiny"


def test_a_promise_of_the_sif_is_kept(images: Images, one_prefix: Prefix, tmp_path: Path) -> None:
    wanted = plan(f"oci:{images.tiny_layout()}")
    first = one_prefix.fetch(wanted)
    made = conversion_of(first)
    other = Prefix(tmp_path / "other")
    assert other.fetch(promising(wanted, first.sha256, made)).notes == ()
    assert other.images() == [first.path.name]


def test_another_sif_than_the_promised_one_must_hold_the_same_files(
    images: Images, one_prefix: Prefix, tmp_path: Path
) -> None:
    wanted = plan(f"oci:{images.tiny_layout()}")
    first = one_prefix.fetch(wanted)
    older = conversion_of(first).model_copy(update={"tools": (("libzstd", "1.0"),)})
    other = Prefix(tmp_path / "other")
    (note,) = other.fetch(promising(wanted, "0" * 64, older)).notes
    assert "its files are the same" in note
    other_files = {"tree": "1" * 64}
    changed = refused(Prefix(tmp_path / "third"), promising(wanted, "0" * 64, older.model_copy(update=other_files)))
    assert f"expected {'1' * 64}" in changed.message
    same_tools = older.model_copy(update={"tools": first.origin.tools})
    fourth = Prefix(tmp_path / "fourth")
    (note,) = fourth.fetch(promising(wanted, "0" * 64, same_tools)).notes
    assert note.startswith("the same tools on another machine made a SIF")
    promised = promising(wanted, "0" * 64, same_tools.model_copy(update=other_files))
    broken = refused(Prefix(tmp_path / "fifth"), promised)
    assert f"expected {'1' * 64}\n    got      {older.tree}" in broken.message
    assert "replaced at its source" in broken.hint


def test_a_promise_without_what_made_it_is_held_to_the_byte(images: Images, one_prefix: Prefix) -> None:
    error = refused(one_prefix, plan(f"oci:{images.tiny_layout()}", sha256="0" * 64))
    assert f"expected {'0' * 64}" in error.message
    assert "`sifmod fetch` prints the digest to pin" in error.hint


def test_a_digest_that_does_not_exist_is_told(images: Images, one_prefix: Prefix, registry: Registry) -> None:
    reference = registry.push_layout(images.tiny_layout("pushed"), "tiny:1.0")
    error = refused(one_prefix, plan(f"{reference}@sha256:{'0' * 64}"))
    assert "404" in error.message


@pytest.mark.parametrize(
    "source", ["oci:{}/nothing", "oci:{}", "oci-archive:{}/x", "docker-archive:{}/x", "library://a/b/c:d"]
)
def test_what_is_not_there_is_told(one_prefix: Prefix, tmp_path: Path, source: str) -> None:
    source = source.format(tmp_path)
    assert f"  {source}: " in refused(one_prefix, plan(source)).message


def damage(layout: Path, change: Callable[[bytes], bytes]) -> None:
    largest = max((layout / "blobs" / "sha256").iterdir(), key=lambda blob: blob.stat().st_size)
    largest.write_bytes(change(largest.read_bytes()))


@pytest.mark.parametrize(
    "change",
    [
        lambda content: b"damaged" + content[7:],
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2] + b"X" + content[len(content) // 2 + 1 :],
        lambda content: content[:-20] + bytes(range(1, 21)),
        lambda content: b"\0" * len(content),
    ],
    ids=["another", "cut", "in the middle", "at the end", "zeros"],
)
def test_a_damaged_layer_is_refused(
    images: Images, one_prefix: Prefix, tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    layout = tmp_path / "layout"
    run(("cp", "-r", images.tiny_layout(), layout)).ok()
    damage(layout, change)
    assert "layer" in refused(one_prefix, plan(f"oci:{layout}")).message


def test_an_ordinary_user_whose_home_cannot_be_written(
    images: Images, ordinary_user: OrdinaryUser, shared_tmp: Path, one_prefix: Prefix
) -> None:
    layout = shared_tmp / "layout"
    run(("cp", "-r", images.tiny_layout("first"), layout)).ok()
    home = shared_tmp / "locked"
    home.mkdir(mode=0o500)
    ordinary_user.own(home)

    def fetch() -> tuple[Path, int, str]:
        os.environ.update(HOME=str(home))
        for name in RUNTIME.userns:
            os.environ.pop(name, None)
        artifact = Prefix(ordinary_user.home / "prefix").fetch(plan(f"oci:{layout}"))
        return artifact.path, artifact.size, artifact.sha256

    path, size, sha256 = call_as(ordinary_user.user, fetch)
    assert (path.stat().st_size, path.stat().st_uid) == (size, ordinary_user.user.uid)
    assert variant(path) == "first"
    assert list(home.iterdir()) == []
    assert sha256 == one_prefix.fetch(plan(f"oci:{layout}")).sha256, "it does not matter who converts"


def test_a_disk_that_fills_up_meanwhile_leaves_nothing(images: Images, tmp_path: Path) -> None:
    noise = Entry("opt/noise", random.Random(1).randbytes(5_000_000), mode=0o644)
    zeros = Entry("opt/large", random.Random(2).randbytes(1000) * 20_000, mode=0o644)  # compressed well by gzip only
    layout = images.tiny_layout("big", entries=(noise,))
    compressible = images.tiny_layout("compressible", entries=(zeros,))

    def fetch() -> None:
        prefix = Prefix(tmp_path / "disk" / "prefix")
        before = prefix.state()
        for source in (layout, compressible):
            with pytest.raises(NoSpaceError) as caught:
                prefix.fetch(plan(f"oci:{source}"), settings=Settings(compression="lz4"))
            assert "space" in caught.value.message.lower()
            assert "free some space" in caught.value.hint
            assert prefix.state() == before

    call_on_small_disk(tmp_path / "disk", 4 << 20, fetch)


INSTALLER = """
import signal, sys
from pathlib import Path
from support.fetching import Prefix, plan

def stop(number, frame):
    sys.exit(128 + number)

def progress(what, done, total):
    if done:
        Path(sys.argv[3]).touch()
        import time
        time.sleep(98765)

signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, signal.default_int_handler)
Prefix(Path(sys.argv[1])).fetch(plan(sys.argv[2]), progress)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=str)
@pytest.mark.parametrize("during", ["connecting", "converting"])
def test_nothing_is_left_when_we_are_stopped(
    images: Images, one_prefix: Prefix, tmp_path: Path, number: signal.Signals, during: str
) -> None:
    web = Web()
    web.start()
    web.answers["/v2/x/manifests/1"] = raw(hang=True)
    marker = tmp_path / "converting"
    source = {
        "connecting": f"docker://127.0.0.1:{web.server_address[1]}/x:1",
        "converting": f"oci:{images.tiny_layout()}",
    }[during]
    before = one_prefix.state()
    script = (sys.executable, "-c", INSTALLER, str(one_prefix.path), source, str(marker))
    env = with_mark(str(tmp_path), {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    installer = subprocess.Popen(script, env=env, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: bool(web.asked) or marker.exists())
        installer.send_signal(number)
        assert installer.wait() != 0
        wait_until(lambda: not marked(str(tmp_path)))
    finally:
        installer.kill()
        web.stop()
    if number == signal.SIGKILL:
        tidy(tree_of(one_prefix.layout, 30, print))  # as the next install does
        with one_prefix.store() as store:
            for partial in partials(one_prefix.layout):
                with store.partial(partial.key):
                    pass
    assert one_prefix.state() == before


def test_an_answer_that_is_a_login_page_is_told(one_prefix: Prefix) -> None:
    web = Web()
    web.start()
    web.answers["/v2/x/manifests/1"] = answer(200, b"<html><title>Log in</title></html>")
    error = refused(one_prefix, plan(f"docker://127.0.0.1:{web.server_address[1]}/x:1"))
    web.stop()
    assert "not JSON" in error.message
