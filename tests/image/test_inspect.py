"""Images described without starting them: SIFs of apptainer and of sifmod, and what references say."""

import hashlib
import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sifmod.errors import FetchError, ImageError
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.guess import make_guess
from sifmod.image.inspect.description import ImageDescription
from sifmod.image.inspect.rootfs import open_rootfs
from sifmod.image.inspect.sif import describe_sif
from sifmod.image.printable import block, line
from sifmod.image.settings import Settings
from sifmod.image.sources.source_kinds import parse
from support.command import run
from support.images import Images
from support.registry import Registry
from support.runtime import RUNTIME

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LABELS = {"org.opencontainers.image.title": "Täst", "hostile": "\x1b[31mred\x1b]0;title\x07\u202e\nsecond line"}


def definition(tmp_path: Path, text: str) -> Path:
    """A SIF that apptainer built from a definition."""
    recipe, sif = tmp_path / "recipe.def", tmp_path / "built.sif"
    recipe.write_text(text)
    run((RUNTIME.path, "--silent", "build", sif, recipe)).ok()
    return sif


def test_a_sif_that_apptainer_converted(images: Images) -> None:
    layout = images.tiny_layout("described", labels=LABELS, env=("GREETING=good day",))
    found = describe_sif(images.tiny("described", labels=LABELS, env=("GREETING=good day",)))
    assert (found.kind, found.arch, found.compression, found.runscript) == ("SIF", "amd64", RUNTIME.compression, "")
    assert found.source == f"oci:{layout}"
    assert f"from: {layout}" in found.definition
    assert dict(found.config.environment) == {"PATH": PATH, "GREETING": "good day"}
    assert (found.config.entrypoint, found.config.cmd) == ((), ("/bin/sh",))
    assert found.signers == ()
    documents = ["definition", "JSON inspect-metadata.json", "JSON oci-config.json"]
    assert [part.kind for part in found.parts] == [*documents, "primary system partition, squashfs"]
    labels = dict(found.config.labels)
    assert labels["org.opencontainers.image.title"] == "Täst"
    assert labels["hostile"] == r"\x1b[31mred\x1b]0;title\x07\u202e" + "\nsecond line"
    assert found.created.endswith("Z")
    assert found.notes == ()


def test_a_sif_from_a_definition(tmp_path: Path, images: Images) -> None:
    sif = definition(
        tmp_path,
        f"Bootstrap: oci\nFrom: {images.tiny_layout()}\n\n%labels\n  Author Ada\n"
        "%environment\n  export TOOL_HOME=/opt/tool\n  export PATH=/opt/tool/bin:$PATH\n"
        "%runscript\n  echo hello\n",
    )
    found = describe_sif(sif)
    environment = dict(found.config.environment)
    assert environment["TOOL_HOME"] == "/opt/tool"
    assert environment["PATH"] == f"/opt/tool/bin:{PATH}"
    assert dict(found.config.labels)["Author"] == "Ada"
    assert "export TOOL_HOME" in found.definition
    assert found.source == f"oci:{images.tiny_layout()}"


def test_a_sif_with_nothing_but_a_root_file_system(images: Images) -> None:
    """Labels, environment and runscript are then read from the files in it."""
    found = describe_sif(images.foreign())
    assert found.arch == "arm64"
    assert dict(found.config.environment) == {"PATH": PATH}
    assert "org.label-schema.build-date" in dict(found.config.labels)
    assert "OCI_CMD" in found.runscript
    assert found.definition.startswith("bootstrap: oci")


def test_a_file_system_that_cannot_be_read_is_a_note(tmp_path: Path, images: Images) -> None:
    sif = Path(shutil.copy(images.tiny_sif, tmp_path / "bad.sif"))
    at = describe_offset(sif)
    with sif.open("r+b") as file:
        file.seek(at + 64)
        file.write(struct.pack("<Q", 1 << 60))  # the inode table, far behind the end
    found = describe_sif(sif)
    assert found.arch == "amd64"
    assert found.config.cmd == ("/bin/sh",)
    assert len(found.notes) == 1
    assert found.notes[0].startswith("its files cannot be read: ")


def describe_offset(sif: Path) -> int:
    """Where the partition begins."""
    data = sif.read_bytes()
    return data.index(b"hsqs")


def test_what_is_no_sif_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.sif"
    path.write_text("<html>")
    with pytest.raises(ImageError, match="an HTML page"):
        describe_sif(path)


def described(source: str, arch: str = "amd64") -> ImageDescription:
    reference = parse(source)
    return reference.kind.describe(reference, arch, Settings())


def test_a_layout(images: Images) -> None:
    layout = images.tiny_layout("described", labels=LABELS, env=("GREETING=good day",))
    found = described(f"oci:{layout}")
    assert (found.kind, found.arch, len(found.parts)) == ("OCI image", "amd64", 1)
    assert found.size == found.parts[0].size > 1_000_000
    assert found.manifest.startswith("sha256:")
    assert found.created == "2025-01-01T00:00:00Z"
    assert dict(found.config.environment) == {"PATH": PATH, "GREETING": "good day"}
    assert "\x1b" not in repr(found)
    with pytest.raises(ImageError, match="arm64"):
        described(f"oci:{layout}", "arm64")


def test_an_archive(tmp_path: Path, images: Images) -> None:
    archive = tmp_path / "tiny.tar"
    copy = ("skopeo", "--insecure-policy", "copy", "--quiet")
    run((*copy, f"oci:{images.tiny_layout()}", f"docker-archive:{archive}:a/b:1")).ok()
    found = described(f"docker-archive:{archive}")
    assert found.config.cmd == ("/bin/sh",)
    assert found.manifest == ""


def test_a_registry_is_asked_for_no_layer(registry: Registry, images: Images) -> None:
    # its own content: the layer is gone afterwards
    layout = images.tiny_layout("layerless", labels=LABELS)
    reference = registry.push_layout(layout, "layerless:1")
    blobs = registry.directory / "storage" / "docker" / "registry" / "v2" / "blobs" / "sha256"
    digest = described(reference).parts[0].digest.removeprefix("sha256:")
    shutil.rmtree(blobs / digest[:2] / digest)
    found = described(reference)
    assert found.config.cmd == ("/bin/sh",)
    assert dict(found.config.labels)["org.opencontainers.image.title"] == "Täst"


def test_a_sif_in_a_registry(registry: Registry, images: Images) -> None:
    found = described(registry.push_sif(images.tiny_sif, "sif:1"))
    assert found.kind == "SIF in a registry"
    assert found.sha256 == hashlib.sha256(images.tiny_sif.read_bytes()).hexdigest()
    assert found.size == images.tiny_sif.stat().st_size
    layout = registry.push_layout(images.tiny_layout(), "no-sif:1")
    with pytest.raises(FetchError, match="but no SIF"):
        described(layout.replace("docker:", "oras:"))


def test_a_url_says_nothing_before_it_is_fetched() -> None:
    with pytest.raises(FetchError, match="before it is fetched") as caught:
        described("https://host.example/x.sif")
    assert "sifmod show" in caught.value.hint


def test_texts_are_printable_and_bounded() -> None:
    assert line("a\x00b\x1b\u2028\ud800ü") == r"a\x00b\x1b\u2028\ud800ü"
    assert line("x" * 5000) == f"{'x' * 4096}… (5000 characters)"
    assert block("a\n\tb\r\n") == "a\n\tb\\r\n"


@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=20), st.booleans())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_ends_in_an_error_of_ours(
    tmp_path: Path, images: Images, changes: list[tuple[int, int]], front: bool
) -> None:
    data = bytearray(images.tiny_sif.read_bytes())
    for at, change in changes:
        data[at % (45_000 if front else len(data))] ^= change
    sif = tmp_path / "changed.sif"
    sif.write_bytes(data)
    try:
        found = describe_sif(sif)
        with open_rootfs(sif, read_sif(sif)) as rootfs:
            make_guess(parse("/x/pytorch.sif"), found, rootfs)
    except ImageError:
        return
    assert all(letter.isprintable() or letter in "\n\t" for _, value in found.config.labels for letter in value)
