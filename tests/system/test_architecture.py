"""The picture of the rooms (docs/architecture.svg) is what the imports give."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_picture_is_the_one_that_the_imports_give(tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts" / "draw-architecture", tmp_path / "drawn.svg"], check=True)
    drawn = (tmp_path / "drawn.svg").read_text()
    assert drawn == (ROOT / "docs" / "architecture.svg").read_text(), "draw it again: scripts/draw-architecture"
