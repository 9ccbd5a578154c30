"""Manifests, indexes and configs: good ones, odd ones, and what a stranger may send instead."""

import hashlib
import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sifmod.errors import ImageError
from sifmod.image.oci.content import LARGEST
from sifmod.image.oci.index import Entry, Index, choose, level, parse, runs_here
from sifmod.image.oci.manifest import Descriptor, Manifest, check_layers, check_platform, parse_config, parse_manifest

DIGEST = "sha256:" + "a" * 64
OCI = "application/vnd.oci.image.manifest.v1+json"
DOCKER = "application/vnd.docker.distribution.manifest.v2+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


def descriptor(**more: object) -> dict[str, object]:
    return {"mediaType": LAYER, "digest": DIGEST, "size": 7, **more}


def manifest(**more: object) -> dict[str, object]:
    return {"schemaVersion": 2, "mediaType": OCI, "config": descriptor(), "layers": [descriptor()], **more}


def raw(content: object) -> bytes:
    return json.dumps(content).encode()


def refused(content: object, digest: str = "") -> str:
    with pytest.raises(ImageError) as caught:
        parse(content if isinstance(content, bytes) else raw(content), "x", digest)
    assert caught.value.message.isprintable()
    return caught.value.message


@pytest.mark.parametrize("media_type", [OCI, DOCKER, None])
def test_a_manifest_of_either_kind_is_read(media_type: str | None) -> None:
    text = raw(manifest(mediaType=media_type, annotations={"b": "2", "a": "1"}))
    found = parse(text, "x")
    assert isinstance(found, Manifest)
    assert found == parse_manifest(text, "x")
    assert found.digest == f"sha256:{hashlib.sha256(text).hexdigest()}"
    assert (found.raw, found.config, found.layers) == (text, Descriptor(LAYER, DIGEST, 7), (found.config,))
    assert found.annotations == (("a", "1"), ("b", "2"))
    assert found.index_digest == ""


def test_another_digest_than_the_promised_one_is_refused() -> None:
    assert refused(manifest(), DIGEST).startswith(f"x has a wrong digest: expected {DIGEST}, got sha256:")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "x is not JSON: it is empty"),
        (b"<!doctype html><html>", "x is not JSON: it starts with '<!doctype html"),
        (b"\x1b[2J", "x is not JSON"),
        (b"[1]", "x is not a JSON object"),
        (b"[" * 100_000, "x is not JSON"),
        (b'{"a": ' * 100_000, "x is not JSON"),
        (b'{"schemaVersion": ' + b"9" * 5000 + b"}", "x is not JSON"),
        (b" " * (LARGEST + 1), "has more than 4194304 bytes"),
        ({}, "x is not an image's manifest: it has no config"),
        ({"schemaVersion": 1, "fsLayers": []}, "schema 1"),
        ({"mediaType": "text/\x1b[2Jplain", "config": {}}, "text/ [2Jplain"),
        (manifest(config=[1]), "x: config is not an object"),
        (manifest(config=descriptor(size=-1)), "x: config: size is not a number of bytes"),
        (manifest(config=descriptor(size=1 << 62)), "x: config: size is not a number of bytes"),
        (manifest(config=descriptor(size=1.5)), "x: config: size is not a whole number"),
        (manifest(config=descriptor(size=True)), "x: config: size is not a whole number"),
        (manifest(config=descriptor(digest="sha256:../../etc")), "x: config: digest is not a SHA-256 digest"),
        (manifest(config=descriptor(digest="md5:" + "a" * 32)), "x: config: digest is not a SHA-256 digest"),
        (manifest(config=descriptor(mediaType=3)), "x: config: mediaType is not a string"),
        (manifest(layers={}), "x: layers is not a list"),
        (manifest(layers=[7]), "x: layers[0] is not an object"),
        (manifest(layers=[descriptor()] * 10_001), "10001 layers, more than 10000"),
        (manifest(annotations={"a\x1b": 1}), "x: annotations: a is not a string"),
        ({"mediaType": "application/vnd.oci.image.index.v1+json"}, "x: manifests is not a list"),
        ({"manifests": 1}, "x: manifests is not a list"),
        ({"manifests": [7]}, "x: manifests[0] is not an object"),
    ],
)
def test_what_is_none_is_told(content: object, said: str) -> None:
    assert said in refused(content)


def platform(arch: str, variant: str = "", os: str = "linux", **more: object) -> dict[str, object]:
    named = {"architecture": arch, "os": os, **({"variant": variant} if variant else {})}
    digest = f"sha256:{hashlib.sha256(raw(named)).hexdigest()}"
    return descriptor(mediaType=OCI, platform=named, digest=digest, **more)


def chosen(arch: str, *entries: dict[str, object]) -> Entry:
    found = parse(raw({"schemaVersion": 2, "manifests": entries}), "x")
    assert isinstance(found, Index)
    return choose(found.entries, arch, "x")


def test_the_wanted_platform_is_chosen() -> None:
    windows = platform("amd64", os="windows")
    assert chosen("arm64", windows, platform("amd64"), platform("arm64", "v8")).platform == "linux/arm64/v8"
    assert chosen("amd64", windows, platform("arm64"), platform("amd64")).platform == "linux/amd64"


@pytest.mark.parametrize(
    ("arch", "variants", "expected"),
    [
        ("amd64", ("v3", ""), ""),
        ("amd64", ("v3", "v1"), "v1"),
        ("amd64", ("v2", "", "v1"), ""),
        ("amd64", ("v1", ""), "v1"),  # the same: the first
        ("arm64", ("v9", "v8.2", "v8"), "v8"),
        ("arm64", ("v9.1", "v9", "v8.2", "odd"), "v8.2"),
        ("arm64", ("odd", "v9"), "v9"),
    ],
)
def test_of_several_variants_the_lowest_is_chosen(arch: str, variants: tuple[str, ...], expected: str) -> None:
    assert chosen(arch, *(platform(arch, variant) for variant in variants)).variant == expected


@pytest.mark.parametrize("lowest", ["v2", "v99"])
def test_the_lowest_variant_has_to_run_here(lowest: str) -> None:
    """v2 does on most machines, v99 on none that can tell."""
    for entries in ((platform("amd64", "v100"), platform("amd64", lowest)), (platform("amd64", lowest),)):
        if runs_here("amd64", lowest):
            assert chosen("amd64", *entries).variant == lowest
            continue
        with pytest.raises(ImageError) as caught:
            chosen("amd64", *entries)
        assert f"for linux/amd64 as {lowest} and higher, which this machine does not run" in caught.value.message
        assert str(entries[-1]["digest"]) in caught.value.hint


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", 1),
        ("cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3", 2),
        ("avx avx2 bmi1 bmi2 f16c fma movbe abm xsave", 1),  # v3 without v2 is none
        ("cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c fma movbe abm xsave avx512f", 3),
    ],
)
def test_the_level_of_a_processor(flags: str, expected: int) -> None:
    assert level(flags) == expected


@pytest.mark.parametrize(
    "foreign",
    [
        platform("s390x") | {"digest": "sha512:" + "a" * 128},
        platform("s390x") | {"size": -1},
        platform("s390x") | {"annotations": {"vnd.docker.reference.type": 7, "x": [1]}},
        platform("s390x") | {"annotations": [], "mediaType": 3},
        {"platform": 7},
        {"platform": {"architecture": ["amd64"], "os": "linux"}},
        {},
    ],
)
def test_an_entry_for_another_platform_is_not_judged(foreign: dict[str, object]) -> None:
    assert chosen("amd64", foreign, platform("amd64")).descriptor.digest == platform("amd64")["digest"]


def test_an_entry_that_is_chosen_is_judged() -> None:
    found = chosen("amd64", platform("arm64"), platform("amd64") | {"digest": "sha512:" + "a" * 128})
    with pytest.raises(ImageError, match="x: manifests\\[1\\]: digest is not a SHA-256 digest"):
        _ = found.descriptor


@pytest.mark.parametrize(("arch", "kernels"), [("amd64", "x86_64"), ("arm64", "aarch64")])
def test_the_kernels_names_of_architectures_are_known(arch: str, kernels: str) -> None:
    assert chosen(arch, platform("s390x"), platform(kernels)).platform == f"linux/{arch}"
    check_platform(parse_config(raw({"architecture": kernels, "os": "linux"}), "x"), arch, "x")


def test_what_is_there_instead_is_told() -> None:
    unknown = platform("unknown", os="unknown")
    signed = platform("amd64", annotations={"vnd.docker.reference.type": "attestation-manifest"})
    with pytest.raises(ImageError) as caught:
        chosen("amd64", unknown, signed, platform("s390x"), platform("arm64", "v8"), platform("amd64", os="windows"))
    assert caught.value.message == (
        "x does not exist for linux/amd64; it has: linux/arm64/v8, linux/s390x, windows/amd64"
    )
    assert "`arch:`" in caught.value.hint
    with pytest.raises(ImageError, match="it has: no image at all"):
        chosen("amd64", signed)


def test_an_image_of_unknown_architecture_is_taken_where_nothing_else_is_there() -> None:
    attests = {"vnd.docker.reference.type": "attestation-manifest"}
    attestation = platform("unknown", os="unknown", annotations=attests)
    assert chosen("amd64", attestation, platform("unknown")).platform == "linux/unknown"
    assert parse_config(b'{"architecture": "unknown"}', "x").arch == ""


def test_of_many_platforms_some_are_told() -> None:
    with pytest.raises(ImageError) as caught:
        chosen("amd64", *(platform("arm64", f"v{number:04}") for number in range(3000)))
    assert caught.value.message.endswith("linux/arm64/v0019 and 2980 more")


def test_an_image_that_does_not_say_its_platform_is_taken_when_it_is_the_only_one() -> None:
    assert chosen("amd64", descriptor(mediaType=OCI), platform("arm64")).platform == "unknown"
    with pytest.raises(ImageError, match="it has: unknown"):
        chosen("amd64", descriptor(mediaType=OCI), descriptor(mediaType=OCI))


@pytest.mark.parametrize(
    "media_type",
    [
        "",
        LAYER,
        LAYER + "+gzip",
        LAYER + "+zstd",
        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
        "application/vnd.docker.image.rootfs.diff.tar",
        "application/vnd.docker.image.rootfs.diff.tar.gzip",
        "application/vnd.docker.image.rootfs.diff.tar.zstd",
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
    ],
)
def test_layers_of_every_usual_type_are_known(media_type: str) -> None:
    check_layers(parse_manifest(raw(manifest(layers=[descriptor(mediaType=media_type)])), "x"), "x")


@pytest.mark.parametrize(
    ("media_type", "said", "hint"),
    [
        ("application/vnd.sylabs.sif.layer.v1.sif", "x is a SIF", "oras://"),
        (LAYER + "+gzip+encrypted", "is an encrypted layer", ""),
        ("application/wasm", "is not a file system layer", ""),
    ],
)
def test_an_artifact_is_no_image(media_type: str, said: str, hint: str) -> None:
    with pytest.raises(ImageError) as caught:
        check_layers(parse_manifest(raw(manifest(layers=[descriptor(mediaType=media_type)])), "x"), "x")
    assert said in caught.value.message
    assert hint in caught.value.hint
    with pytest.raises(ImageError, match="x has no layers"):
        check_layers(parse_manifest(raw(manifest(layers=[])), "x"), "x")


def test_a_config_is_read_as_it_is() -> None:
    inner = {
        "Env": ["A=1=2", "EMPTY=", "BARE", "QUOTES=a'b\"c $d `e` \\ \t\n ü"],
        "Entrypoint": ["/a", ""],
        "Cmd": None,
        "Labels": {"b": "2", "a": "\ud800x"},
        "WorkingDir": "/w",
        "User": "1000:1000",
    }
    outer = {"architecture": "arm64", "os": "linux", "variant": "v8", "created": "2024-02-09T13:14:15.123456789+01:00"}
    text = raw({**outer, "config": inner, "rootfs": {"diff_ids": [DIGEST]}})
    found = parse_config(text, "x")
    assert found.env == ("A=1=2", "EMPTY=", "BARE", "QUOTES=a'b\"c $d `e` \\ \t\n ü")
    assert (found.entrypoint, found.cmd, found.working_dir, found.user) == (("/a", ""), (), "/w", "1000:1000")
    assert found.labels == (("a", "\ufffdx"), ("b", "2"))
    assert (found.arch, found.os, found.variant, found.created) == ("arm64", "linux", "v8", 1707480855)
    assert (found.raw, found.diff_ids) == (text, (DIGEST,))


@pytest.mark.parametrize(
    ("created", "seconds"),
    [
        ("2025-01-01T00:00:00Z", 1735689600),
        ("0001-01-01T00:00:00Z", None),
        ("0001-01-01T00:00:00+23:59", None),
        ("1969-12-31T23:59:58Z", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_the_time_of_creation(created: str, seconds: int | None) -> None:
    assert parse_config(raw({"created": created}), "x").created == seconds


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"config": {"Env": "A=1"}}, "x: config: Env is not a list"),
        ({"config": {"Env": [1]}}, "x: config: Env[0] is not a string"),
        ({"config": {"Cmd": ["a\0b"]}}, "is not a text without NUL characters"),
        ({"config": {"Labels": {"a": {}}}}, "x: config: Labels: a is not a string"),
        ({"rootfs": {"diff_ids": ["x"]}}, "diff_ids is not a list of SHA-256 digests"),
    ],
)
def test_a_config_that_is_none_is_refused(content: object, said: str) -> None:
    with pytest.raises(ImageError) as caught:
        parse_config(raw(content), "x")
    assert said in caught.value.message


def test_an_image_for_another_platform_is_refused() -> None:
    check_platform(parse_config(b'{"architecture": "amd64", "os": "linux"}', "x"), "amd64", "x")
    check_platform(parse_config(b"{}", "x"), "amd64", "x")
    with pytest.raises(ImageError, match="x: the image is for arm64, expected amd64"):
        check_platform(parse_config(b'{"architecture": "arm64"}', "x"), "amd64", "x")
    with pytest.raises(ImageError, match="x: the image is for windows, expected linux"):
        check_platform(parse_config(b'{"architecture": "amd64", "os": "windows"}', "x"), "amd64", "x")


_NAMES = "schemaVersion mediaType config layers manifests digest size annotations platform architecture os rootfs"
_KEYS = st.sampled_from((*_NAMES.split(), "diff_ids", "Env", "Labels", "created", "artifactType"))
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(DIGEST),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=6),
    max_leaves=20,
)


@settings(max_examples=400)
@given(st.binary(max_size=50) | st.dictionaries(_KEYS, _VALUES, max_size=8).map(raw))
def test_nothing_but_an_image_error_comes_of_anything(content: bytes) -> None:
    for read in (parse, parse_config):
        try:
            found = read(content, "x")
        except ImageError as error:
            assert error.message.isprintable()
        else:
            assert sys.getsizeof(found) > 0
