"""The pictures are what scripts draw: packages from the imports, the tree from its layout, plots from the tables."""

import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_picture_is_the_one_that_the_imports_give(tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts" / "draw-architecture", tmp_path / "drawn.svg"], check=True)
    drawn = (tmp_path / "drawn.svg").read_text()
    assert drawn == (ROOT / "docs" / "architecture.svg").read_text(), "draw it again: scripts/draw-architecture"


def test_the_tree_and_the_install_are_drawn_from_the_code(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "scripts" / "draw-design", tmp_path], check=True)
    for name in ("install.svg", "tree.svg"):
        drawn = (tmp_path / name).read_text()
        assert drawn == (ROOT / "docs" / name).read_text(), "draw it again: scripts/draw-design"
        assert "prefers-color-scheme: dark" in drawn


def test_the_plots_are_those_of_the_tables() -> None:
    plots = runpy.run_path(str(ROOT / "benchmarks" / "plots.py"))["plots"]
    drawn = plots((ROOT / "docs" / "benchmarks.md").read_text())
    assert len(drawn) >= 4
    there = {path.name: path.read_text() for path in (ROOT / "docs").glob("benchmarks-*.svg")}
    assert drawn == there, "draw them again: python benchmarks/plots.py"
