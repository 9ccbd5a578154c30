"""A stack that would be read without an end: an error that names the file, the bound and what was found."""

import os
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.config import write


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """A place for a stack, beside nothing."""
    (tmp_path / "a stack").mkdir()
    return tmp_path / "a stack" / "machine.yaml"


def said(stack: Path, capfd: pytest.CaptureFixture[str]) -> str:
    assert run(["stack", "plan", str(stack), "--prefix", str(stack.parents[1] / "tree")]) == 5
    error = capfd.readouterr().err
    assert "Traceback" not in error
    assert not (stack.parents[1] / "tree").exists()
    return error


def test_includes_that_multiply(stack: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Twelve files over eight levels, each of which includes all of the next level: 12**8 to read."""
    for level in range(8):
        names = [f"'{level + 1} {number}.yaml'" for number in range(12)] if level < 7 else []
        for number in range(12):
            (stack.parent / f"{level} {number}.yaml").write_text(f"include: [{', '.join(names)}]\n")
    stack.write_text("include: ['0 0.yaml']\n")
    error = said(stack, capfd)
    assert f"{stack.parent}/" in error
    assert "more files are included than 1000 (`limits: {included_files: N}`" in error


def test_includes_that_are_nested(stack: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for level in range(14):
        (stack.parent / f"{level}.yaml").write_text(f"include: [{level + 1}.yaml]\n")
    stack.write_text("include: [0.yaml]\n")
    error = said(stack, capfd)
    assert f"{stack.parent}/10.yaml" in error
    assert "11.yaml is included at depth 12, which is more than 11 (`limits: {include_depth: N}`" in error
    assert "itself" not in error


@pytest.mark.parametrize("pattern", ["**/*.yaml", "d/*/*/*/*.yaml", "**/x/**/*.yaml"])
def test_a_pattern_that_finds_no_end(stack: Path, pattern: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Links that lead back make as many ways as there are names."""
    place = stack.parent / "d"
    place.mkdir()
    for number in range(30):
        (place / f"x{number or ''}").symlink_to(".")
    stack.write_text(f"easyconfigs: ['{pattern}']\n")
    error = said(stack, capfd)
    assert f"{stack}:1" in error
    assert f"with {pattern}, more directories are visited than 5000 (`limits: {{pattern_directories: N}}`" in error


def test_many_patterns_together(stack: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A file of 110 kB took minutes: each pattern had 5000 directories of its own."""
    for number in range(100):
        (stack.parent / f"d/{number}").mkdir(parents=True)
    stack.write_text("easyconfigs:\n" + "".join(f"- d/*/{number}*.yaml\n" for number in range(60)))
    assert "with d/*/49*.yaml, more directories are visited than 5000" in said(stack, capfd)


def test_the_depth_can_be_raised_as_far_as_python_goes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With 5000, a chain of 3000 files was a traceback."""
    settings = Path(os.environ["SIFMOD_CONFIG_DIR"], "a.yaml")
    for number in range(600):
        write(tmp_path / f"{number}.yaml", f"include: [{number + 1}.yaml]\n")
    for depth, said in (
        (5000, "include_depth: expected a number from 1 to 500, got 5000"),
        (500, "depth 501, which is"),
    ):
        write(settings, f"limits: {{include_depth: {depth}}}\n")
        assert run(["stack", "plan", str(tmp_path / "0.yaml"), "--prefix", str(tmp_path / "tree")]) in (2, 5)
        assert said in capfd.readouterr().err
