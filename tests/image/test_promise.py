"""What a lock promises of a converted image: the same on every machine, whoever fetched what before, however it is
spelled."""

from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.config.easyconfig import Conversion
from sifmod.image.artifact import Artifact
from sifmod.image.inspect.rootfs import tree_digest
from sifmod.image.settings import Settings
from sifmod.module.plan import Plan
from support.command import run
from support.conversion import push
from support.fetching import Prefix, conversion_of, plan
from support.images import Images
from support.oci import Entry
from support.registry import Registry
from support.runtime import RUNTIME

SPELLINGS = (
    "docker://tiny-{}",
    "docker://docker.io/library/tiny-{}",
    "docker://index.docker.io/library/tiny-{}",
    "docker://registry-1.docker.io/tiny-{}",
    "docker://Docker.io/tiny-{}",
)


def hub(registry: Registry, images: Images, name: str) -> tuple[tuple[str, ...], Settings]:
    """Spellings of an image of Docker Hub's library, and settings under which `registry` stands in for Docker Hub."""
    registry.push_layout(images.tiny_layout(name), f"library/tiny-{name}:latest")
    return tuple(one.format(name) for one in SPELLINGS), Settings(mirrors=(("docker.io", (registry.address,)),))


def promise(found: Artifact) -> tuple[str, Conversion]:
    """What `fetch --json` says of it."""
    return found.sha256, conversion_of(found)


def promised(wanted: Plan, by: Artifact) -> Plan:
    sha256, conversion = promise(by)
    return replace(wanted, image=replace(wanted.required_image, sha256=sha256, conversion=conversion))


def origins(sif: Path) -> tuple[str, str]:
    """Where a SIF says that it was made from: its definition, and the same in its labels; as the runtime shows them."""
    deffile = run((RUNTIME.path, "inspect", "--deffile", sif)).ok().stdout
    (label,) = [
        line.split(": ", 1)[1]
        for line in run((RUNTIME.path, "inspect", "--labels", sif)).ok().stdout.splitlines()
        if "deffile.from" in line
    ]
    return deffile.split("from: ")[1].strip(), label


def test_every_spelling_makes_the_same_promise_in_every_prefix(
    images: Images, registry: Registry, tmp_path: Path
) -> None:
    spellings, settings = hub(registry, images, "spelled")
    found = [
        Prefix(tmp_path / str(number)).fetch(plan(source), settings=settings) for number, source in enumerate(spellings)
    ]
    assert len({str(promise(one)) for one in found}) == 1
    expected = f"docker.io/library/tiny-spelled@{found[0].origin.manifest}"
    assert origins(found[0].path) == (expected, expected)


def test_a_spelling_is_no_reason_to_convert_again(images: Images, registry: Registry, tmp_path: Path) -> None:
    spellings, settings = hub(registry, images, "reused")
    prefix = Prefix(tmp_path / "prefix")
    first = prefix.fetch(plan(spellings[0]), settings=settings)
    told: list[str] = []
    again = [prefix.fetch(plan(source), lambda what, *_: told.append(what), settings) for source in spellings]
    assert {one.path for one in again} == {first.path}
    assert told == []


def test_a_promise_made_after_another_repositorys_fetch_is_kept_elsewhere(
    images: Images, registry: Registry, tmp_path: Path
) -> None:
    layout = images.tiny_layout("twice")
    one, two = (push(registry, layout, f"{name}/twice:1.0") for name in ("one", "two"))
    mixed = Prefix(tmp_path / "mixed")
    layouts = [mixed.fetch(plan(f"oci:{layout}")), mixed.fetch(plan(one))]
    found = mixed.fetch(plan(two))
    assert found.origin.manifest == layouts[0].origin.manifest == layouts[1].origin.manifest
    assert len(mixed.images()) == 3
    fresh = Prefix(tmp_path / "fresh").fetch(promised(plan(two), found))
    assert (fresh.sha256, fresh.notes) == (found.sha256, ())
    assert mixed.fetch(plan(two)).path == found.path


def test_the_files_digest_does_not_say_where_they_came_from(images: Images, registry: Registry, tmp_path: Path) -> None:
    layout = images.tiny_layout("whence")
    sources = (f"oci:{layout}", *(push(registry, layout, f"{name}/whence:1.0") for name in ("one", "two")))
    prefix = Prefix(tmp_path / "prefix")
    found = [prefix.fetch(plan(source)) for source in sources]
    assert len({one.sha256 for one in found}) == len(sources)
    assert len({tree_digest(one.path) for one in found}) == 1
    other = prefix.fetch(plan(f"oci:{images.tiny_layout('elsewhere')}"))
    assert tree_digest(other.path) != tree_digest(found[0].path)


def test_nor_where_the_image_leads_the_metadata_elsewhere(images: Images, registry: Registry, tmp_path: Path) -> None:
    entries = (Entry("opt/metadata"), Entry(".singularity.d", link="opt/metadata"))
    layout = images.tiny_layout("led", entries=entries)
    sources = (f"oci:{layout}", push(registry, layout, "led:1.0"))
    found = [Prefix(tmp_path / str(number)).fetch(plan(source)) for number, source in enumerate(sources)]
    one, two = (tree_digest(artifact.path) for artifact in found)
    assert one == two


def test_what_older_tools_made_is_promised_as_theirs(images: Images, registry: Registry, tmp_path: Path) -> None:
    source = registry.push_layout(images.tiny_layout("older"), "older:1.0")
    prefix = Prefix(tmp_path / "prefix")
    made = prefix.fetch(plan(source))
    record = made.path.with_suffix(".json")
    library = made.origin.tools[-1][1]
    record.write_text(record.read_text().replace(f'"{library}"]', '"0.9"]'))
    again = prefix.fetch(plan(source))
    assert (again.path, again.origin.tools[-1][1]) == (made.path, "0.9")
    (note,) = Prefix(tmp_path / "fresh").fetch(promised(plan(source), replace(again, sha256="0" * 64))).notes
    assert "its files are the same" in note


@pytest.mark.parametrize("old", [True, False])
def test_a_record_that_does_not_say_what_gave_the_image(
    images: Images, registry: Registry, tmp_path: Path, old: bool
) -> None:
    source = registry.push_layout(images.tiny_layout("recorded"), "recorded:1.0")
    prefix = Prefix(tmp_path / "prefix")
    first = prefix.fetch(plan(source))
    record = first.path.with_suffix(".json")
    if old:
        start, _, rest = record.read_text().partition(', "given"')
        record.write_text(start + rest.partition("]")[2])
    told: list[str] = []
    again = prefix.fetch(plan(source), lambda what, *_: told.append(what))
    assert again.path == first.path
    assert ("converting tiny.sif" in told) is old
    assert again.origin == first.origin
    if old:  # what it was made from is known from then on
        assert prefix.fetch(plan(source), lambda *_: pytest.fail("nothing is to be done")).path == first.path
