"""A hook of mkdocs: the version in the site's name, which pages rank first in the search, and no empty headings."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
FIRST = ("install.md", "tutorial.md", "troubleshooting.md", "from-shpc.md", "from-easybuild.md", "from-conda.md")
LAST = ("internals/", "design.md", "reliability.md", "benchmarks.md", "releasing.md")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show the version in the header and in the title of each page."""
    found = re.search(r'^__version__ = "(.*)"$', (ROOT / "sifmod" / "__init__.py").read_text("utf-8"), re.MULTILINE)
    config.site_name = f"{config.site_name} {found[1] if found else ''}".strip()
    return config


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Rank pages for users before those for maintainers in the search."""
    name = page.file.src_uri
    boost = 3 if name in FIRST else 0.3 if name.startswith(LAST) else 1
    page.meta.setdefault("search", {})["boost"] = boost
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]
    return markdown


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """An empty cell above a column heads nothing, and is none of the headings that a screen reader reads."""
    return re.sub(r"<th([^>]*)></th>", r"<td\1></td>", html)
