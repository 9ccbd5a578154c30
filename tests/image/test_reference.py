"""A source taken apart: every kind, and every text that is none."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sifmod.errors import FetchError
from sifmod.image.reference import Reference, is_loopback
from sifmod.image.sources.source_kinds import parse

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("source", "kind", "location", "tag", "digest"),
    [
        ("x.sif", "file", "x.sif", "", ""),
        ("a name with blanks.sif", "file", "a name with blanks.sif", "", ""),
        ("./x.sif", "file", "./x.sif", "", ""),
        ("/a dir/x:y.sif", "file", "/a dir/x:y.sif", "", ""),
        ("file:///a%20b/x.sif", "file", "/a b/x.sif", "", ""),
        ("file:/a/x.sif", "file", "/a/x.sif", "", ""),
        ("file:/a#b/x?.sif", "file", "/a#b/x?.sif", "", ""),
        ("file://localhost/a/x.sif", "file", "/a/x.sif", "", ""),
        ("https://host/x.sif?token=1", "https", "https://host/x.sif?token=1", "", ""),
        ("http://127.0.0.1:8080/x.sif", "https", "http://127.0.0.1:8080/x.sif", "", ""),
        ("oci:layout", "oci", "layout", "", ""),
        ("oci:/a/layout:1.0-cpu", "oci", "/a/layout", "1.0-cpu", ""),
        ("oci:/a:b/layout", "oci", "/a:b/layout", "", ""),
        (f"oci:/a/layout@{DIGEST}", "oci", "/a/layout", "", DIGEST),
        (f"oci:/a/layout:tag@{DIGEST}", "oci", "/a/layout", "tag", DIGEST),
        ("oci:/a@b/layout", "oci", "/a@b/layout", "", ""),
        ("oci-archive:/a/x.tar:tag", "oci-archive", "/a/x.tar", "tag", ""),
        ("docker-archive:x.tar", "docker-archive", "x.tar", "", ""),
        ("docker-archive:/a/x.tar:b/c:1.0", "docker-archive", "/a/x.tar", "b/c:1.0", ""),
        ("./http//foo", "file", "./http//foo", "", ""),
        ("images//foo.sif", "file", "images//foo.sif", "", ""),
        ("library://user/collection/Name:1.0", "library", "user/collection/Name", "1.0", ""),
        ("docker://GHCR.io/a/b", "docker", "GHCR.io/a/b", "", ""),
        ("docker://[::1]:5000/a", "docker", "[::1]:5000/a", "", ""),
        ("docker://ubuntu", "docker", "ubuntu", "", ""),
        ("docker://nvcr.io/nvidia/pytorch:24.01-py3", "docker", "nvcr.io/nvidia/pytorch", "24.01-py3", ""),
        (f"docker://localhost:5000/a/b:t@{DIGEST}", "docker", "localhost:5000/a/b", "t", DIGEST),
        (f"oras://ghcr.io/a/b@{DIGEST}", "oras", "ghcr.io/a/b", "", DIGEST),
        ("library://user/collection/name:1.0", "library", "user/collection/name", "1.0", ""),
    ],
)
def test_every_kind_is_taken_apart(source: str, kind: str, location: str, tag: str, digest: str) -> None:
    reference = parse(source)
    assert (reference.kind.name, reference.location, reference.tag, reference.digest) == (kind, location, tag, digest)
    assert reference.source == source


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "is empty"),
        (" x.sif", "a blank at an end"),
        ("x\n.sif", "a control character"),
        ("dockr://ubuntu", "unknown scheme dockr:"),
        ("shub://a/b", "unknown scheme shub:"),
        ("a:b", "unknown scheme a:"),
        ("a:b/c.sif", "unknown scheme a:"),
        ("docker:ubuntu", "expected docker://REGISTRY"),
        ("docker://", "expected docker://REGISTRY"),
        ("docker://a b", "expected docker://REGISTRY"),
        ("docker://ubuntu:", "expected docker://REGISTRY"),
        ("docker://host:99999/a", "'host:99999' is not a valid registry name"),
        ("docker://host:0/a", "'host:0' is not a valid registry name"),
        ("docker://host:abc/a:1", "'host:abc' is not a valid registry name"),
        ("oras://[::1:1/a", "'[::1:1' is not a valid registry name"),
        ("docker://ubuntu@sha256:12", "source docker://ubuntu@sha256:12: expected docker://REGISTRY"),
        ("docker://host:5000/a/b:t@sha256:12", "source docker://host:5000/a/b:t@sha256:12: expected"),
        ("docker://ubuntu@24.04", "source docker://ubuntu@24.04: expected docker://REGISTRY"),
        ("docker://Foo/bar", "'Foo/bar' is not a valid repository name"),
        ("docker://ubuntU:24.04", "'ubuntU' is not a valid repository name"),
        ("oras://ghcr.io/a/B", "'a/B' is not a valid repository name"),
        ("docker://a//b", "expected docker://REGISTRY"),
        ("docker://ghcr..io/a", "'ghcr..io' is not a valid registry name"),
        ("docker://host:port/a", "'host:port' is not a valid registry name"),
        ("http//foo", "a colon is missing after http"),
        ("docker//ghcr.io/a/b", "a colon is missing after docker"),
        ("HTTPS//host/x.sif", "a colon is missing after HTTPS"),
        ("docker://host/x:bad tag", "expected docker://REGISTRY"),
        ("docker://https://host/x", "expected docker://REGISTRY"),
        ("oras:///x", "expected oras://REGISTRY"),
        ("oci:", "expected oci:PATH"),
        ("https:///x.sif", "with a host"),
        ("https://host:port/x.sif", "https://host:port/x.sif"),
        ("https://me:secret@host:port/x.sif", "https://host:port/x.sif"),
        ("http://example.org/x.sif", "plain http is refused"),
        ("http://127.0.0.1.example.org/x.sif", "plain http is refused"),
        ("file://host/x.sif", "file:///absolute/path"),
        ("file:x.sif", "file:///absolute/path"),
    ],
)
def test_what_is_no_source_is_refused(source: str, message: str) -> None:
    with pytest.raises(FetchError) as caught:
        parse(source)
    assert message in caught.value.message


def test_a_misspelled_scheme_is_suggested() -> None:
    with pytest.raises(FetchError) as caught:
        parse("dokcer://ubuntu")
    assert caught.value.hint.startswith("did you mean docker:?")


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(FetchError) as caught:
        parse("https://me:se@cret@host:8443/x.sif")
    assert "cret" not in caught.value.message + caught.value.hint
    assert "https://host:8443/x.sif" in caught.value.message
    assert ".netrc" in caught.value.hint


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("docker://me:secret@host/x", "docker://host/x"),
        ("docker://me:secret@host", "docker://host"),
        ("docker://me:sec/ret@host/x", "docker://host/x"),
        ("docker://me:se@cret@host/x", "docker://host/x"),
        ("docker://host:5000/a/b@24.04", "docker://host:5000/a/b@24.04"),
        ("docker://me:secret@host:5000", "docker://host:5000"),
        ("docker://secret@ghcr.io/x", "docker://ghcr.io/x"),
        (f"docker://me:secret@host/x@{DIGEST}", f"docker://host/x@{DIGEST}"),
        ("oras://me:secret@host/x@sha256:12", "oras://host/x@sha256:12"),
        ("https://secret@host", "https://host"),
        ("https//me:secret@host/x.sif", "https//host/x.sif"),
        ("https://me:secret@sha256:12", "https://sha256:12"),
    ],
)
def test_credentials_are_told_from_a_digest(source: str, shown: str) -> None:
    with pytest.raises(FetchError) as caught:
        parse(source)
    assert caught.value.message.startswith(f"source {shown}: ")
    assert "ret" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize(
    ("source", "host"),
    [
        ("docker://ubuntu", "docker.io"),
        ("docker://user/repository", "docker.io"),
        ("docker://localhost/x", "localhost"),
        ("docker://ghcr.io/x/y", "ghcr.io"),
        ("oras://host:5000/x", "host:5000"),
    ],
)
def test_which_registry_a_repository_is_in(source: str, host: str) -> None:
    assert parse(source).host == host


@pytest.mark.parametrize("source", ["x.sif", "/x.sif", "oci:x", "docker-archive:x"])
def test_what_is_here_needs_no_network(source: str) -> None:
    assert parse(source).kind.is_local
    assert not parse("https://host:1/x").kind.is_local


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("localhost:80", True),
        ("127.3.2.1:80", True),
        ("[::1]:80", True),
        ("example.org", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_which_host_is_this_machine(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


SCHEMES = ("", "oci:", "docker://", "https://", "http://", "file://", "library://", "oras://", "oci-archive:")


@given(st.sampled_from(SCHEMES), st.text())
def test_any_text_is_a_reference_or_an_error_of_ours(scheme: str, rest: str) -> None:
    source = scheme + rest
    try:
        reference = parse(source)
    except FetchError:
        return
    assert isinstance(reference, Reference)
    assert reference.source == source
    assert reference.location


@pytest.mark.parametrize(
    ("source", "there"),
    [
        *(("ubuntu", True), ("ubuntu:22.04", True), ("ghcr.io/a/b:1", True), ("host:5000/a/b", True)),
        *(("/a/b:1", False), ("x.sif", False), ("a:b.sif", False)),
    ],
)
def test_the_name_of_an_image_without_its_scheme(
    source: str, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hint = ""
    try:
        reference = parse(source)
        reference.kind.local_sif(reference, ())
    except FetchError as error:
        hint = error.hint
    assert (f"for an image in a registry write docker://{source}" in hint) is there
