"""The catalogue: what is new in a module, the three forms, texts of others, and where it is written."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from sifmod.actions.catalogue.catalogue import write_catalogue
from sifmod.actions.catalogue.entry import AboutSite, Change, by_name, compared
from sifmod.config.name import ModuleName
from sifmod.errors import OptionError
from support.catalogues import ALL, DIGEST, EVIL, HOSTILE, NOT_INSTALLED, OLDER, PLAIN, catalogue
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
    assert not {"img", "iframe", "object", "base"} & set(tags.found)
    assert not {name for name, _ in tags.attributes} & set(EVENTS)
    targets = [value for name, value in tags.attributes if name in ("href", "src")]
    assert all(target.startswith(("#", "https://pytorch.org")) or target == "feed.xml" for target in targets), targets
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
    evil = (made / "pages/Evil/index.html").read_text()
    tags = Tags(evil[evil.index('role="main"') : evil.index("<footer")])
    assert not {"img", "script", "iframe", "ol", "blockquote"} & set(tags.found)
    assert not {name for name, _ in tags.attributes} & set(EVENTS)
    assert not [value for _, value in tags.attributes if "script:" in value or "title" in value]
    assert "{{ 7*7 }}" in tags.text
    assert "root:" not in tags.text
    assert "{{" not in (tmp_path / "docs/software/pages/Evil/index.md").read_text()
    assert {path.parent.name for path in (made / "pages").glob("*/index.html")} == {"Evil", "PyTorch", "vLLM"}
    page = (made / "pages/PyTorch/index.html").read_text()
    plain = Tags(page).text
    assert "<details><summary>PyTorch/2.2.0-cuda-12.1</summary>" in page
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
    assert write_catalogue(catalogue("x", (PLAIN,)), place) == 5
    left = {str(path.relative_to(place / "pages")) for path in (place / "pages").rglob("*.md")}
    assert left == {"index.md", "PyTorch/mine.md", "PyTorch/index.md"}
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
    (tmp_path / "pages/Gone/index.md").write_text("")
    (tmp_path / "catalogue.json").write_text(json.dumps({"entries": [{"module": name} for name in names]}))
    write_catalogue(catalogue("x", ALL), tmp_path)
    assert notes.read_text() == "of years"
    assert not (tmp_path / "pages/Gone").exists()


@pytest.mark.parametrize("earlier", [True, False])
def test_a_page_of_ones_own_is_not_replaced(tmp_path: Path, *, earlier: bool) -> None:
    """Nor is it once its name is a module's: the catalogue removes and replaces its own pages alone."""
    if earlier:
        write_catalogue(catalogue("x", (PLAIN,)), tmp_path)
    own = tmp_path / ("pages/Evil/index.md" if earlier else "feed.xml")
    own.parent.mkdir(exist_ok=True)
    own.write_text("mine")
    before = disk_state(tmp_path)
    with pytest.raises(OptionError, match=f"{own} is no page of the catalogue, and was not replaced"):
        write_catalogue(catalogue("x", ALL), tmp_path)
    assert disk_state(tmp_path) == before
    own.unlink()
    assert write_catalogue(catalogue("x", ALL), tmp_path)


@pytest.mark.parametrize("name", ["index.html", "pages/index.md", "catalogue.json"])
def test_what_is_no_catalogues_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / name).write_text('{"entries": [1]}')
    before = disk_state(tmp_path)
    with pytest.raises(OptionError, match="was not written by `sifmod stack catalogue`"):
        write_catalogue(catalogue("x", (PLAIN, EVIL)), tmp_path)
    assert disk_state(tmp_path) == before


def test_old_ones_are_folded_under_their_name() -> None:
    """The newest for each accelerator and the default stay; what ends never does; a name is one page."""
    newer = replace(NOT_INSTALLED, module=ModuleName("PyTorch", "2.9.0-cuda"), version="2.9.0", accelerator="cuda")
    rocm = replace(
        PLAIN, module=ModuleName("PyTorch", "2.1.0-rocm"), version="2.1.0", accelerator="rocm", default=False
    )
    not_here = replace(newer, module=ModuleName("PyTorch", "2.0.0-rocm"), version="2.0.0", accelerator="rocm")
    night = replace(rocm, module=ModuleName("PyTorch", "20240918-rocm"), version="20240918")
    pytorch, vllm = by_name(compared((night, not_here, rocm, newer, OLDER, PLAIN, NOT_INSTALLED)))
    assert [one.module.version for one in pytorch.newest] == ["2.9.0-cuda", "2.4.0-cuda-12.4", "2.1.0-rocm"]
    assert [one.module.version for one in pytorch.older] == ["2.2.0-cuda-12.1", "2.0.0-rocm", "20240918-rocm"]
    assert (vllm.name, len(vllm.newest), vllm.older) == ("vLLM", 1, ())
    (all_ended,) = by_name((replace(OLDER, status="retired"),))
    assert (all_ended.name, all_ended.newest, len(all_ended.older)) == ("PyTorch", (), 1)
    assert "<h2>" in text_of("index.html")


def test_the_feed_has_what_changed_lately_last_change_first() -> None:
    retired = replace(OLDER, status="retired", since="2026-11-10", message="It was too old.")
    coming = replace(NOT_INSTALLED, status="deprecated", since="2999-01-01")
    (text,) = (
        one.text for one in catalogue("Modules of <x>", (PLAIN, retired, coming, EVIL)) if one.path == "feed.xml"
    )
    root = ElementTree.fromstring(text)
    atom = "{http://www.w3.org/2005/Atom}"
    titles = [one.findtext(f"{atom}title") for one in root.iter(f"{atom}entry")]
    assert titles == [
        "PyTorch/2.2.0-cuda-12.1: retired, last day 2027-03-31",
        *("Evil/1.0: installed", "PyTorch/2.4.0-cuda-12.4: installed", "PyTorch/2.2.0-cuda-12.1: installed"),
    ]
    assert (root.findtext(f"{atom}title"), root.findtext(f"{atom}updated")) == (
        "Modules of <x>",
        "2026-11-10T00:00:00Z",
    )
    links = [one.get("href") for one in root.iterfind(f"{atom}entry/{atom}link")]
    assert links[0] == "index.html#PyTorch/2.2.0-cuda-12.1"
    summaries = [one.findtext(f"{atom}summary") or "" for one in root.iter(f"{atom}entry")]
    assert summaries[0].endswith("It was too old.")
    assert summaries[2].endswith("deepspeed 0.14.2, torch 2.4.0")
    ids = [one.text for one in root.iter(f"{atom}id")]
    assert len(set(ids)) == len(ids) == 5
    many = tuple(replace(PLAIN, module=ModuleName("Many", f"{number}.0"), packages=()) for number in range(80))
    (text,) = (one.text for one in catalogue("x", many) if one.path == "feed.xml")
    assert text.count("<entry>") == 50


def test_what_the_site_says_of_itself() -> None:
    site = AboutSite(
        "Welcome & <b>hello</b>.\n\nSecond {{ 1 }}.",
        "help@hilltop.example",
        "https://hilltop.example/",
        "data:image/png;base64,AA==",
    )
    files = {one.path: one.text for one in catalogue("x", (PLAIN,), site)}
    page = files["index.html"]
    assert "Welcome &amp; &lt;b&gt;hello&lt;/b&gt;." in page
    assert '<a href="mailto:help@hilltop.example">help@hilltop.example</a>' in page
    assert (
        '<a href="https://hilltop.example/"><img src="data:image/png;base64,AA==" alt="https://hilltop.example/"></a>'
        in page
    )
    assert "[help@hilltop.example](mailto:help@hilltop.example)" in files["pages/index.md"]
    assert "{{" not in files["pages/index.md"]
    data = json.loads(files["catalogue.json"])
    assert (data["contact"], data["home"]) == (site.contact, site.home)
    evil = AboutSite(HOSTILE, HOSTILE, "javascript:alert(1)")
    check_harmless({one.path: one.text for one in catalogue("x", (PLAIN,), evil)}["index.html"], scripts=2)
