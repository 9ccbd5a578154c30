"""The commands of an image, found in its files."""

from collections.abc import Iterator

import pytest

from sifmod.image.convert.sif.header import read_sif
from sifmod.image.inspect.rootfs import USUAL_PATH, Rootfs, find_command, open_rootfs, search_path
from support.images import Images
from support.oci import Entry


@pytest.fixture
def rootfs(images: Images) -> Iterator[Rootfs]:
    entries = (
        Entry("opt/a/bin/tool", b"#!/bin/sh\n"),
        Entry("opt/a/bin/notes", b"text", mode=0o644),
        Entry("opt/a/bin/inner"),
        Entry("opt/a/bin/other", link="../../../usr/../bin/sh"),
        Entry("opt/a/bin/loop", link="loop"),
        Entry("opt/a/bin/outside", link="../../../../../../../bin/cat"),
        Entry("opt/a/bin/nothing", link="/none"),
        Entry("opt/b", link="a"),
        Entry("opt/a/bin/\udcff", b"#!/bin/sh\n"),
    )
    sif = images.tiny("commands", entries=entries)
    with open_rootfs(sif, read_sif(sif)) as opened:
        yield opened


def test_programs_and_links_to_them(rootfs: Rootfs) -> None:
    assert tuple(sorted(rootfs.programs("/opt/a/bin"))) == ("other", "outside", "tool", "\udcff")
    assert sorted(rootfs.programs("/opt/b/bin"))[:2] == ["other", "outside"]
    assert not [*rootfs.programs("/none"), *rootfs.programs("/opt/a/bin/notes")]
    assert {"sh", "busybox", "cat"} <= set(rootfs.programs("/bin"))


def test_one_command(rootfs: Rootfs) -> None:
    assert find_command(rootfs, "sh", ("/opt/a/bin", "/bin", "/usr/bin")) == "/bin/sh"
    assert find_command(rootfs, "notes", ("/opt/a/bin",)) == ""
    assert find_command(rootfs, "/opt/b/bin/tool", ()) == "/opt/b/bin/tool"


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/a/bin:/b/:/a/bin::.:rel:/", ("/a/bin", "/b", "/")), ("", USUAL_PATH), ("$PATH", USUAL_PATH)],
)
def test_search_paths(path: str, expected: tuple[str, ...]) -> None:
    assert search_path(path) == expected
