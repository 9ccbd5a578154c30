"""scripts/release --check: what has to agree before a release."""

import shutil
from pathlib import Path

import pytest

from sifmod import __version__
from support.command import ROOT, Result, run

ENTRY = f"# Changelog\n\n## {__version__} (2026-11-30)\n\nThe first release.\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of what the script looks at, ready for a release."""
    to = tmp_path / "checkout"
    for path in ("scripts/release", "sifmod/__init__.py"):
        (to / path).parent.mkdir(parents=True)
        shutil.copy(ROOT / path, to / path)
    (to / "CHANGELOG.md").write_text(ENTRY)
    git(to, "init", "--quiet")
    commit(to)
    return to


def git(checkout: Path, *words: str) -> None:
    run(("git", "-c", "user.name=t", "-c", "user.email=t@t", *words), cwd=checkout).ok()


def commit(checkout: Path) -> None:
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "all")


def checked(checkout: Path) -> Result:
    return run((checkout / "scripts" / "release", "--check"), cwd="/")


def test_a_checkout_that_is_ready(checkout: Path) -> None:
    result = checked(checkout)
    assert (result.code, result.stdout, result.stderr) == (0, f"== checking version {__version__}\n", "")
    assert not (checkout / "dist").exists()


def test_every_problem_is_reported_at_once(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text(f"## Unreleased\n\n## {__version__}\n\n## 0.1.9 (2026-11-30)\n")
    git(checkout, "tag", f"v{__version__}")
    result = checked(checkout)
    assert result.code == 1
    assert result.stderr.splitlines() == [
        f"release: CHANGELOG.md: no entry '## {__version__} (YYYY-MM-DD)'",
        f"release: CHANGELOG.md: 'Unreleased' is still there; move its lines to {__version__}",
        f"release: the tag v{__version__} exists: choose the next version",
        "release: the checkout has changes that are not committed",
    ]


@pytest.mark.parametrize("version", ["0.2", "0.3.0.dev1", "1.0.0rc1", ""])
def test_a_version_that_is_no_release(checkout: Path, version: str) -> None:
    (checkout / "sifmod" / "__init__.py").write_text(f'__version__ = "{version}"\n')
    commit(checkout)
    result = checked(checkout)
    assert result.code == 1
    assert f"release: sifmod/__init__.py: '{version}' is no version of three numbers\n" in result.stderr
