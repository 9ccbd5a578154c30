"""Fixtures: the tiny module, installed where everybody can reach it, and the people who use it."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.generation import make_generation
from support.images import Images
from support.user import OrdinaryUser
from support.wrappers import Somebody, tiny_plan


@pytest.fixture(params=["root", "ordinary user"])
def somebody(request: pytest.FixtureRequest, ordinary_user: OrdinaryUser) -> Somebody:
    """Root and the ordinary user in turn."""
    return Somebody(None if request.param == "root" else ordinary_user, ordinary_user.home)


@pytest.fixture(scope="session")
def shared() -> Iterator[Path]:
    """A directory for a whole run that every user can reach, with spaces in its name."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sifmod test ") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="session")
def tiny(shared: Path, images: Images) -> Path:
    """The tiny image where every user can read it."""
    return Path(shutil.copyfile(images.tiny_sif, shared / "tiny image.sif"))


@pytest.fixture(scope="session")
def switch(shared: Path, tiny: Path) -> Path:
    """The tiny module, at the path that every reinstall keeps."""
    return make_generation(tiny_plan(shared / "pre fix"), tiny)
