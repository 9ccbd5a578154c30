"""What uv prints about a login that it cannot parse."""

from pathlib import Path

import pytest

from sifmod.image.packages.uv import uv_here
from support.config import write

LOGIN = "http://me:Half, S3CRET@127.0.0.1:1/simple"


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("UV_FIND_LINKS", ""),
        ("UV_EXTRA_INDEX_URL", ""),
        ("UV_INDEX", ""),
        ("", f'extra-index-url = "{LOGIN}"'),
        ("", f'find-links = ["{LOGIN}", 7]'),
        ("", f'[[index]]\nurl = "{LOGIN}"\nexplicit = 7'),
    ],
)
def test_no_part_of_a_login_with_a_blank_is_printed(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, setting: str
) -> None:
    if name:
        monkeypatch.setenv(name, LOGIN)
    write(own_home / ".config/uv/uv.toml", f"{setting}\n")
    (tmp_path / "wanted.in").write_text("demo\n")
    ended = uv_here(tmp_path).run("pip", "compile", str(tmp_path / "wanted.in"), "--offline")
    said = "\n".join(ended.lines)
    assert (ended.code != 0, "S3CRET" in said, "me:Half" in said) == (True, False, False), said
