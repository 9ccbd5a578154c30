"""An image of another tree's store: found by its digest before any source is asked, and taken as `link` says."""

import os
import time
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.config.site import Link
from sifmod.errors import FetchError
from sifmod.image.fetch import announced_size
from sifmod.image.settings import Settings
from sifmod.module.plan import Plan
from sifmod.tree.stored_image import read_stored
from support.config import write
from support.disk_state import disk_state
from support.fetching import Prefix, plan
from support.images import Images
from support.module_tool import ModuleTool
from support.registry import Registry

NOWHERE = "https://127.0.0.1:9/none.sif"


@pytest.fixture
def lender(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path / "site")


@pytest.fixture
def own(tmp_path: Path, lender: Prefix) -> Prefix:
    return Prefix(tmp_path / "own", tmp_path / "no-such-tree", lender.path)


def announced(prefix: Prefix, wanted: Plan) -> int | None:
    with prefix.store() as store:
        return announced_size(wanted.required_image, wanted.runtime, store)


@pytest.mark.parametrize("link", ["copy", "hardlink", "reference"])
def test_what_is_promised_comes_from_the_other_store(own: Prefix, lender: Prefix, images: Images, link: Link) -> None:
    there = lender.fetch(plan(images.tiny_sif))
    before = disk_state(lender.path / "images" / "sha256") if link != "hardlink" else {}
    wanted = plan(NOWHERE, sha256=there.sha256, link=link, offline=True)
    assert announced(own, wanted) == (0 if link == "reference" else there.size)
    artifact = own.fetch(wanted)
    assert (artifact.sha256, artifact.size, artifact.source) == (there.sha256, there.size, NOWHERE)
    if link == "reference":
        assert artifact.path == there.path
        assert list(own.layout.images.glob("*")) == []
    else:
        assert artifact.path == own.layout.image(there.sha256)
        assert artifact.path.samefile(there.path) == (link == "hardlink")
        assert own.fetch(wanted).path == artifact.path
    if before:
        assert disk_state(lender.path / "images" / "sha256") == before


@pytest.mark.parametrize("link", ["copy", "reference"])
def test_what_was_converted_there_is_taken_with_what_it_was_made_from(
    own: Prefix, lender: Prefix, images: Images, registry: Registry, tmp_path: Path, link: Link
) -> None:
    """By the digest of the manifest, which no server is asked for; and then given on to a third tree."""
    tag = registry.push_layout(images.tiny_layout(), "lent:1.0")
    there = lender.fetch(plan(tag))
    source = f"{tag}@{there.origin.manifest}"
    wanted = plan(source, link=link, offline=True)
    assert announced(own, plan(source, link=link)) == (0 if link == "reference" else there.size)
    artifact = own.fetch(wanted)
    assert (artifact.sha256, artifact.origin) == (there.sha256, there.origin)
    if link == "copy":
        taken, given = read_stored(own.layout, there.sha256), read_stored(lender.layout, there.sha256)
        assert taken is not None
        assert given is not None
        assert (taken.origin, taken.given) == (given.origin, given.given)
        assert Prefix(tmp_path / "third", own.path).fetch(wanted).origin == there.origin
    told: list[str] = []
    again = Prefix(tmp_path / "fourth", lender.path).fetch(plan(tag, link=link), lambda what, *_: told.append(what))
    assert (again.sha256, [what for what in told if what.startswith("converting")]) == (there.sha256, [])


@pytest.mark.parametrize("link", ["copy", "reference"])
@pytest.mark.parametrize("by", ["tag", "digest"])
@pytest.mark.parametrize("kind", ["docker", "oras"])
def test_what_another_store_has_is_announced_as_what_it_brings(
    own: Prefix, lender: Prefix, images: Images, registry: Registry, kind: str, by: str, link: Link
) -> None:
    """Of each kind of registry's image: the bytes of a copy, or none, and those are all that comes."""
    if kind == "docker":
        source = registry.push_layout(images.tiny_layout(), "announced:1.0")
    else:
        source = registry.push_sif(images.tiny_sif, "announced-sif:1.0")
    there = lender.fetch(plan(source))
    named = source if by == "tag" else f"{source.rpartition(':')[0]}@{there.origin.manifest}"
    wanted = plan(named, link=link)
    told: list[str] = []
    before = announced(own, wanted)
    assert own.fetch(wanted, lambda what, *_: told.append(what)).sha256 == there.sha256
    came = sum(path.stat().st_size for path in own.layout.images.glob("*.sif"))
    assert (before, came) == ((0, 0) if link == "reference" else (there.size, there.size))
    assert [what for what in told if what.startswith(("downloading", "converting"))] == []
    assert announced(own, wanted) == 0


def test_what_is_damaged_there_is_fetched_from_its_source(own: Prefix, lender: Prefix, images: Images) -> None:
    there = lender.fetch(plan(images.tiny_sif))
    good = there.path.read_bytes()
    there.path.chmod(0o644)
    there.path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    links: tuple[Link, Link] = ("reference", "copy")
    for link in links:
        with pytest.raises(FetchError):
            own.fetch(plan(NOWHERE, sha256=there.sha256, link=link, offline=True))
        assert list(own.layout.images.glob("*")) == []
    artifact = own.fetch(plan(images.tiny_sif, sha256=there.sha256))
    assert (artifact.path, artifact.path.read_bytes()) == (own.layout.image(there.sha256), good)


def test_what_is_fetched_afresh_is_not_taken(own: Prefix, lender: Prefix, images: Images) -> None:
    there = lender.fetch(plan(images.tiny_sif))
    with pytest.raises(FetchError):
        own.fetch(plan(NOWHERE, sha256=there.sha256, offline=True), settings=Settings(fresh=True))
    there.path.with_suffix(".json").write_text("[")
    with pytest.raises(FetchError):
        own.fetch(plan(NOWHERE, sha256=there.sha256, offline=True))


def test_a_load_renews_the_mark_and_tells_of_an_image_that_is_gone(
    module_tool: ModuleTool, images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, own = tmp_path / "site", tmp_path / "own"
    write(tmp_path / "etc-sifmod.d/a.yaml", f"sharing: site\nprefix: {site}\nlink: reference\n")
    monkeypatch.setenv("SIFMOD_MODULE_SYNTAX", module_tool.syntax)
    assert run(["fetch", str(images.tiny_sif)]) == 0
    (image,) = site.glob("images/sha256/*.sif")
    easyconfig = tmp_path / "Mine-1.0.yaml"
    easyconfig.write_text(
        f"name: Mine\nversion: '1.0'\nimage: {{sources: ['{NOWHERE}'], sha256: {image.stem}, filename: mine.sif}}\n"
    )
    assert run(["install", str(easyconfig), "--prefix", str(own), "--skip-sanity-check"]) == 0
    (mark,) = site.glob("images/marks/*")
    os.utime(mark, (0, 0))
    assert module_tool.run("module load Mine; [ -s $SIF ] && echo there", own / "modules").stdout == "there\n"
    assert time.time() - mark.stat().st_mtime < 60
    image.unlink()
    told = "".join(module_tool.run("module load Mine", own / "modules").stderr.split())
    assert f"mine.sif;nothingwaschanged;`sifmodinstall{easyconfig}--prefix{own}`bringsitback" in told
