"""What a recipe asks for in a file of requirements: digests, constraints, and the index for an image's torch."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from sifmod.digest import sha256_file
from sifmod.errors import FetchError
from sifmod.image.artifact import Artifact
from sifmod.image.fetch import fetch_image
from sifmod.image.settings import DEFAULT
from sifmod.image.sources.recipe import recipe_files
from sifmod.module.plan import BuildPlan, ImagePlan
from support.config import write
from support.fetching import Prefix, plan
from support.package_index import serving
from support.recipes import LIBRARY, base, contents, held, recipe
from support.wheels import wheel


@pytest.fixture(scope="module")
def sif(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return base(tmp_path_factory.mktemp("base"))


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is all that uv can take packages from."""
    directory = tmp_path / "wheels"
    directory.mkdir()
    wheel(directory, "helper", "2.0")
    wheel(directory, "demo", requires=("helper>=2", "torch"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(directory))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    return directory


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path / "prefix")


def made(prefix: Prefix, image: ImagePlan) -> Artifact:
    with prefix.store() as store:
        return fetch_image(image, plan().runtime, store, settings=DEFAULT)


def test_digests_and_constraints_of_a_file(tmp_path: Path, sif: Path, wheels: Path, prefix: Prefix) -> None:
    """They hold, and are in the recipe; a file that another one names decides too."""
    wheel(wheels, "helper", "3.0")
    found = {path.name.split("-")[0]: sha256_file(path) for path in sorted(wheels.iterdir()) if "3.0" not in path.name}
    more = write(tmp_path / "more" / "limits.txt", "helper<3\n")
    path = write(tmp_path / "wanted.txt", "-c more/limits.txt\ndemo; python_version > '3'\n")
    image = recipe(sif, requirements=str(path))
    first = made(prefix, image)
    assert f"{LIBRARY}/helper-2.0.dist-info/METADATA" in contents(first.path)
    assert json.loads(contents(first.path)["/.singularity.d/build/1/recipe.json"])["constraints"] == ["helper<3"]
    assert made(prefix, image).sha256 == first.sha256
    assert str(more) in map(os.path.normpath, recipe_files(image.build or BuildPlan()))
    more.write_text("helper<4\n")
    assert f"{LIBRARY}/helper-3.0.dist-info/METADATA" in contents(made(prefix, image).path)

    lines = (
        f"{name}=={version} --hash=sha256:{found[name]}\n" for name, version in (("demo", "1.0"), ("helper", "2.0"))
    )
    path.write_text("".join(lines))
    there = prefix.state()
    assert f"{LIBRARY}/helper-2.0.dist-info/METADATA" in contents(made(prefix, image).path)
    assert prefix.state() != there
    there = prefix.state()
    for wrong, why in (
        (path.read_text().replace(found["helper"], "0" * 64), "no file of helper 2.0 with a required digest"),
        (path.read_text().splitlines()[0], "helper 3.0 is a dependency without a digest"),
    ):
        path.write_text(wrong)
        with pytest.raises(FetchError, match=why):
            made(prefix, image)
    with pytest.raises(FetchError, match="but the packages under `pip` have none: six"):
        made(prefix, recipe(sif, requirements=str(path), pip=("six",)))
    assert prefix.state() == there


def test_all_digests_of_a_locked_file_hold(tmp_path: Path, sif: Path, wheels: Path, prefix: Prefix) -> None:
    """uv takes a file that has any one of them."""
    file, lock = wheels / "helper-2.0-py3-none-any.whl", tmp_path / "pylock.toml"
    for at in ("path", "url"):
        where = file if at == "path" else file.as_uri()
        for kind, wrong in (("md5", False), ("sha512", False), ("sha512", True)):
            digests = {
                "sha256": sha256_file(file),
                kind: hashlib.new(kind, b"other", usedforsecurity=False).hexdigest(),
            }
            if not wrong:
                digests = {"sha256": "0" * 64, kind: hashlib.new(kind, file.read_bytes()).hexdigest()}
            said = ", ".join(f'{key} = "{value}"' for key, value in digests.items())
            named = f'{{ {at} = "{where}", hashes = {{ {said} }} }}'
            block = f'[[packages]]\nname = "helper"\nversion = "2.0"\nwheels = [{named}]\n'
            write(lock, f'lock-version = "1.0"\ncreated-by = "x"\n\n{block}')
            with pytest.raises(FetchError, match="Hash mismatch"):
                made(prefix, recipe(sif, requirements=str(lock)))
    right = hashlib.sha512(file.read_bytes()).hexdigest()
    lock.write_text(lock.read_text().replace(digests["sha512"], right))
    assert f"{LIBRARY}/helper-2.0.dist-info/METADATA" in contents(
        made(prefix, recipe(sif, requirements=str(lock))).path
    )


def test_what_is_linked_against_torch_comes_from_the_sites_index(
    tmp_path: Path, sif: Path, prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    held(tmp_path / "torch", "torch", "2.0+cu126")
    info = "torch-2.0+cu126.dist-info"  # found before that of the base, which is of 2.0
    there = made(prefix, recipe(sif, files=((f"{tmp_path}/torch/{info}", f"{LIBRARY}/{info}"),)))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    common, fitting = tmp_path / "common", tmp_path / "fitting"
    for place, version in ((common, "0.15"), (fitting, "0.15+cu126")):
        place.mkdir()
        wheel(place, "torchvision", version, requires=("torch==2.0",))
    with serving(common) as pypi, serving(fitting) as own:
        monkeypatch.setenv("UV_DEFAULT_INDEX", pypi.url)
        for indexes, version in (((("cu11", own.url),), "0.15"), ((("cu12", own.url),), "0.15+cu126")):
            image = recipe(there.path, pip=("torchvision",), indexes=indexes)
            names = contents(made(prefix, image).path, LIBRARY)
            assert f"{LIBRARY}/torchvision-{version}.dist-info/METADATA" in names
            assert bool(own.asked) == ("+" in version)
