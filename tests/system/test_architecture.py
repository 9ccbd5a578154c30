"""The picture of the rooms (docs/architecture.svg) is what the imports give, and the plots what the tables say."""

import runpy
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_picture_is_the_one_that_the_imports_give(tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts" / "draw-architecture", tmp_path / "drawn.svg"], check=True)
    drawn = (tmp_path / "drawn.svg").read_text()
    assert drawn == (ROOT / "docs" / "architecture.svg").read_text(), "draw it again: scripts/draw-architecture"


def test_the_plots_are_those_of_the_tables() -> None:
    plots = runpy.run_path(str(ROOT / "benchmarks" / "plots.py"))["plots"]
    drawn = plots((ROOT / "docs" / "benchmarks.md").read_text())
    assert len(drawn) >= 4
    there = {path.name: path.read_text() for path in (ROOT / "docs").glob("benchmarks-*.svg")}
    assert drawn == there, "draw them again: python benchmarks/plots.py"
