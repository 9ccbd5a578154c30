"""The documents as a site, in a real browser: its search, its themes, its width, and what axe-core finds."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sifmod import __version__
from support.chromium import Page, browser
from support.command import ROOT
from support.documents import BLOCK

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))

from pages import names_of, wrong


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a link or an anchor that leads nowhere ends it."""
    to = tmp_path_factory.mktemp("site") / "site"
    build = (sys.executable, "-m", "mkdocs", "build", "-f", ROOT / "mkdocs.yml", "-d", to)
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return to


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


def test_every_page_is_in_the_navigation() -> None:
    def named(nav: object) -> Iterator[str]:
        for below in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
            yield from named(below)
        if isinstance(nav, str):
            yield nav

    class Loader(yaml.SafeLoader):
        """With mkdocs's `!ENV`."""

    Loader.add_constructor("!ENV", lambda loader, node: None)  # noqa: ARG005
    nav = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), Loader)["nav"]
    docs = ROOT / "docs"
    assert sorted(named(nav)) == sorted(str(path.relative_to(docs)) for path in docs.rglob("*.md"))
    groups = [name for each in nav for name, below in each.items() if isinstance(below, list)]
    assert groups[:4] == ["Use", "Build images", "Run jobs", "Operate a site"]


FOUND = {
    "install": {"install.html"},
    "proxy": {"troubleshooting.html"},
    "air-gapped": {"install.html", "troubleshooting.html"},
    "migrate": {"from-conda.html", "from-easybuild.html", "from-shpc.html"},
    "troubleshooting": {"troubleshooting.html"},
    "faq": {"troubleshooting.html"},
    "quota": {"troubleshooting.html"},
}


def test_the_search_finds(site: Path, page: Page) -> None:
    """Among its first four pages."""
    page.look(width=1280)
    page.open(site / "index.html")
    page.run("document.querySelector('.md-search__input').focus()")
    links = "[...document.querySelectorAll('.md-search-result__link')].map(one => one.href)"
    for typed, expected in FOUND.items():
        page.run("document.querySelector('.md-search__input').select()")
        page.press(*typed)
        found, deadline = list[str](), time.monotonic() + 20
        while not expected <= {*found[:4]} and time.monotonic() < deadline:
            time.sleep(0.1)
            names = [link.split("?")[0].split("#")[0].rpartition("/")[2] for link in page.run(links)]
            found = list(dict.fromkeys(names))
        assert expected <= {*found[:4]}, (typed, found)


def test_the_theme_can_be_chosen_and_the_version_is_shown(site: Path, page: Page) -> None:
    page.look(width=1280)
    page.open(site / "index.html")
    assert f"sifmod {__version__}" in page.run("document.querySelector('.md-header').textContent")
    background = "getComputedStyle(document.body).backgroundColor"
    seen = set()
    for _ in range(3):
        page.run("document.querySelector('[data-md-component=palette] label:not([hidden])').click()")
        time.sleep(0.3)
        seen.add(page.run(background))
    assert len(seen) == 2, "light, and dark"


LOOKS = [(width, dark) for width in (400, 1280, 1920) for dark in (False, True)]


@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_axe_finds_nothing(site: Path, page: Page, width: int, dark: bool) -> None:
    """On other pages at each width; `python -m tests.fuzz.pages` looks at all of them at each."""
    page.look(width=width, dark=dark)
    for name in names_of(site)[LOOKS.index((width, dark)) :: 3 * len(LOOKS)]:
        page.open(site / name)
        assert wrong(page, width) == [], name
    assert {url.partition(":")[0] for url in page.asked} <= {"file", "blob", "data", "about"}


def test_code_fits() -> None:
    """At a width of 1 280 pixels a block has room for 126 columns."""
    wide = [
        (path.name, line)
        for path in (ROOT / "docs").rglob("*.md")
        for match in BLOCK.finditer(path.read_text("utf-8"))
        for line in match["text"].splitlines()
        if len(line) > 126
    ]
    assert wide == []


def test_tables_fit(site: Path, page: Page) -> None:
    """The pages with the widest ones."""
    page.look(width=1280)
    wide = """[...document.querySelectorAll('.md-typeset__scrollwrap, pre > code')]
        .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent.trim().slice(0, 60))"""
    for name in ("reliability.html", "benchmarks.html", "collection.html", "guide.html", "packages.html"):
        page.open(site / name)
        assert page.run(wide) == [], name
