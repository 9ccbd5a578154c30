"""What sifmod converts equals what `apptainer pull` converts, file by file, but for the departures written out.

Both run for real, on the same reference of a real registry. What unsquashfs finds in the two SIFs is compared.
"""

from pathlib import Path

import pytest

from support import large_file
from support.conversion import NOW, apptainer_build, apptainer_pull, compared, content, push, sifmod_fetch
from support.departures import CREATED, DEPARTURES, EVERYWHERE, unexplained
from support.filesystem import Difference, Listing, mounted
from support.images import Images
from support.layer_stacks import BASE, MERGED, REFUSED_STACKS, whiteouts
from support.oci import Packed, write_layout
from support.packing import PACKINGS
from support.registry import Registry
from support.tar_forms import FORMS, REFUSED
from support.ustar import file, tar

STACKS = {**MERGED, **FORMS}


class Pair:
    """Both tools on one image."""

    def __init__(self, registry: Registry, directory: Path) -> None:
        self.registry = registry
        self.directory = directory

    def reference(self, name: str, *layers: bytes | Packed) -> str:
        layout = write_layout(self.directory / name, layers)
        return push(self.registry, layout, f"equality/{name}:1")

    def ours(self, reference: str, *options: str) -> Listing:
        sif = self.directory / "ours.sif"
        sifmod_fetch(reference, sif, ("--force", *options)).ok()
        return content(sif)

    def theirs(self, reference: str) -> Listing:
        sif = self.directory / "theirs.sif"
        sif.unlink(missing_ok=True)
        apptainer_pull(reference, sif).ok()
        return content(sif)


@pytest.fixture
def pair(registry: Registry, tmp_path: Path) -> Pair:
    return Pair(registry, tmp_path)


@pytest.mark.parametrize("name", STACKS)
def test_layers(pair: Pair, name: str) -> None:
    reference = pair.reference(name, *STACKS[name]())
    expected = EVERYWHERE | DEPARTURES.get(name, frozenset())
    assert compared(pair.ours(reference), pair.theirs(reference)) == expected


def test_every_departure_belongs_to_a_stack() -> None:
    assert DEPARTURES.keys() <= STACKS.keys()


@pytest.mark.parametrize("name", REFUSED)
def test_forms_that_apptainer_refuses(pair: Pair, name: str) -> None:
    """sifmod reads them as what apptainer reads when the same is said in another form."""
    form, plain = REFUSED[name]
    word = name.replace(" ", "-")
    refused = pair.reference(word, tar((*BASE, *form)))
    result = apptainer_pull(refused, pair.directory / "refused.sif")
    assert result.code != 0
    assert "unknown typeflag" in result.stderr
    assert (
        compared(pair.ours(refused), pair.theirs(pair.reference(f"{word}-plain", tar((*BASE, *plain))))) == EVERYWHERE
    )


@pytest.mark.parametrize("name", REFUSED_STACKS)
def test_stacks_that_apptainer_refuses(pair: Pair, name: str) -> None:
    stack, other = REFUSED_STACKS[name]
    refused = pair.reference(name, *stack)
    result = apptainer_pull(refused, pair.directory / "refused.sif")
    assert result.code != 0
    assert "while unpacking layer" in result.stderr
    assert compared(pair.ours(refused), pair.theirs(pair.reference(f"{name}-other", *other))) == EVERYWHERE


@pytest.fixture(scope="module")
def plain(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Listing:
    """What apptainer makes of layers that are not packed; of packed ones it makes the same."""
    pair = Pair(registry, tmp_path_factory.mktemp("plain"))
    return pair.theirs(pair.reference("plain", *whiteouts()))


@pytest.mark.parametrize("name", PACKINGS)
def test_packings(pair: Pair, plain: Listing, name: str) -> None:
    """Every compression, also where the media type says another."""
    packed = tuple(PACKINGS[name](layer) for layer in whiteouts())
    reference = pair.reference(name, *packed)
    theirs = pair.theirs(reference) if name == "estargz" else plain  # which has an index among its files
    assert compared(pair.ours(reference), theirs) == EVERYWHERE | DEPARTURES["whiteouts"]


def test_a_packing_that_apptainer_refuses(pair: Pair) -> None:
    """A frame that readers skip may come first (RFC 8878); apptainer takes such a layer for a tar."""
    packed = tuple(PACKINGS["zstd-skippable-first"](layer) for layer in whiteouts())
    assert apptainer_pull(pair.reference("skippable", *packed), pair.directory / "refused.sif").code != 0


def test_an_image_without_the_usual_directories(pair: Pair) -> None:
    """Both make the same ones."""
    made = ("dev", "etc", "etc/hosts", "etc/resolv.conf", "home", "proc", "root", "sys", "tmp", "var", "var/tmp")
    reference = pair.reference("bare", tar((file("only", "x"),)))
    found = compared(pair.ours(reference), pair.theirs(reference))
    assert found == {Difference(path, "mtime", CREATED, NOW) for path in (".", *made)}


def test_an_image_of_umoci(pair: Pair, images: Images) -> None:
    """In both compressions of ours."""
    reference = push(pair.registry, images.umoci_layout, "equality/umoci:1")
    theirs = pair.theirs(reference)
    for compression in ("zstd:3", "gzip"):
        assert compared(pair.ours(reference, "--compression", compression), theirs) == EVERYWHERE


def test_a_real_image(pair: Pair, images: Images) -> None:
    """Debian with Python, as a registry has it, with compressed layers.

    The gigabyte of the PyTorch image is compared where it is pulled for its time: benchmarks/image_conversion.py.
    """
    reference = pair.registry.push_layout(images.python_layout, "equality/python:1")
    sif = pair.directory / "theirs.sif"
    apptainer_build(reference, sif).ok()
    assert unexplained(compared(pair.ours(reference), content(sif))) == frozenset()


def test_a_file_beyond_8_gib(pair: Pair, images: Images) -> None:
    """Not compared with apptainer's, which takes minutes: what is in it is known."""
    sif = pair.directory / "large.sif"
    sifmod_fetch(push(pair.registry, images.large_file_layout, "equality/large:1"), sif).ok()
    with mounted(sif) as root, (root / large_file.PATH).open("rb") as stream:
        assert stream.seek(0, 2) == large_file.SIZE
        for place in (*range(0, large_file.SIZE, large_file.SIZE // 60 // 8 * 8), large_file.SIZE - 8):
            stream.seek(place)
            assert stream.read(8) == large_file.expected(place)
