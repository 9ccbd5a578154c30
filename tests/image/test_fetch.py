"""From a plan's image to an Artifact: which source wins, what is promised, and what a failure leaves: nothing."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.errors import FetchError, ImageError
from sifmod.image.fetch import fetch_image
from sifmod.module.plan import Plan
from support.fetching import Prefix, plan
from support.images import Images
from support.web import Web, answer


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path / "prefix")


@pytest.fixture
def mine(images: Images, tmp_path: Path) -> Path:
    """A good SIF of the user."""
    path = tmp_path / "mine.sif"
    path.write_bytes(images.tiny_sif.read_bytes())
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def refused(prefix: Prefix, wanted: Plan, *others: Path) -> FetchError:
    """The error, asserting that the disk is as before."""
    before = prefix.state(*others)
    with pytest.raises(FetchError) as caught:
        prefix.fetch(wanted)
    assert prefix.state(*others) == before
    return caught.value


def test_the_first_source_that_works_wins(images: Images, prefix: Prefix, mine: Path) -> None:
    other = images.tiny("other")
    artifact = prefix.fetch(plan("/no/such.sif", "nowhere.sif", mine, other))
    assert (artifact.source, artifact.sha256) == (str(mine), digest(mine))
    assert prefix.images() == [f"{digest(mine)}.sif"]


def test_a_source_that_breaks_the_promise_is_passed_over(images: Images, prefix: Prefix, mine: Path) -> None:
    other = images.tiny("other")
    artifact = prefix.fetch(plan(other, mine, sha256=digest(mine)))
    assert (artifact.source, artifact.sha256, artifact.notes) == (str(mine), digest(mine), ())
    assert prefix.images() == [f"{digest(mine)}.sif"]


def test_when_all_fail_each_source_is_named_with_its_reason(
    images: Images, prefix: Prefix, mine: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.sif"
    page.write_text("<html>no</html>")
    server = Web()
    server.start()
    sources = ("nowhere.sif", page, images.foreign("arm64"), server.url("/x.sif"), f"oci:{tmp_path}", mine)
    error = refused(prefix, plan(*sources, sha256="0" * 64), mine, page)
    server.stop()
    lines = error.message.split("\n")
    assert lines[0] == "no source of the image tiny.sif worked; it was not stored"
    reasons = [
        "nowhere.sif: no file with this name",
        f"{page}: {page} is not a SIF: it is an HTML page",
        "expected amd64, its header says arm64",
        f"{server.url('/x.sif')}: localhost:{server.server_address[1]} answered 404 Not Found",
        f"oci:{tmp_path}: {tmp_path} is not an OCI layout",
        f"{mine}: tiny.sif has a wrong SHA-256 and was refused",
    ]
    told = [line for line in lines[1:] if not line.startswith("    ")]
    assert len(told) == len(reasons)
    assert all(reason in line for reason, line in zip(reasons, told, strict=True))
    assert "check whether the file has moved" in error.hint
    assert error.exit_code == 10


def test_what_the_store_has_is_not_fetched_again(prefix: Prefix, mine: Path) -> None:
    first = prefix.fetch(plan(mine, sha256=digest(mine)))
    promised = digest(mine)
    mine.unlink()
    before = prefix.state()
    for sources in ((mine,), ("https://no-such-host.invalid/x.sif",), ("docker://no-such-host.invalid/x",)):
        again = prefix.fetch(plan(*sources, sha256=promised, link="hardlink", offline=True))
        assert (again.path, again.sha256, again.size) == (first.path, promised, first.size)
        assert again.source == str(sources[0])
    assert prefix.state() == before


def test_a_stored_image_for_another_architecture_is_refused(images: Images, prefix: Prefix) -> None:
    foreign = images.foreign("arm64")
    wanted = plan(foreign, sha256=digest(foreign))
    prefix.fetch(replace(wanted, image=replace(wanted.required_image, arch="arm64")))
    before = prefix.state()
    with pytest.raises(ImageError, match="expected amd64, its header says arm64"):
        prefix.fetch(wanted)
    assert prefix.state() == before


def test_the_same_image_again_changes_nothing(prefix: Prefix, mine: Path) -> None:
    first = prefix.fetch(plan(mine))
    before = prefix.state(mine)
    assert prefix.fetch(plan(mine)) == first
    assert prefix.state(mine) == before


def test_an_image_without_a_promise_comes_with_its_digest(prefix: Prefix, mine: Path) -> None:
    (note,) = prefix.fetch(plan(mine)).notes
    assert note == f"no digest is pinned; to pin this image add to `image:`  sha256: {digest(mine)}"


@pytest.mark.parametrize("source", ["dockr://x", "http://example.org/x.sif", "https://me:secret@host/x.sif"])
def test_a_misspelled_source_is_told_although_another_works(prefix: Prefix, mine: Path, source: str) -> None:
    error = refused(prefix, plan(mine, source), mine)
    assert error.message.startswith("source ")
    assert "secret" not in error.message


def test_no_source_at_all_is_told(prefix: Prefix) -> None:
    error = refused(prefix, plan())
    assert error.message == "the easyconfig names no source of the image tiny.sif"
    assert "--source" in error.hint


def test_offline_only_local_sources_are_tried(prefix: Prefix, mine: Path, images: Images) -> None:
    server = Web()
    server.start()
    server.answers["/x.sif"] = answer(200, mine.read_bytes())
    remote = (server.url("/x.sif"), f"docker://127.0.0.1:{server.server_address[1]}/x", "library://a/b/c")
    error = refused(prefix, plan(*remote, offline=True))
    assert error.message.count("skipped: it needs the network, and --offline was given") == len(remote)
    mine.with_suffix(".def").write_text("Bootstrap: docker\n")
    build = refused(prefix, plan(build=mine.with_suffix(".def"), offline=True))
    assert "skipped: it needs the network" in build.message
    assert prefix.fetch(plan(*remote, mine, offline=True)).source == str(mine)
    layout = f"oci:{images.tiny_layout()}"
    assert prefix.fetch(plan(*remote, layout, offline=True)).source == layout
    server.stop()
    assert server.asked == []


@pytest.mark.parametrize("link", ["copy", "hardlink", "reference"])
def test_whatever_interrupts_a_fetch_leaves_nothing(prefix: Prefix, mine: Path, link: str) -> None:
    mine.chmod(0o444)
    before = prefix.state(mine)

    def interrupt(what: str, done: int, total: int | None) -> None:
        assert (bool(what), done <= (total or 0)) == (True, True)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), prefix.store() as store:
        wanted = plan(mine, link=link)  # type: ignore[arg-type]
        fetch_image(wanted.required_image, wanted.runtime, store, interrupt)
    assert prefix.state(mine) == before
