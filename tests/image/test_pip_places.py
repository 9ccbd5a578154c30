"""Where the image's pip searches for what has no wheel."""

import os
from pathlib import Path

import pytest

from sifmod.errors import NoWheelError
from sifmod.image.packages.pip_places import pip_places
from sifmod.image.packages.request import PackageRequest
from sifmod.image.packages.uv import uv_here
from support.config import write

MORE = "http://127.0.0.1:9/more"


def test_an_index_of_the_recipe_is_searched_beside_that_of_uv_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (name for name in os.environ if name.startswith("UV_")):
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_CONFIG_FILE", str(write(tmp_path / "uv.toml", "")))
    wanted = PackageRequest(("demo",), (), (), (f"--extra-index-url={MORE}",))
    (tmp_path / "work").mkdir()
    default, more, trusted = pip_places(uv_here(tmp_path / "work"), wanted, "no wheel")
    assert default.startswith("--index-url https://")
    assert (more, trusted) == (f"--extra-index-url {MORE}", "--trusted-host 127.0.0.1:9")
    for settings in (
        'index-url = "http://127.0.0.1:9/own"',
        '[[index]]\nurl = "http://127.0.0.1:9/own"\ndefault = true',
    ):
        write(tmp_path / "uv.toml", settings)
        with pytest.raises(NoWheelError, match="no wheel, and the image's pip would take the newest from"):
            pip_places(uv_here(tmp_path / "work"), wanted, "no wheel")
