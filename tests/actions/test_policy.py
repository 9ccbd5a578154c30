"""The site's policy about signatures, as it meets images that are there already, and sources that cannot fulfil it."""

from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.disk_state import disk_state
from support.images import Images

KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n"


@pytest.fixture
def settings(own_home: Path) -> Path:
    path = own_home / ".config" / "sifmod" / "config.yaml"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def easyconfig(images: Images, tmp_path: Path) -> Path:
    path = tmp_path / "Tiny-1.0.yaml"
    path.write_text(f"name: Tiny\nversion: '1.0'\nimage: {{sources: ['{images.tiny_sif}']}}\n")
    return path


def require(settings: Path, *keys: Path) -> None:
    settings.write_text(f"signatures: {{policy: require, keys: [{', '.join(map(str, keys))}]}}\n")


@pytest.mark.parametrize("option", ["--rebuild", "--module-only", "--force"])
def test_an_image_that_was_taken_before_the_policy_is_refused_too(
    settings: Path, easyconfig: Path, tmp_path: Path, option: str, capfd: pytest.CaptureFixture[str]
) -> None:
    prefix = tmp_path / "prefix"
    assert run(["install", "--prefix", str(prefix), str(easyconfig)]) == 0
    key = tmp_path / "key.asc"
    key.write_text(KEY)
    require(settings, key)
    before = disk_state(prefix)
    assert run(["install", "--prefix", str(prefix), option, str(easyconfig)]) == 10
    assert "is not signed" in capfd.readouterr().err
    left = {name for name in disk_state(prefix) if ".locks" not in name}
    assert left == {name for name in before if ".locks" not in name}


@pytest.mark.parametrize(("keys", "said"), [((), "has no trusted"), (("gone.asc",), "gone.asc is missing")])
def test_keys_that_are_missing_are_told_before_the_fetch(
    settings: Path, images: Images, tmp_path: Path, keys: tuple[str, ...], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    require(settings, *(tmp_path / key for key in keys))
    before = disk_state(tmp_path)
    assert run(["fetch", "--prefix", str(tmp_path / "prefix"), str(images.tiny_sif)]) == 10
    error = capfd.readouterr().err
    assert said in error
    assert "copying" not in error
    assert disk_state(tmp_path) == before


def test_messages_name_what_the_user_named(
    settings: Path, images: Images, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key.asc"
    key.write_text(KEY)
    require(settings, key)
    assert run(["fetch", "-o", str(tmp_path / "x.sif"), str(images.tiny_sif)]) == 10
    error = capfd.readouterr().err
    assert f"{images.tiny_sif} is not signed" in error
    assert "incoming" not in error
