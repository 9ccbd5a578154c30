"""Places: where an image belongs under all of its spellings, and which hosts a setting is about."""

import pytest

from sifmod.image.registry.mirrors import Place, covers, hub_or, mirrors_of, own_place, places, source_of
from sifmod.image.sources.source_kinds import parse

MIRRORS = (("docker.io", ("m.site/hub",)), ("ghcr.io/a", ("n.site",)))


@pytest.mark.parametrize(
    ("source", "place", "given"),
    [
        ("docker://debian:12", "docker.io/library/debian", "docker://docker.io/library/debian"),
        ("docker://Docker.io/debian", "docker.io/library/debian", "docker://docker.io/library/debian"),
        ("docker://registry.hub.docker.com/a/b", "docker.io/a/b", "docker://docker.io/a/b"),
        ("docker://a/b", "docker.io/a/b", "docker://docker.io/a/b"),
        ("docker://GHCR.io/a", "ghcr.io/a", "docker://ghcr.io/a"),
        ("oras://localhost:5000/a/b:1", "localhost:5000/a/b", "oras://localhost:5000/a/b"),
    ],
)
def test_one_place_has_one_spelling(source: str, place: str, given: str) -> None:
    found = own_place(parse(source))
    assert (str(found), found.named, source_of(parse(source))) == (place, True, given)


@pytest.mark.parametrize(("source", "given"), [("oci:/a/b:1", "oci:"), ("x.sif", "file:"), ("https://x.y/z", "https:")])
def test_where_an_image_is_on_this_machine_says_nothing(source: str, given: str) -> None:
    assert source_of(parse(source)) == given
    assert mirrors_of(parse(source), MIRRORS) == ()


def test_only_docker_hub_has_another_server() -> None:
    assert Place("docker.io", "a/b").server == "registry-1.docker.io"
    assert Place("ghcr.io:443", "a/b").server == "ghcr.io:443"
    names = ("docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com")
    assert {hub_or(name) for name in names} == {"docker.io"}
    assert hub_or("hub.docker.com") == "hub.docker.com"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("docker://debian", (Place("m.site", "hub/library/debian"),)),
        ("oras://ghcr.io/a/b", (Place("n.site", "b"),)),
        ("docker://ghcr.io/ab", ()),
        ("docker://quay.io/a/b", ()),
    ],
)
def test_the_mirrors_of_an_image(source: str, expected: tuple[Place, ...]) -> None:
    assert mirrors_of(parse(source), MIRRORS) == expected


@pytest.mark.parametrize("prefix", ["ghcr.io/a/b", "ghcr.io/a/b/", "ghcr.io/a//", "ghcr.io"])
def test_a_mirror_that_is_the_place_itself_is_none(prefix: str) -> None:
    reference = parse("docker://ghcr.io/a/b")
    replacements = (prefix.rstrip("/"), f"m.site/{prefix.partition('/')[2]}", f"m.site/{prefix.partition('/')[2]}/")
    assert places(reference, ((prefix, replacements),)) == (Place("m.site", "a/b"), Place("ghcr.io", "a/b", True))


@pytest.mark.parametrize(
    ("hosts", "host", "covered"),
    [
        (("a.b",), "a.b", True),
        (("a.b",), "a.b:5000", True),
        (("a.b:5000",), "a.b:5000", True),
        (("a.b:5000",), "a.b", False),
        (("a.b:5000",), "a.b:5001", False),
        (("c.d", "a.b"), "a.b", True),
        (("b",), "a.b", False),
        (("::1",), "[::1]:5000", True),
        ((), "a.b", False),
        ((), "", False),
    ],
)
def test_a_host_is_named_for_all_of_its_ports_or_for_one(hosts: tuple[str, ...], host: str, covered: bool) -> None:
    assert covers(hosts, host) is covered
