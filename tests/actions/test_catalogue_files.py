"""The catalogue: what is new in a module, the three forms, texts of others, and where it is written."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from sifmod.actions.catalogue.catalogue import catalogue, write_catalogue
from sifmod.actions.catalogue.entry import Change, compared
from sifmod.config.name import ModuleName
from sifmod.errors import OptionError
from support.catalogues import ALL, DIGEST, EVIL, HOSTILE, NOT_INSTALLED, OLDER, PLAIN
from support.disk_state import disk_state

EVENTS = ("onerror", "onmouseover", "onclick", "style")


def text_of(name: str) -> str:
    return {file.path: file.text for file in catalogue("Modules of <hilltop>", ALL)}[name]


def test_the_newest_first_and_what_is_new_in_it() -> None:
    same = replace(PLAIN, module=ModuleName("PyTorch", "2.4.0-cuda-12.5"), packages=())
    other = replace(OLDER, module=ModuleName("PyTorch", "2.10.0-rocm"), version="2.10.0", accelerator="rocm")
    found = compared((NOT_INSTALLED, PLAIN, OLDER, same, other))
    assert [str(one.module) for one in found] == [
        *("PyTorch/2.10.0-rocm", "PyTorch/2.4.0-cuda-12.5", "PyTorch/2.4.0-cuda-12.4", "PyTorch/2.2.0-cuda-12.1"),
        "vLLM/0.11.2-rocm",
    ]
    first, second, third, fourth, _ = (one.changes for one in found)
    listed = (Change("apex", "0.1", ""), Change("deepspeed", "", "0.14.2"), Change("torch", "2.2.0", "2.4.0"))
    assert first is fourth is None  # nothing earlier for the accelerator
    assert third is not None and (third.since, third.differences, third.others) == (OLDER.module, listed, 1)  # numpy
    assert second is not None and (second.since, second.differences, second.others) == (OLDER.module, listed, 0)
    assert compared((OLDER, replace(PLAIN, about=NOT_INSTALLED.about)))[0].changes is None


def test_the_same_in_any_order() -> None:
    assert catalogue("x", ALL) == catalogue("x", ALL[::-1])


def test_what_images_hold_is_told_once() -> None:
    data = json.loads(text_of("catalogue.json"))
    assert [one["sha256"] for one in data["inventories"]] == sorted({DIGEST, "cd" * 32})
    assert text_of("index.html").count('"numpy 1.26.4"') == 1


class Tags(HTMLParser):
    """The elements of a page, what their attributes say, and what a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def check_harmless(page: str, scripts: int) -> Tags:
    tags = Tags(page)
    assert tags.found.count("script") == scripts
    assert not {"img", "iframe", "object", "link", "base"} & set(tags.found)
    assert not {name for name, _ in tags.attributes} & set(EVENTS)
    targets = [value for name, value in tags.attributes if name in ("href", "src")]
    assert all(target.startswith(("#", "https://pytorch.org")) for target in targets), targets
    assert "\x1b" not in page and "\u202e" not in page
    return tags


def test_a_page_says_what_others_wrote_and_does_nothing_of_it() -> None:
    tags = check_harmless(text_of("index.html"), scripts=2)
    shown = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e").replace("\ud800", "\\ud800")
    assert tags.text.count(shown) > 10
    assert "Modules of <hilltop>" in tags.text


def test_a_sites_own_mkdocs_takes_the_pages_in(tmp_path: Path) -> None:
    """Strictly, with extensions that would read files and take attributes; the page for browsers goes along."""
    files = catalogue("Modules", ALL)
    write_catalogue(files, tmp_path / "docs" / "software")
    config = tmp_path / "mkdocs.yml"
    nav = (
        "site_name: x\nstrict: true\nplugins: []\nuse_directory_urls: false\nnav: [Software: software/pages/index.md]\n"
    )
    extensions = "attr_list, tables, md_in_html, admonition, def_list, footnotes, pymdownx.superfences"
    config.write_text(f"{nav}markdown_extensions: [{extensions}, pymdownx.snippets, pymdownx.magiclink]\n")
    build(load_config(str(config), site_dir=str(tmp_path / "site")))
    made = tmp_path / "site" / "software"
    assert (made / "index.html").read_text() == files[0].text
    evil = (made / "pages/Evil/1.0.html").read_text()
    tags = Tags(evil[evil.index('role="main"') : evil.index("<footer")])
    assert not {"img", "script", "iframe", "ol", "blockquote"} & set(tags.found)
    assert not {name for name, _ in tags.attributes} & set(EVENTS)
    assert not [value for _, value in tags.attributes if "script:" in value or "title" in value]
    assert "{{ 7*7 }}" in tags.text
    assert "root:" not in tags.text
    assert "{{" not in (tmp_path / "docs/software/pages/Evil/1.0.md").read_text()
    assert {path.name for path in (made / "pages").glob("*/*-*.html")} == {
        *("2.2.0-cuda-12.1.html", "2.4.0-cuda-12.4.html", "0.11.2-rocm.html")
    }
    plain = Tags((made / "pages/PyTorch/2.4.0-cuda-12.4.html").read_text()).text
    for said in ("module use /appl/modules", "deepspeed", "srun ${#A[@]} <in", "BSD-3-Clause", "passed on 2026-11-02"):
        assert said in plain


def test_written_again_only_what_is_new_stays_is_removed(tmp_path: Path) -> None:
    place = tmp_path / "out"
    assert write_catalogue(catalogue("x", ALL), place) == 7
    before = disk_state(place)
    assert write_catalogue(catalogue("x", ALL), place) == 0
    assert disk_state(place) == before
    mine = place / "pages" / "PyTorch" / "mine.md"
    mine.write_text("mine")
    assert write_catalogue(catalogue("x", (PLAIN,)), place) == 4
    left = {str(path.relative_to(place / "pages")) for path in (place / "pages").rglob("*.md")}
    assert left == {"index.md", "PyTorch/mine.md", "PyTorch/2.4.0-cuda-12.4.md"}
    assert not (place / "pages" / "Evil").exists()


def test_a_run_that_was_killed_is_completed(tmp_path: Path) -> None:
    files = catalogue("x", ALL)
    for count in range(1, len(files)):
        place = tmp_path / str(count)
        assert write_catalogue(files[:count], place) == count
        assert write_catalogue(files, place) == len(files) - count


def test_a_catalogue_of_others_names_no_file_that_goes(tmp_path: Path) -> None:
    """What is removed with a module is a page of it alone."""
    notes = tmp_path / "my notes.md"
    notes.write_text("of years")
    write_catalogue(catalogue("x", ALL), tmp_path)
    names = ("../my notes", "Gone/1.0", "/my notes", "a/../../my notes")
    (tmp_path / "pages/Gone").mkdir()
    (tmp_path / "pages/Gone/1.0.md").write_text("")
    (tmp_path / "catalogue.json").write_text(json.dumps({"entries": [{"module": name} for name in names]}))
    write_catalogue(catalogue("x", ALL), tmp_path)
    assert notes.read_text() == "of years"
    assert not (tmp_path / "pages/Gone").exists()


@pytest.mark.parametrize("name", ["index.html", "pages/index.md", "catalogue.json"])
def test_what_is_no_catalogues_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / name).write_text('{"entries": [1]}')
    before = disk_state(tmp_path)
    with pytest.raises(OptionError, match="was not written by `sifmod stack catalogue`"):
        write_catalogue(catalogue("x", (PLAIN, EVIL)), tmp_path)
    assert disk_state(tmp_path) == before
