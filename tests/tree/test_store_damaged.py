"""A stored image that rots in its place, its size as before: a good copy that arrives takes its place."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.digest import sha256_file
from sifmod.image.convert.sif.header import read_sif
from sifmod.tree.layout import Layout
from support.disk_state import State, disk_state, file_state
from support.images import Images
from support.registry import Registry
from support.signing import Signer


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return tmp_path / "prefix"


@pytest.fixture
def signer(shared_tmp: Path) -> Iterator[Signer]:
    signer = Signer(shared_tmp / "s", "Anna")
    yield signer
    signer.end()


@pytest.fixture
def signed(images: Images, signer: Signer, tmp_path: Path) -> Path:
    path = tmp_path / "signed.sif"
    path.write_bytes(images.tiny_sif.read_bytes())
    return signer.sign(path)


@pytest.fixture
def settings(own_home: Path) -> Path:
    path = own_home / ".config" / "sifmod" / "config.yaml"
    path.parent.mkdir(parents=True)
    return path


def require(settings: Path, signer: Signer) -> None:
    settings.write_text(f"signatures: {{policy: require, keys: ['{signer.public()}']}}\n")


def rot(path: Path, offset: int | None = None) -> None:
    """A few bytes are others: in the files of the image, or from `offset` on."""
    primary = read_sif(path).primary
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(primary.offset + primary.size // 2 if offset is None else offset)
        file.write(b"rotten bytes")
    path.chmod(0o444)


def stored(prefix: Path) -> Path:
    (path,) = Layout(prefix).images.glob("*.sif")
    return path


def state(prefix: Path) -> State:
    return {name: found for name, found in disk_state(prefix).items() if ".locks" not in name}


def is_good(path: Path) -> bool:
    return sha256_file(path) == path.stem and path.stat().st_mode & 0o777 == 0o444


def easyconfig(tmp_path: Path, source: str | Path, sha256: str = "") -> Path:
    path = tmp_path / "Tiny-1.0.yaml"
    promise = f", sha256: {sha256}" if sha256 else ""
    path.write_text(f"name: Tiny\nversion: '1.0'\nimage: {{sources: ['{source}']{promise}}}\n")
    return path


def fetch(prefix: Path, *words: str | Path) -> int:
    return run(["fetch", "--prefix", str(prefix), *map(str, words)])


def install(prefix: Path, *words: str | Path) -> int:
    return run(["install", "--prefix", str(prefix), *map(str, words)])


@pytest.mark.parametrize("promised", [True, False], ids=["promised", "not promised"])
@pytest.mark.parametrize("kind", ["path", "oras", "docker", "layout"])
def test_fetch_force_replaces_it(
    images: Images, registry: Registry, prefix: Path, kind: str, promised: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    layout = images.tiny_layout("rots-in-store")
    source = {
        "path": lambda: str(images.tiny_sif),
        "oras": lambda: registry.push_sif(images.tiny_sif, "rots/sif:1.0"),
        "docker": lambda: registry.push_layout(layout, "rots/image:1.0"),
        "layout": lambda: f"oci:{layout}",
    }[kind]()
    assert fetch(prefix, source) == 0
    path, before = stored(prefix), state(prefix)
    words = (source, *(("--sha256", path.stem) if promised else ()))
    rot(path)
    damaged = file_state(path)
    assert fetch(prefix, *words, "-f") == 0
    assert capfd.readouterr().out.splitlines()[-1] == str(path)
    assert is_good(path)
    assert file_state(path) != damaged
    assert state(prefix).keys() == before.keys()
    good = file_state(path)
    assert fetch(prefix, *words, "-f") == 0
    assert file_state(path) == good, "a good one stays, for jobs run it"


@pytest.mark.parametrize("promised", [True, False], ids=["promised", "not promised"])
def test_install_force_replaces_it(images: Images, prefix: Path, tmp_path: Path, promised: bool) -> None:
    wanted = easyconfig(tmp_path, images.tiny_sif, sha256_file(images.tiny_sif) if promised else "")
    assert install(prefix, wanted) == 0
    rot(stored(prefix))
    assert run(["verify", "--prefix", str(prefix)]) == 1
    assert install(prefix, wanted, "--force") == 0
    assert is_good(stored(prefix))
    assert run(["verify", "--prefix", str(prefix)]) == 0


def test_an_ordinary_reinstall_does_not_read_the_image(images: Images, prefix: Path, tmp_path: Path) -> None:
    """What is not read is not found to be damaged: that is the price of being fast with images of 20 GB."""
    wanted = easyconfig(tmp_path, images.tiny_sif, sha256_file(images.tiny_sif))
    assert install(prefix, wanted) == 0
    rot(stored(prefix))
    damaged = file_state(stored(prefix))
    assert install(prefix, wanted, "--rebuild", "--skip-sanity-check") == 0
    assert file_state(stored(prefix)) == damaged


def test_a_promised_one_whose_header_is_damaged_is_brought_again(
    images: Images, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = (images.tiny_sif, "--sha256", sha256_file(images.tiny_sif))
    assert fetch(prefix, *words) == 0
    before = state(prefix)
    rot(stored(prefix), 32)
    assert fetch(prefix, *words) == 0
    assert f"the stored image {stored(prefix).stem[:12]}… is damaged" in capfd.readouterr().err
    assert is_good(stored(prefix))
    assert state(prefix).keys() == before.keys()


def test_where_no_good_copy_can_be_had_nothing_changes(
    images: Images, prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.sif"
    mine.write_bytes(images.tiny_sif.read_bytes())
    assert fetch(prefix, mine) == 0
    digest = sha256_file(mine)
    for offset, force in ((32, ()), (None, ("-f",))):
        mine.write_bytes(images.tiny("other").read_bytes())
        stored(prefix).chmod(0o644)
        stored(prefix).write_bytes(images.tiny_sif.read_bytes())
        rot(stored(prefix), offset)
        before = state(prefix)
        assert fetch(prefix, mine, "--sha256", digest, *force) == 10
        assert "has a wrong SHA-256" in capfd.readouterr().err
        assert state(prefix) == before


def test_the_policy_is_held_against_the_good_copy(
    signed: Path, signer: Signer, settings: Path, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before, the copy that arrived passed, and the damaged one was what was given."""
    require(settings, signer)
    assert fetch(prefix, signed) == 0
    rot(stored(prefix))
    assert fetch(prefix, signed) == 0
    assert "signed by Anna" in capfd.readouterr().err
    assert is_good(stored(prefix))


@pytest.mark.parametrize(("words", "kind"), [("--rebuild", "path"), ("--rebuild", "oras"), ("--force", "oras")])
@pytest.mark.parametrize("promised", [True, False], ids=["promised", "not promised"])
def test_an_install_that_the_policy_makes_read_it(
    signed: Path,
    signer: Signer,
    registry: Registry,
    settings: Path,
    prefix: Path,
    tmp_path: Path,
    words: str,
    kind: str,
    promised: bool,
) -> None:
    require(settings, signer)
    source = registry.push_sif(signed, "rots/signed:1.0") if kind == "oras" else signed
    wanted = easyconfig(tmp_path, source, sha256_file(signed) if promised else "")
    assert install(prefix, wanted) == 0
    rot(stored(prefix))
    assert install(prefix, wanted, words) == 0
    assert is_good(stored(prefix))


def test_module_only_brings_nothing(
    signed: Path, signer: Signer, settings: Path, prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require(settings, signer)
    wanted = easyconfig(tmp_path, signed)
    assert install(prefix, wanted) == 0
    rot(stored(prefix))
    before = state(prefix)
    assert install(prefix, wanted, "--module-only") == 10
    assert "differs" in capfd.readouterr().err
    assert state(prefix) == before


def test_one_that_another_key_signed_is_no_damage(
    signed: Path, settings: Path, prefix: Path, tmp_path: Path, shared_tmp: Path
) -> None:
    other = Signer(shared_tmp / "o", "Bob")
    try:
        wanted = easyconfig(tmp_path, signed, hashlib.sha256(signed.read_bytes()).hexdigest())
        assert install(prefix, wanted) == 0
        require(settings, other)
        before = state(prefix)
        assert install(prefix, wanted, "--rebuild") == 10
        assert state(prefix) == before
    finally:
        other.end()
