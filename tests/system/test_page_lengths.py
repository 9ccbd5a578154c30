"""The pages have room for what a reader needs, and no more."""

from collections.abc import Iterable
from pathlib import Path

from support.command import ROOT

DOCS = ROOT / "docs"
FOR_MAINTAINERS = {DOCS / "design.md", DOCS / "releasing.md"}  # beside CONTRIBUTING.md and docs/internals/


def words(pages: Iterable[Path]) -> int:
    """As `wc -w` counts them."""
    return sum(len(page.read_text("utf-8").split()) for page in pages)


def test_the_pages_for_users() -> None:
    pages = {ROOT / "README.md", *DOCS.glob("*.md"), *DOCS.glob("howto/*.md")} - FOR_MAINTAINERS
    assert words(pages) <= 45_000


def test_the_pages_for_maintainers() -> None:
    assert words(DOCS.glob("internals/*.md")) <= 15_000
